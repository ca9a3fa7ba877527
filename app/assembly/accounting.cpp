#include "app/assembly/accounting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "app/terminal/terminal.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

bool is(const RankSummary& summary, Role role) {
  return summary.role == static_cast<std::uint32_t>(role);
}

/// Seconds without a role, mostly at the start, while the rank loaded weights and measured costs.
double starting_seconds(const RankSummary& summary, double seconds) {
  return std::max(0.0, seconds - summary.busy_seconds - summary.idle_seconds);
}

double share(std::uint64_t part, std::uint64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(1, whole));
}

struct Row {
  const char* name;
  int digits;  ///< number of digits after the decimal point; 0 for counts
  std::function<double(const RankSummary&)> value;
};

std::vector<Row> rows_of(double seconds) {
  const auto count = [](std::uint64_t RankSummary::*member) {
    return [member](const RankSummary& s) { return static_cast<double>(s.*member); };
  };
  const auto mib = [](std::uint64_t RankSummary::*member) {
    return [member](const RankSummary& s) { return static_cast<double>(s.*member) / kMiB; };
  };
  return {
      {"busy, % of time", 1, [=](const RankSummary& s) { return 100 * s.busy_seconds / seconds; }},
      {"only for branches, % of busy", 1,
       [](const RankSummary& s) {
         return 100 * s.outcome_seconds / std::max(s.busy_seconds, 1e-9);
       }},
      {"idle, % of time", 1, [=](const RankSummary& s) { return 100 * s.idle_seconds / seconds; }},
      {"starting, % of time", 1,
       [=](const RankSummary& s) { return 100 * starting_seconds(s, seconds) / seconds; }},
      {"collectives, % of time", 1,
       [=](const RankSummary& s) { return 100 * s.communication_seconds / seconds; }},
      {"writing, % of time", 1,
       [=](const RankSummary& s) { return 100 * s.flush_seconds / seconds; }},
      {"steps", 0, count(&RankSummary::steps)},
      {"prefill tokens", 0, count(&RankSummary::prefill_tokens)},
      {"pictures computed", 0, count(&RankSummary::pictures)},
      {"computing pictures, s", 1, [](const RankSummary& s) { return s.picture_seconds; }},
      {"response tokens", 0, count(&RankSummary::response_tokens)},
      {"response tokens/s", 1,
       [=](const RankSummary& s) { return static_cast<double>(s.response_tokens) / seconds; }},
      {"tokens for others' requests", 0, count(&RankSummary::raced)},
      {"tokens from racers", 0, count(&RankSummary::foretold)},
      {"tokens pregenerated", 0, count(&RankSummary::pregenerated)},
      {"pregenerating, % of time", 1,
       [=](const RankSummary& s) { return 100 * s.pregenerating_seconds / seconds; }},
      {"drafted tokens", 0, count(&RankSummary::drafted)},
      {"drafted tokens accepted, %", 1,
       [](const RankSummary& s) { return 100 * share(s.accepted, s.drafted); }},
      {"messages sent", 0, count(&RankSummary::messages_sent)},
      {"weights, MiB", 1, mib(&RankSummary::weight_bytes)},
      {"KV, MiB", 1, mib(&RankSummary::kv_bytes)},
      {"peak RSS, MiB", 1, mib(&RankSummary::peak_rss_bytes)},
  };
}

/// Prints one table for each role. Rows that are zero on all ranks of the role are left out.
void print_table(std::span<const RankSummary> summaries, double seconds) {
  for (const Role role : {Role::verifier, Role::verifier_member, Role::drafter, Role::spare}) {
    std::vector<const RankSummary*> ranks;
    for (const RankSummary& s : summaries) {
      if (is(s, role)) ranks.push_back(&s);
    }
    if (ranks.empty()) continue;
    say("{:<32}{:>12}{:>12}{:>12}", fmt::format("{} x {}, per rank", ranks.size(), name_of(role)),
        "min", "avg", "max");
    for (const Row& row : rows_of(seconds)) {
      double least = INFINITY;
      double most = -INFINITY;
      double sum = 0;
      for (const RankSummary* s : ranks) {
        const double value = row.value(*s);
        least = std::min(least, value);
        most = std::max(most, value);
        sum += value;
      }
      if (most == 0) continue;
      say("  {:<30}{:>12.{}f}{:>12.{}f}{:>12.{}f}", row.name, least, row.digits,
          sum / static_cast<double>(ranks.size()), row.digits, most, row.digits);
    }
  }
}

