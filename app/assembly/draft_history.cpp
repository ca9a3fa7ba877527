#include "app/assembly/draft_history.hpp"

#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>
#include <vector>

#include "app/terminal/terminal.hpp"
#include "io/config/draft_history_file.hpp"

namespace paceline::app {
namespace {

/// Every rollout multiplies the weight of earlier rollouts by this factor, so all rollouts together
/// weigh at most as much as ten new ones. Acceptance hardly changes over a hundred RL steps
/// (SpecActor, sections 4.1 and 6), so an average over about ten rollouts is accurate. If
/// acceptance does change, the average follows within about ten rollouts.
constexpr double kKeep = 0.9;

DraftHistory read_kept(const io::RunConfig& config) {
  if (!config.engine.profile) return {};
  const std::string path = io::draft_history_path(*config.engine.profile);
  return std::filesystem::exists(path) ? io::read_draft_history(path) : DraftHistory();
}

/// Returns the history for a run with speculation.history: the record of kSuffixWithHistory, if
/// there is one, takes the place of the record of "suffix".
DraftHistory with_earlier_steps(const DraftHistory& history) {
  if (!history.knows(kSuffixWithHistory)) return history;
  std::vector<DraftRecord> records;
  for (DraftRecord record : history.records()) {
    if (record.method == "suffix") continue;
    if (record.method == kSuffixWithHistory) record.method = "suffix";
    records.push_back(std::move(record));
  }
  return DraftHistory(records);
}

}  // namespace

DraftHistory earlier_drafts(const io::RunConfig& config) {
  const DraftHistory kept = read_kept(config);
  return config.speculation.history ? with_earlier_steps(kept) : kept;
}

DraftHistory sum_drafts(const fabric::MpiEnvironment& mpi, const Plan& plan,
                        std::span<const DraftTally> own) {
  if (own.empty()) return {};
  const std::vector<std::vector<std::byte>> all = mpi.all_gather(std::as_bytes(own));
  DraftHistory sum;
  if (mpi.rank() != 0) return sum;
  std::vector<DraftTally> tallies(own.size());
  for (const std::vector<std::byte>& of_rank : all) {
    std::memcpy(tallies.data(), of_rank.data(), of_rank.size());
    for (std::size_t d = 0; d < tallies.size(); ++d) {
      if (tallies[d].tried == 0) continue;
      sum.update(d < plan.drafters.size() ? plan.drafters[d].name : kSuffixWithHistory,
                 static_cast<double>(tallies[d].tried), static_cast<double>(tallies[d].accepted));
    }
  }
  return sum;
}

void keep_drafts(const Inputs& inputs, const Plan& plan, const DraftHistory& drafts,
                 bool first_attempt) {
  if (!plan.costs.profile_holds() || !inputs.config.speculation.keep_history ||
      drafts.records().empty())
    return;
  try {
    DraftHistory history = read_kept(inputs.config);
    if (first_attempt) history.decay(kKeep);
    history.merge(drafts);
    io::write_draft_history(io::draft_history_path(*inputs.config.engine.profile), history);
  } catch (const std::exception& error) {
    say("warning: the acceptance of drafts is not kept for later runs: {}", error.what());
  }
}

}  // namespace paceline::app
