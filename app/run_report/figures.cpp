#include "app/run_report/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "runtime/core/quantile.hpp"

namespace paceline::app {
namespace {

/// Interval of an attempt on the time line, in seconds.
struct Span {
  double begin = 0;
  double length = 0;
};
using Spans = std::map<std::uint32_t, Span>;

Spans spans_of(const RecordedTelemetry& run) {
  Spans spans;
  for (const RecordedAttempt& attempt : run.attempts) {
    const double seconds = attempt.ended - attempt.started;
    spans[attempt.attempt].length = std::isfinite(seconds) ? std::max(0.0, seconds) : 0;
  }
  const auto reaches = [&](std::uint32_t attempt, double time) {
    double& length = spans[attempt].length;
    if (std::isfinite(time)) length = std::max(length, time);
  };
  for (const auto& step : run.steps) reaches(step.attempt, step.row.start + step.row.duration);
  for (const auto& event : run.events) reaches(event.attempt, event.row.time);
  for (const auto& role : run.roles) reaches(role.attempt, role.row.start + role.row.preparing);
  double begin = 0;
  for (auto& [attempt, span] : spans) {
    span.begin = begin;
    begin += span.length;
  }
  return spans;
}

bool generates(const StepRecord& step) {
  return step.role == static_cast<std::uint32_t>(Role::verifier);
}

/// Divides a step's time into phases, except `written`: seconds in which the rank wrote files.
/// `planned`: the record of the group's leader, which alone has the numbers of rows.
PhaseSeconds phases_of(const StepRecord& step, const StepRecord& planned, double written) {
  PhaseSeconds seconds;
  const double rows =
      std::max(1.0, static_cast<double>(planned.prefill_tokens) + planned.decode_tokens);
  const double drafted = std::min(planned.drafted, planned.decode_tokens);
  const double forward = std::max(0.0, step.forward_duration - step.sum_duration);
  seconds[Phase::prefill] = forward * planned.prefill_tokens / rows;
  seconds[Phase::verify] = forward * drafted / rows;
  seconds[Phase::decode] = forward - seconds[Phase::prefill] - seconds[Phase::verify];
  seconds[Phase::prefill] += step.picture_duration;
  seconds[Phase::draft] = step.draft_duration;
  seconds[Phase::sample] = std::max(0.0, step.sample_duration - step.exchange_duration);
  seconds[Phase::communication] = step.sum_duration + step.exchange_duration;
  seconds[Phase::other] =
      std::max(0.0, step.duration - step.picture_duration - step.forward_duration -
                        step.draft_duration - step.sample_duration - written);
  return seconds;
}

/// Finds, for a step of a member of a verifier group, the leader's record of the same step. The
/// leader's step begins before the member's and ends after it, and so contains the middle of the
/// member's step. If the ranks' clocks differ by more than half a step, a neighbouring step can be
/// found instead, which mostly has similar rows.
class GroupSteps {
 public:
  explicit GroupSteps(const RecordedTelemetry& run) {
    for (const auto& role : run.roles) roles_[{role.rank, role.attempt}].push_back(&role.row);
    for (const auto& step : run.steps)
      if (generates(step.row)) leaders_[{step.rank, step.attempt}].push_back(&step.row);
  }
  /// Returns the step itself if it is a leader's, or if its leader has no record of it.
  [[nodiscard]] const StepRecord& planned(const OfRank<StepRecord>& step) {
    if (generates(step.row)) return step.row;
    const auto by_start = [](double time, const auto* row) { return time < row->start; };
    const auto& roles = roles_[{step.rank, step.attempt}];
    const auto role = std::upper_bound(roles.begin(), roles.end(), step.row.start, by_start);
    if (role == roles.begin() || role[-1]->leader < 0) return step.row;
    const auto leader = static_cast<std::uint32_t>(role[-1]->leader);
    const auto& steps = leaders_[{leader, step.attempt}];
    const double middle = step.row.start + step.row.duration / 2;
    const auto next = std::upper_bound(steps.begin(), steps.end(), middle, by_start);
    if (next == steps.begin() || next[-1]->start + next[-1]->duration < middle) return step.row;
    return *next[-1];
  }