/// Time that ranks lost to one cause, with advice for the user.
struct Loss {
  double seconds = 0;  ///< sum over all ranks
  std::string to;      ///< the cause, e.g. "spare ranks" in "7 % went to spare ranks"
  std::string advice;
};

std::vector<Loss> losses_of(const Inputs& inputs, const Plan& plan,
                            std::span<const RankSummary> summaries, double seconds, bool resident) {
  const policy::Layout& layout = plan.layout;
  const io::SpeculationSection& speculation = inputs.config.speculation;
  Loss starting{0, "starting and loading weights",
                resident
                    ? "generate more responses in a step (prompts.samples) to reduce this share"
                    : "generate more responses in a run (prompts.samples) or use a resident job "
                      "(--watch) to reduce this share"};
  Loss waiting{0, "verifier groups waiting for work", ""};
  Loss spare{0, "spare ranks",
             "choose layout.verifier_tp and layout.verifier_groups so that every rank has a role, "
             "or start fewer ranks"};
  Loss ahead{0, "drafter ranks without requests to draft for",
             "use fewer drafter ranks (layout.drafters)"};
  Loss refused{0, "verifying drafts that were refused",
               "set speculation.policy: goodput, which drafts only where drafts save time"};
  for (const RankSummary& s : summaries) {
    starting.seconds += starting_seconds(s, seconds);
    if (is(s, Role::spare)) spare.seconds += s.idle_seconds;
    // A call that extends only branches counts as lost, because no request's chain could grow.
    if (is(s, Role::drafter)) ahead.seconds += s.idle_seconds + s.outcome_seconds;
    if (s.leader >= 0) waiting.seconds += s.idle_seconds;
    // Refused drafts count as a loss only if the policy drafts in every step, whatever the cost.
    // All `tp` ranks of the leader's last group verify drafts, but only the leader counts them.
    if (drafts_always(speculation.policy) && s.leader >= 0 && s.drafted > s.accepted)
      refused.seconds += s.tp * s.busy_seconds * share(s.drafted - s.accepted, s.decode_tokens);
  }
  if (layout.groups() > 1 && !inputs.config.schedule.rebalance) {
    waiting.advice =
        "set schedule.rebalance: true, which gives a group without requests some of another's";
  } else if (layout.groups() > 1) {
    waiting.advice =
        "the last, longest responses occupied few groups; more responses (prompts.samples), a "
        "lower sampling.max_tokens or fewer ranks reduce this share";
  } else {
    waiting.advice = "generate more responses in a run (prompts.samples) to keep the group busy";
  }
  if (!plan.drafters.empty() && reads_costs(speculation.policy) && !plan.costs.profile_holds())
    starting.advice += "; with engine.profile, a run need not measure costs at its start";
  return {starting, waiting, spare, ahead, refused};
}

void print_largest_loss(const Inputs& inputs, const Plan& plan,
                        std::span<const RankSummary> summaries, double seconds, bool resident) {
  constexpr double kWorthAWord = 0.05;
  const std::vector<Loss> losses = losses_of(inputs, plan, summaries, seconds, resident);
  const auto largest = std::ranges::max_element(losses, {}, &Loss::seconds);
  const double part = largest->seconds / (seconds * static_cast<double>(summaries.size()));
  if (part < kWorthAWord) {
    say("largest loss: none above {:.0f} % of the ranks' time", 100 * kWorthAWord);
  } else {
    say("largest loss: {:.0f} % of the ranks' time went to {}; {}", 100 * part, largest->to,
        largest->advice);
  }
}

}  // namespace

void print_accounting(const Inputs& inputs, const Plan& plan,
                      std::span<const RankSummary> summaries, const roles::Progress& progress,
                      double seconds, bool resident) {
  print_table(summaries, seconds);
  std::uint64_t tokens = 0;
  for (const RankSummary& s : summaries) tokens += s.response_tokens;
  const double rate = static_cast<double>(tokens) / seconds;
  say("total: {} finished{}, {} in {:.1f} s: {:.1f} tokens/s, {:.1f} a rank",
      counted(progress.finished - progress.finished_before, "response"),
      progress.finished_before > 0 ? fmt::format(" (and {} before)", progress.finished_before) : "",
      counted(tokens, "token"), seconds, rate, rate / static_cast<double>(summaries.size()));
  print_largest_loss(inputs, plan, summaries, seconds, resident);
}

}  // namespace paceline::app
