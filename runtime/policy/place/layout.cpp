#include "runtime/policy/place/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::policy {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// Weights may take this share of a rank's memory; the rest is for KV and activations.
constexpr double kWeightShare = 0.7;

int choose_tp(const LayoutFacts& facts, int ranks, std::vector<std::string>& explanation) {
  int tp = 1;
  const double room = kWeightShare * static_cast<double>(facts.memory_per_rank);
  // Ranks that map one copy of a share: of `sharers` ranks one in tp has the same share.
  const auto sharers = [&] { return std::max(1, facts.sharers / tp); };
  const auto share = [&] {
    const auto whole = static_cast<double>(facts.whole_bytes);
    return whole + (static_cast<double>(facts.weight_bytes) - whole) / tp;
  };
  // Drafters count like a share: of the ranks that would map one copy of them, one in tp leads a
  // group.
  const auto part = [&] {
    return (share() + static_cast<double>(facts.drafter_bytes)) / sharers();
  };
  while (facts.memory_per_rank != 0 && part() > room && tp * 2 <= std::min(facts.segments, ranks)) {
    tp *= 2;
  }
  explanation.push_back(fmt::format(
      "tensor-parallel degree {}: the least whose share of the weights ({:.2f} GiB{}{}) fits "
      "{:.0f} % of a rank's {:.2f} GiB (override: layout.verifier_tp)",
      tp, share() / kGiB,
      facts.drafter_bytes == 0 ? ""
                               : fmt::format(", and {:.2f} GiB of drafters",
                                             static_cast<double>(facts.drafter_bytes) / kGiB),
      sharers() == 1 ? "" : fmt::format(", {} ranks to a copy", sharers()), kWeightShare * 100,
      static_cast<double>(facts.memory_per_rank) / kGiB));
  return tp;
}

/// The degree of each group. Throws UsageError.
std::vector<int> choose_degrees(const LayoutFacts& facts, const LayoutSettings& settings,
                                int verifiers, std::vector<std::string>& explanation) {
  const std::string but =
      verifiers < facts.ranks ? fmt::format(", {} of them drafters", facts.ranks - verifiers) : "";
  std::vector<int> degrees = settings.verifier_tp;
  if (degrees.empty()) {
    degrees = {choose_tp(facts, verifiers, explanation)};
  } else {
    explanation.push_back(
        fmt::format("tensor-parallel degree {} from layout.verifier_tp", fmt::join(degrees, ", ")));
  }
  for (const int tp : degrees) {
    if (tp < 1 || facts.segments % tp != 0) {
      throw UsageError(
          fmt::format("layout.verifier_tp: a tensor-parallel degree of {} does not divide this "
                      "model, which can be cut into the "
                      "powers of two up to {} (bounded by its kv heads and experts)",
                      tp, facts.segments));
    }
    if (tp > verifiers) {
      throw UsageError(fmt::format(
          "layout.verifier_tp: one verifier group of degree {} needs {}, but the job has "
          "{}{}",
          tp, counted(tp, "rank"), facts.ranks, but));
    }
  }
  const int tp = degrees.front();
  if (degrees.size() > 1) {
    if (settings.verifier_groups && *settings.verifier_groups != static_cast<int>(degrees.size())) {
      throw UsageError(
          fmt::format("layout.verifier_groups: {}, but layout.verifier_tp names the degrees of {}",
                      *settings.verifier_groups, counted(degrees.size(), "group")));
    }
    explanation.push_back(counted(degrees.size(), "verifier group") + " from layout.verifier_tp");
  } else if (settings.verifier_groups) {
    degrees.assign(*settings.verifier_groups, tp);
    explanation.push_back(counted(degrees.size(), "verifier group") +
                          " from layout.verifier_groups");
  } else {
    degrees.assign(verifiers / tp, tp);
    explanation.push_back(fmt::format("{}: {} / degree {} (override: layout.verifier_groups)",
                                      counted(degrees.size(), "verifier group"),
                                      counted(verifiers, "rank"), tp));
  }
  const int used = std::accumulate(degrees.begin(), degrees.end(), 0);
  if (degrees.empty() || used > verifiers) {
    throw UsageError(
        fmt::format("layout: {} of degree {} need {}, but the job has {}{}",
                    counted(degrees.size(), "verifier group"),
                    fmt::join(settings.verifier_tp.size() > 1 ? degrees : std::vector{tp}, ", "),
                    counted(used, "rank"), facts.ranks, but));
  }
  // With degrees in falling order every leader is a multiple of its group's degree.
  std::sort(degrees.begin(), degrees.end(), std::greater<>());
  return degrees;
}

}  // namespace