 private:
  using RankInAttempt = std::pair<std::uint32_t, std::uint32_t>;
  std::map<RankInAttempt, std::vector<const RoleRecord*>> roles_;
  std::map<RankInAttempt, std::vector<const StepRecord*>> leaders_;  ///< steps of leaders
};

/// The writes of a rank in an attempt. They are added in order of time.
class Writes {
 public:
  void add(const WriteRecord& write) { writes_.push_back(write); }
  /// Seconds of writing between the times `begin` and `end`.
  [[nodiscard]] double within(double begin, double end) const {
    double seconds = 0;
    auto write = std::partition_point(writes_.begin(), writes_.end(), [begin](const auto& w) {
      return w.start + w.duration <= begin;
    });
    for (; write != writes_.end() && write->start < end; ++write)
      seconds += std::max(
          0.0, std::min(end, write->start + write->duration) - std::max(begin, write->start));
    return seconds;
  }

 private:
  std::vector<WriteRecord> writes_;
};

/// Calls `use(bin, share)` for each bin that overlaps [begin, begin + length). `share` is the part
/// of the interval that lies in the bin, 0 to 1. An empty interval lies in one bin: its share is 1.
template <typename Use>
void spread(double begin, double length, double bin_seconds, int bins, const Use& use) {
  const auto bin_at = [&](double time) {
    return std::clamp(static_cast<int>(time / bin_seconds), 0, bins - 1);
  };
  const int first = bin_at(begin);
  const int last = bin_at(begin + length);
  if (first == last) {
    use(first, 1.0);
    return;
  }
  for (int bin = first; bin <= last; ++bin) {
    const double from = std::max(begin, bin * bin_seconds);
    const double to = std::min(begin + length, (bin + 1) * bin_seconds);
    if (to > from) use(bin, (to - from) / length);
  }
}

/// Response tokens that decoding committed in a step, without tokens sampled in a prefill.
double committed(const StepRecord& step) {
  return static_cast<double>(step.decode_tokens) - step.drafted + step.accepted;
}

class Builder {
 public:
  Builder(const RecordedTelemetry& run, int bins) : run_(run), spans_(spans_of(run)) {
    for (const auto& [attempt, span] : spans_) {
      figures_.seconds += span.length;
      figures_.attempt_ends.push_back(figures_.seconds);
    }
    figures_.timeline.resize(bins);
    bin_seconds_ = figures_.seconds > 0 ? figures_.seconds / bins : 1;
  }

  RunFigures build() {
    wall_time();
    ranks();
    nodes();
    writes();
    roles();
    steps();
    idle();
    requests();
    speculation();
    return std::move(figures_);
  }

 private:
  [[nodiscard]] double at(std::uint32_t attempt, double time) const {
    return spans_.at(attempt).begin + time;
  }

  RankFigures& rank(std::uint32_t number) {
    const auto [at, added] = index_.emplace(number, figures_.ranks.size());
    if (added) {
      RankFigures& figures = figures_.ranks.emplace_back();
      figures.rank = number;
      figures.timeline.resize(figures_.timeline.size());
    }
    return figures_.ranks[at->second];
  }

  void add(RankFigures& figures, Phase phase, double begin, double length) {
    if (!(length > 0)) return;
    figures.seconds[phase] += length;
    spread(begin, length, bin_seconds_, figures_.bins(),
           [&](int bin, double share) { figures.timeline[bin][phase] += share * length; });
  }

  void wall_time() {
    if (run_.attempts.empty()) return;
    figures_.started = run_.attempts.front().started;
    figures_.ended = run_.attempts.back().ended;
  }

  void ranks() {
    std::map<std::uint32_t, bool> numbers;
    for (const auto& summary : run_.summaries) numbers[summary.rank];
    for (const auto& step : run_.steps) numbers[step.rank];
    for (const auto& [number, unused] : numbers) rank(number);
    for (const auto& summary : run_.summaries) {
      RankFigures& figures = rank(summary.rank);
      figures.role = static_cast<Role>(summary.row.role);
      figures.tokens += summary.row.response_tokens;
      figures.peak_rss_bytes = std::max(figures.peak_rss_bytes, summary.row.peak_rss_bytes);
      figures.weight_bytes = summary.row.weight_bytes;
      figures.kv_bytes = summary.row.kv_bytes;
      figures_.tokens += summary.row.response_tokens;
      figures_.moves += summary.row.moved;
      figures_.pregenerated += summary.row.pregenerated;
      figures_.pregenerating_seconds += summary.row.pregenerating_seconds;
      figures_.stored_kv.stored += summary.row.pool_stored_bytes;
      figures_.stored_kv.from_memory += summary.row.pool_memory_bytes;
      figures_.stored_kv.from_disk += summary.row.pool_disk_bytes;
      figures_.stored_kv.lost += summary.row.pool_lost;
      present_[{summary.rank, summary.attempt}] = true;
    }
  }

