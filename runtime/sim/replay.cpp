#include "runtime/sim/replay.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/core/draft_history.hpp"
#include "runtime/sim/special_functions.hpp"

namespace paceline::sim {
namespace {

/// Tally of the first tokens of a drafter's drafts, by progress.
using Progress = std::map<std::uint32_t, DraftTally>;

Progress first_tokens(const RecordedRun& run, std::uint32_t drafter) {
  Progress progress;
  for (const AcceptanceCell& cell : run.acceptance) {
    if (cell.drafter != drafter || cell.position != 1 || cell.drafted == 0) continue;
    progress[cell.progress].tried += cell.drafted;
    progress[cell.progress].accepted += cell.accepted;
  }
  return progress;
}

MethodAcceptance assumed_method(const AcceptanceSettings& assumed, const std::string& name) {
  const auto same = std::find_if(assumed.methods.begin(), assumed.methods.end(),
                                 [&](const MethodAcceptance& m) { return m.name == name; });
  MethodAcceptance method = same == assumed.methods.end() ? MethodAcceptance{} : *same;
  method.name = name;
  method.by_references.clear();
  return method;
}

/// The middle of the range of tokens that a progress stands for: progress is rounded down to a
/// power of two.
double middle(std::uint32_t progress) { return progress == 0 ? 0 : 1.5 * progress - 0.5; }

/// The measured rate, with the prior counted as kPriorTokens tokens.
double rate_of(const DraftTally& tally, double prior) {
  return (static_cast<double>(tally.accepted) + DraftHistory::kPriorTokens * prior) /
         (static_cast<double>(tally.tried) + DraftHistory::kPriorTokens);
}

MethodAcceptance replayed_method(const RecordedRun& run, const AcceptanceSettings& assumed,
                                 std::uint32_t drafter) {
  MethodAcceptance method = assumed_method(assumed, run.drafters[drafter]);
  const Progress progress = first_tokens(run, drafter);
  DraftTally all;
  for (const auto& [at, tally] : progress) {
    all.tried += tally.tried;
    all.accepted += tally.accepted;
  }
  const double mean = rate_of(all, method.mean);
  if (method.spread > 0)
    method.spread *= std::sqrt(mean * (1 - mean) / (method.mean * (1 - method.mean)));
  method.mean = mean;
  method.by_progress.clear();
  for (const auto& [at, tally] : progress) {
    if (mean > 0) method.by_progress.push_back({middle(at), rate_of(tally, mean) / mean});
  }
  return method;
}

}  // namespace

Workload replayed_workload(const RecordedRun& run, const AcceptanceSettings& assumed,
                           std::uint64_t seed) {
  Workload workload;
  workload.prompts = run.prompts;
  workload.vocabulary = static_cast<std::int32_t>(run.vocabulary);
  workload.acceptance = assumed;
  workload.acceptance.methods.clear();
  for (std::uint32_t drafter = 0; drafter < run.drafters.size(); ++drafter)
    workload.acceptance.methods.push_back(replayed_method(run, assumed, drafter));
  check(assumed);
  const AcceptanceDistribution acceptance(workload.acceptance);
  // Ranks are from the sorted lengths; equal lengths share the mean of their ranks.
  std::vector<std::int32_t> sorted;
  for (const auto& siblings : run.lengths)
    sorted.insert(sorted.end(), siblings.begin(), siblings.end());
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t p = 0; p < run.prompts.size(); ++p) {
    std::vector<ModelledRequest>& siblings = workload.requests.emplace_back();
    for (const std::int32_t length : run.lengths[p]) {
      const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), length);
      const auto below =
          static_cast<double>((first - sorted.begin()) + (last - sorted.begin())) / 2;
      const double rank = normal_quantile(below / static_cast<double>(sorted.size()));
      const NoiseKey own =
          noise_key(seed, 0, run.prompts[p].uid, static_cast<std::uint32_t>(siblings.size()));
      siblings.push_back({std::max(length, 1), acceptance.draw(own, rank)});
    }
  }
  return workload;
}

}  // namespace paceline::sim