Layout plan_layout(const LayoutFacts& facts, const LayoutSettings& settings) {
  Layout layout;
  const int drafters = settings.drafters.value_or(0);
  const int verifiers = facts.ranks - drafters;  // ranks left for verifier groups
  if (verifiers < 1) {
    throw UsageError(fmt::format("layout.drafters: {} none of the job's {} to verify",
                                 counted(drafters, "drafter rank leaves", "drafter ranks leave"),
                                 counted(facts.ranks, "rank")));
  }
  Placement& placement = layout.placement;
  placement.ranks = facts.ranks;
  int used = 0;
  for (const int tp : choose_degrees(facts, settings, verifiers, layout.explanation)) {
    placement.groups.push_back({used, tp});
    used += tp;
  }
  for (int rank = verifiers; rank < facts.ranks; ++rank) placement.drafters.push_back({rank, 0});
  if (!settings.drafters_reason.empty()) {
    layout.explanation.push_back(fmt::format("{}: {} (override: layout.drafters)",
                                             counted(drafters, "drafter rank"),
                                             settings.drafters_reason));
  } else if (drafters > 0) {
    layout.explanation.push_back(counted(drafters, "drafter rank") + " from layout.drafters");
  }
  if (used < verifiers) {
    layout.explanation.push_back(fmt::format(
        "warning: {} of {} {} no role and {} idle", verifiers - used, counted(facts.ranks, "rank"),
        verifiers - used == 1 ? "has" : "have", verifiers - used == 1 ? "stays" : "stay"));
  }
  for (int group = 0; group < layout.groups(); ++group) {
    const auto [first, tp] = placement.groups[group];
    if (facts.node_of_rank[first] != facts.node_of_rank[first + tp - 1]) {
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
    if (facts.memory_per_rank != 0 && *setting > facts.memory_per_rank) {
      const double wanting = static_cast<double>(*setting - facts.memory_per_rank) / kGiB;
      throw UsageError(fmt::format(
          "engine.kv_memory: {:.2f} GiB are asked for, and a rank has {:.2f} beside the weights, "
          "{:.2f} too few; lower it, or {}",
          static_cast<double>(*setting) / kGiB, static_cast<double>(facts.memory_per_rank) / kGiB,
          wanting, facts.remedy));
    }
    plan.blocks =
        static_cast<std::int32_t>(std::min<std::uint64_t>(*setting / facts.block_bytes, INT32_MAX));
    plan.explanation = fmt::format("{} KV blocks ({:.2f} GiB) from engine.kv_memory", plan.blocks,
                                   static_cast<double>(plan.blocks * facts.block_bytes) / kGiB);
  } else {
    // Half of the host memory that weights leave is for the page cache and others; a device has no
    // other users.
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
  plan.holds_batch = static_cast<std::uint64_t>(plan.blocks) >= wanted;
  if (plan.blocks < facts.blocks_per_request) {
    const std::string advice =
        setting ? "raise engine.kv_memory or lower sampling.max_tokens"
        : facts.shared
            ? fmt::format(
                  "half of what a rank has beside the weights is too little: {}, or lower "
                  "sampling.max_tokens",
                  facts.remedy)
            : fmt::format(
                  "a device has too little beside the weights: {}, or lower "
                  "sampling.max_tokens or engine.max_batch",
                  facts.remedy);
    throw UsageError(
        fmt::format("engine.kv_memory: {} KV blocks of {} bytes cannot hold one request at its "
                    "longest, which needs {} blocks ({} bytes); {}",
                    plan.blocks, facts.block_bytes, facts.blocks_per_request,
                    facts.blocks_per_request * facts.block_bytes, advice));
  }
  return plan;
}

}  // namespace paceline::policy