  void roles() {
    for (const auto& role : run_.roles) {
      if (!std::isfinite(role.row.start + role.row.preparing)) continue;
      RankFigures& figures = rank(role.rank);
      present_[{role.rank, role.attempt}] = true;
      const double begin = at(role.attempt, role.row.start);
      // Epoch 0 is the attempt's start, and later epochs are changes of roles. A change adds only
      // to `loading`. The rest of its preparation is short, and counts as `idle`.
      double start = 0;
      if (role.row.epoch == 0) {
        const double written = writes_[{role.rank, role.attempt}].within(
            role.row.start, role.row.start + role.row.preparing);
        start = std::max(0.0, role.row.preparing - role.row.loading - written);
      }
      add(figures, Phase::starting, begin, start);
      add(figures, Phase::loading, begin + start, role.row.loading);
    }
  }

  void nodes() {
    for (const RecordedProcess& process : run_.processes) {
      if (index_.contains(process.rank)) rank(process.rank).host = process.host;
      if (process.attempt != run_.processes.back().attempt) continue;
      figures_.cores += process.cores;
      figures_.gpus += process.gpus;
    }
    std::map<std::string, NodeFigures> nodes;
    for (const RankFigures& figures : figures_.ranks) {
      NodeFigures& node = nodes[figures.host];
      node.host = figures.host;
      ++node.ranks;
      node.peak_rss_bytes += figures.peak_rss_bytes;
      node.weight_bytes += figures.weight_bytes;
      node.kv_bytes += figures.kv_bytes;
    }
    for (const auto& [host, node] : nodes) figures_.nodes.push_back(node);
    std::ranges::stable_sort(figures_.nodes, std::greater{}, &NodeFigures::peak_rss_bytes);
  }

  void writes() {
    for (const auto& [write, attempt, number] : run_.writes) {
      if (!(write.duration >= 0) || !std::isfinite(write.start + write.duration)) continue;
      present_[{number, attempt}] = true;
      add(rank(number), Phase::flush, at(attempt, write.start), write.duration);
      writes_[{number, attempt}].add(write);
    }
  }

  void steps() {
    std::vector<double> blocks(figures_.timeline.size());
    std::map<std::uint32_t, std::array<std::vector<double>, 2>> by_requests;
    GroupSteps groups(run_);
    for (const OfRank<StepRecord>& recorded : run_.steps) {
      const auto& [step, attempt, number] = recorded;
      const StepRecord& planned = groups.planned(recorded);
      if (!(step.duration >= 0) || !std::isfinite(step.start + step.duration)) continue;
      RankFigures& figures = rank(number);
      present_[{number, attempt}] = true;
      const double begin = at(attempt, step.start);
      const PhaseSeconds seconds = phases_of(
          step, planned, writes_[{number, attempt}].within(step.start, step.start + step.duration));
      double next = begin;
      for (const Phase phase : {Phase::draft, Phase::prefill, Phase::decode, Phase::verify,
                                Phase::communication, Phase::sample, Phase::other}) {
        add(figures, phase, next, seconds[phase]);
        next += seconds[phase];
      }
      if (!generates(step)) continue;
      figures_.drafted += step.drafted;
      figures_.accepted += step.accepted;
      spread(begin, step.duration, bin_seconds_, figures_.bins(), [&](int bin, double share) {
        RunFigures::Bin& b = figures_.timeline[bin];
        b.requests += share * step.duration / bin_seconds_ * step.requests;
        b.tokens += share * committed(step) / bin_seconds_;
        b.drafted += share * step.drafted / bin_seconds_;
        b.accepted += share * step.accepted / bin_seconds_;
        b.kv_used += share * step.duration * step.kv_blocks_used;
        blocks[bin] += share * step.duration * step.kv_blocks;
      });
      if (step.prefill_tokens == 0 && step.requests > 0)
        by_requests[std::bit_floor(step.requests)][step.drafted > 0 ? 1 : 0].push_back(
            step.duration);
    }
    for (std::size_t bin = 0; bin < blocks.size(); ++bin) {
      if (blocks[bin] > 0) figures_.timeline[bin].kv_used /= blocks[bin];
    }
    for (const auto& [requests, seconds] : by_requests) {
      figures_.steps.push_back({requests, seconds[0].size(), seconds[1].size(),
                                quantile(seconds[0], 0.5), quantile(seconds[1], 0.5)});
    }
  }

