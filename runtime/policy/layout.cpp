#include "runtime/policy/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/core/error.hpp"

namespace paceline::policy {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Weights may take this share of a rank's memory; the rest is for KV and activations.
constexpr double kWeightShare = 0.7;

int choose_tp(const LayoutFacts& facts, int ranks, std::vector<std::string>& explanation) {
  int tp = 1;
  const double room = kWeightShare * static_cast<double>(facts.memory_per_rank);
  while (facts.memory_per_rank != 0 && static_cast<double>(facts.weight_bytes) / tp > room &&
         tp * 2 <= std::min(facts.segments, ranks)) {
    tp *= 2;
  }
  explanation.push_back(
      fmt::format("tensor-parallel degree {}: the least whose share of the weights ({:.2f} GiB) "
                  "fits {:.0f} % of a rank's "
                  "{:.2f} GiB (override: layout.verifier_tp)",
                  tp, static_cast<double>(facts.weight_bytes) / tp / kGiB, kWeightShare * 100,
                  static_cast<double>(facts.memory_per_rank) / kGiB));
  return tp;
}

}  // namespace

Layout plan_layout(const LayoutFacts& facts, const LayoutSettings& settings) {
  Layout layout;
  layout.drafters = settings.drafters.value_or(0);
  const int verifiers = facts.ranks - layout.drafters;  // ranks left for verifier groups
  if (verifiers < 1) {
    throw UsageError(
        fmt::format("layout.drafters: {} drafter ranks leave none of the job's {} ranks to verify",
                    layout.drafters, facts.ranks));
  }
  if (settings.verifier_tp) {
    layout.tp = *settings.verifier_tp;
    layout.explanation.push_back(
        fmt::format("tensor-parallel degree {} from layout.verifier_tp", layout.tp));
  } else {
    layout.tp = choose_tp(facts, verifiers, layout.explanation);
  }
  if (layout.tp < 1 || facts.segments % layout.tp != 0) {
    throw UsageError(
        fmt::format("layout.verifier_tp: a tensor-parallel degree of {} does not divide this "
                    "model, which can be cut into the "
                    "powers of two up to {} (bounded by its kv heads)",
                    layout.tp, facts.segments));
  }
  if (layout.tp > verifiers) {
    throw UsageError(fmt::format(
        "layout.verifier_tp: one verifier group of degree {} needs {} ranks, but the job has {}{}",
        layout.tp, layout.tp, facts.ranks,
        layout.drafters > 0 ? fmt::format(", {} of them drafters", layout.drafters) : ""));
  }
  if (settings.verifier_groups) {
    layout.groups = *settings.verifier_groups;
    layout.explanation.push_back(
        fmt::format("{} verifier groups from layout.verifier_groups", layout.groups));
  } else {
    layout.groups = verifiers / layout.tp;
    layout.explanation.push_back(
        fmt::format("{} verifier groups: {} ranks / degree {} (override: layout.verifier_groups)",
                    layout.groups, verifiers, layout.tp));
  }
  const int used = layout.groups * layout.tp;
  if (layout.groups < 1 || used > verifiers) {
    throw UsageError(fmt::format(
        "layout: {} verifier groups of degree {} need {} ranks, but the job has {}{}",
        layout.groups, layout.tp, used, facts.ranks,
        layout.drafters > 0 ? fmt::format(", {} of them drafters", layout.drafters) : ""));
  }
  layout.role.assign(facts.ranks, Role::spare);
  layout.group.assign(facts.ranks, -1);
  for (int rank = 0; rank < used; ++rank) {
    layout.role[rank] = rank % layout.tp == 0 ? Role::verifier : Role::verifier_member;
    layout.group[rank] = rank / layout.tp;
  }
  for (int d = 0; d < layout.drafters; ++d) layout.role[layout.drafter(d)] = Role::drafter;
  layout.explanation.push_back(
      settings.drafters_reason.empty()
          ? fmt::format("{} drafter ranks from layout.drafters", layout.drafters)
          : fmt::format("{} drafter ranks: {} (override: layout.drafters)", layout.drafters,
                        settings.drafters_reason));
  if (used < verifiers) {
    layout.explanation.push_back(fmt::format("warning: {} of {} ranks have no role and stay idle",
                                             verifiers - used, facts.ranks));
  }
  for (int group = 0; group < layout.groups; ++group) {
    const int first = layout.leader(group);
    if (facts.node_of_rank[first] != facts.node_of_rank[first + layout.tp - 1]) {
      layout.explanation.push_back(fmt::format(
          "warning: verifier group {} spans nodes; its all-reduces cross the network", group));
    }
  }
  return layout;
}

KvPlan plan_kv(const KvFacts& facts, std::optional<std::uint64_t> setting) {
  const std::uint64_t wanted =
      static_cast<std::uint64_t>(facts.blocks_per_request) * facts.max_batch;
  KvPlan plan;
  if (setting) {
    plan.blocks =
        static_cast<std::int32_t>(std::min<std::uint64_t>(*setting / facts.block_bytes, INT32_MAX));
    plan.explanation = fmt::format("{} KV blocks ({:.2f} GiB) from engine.kv_memory", plan.blocks,
                                   static_cast<double>(plan.blocks * facts.block_bytes) / kGiB);
  } else {
    // Half of the host's memory beside the weights, of which others need some too; a device is
    // ours.
    const std::uint64_t ours = facts.memory_per_rank / (facts.shared ? 2 : 1);
    const std::uint64_t affordable = facts.memory_per_rank == 0 ? wanted : ours / facts.block_bytes;
    plan.blocks =
        static_cast<std::int32_t>(std::min<std::uint64_t>({wanted, affordable, INT32_MAX}));
    plan.explanation =
        fmt::format("{} KV blocks ({:.2f} GiB) a rank: {} (override: engine.kv_memory)",
                    plan.blocks, static_cast<double>(plan.blocks * facts.block_bytes) / kGiB,
                    plan.blocks == static_cast<std::int32_t>(wanted) ? "a full batch at its longest"
                    : facts.shared ? "half of the available memory"
                                   : "what the device has left");
  }
  if (plan.blocks < facts.blocks_per_request) {
    throw UsageError(
        fmt::format("engine.kv_memory: {} KV blocks of {} bytes cannot hold one request at its "
                    "longest, which needs {} blocks "
                    "({} bytes); raise engine.kv_memory or lower sampling.max_tokens",
                    plan.blocks, facts.block_bytes, facts.blocks_per_request,
                    facts.blocks_per_request * facts.block_bytes));
  }
  return plan;
}

}  // namespace paceline::policy
