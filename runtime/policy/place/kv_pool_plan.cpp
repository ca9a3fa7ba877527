#include "runtime/policy/place/kv_pool_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/core/error.hpp"

namespace paceline::policy {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

}  // namespace

KvPoolPlan plan_kv_pool(const KvPoolFacts& facts, const KvPoolSettings& settings) {
  const std::uint64_t left = facts.host_memory - std::min(facts.taken, facts.host_memory);
  KvPoolPlan plan;
  std::string why;
  if (settings.memory) {
    plan.memory = *settings.memory;
    if (plan.memory > 0 && plan.memory < facts.block_bytes) {
      throw UsageError(fmt::format("kv_pool.memory: {} bytes hold no KV block of {}; raise it",
                                   plan.memory, facts.block_bytes));
    }
    why = "from kv_pool.memory";
    if (facts.host_memory > 0 && plan.memory > left)
      why += fmt::format("; warning: weights and KV leave {:.2f} GiB",
                         static_cast<double>(left) / kGiB);
  } else {
    // The other half is left to the page cache and other processes, as in plan_kv().
    const std::uint64_t affordable = facts.host_memory == 0 ? facts.most : left / 2;
    plan.memory = std::min(affordable, facts.most);
    if (plan.memory < facts.block_bytes) plan.memory = 0;
    why = fmt::format("{} (override: kv_pool.memory)", plan.memory == facts.most
                                                           ? "all that responses may want"
                                                           : "half of what weights and KV leave");
  }
  if (plan.memory == 0 && settings.disk)
    throw UsageError(
        "kv_pool.disk: what goes to disk passes through kv_pool.memory, which is none; raise that");
  plan.explanation =
      plan.memory == 0
          ? "no KV pool: what waits for its next chunk is computed again"
          : fmt::format("KV pool: up to {:.2f} GiB of host memory a rank{}{}",
                        static_cast<double>(plan.memory) / kGiB, settings.memory ? " " : ": ", why);
  return plan;
}

}  // namespace paceline::policy