  /// Sets `idle` to the part of each rank's time that no other phase took.
  void idle() {
    for (const auto& [key, unused] : present_) {
      const Span& span = spans_.at(key.second);
      RankFigures& figures = rank(key.first);
      spread(span.begin, span.length, bin_seconds_, figures_.bins(), [&](int bin, double share) {
        figures.timeline[bin][Phase::idle] += share * span.length;
      });
      figures.seconds[Phase::idle] += span.length;
    }
    const auto leave_rest = [](PhaseSeconds& seconds) {
      const double busy = seconds.sum() - seconds[Phase::idle];
      seconds[Phase::idle] = std::max(0.0, seconds[Phase::idle] - busy);
    };
    for (RankFigures& figures : figures_.ranks) {
      leave_rest(figures.seconds);
      for (PhaseSeconds& bin : figures.timeline) leave_rest(bin);
    }
  }

  void requests() {
    struct Known {
      double leased = -1;
      int moves = 0;
      bool stopped = false;
      // The response's length at each turn's end. A set, because a resumed run repeats some turns.
      std::set<std::uint32_t> turns;
      std::optional<double> turn_ended;         // time of the end of the turn that awaits an answer
      std::optional<ResponseFigures> response;  // the last one; a resumed run can finish it again
    };
    std::map<RequestId, Known> known;
    for (const auto& [event, attempt, number] : run_.events) {
      if (!std::isfinite(event.time)) continue;
      Known& request = known[event.id];
      const double time = at(attempt, event.time);
      switch (event.kind) {
        case RequestEventKind::leased:
        case RequestEventKind::resumed:
          if (request.leased < 0) request.leased = time;
          request.stopped = false;
          request.turn_ended.reset();
          break;
        case RequestEventKind::turn_ended:
          request.turns.insert(event.tokens);
          request.turn_ended = time;
          break;
        case RequestEventKind::answered:
          if (request.turn_ended) figures_.turns.waits.push_back(time - *request.turn_ended);
          request.turn_ended.reset();
          break;
        case RequestEventKind::arrived:
          ++request.moves;
          break;
        case RequestEventKind::stopped:
          request.stopped = true;
          break;
        case RequestEventKind::finished:
          request.stopped = false;
          request.response = {event.id, event.tokens,  std::max(0.0, request.leased),
                              time,     request.moves, event.reason};
          break;
        default:
          break;
      }
    }
    for (const auto& [id, request] : known) {
      figures_.partial += request.stopped ? 1 : 0;
      if (!request.response) continue;
      figures_.responses.push_back(*request.response);
      if (!request.turns.empty()) count_turns(request.turns.size());
    }
    std::sort(figures_.turns.waits.begin(), figures_.turns.waits.end());
    std::ranges::stable_sort(figures_.responses, {}, &ResponseFigures::finished);
    groups();
  }

  void count_turns(std::size_t turns) {
    std::vector<std::uint64_t>& responses = figures_.turns.responses;
    responses.resize(std::max(responses.size(), turns + 1));
    ++responses[turns];
  }

  void groups() {
    std::map<std::uint32_t, GroupFigures> groups;
    for (const ResponseFigures& response : figures_.responses) {
      GroupFigures& group = groups[response.id.prompt];
      group.prompt = response.id.prompt;
      ++group.responses;
      group.longest = std::max(group.longest, response.tokens);
      group.mean += (response.tokens - group.mean) / group.responses;
      group.finished = std::max(group.finished, response.finished);
    }
    for (const auto& [prompt, group] : groups) figures_.groups.push_back(group);
    std::ranges::stable_sort(figures_.groups, std::greater{}, &GroupFigures::longest);
  }

  void speculation() {
    figures_.drafters = run_.drafters;
    figures_.acceptance.resize(run_.drafters.size());
    for (const auto& [cell, attempt, number] : run_.acceptance) {
      if (cell.position == 0) continue;
      std::vector<AcceptanceFigures>& positions = figures_.acceptance[cell.drafter];
      positions.resize(std::max<std::size_t>(positions.size(), cell.position));
      positions[cell.position - 1].drafted += cell.drafted;
      positions[cell.position - 1].accepted += cell.accepted;
    }
  }

  const RecordedTelemetry& run_;
  Spans spans_;
  RunFigures figures_;
  double bin_seconds_ = 1;
  std::map<std::uint32_t, std::size_t> index_;  ///< indices into figures_.ranks, by rank
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> present_;   ///< by (rank, attempt)
  std::map<std::pair<std::uint32_t, std::uint32_t>, Writes> writes_;  ///< by (rank, attempt)
};

}  // namespace

const char* name_of(Phase phase) {
  constexpr std::array<const char*, kPhases> kNames{
      "start-up", "loading",       "prefill", "decode", "verify", "draft",
      "sample",   "communication", "flush",   "other",  "idle"};
  return kNames[static_cast<std::size_t>(phase)];
}

double PhaseSeconds::sum() const { return std::accumulate(of.begin(), of.end(), 0.0); }

Phase PhaseSeconds::largest() const {
  return static_cast<Phase>(std::max_element(of.begin(), of.end()) - of.begin());
}

double TurnFigures::mean() const {
  double turns = 0;
  double count = 0;
  for (std::size_t i = 0; i < responses.size(); ++i) {
    turns += static_cast<double>(i) * static_cast<double>(responses[i]);
    count += static_cast<double>(responses[i]);
  }
  return count > 0 ? turns / count : 0;
}

std::string RunFigures::number_of(std::uint32_t prompt) const {
  if (!kept) return fmt::format("{}", prompt);
  const auto at = std::lower_bound(kept->begin(), kept->end(), prompt);
  if (at == kept->end() || *at != prompt) return fmt::format("({})", prompt);
  return fmt::format("{}", at - kept->begin());
}

double RunFigures::finished_by(double share) const {
  if (responses.empty()) return 0;
  const auto count = static_cast<std::size_t>(std::ceil(share * responses.size()));
  return responses[std::clamp<std::size_t>(count, 1, responses.size()) - 1].finished;
}

double RunFigures::length_quantile(double share) const {
  std::vector<double> lengths;
  for (const ResponseFigures& response : responses) lengths.push_back(response.tokens);
  return quantile(std::move(lengths), share);
}

PhaseSeconds RunFigures::all_ranks() const {
  PhaseSeconds all;
  for (const RankFigures& rank : ranks)
    for (int phase = 0; phase < kPhases; ++phase) all.of[phase] += rank.seconds.of[phase];
  return all;
}

RunFigures figures_of(const RecordedTelemetry& run, int bins) { return Builder(run, bins).build(); }

namespace {

/// Words for a phase, to follow "of the ranks' time went to" in largest_loss().
const char* work_of(Phase phase) {
  switch (phase) {
    case Phase::starting:
      return "starting: reading, planning, connecting, measuring costs";
    case Phase::loading:
      return "loading weights";
    case Phase::sample:
      return "sampling";
    case Phase::communication:
      return "collectives of their groups, including the wait for other ranks";
    case Phase::flush:
      return "writing to the output directory";
    default:
      return "bookkeeping in steps";
  }
}

}  // namespace

std::string largest_loss(const RunFigures& figures) {
  const PhaseSeconds seconds = figures.all_ranks();
  PhaseSeconds losses;
  for (const Phase phase : {Phase::starting, Phase::loading, Phase::idle, Phase::communication,
                            Phase::flush, Phase::other, Phase::sample})
    losses[phase] = seconds[phase];
  if (figures.drafted > 0) {  // only the part spent on refused draft tokens is a loss
    losses[Phase::verify] = seconds[Phase::verify] *
                            static_cast<double>(figures.drafted - figures.accepted) /
                            static_cast<double>(figures.drafted);
  }
  const Phase phase = losses.largest();
  if (!(losses[phase] > 0)) return "none";
  const double share = 100 * losses[phase] / seconds.sum();
  switch (phase) {
    case Phase::verify:
      return fmt::format("{:.0f} % of the ranks' time went to verifying drafts that were refused",
                         share);
    case Phase::idle:
      return fmt::format(
          "ranks were idle for {:.0f} % of their time; finishing the last tenth of the responses "
          "took {:.0f} % of the run",
          share, 100 * (figures.finished_by(1) - figures.finished_by(0.9)) / figures.seconds);
    default:
      return fmt::format("{:.0f} % of the ranks' time went to {}", share, work_of(phase));
  }
}

}  // namespace paceline::app
