#include "app/run_report/reports.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>

#include "app/run_report/views.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr std::size_t kSlowest = 10;
constexpr std::size_t kGroups = 20;
constexpr std::size_t kNodes = 20;
constexpr std::size_t kPositions = 16;

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f}", 100 * part / whole) : "-";
}

std::string name_of(const RunFigures& figures, RequestId id) {
  return fmt::format("{}:{}", figures.number_of(id.prompt), id.sample);
}

/// The end of a table's title. It explains prompt numbers in brackets; empty: `kept` is nullopt.
std::string note_on_brackets(const RunFigures& figures) {
  return figures.kept ? "; (N): prompt N of the run, which was not kept" : "";
}

std::string host_of(const RankFigures& rank) { return rank.host.empty() ? "-" : rank.host; }

/// Least, mean and greatest seconds of a rank in each phase, and the rank with the most seconds.
Table phases(const RunFigures& figures) {
  Table table{"Where the time went, seconds a rank",
              {{"phase", "min", "mean", "max", "rank of max", "its host", "%"}}};
  const PhaseSeconds all = figures.all_ranks();
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (all[phase] <= 0) continue;
    const auto [least, most] = std::ranges::minmax_element(
        figures.ranks, {}, [phase](const RankFigures& rank) { return rank.seconds[phase]; });
    table.rows.push_back({app::name_of(phase), fmt::format("{:.3f}", least->seconds[phase]),
                          fmt::format("{:.3f}", all[phase] / figures.ranks.size()),
                          fmt::format("{:.3f}", most->seconds[phase]),
                          fmt::format("{}", most->rank), host_of(*most),
                          percent(all[phase], all.sum())});
  }
  return table;
}

Table progress(const RunFigures& figures) {
  Table table{"Responses finished", {{"share, %", "after, s", "of the run, %"}}};
  if (figures.responses.empty()) return table;
  for (const double share : {0.5, 0.9, 0.99, 1.0}) {
    const double when = figures.finished_by(share);
    table.rows.push_back({fmt::format("{:.0f}", 100 * share), fmt::format("{:.3f}", when),
                          percent(when, figures.seconds)});
  }
  return table;
}

Table lengths(const RunFigures& figures) {
  Table table{"Response lengths, tokens", {{"p50", "p95", "p99", "longest", "mean"}}};
  if (figures.responses.empty()) return table;
  double sum = 0;
  for (const ResponseFigures& response : figures.responses) sum += response.tokens;
  table.rows.push_back(
      {fmt::format("{:.0f}", figures.length_quantile(0.5)),
       fmt::format("{:.0f}", figures.length_quantile(0.95)),
       fmt::format("{:.0f}", figures.length_quantile(0.99)),
       fmt::format("{:.0f}", figures.length_quantile(1 - 1e-9)),
       fmt::format("{:.1f}", sum / static_cast<double>(figures.responses.size()))});
  return table;
}

Table groups(const RunFigures& figures) {
  Table table{"Prompts, longest response first" + note_on_brackets(figures),
              {{"prompt", "responses", "longest", "mean", "last finished, s"}}};
  for (std::size_t i = 0; i < std::min(kGroups, figures.groups.size()); ++i) {
    const GroupFigures& group = figures.groups[i];
    table.rows.push_back({figures.number_of(group.prompt), fmt::format("{}", group.responses),
                          fmt::format("{}", group.longest), fmt::format("{:.1f}", group.mean),
                          fmt::format("{:.3f}", group.finished)});
  }
  return table;
}

Table slowest(const RunFigures& figures) {
  Table table{
      "Slowest responses" + note_on_brackets(figures),
      {{"prompt:sample", "tokens", "first leased, s", "finished, s", "ms a token", "moves"}}};
  std::vector<const ResponseFigures*> order;
  for (const ResponseFigures& response : figures.responses) order.push_back(&response);
  const auto seconds = [](const ResponseFigures* r) { return r->finished - r->leased; };
  std::ranges::stable_sort(order,
                           [&](const auto* a, const auto* b) { return seconds(a) > seconds(b); });
  order.resize(std::min(kSlowest, order.size()));
  for (const ResponseFigures* r : order) {
    table.rows.push_back({name_of(figures, r->id), fmt::format("{}", r->tokens),
                          fmt::format("{:.3f}", r->leased), fmt::format("{:.3f}", r->finished),
                          fmt::format("{:.3f}", 1e3 * seconds(r) / std::max(1U, r->tokens)),
                          fmt::format("{}", r->moves)});
  }
  return table;
}

Table acceptance(const RunFigures& figures) {
  Table table{"Drafts accepted by position, %", {{"position"}}};
  std::size_t positions = 0;
  for (std::size_t d = 0; d < figures.drafters.size(); ++d) {
    if (figures.acceptance[d].empty()) continue;
    table.rows[0].push_back(figures.drafters[d]);
    table.rows[0].push_back("drafted");
    positions = std::max(positions, figures.acceptance[d].size());
  }
  for (std::size_t i = 0; i < std::min(kPositions, positions); ++i) {
    std::vector<std::string> row{fmt::format("{}", i + 1)};
    for (const std::vector<AcceptanceFigures>& of : figures.acceptance) {
      if (of.empty()) continue;
      const AcceptanceFigures cell = i < of.size() ? of[i] : AcceptanceFigures{};
      row.push_back(percent(static_cast<double>(cell.accepted), static_cast<double>(cell.drafted)));
      row.push_back(fmt::format("{}", cell.drafted));
    }
    table.rows.push_back(row);
  }
  return table;
}

Table steps(const RunFigures& figures) {
  Table table{"Steps without prefill, by number of requests; median ms",
              {{"requests", "plain steps", "ms", "with drafts", "ms, drafting included"}}};
  for (const StepFigures& step : figures.steps) {
    const auto ms = [](std::uint64_t count, double seconds) {
      return count > 0 ? fmt::format("{:.3f}", 1e3 * seconds) : std::string("-");
    };
    table.rows.push_back({fmt::format("{}", step.requests), fmt::format("{}", step.plain),
                          ms(step.plain, step.plain_seconds), fmt::format("{}", step.drafted),
                          ms(step.drafted, step.drafted_seconds)});
  }
  return table;
}

Table memory(const RunFigures& figures) {
  Table table{"Memory, MiB a rank", {{"", "min", "mean", "max", "rank of max", "its host"}}};
  if (figures.ranks.empty()) return table;
  const auto add = [&](const char* name, std::uint64_t RankFigures::*member) {
    const auto [least, most] = std::ranges::minmax_element(figures.ranks, {}, member);
    double sum = 0;
    for (const RankFigures& rank : figures.ranks) sum += static_cast<double>(rank.*member);
    const auto mib = [](double bytes) { return fmt::format("{:.1f}", bytes / kMiB); };
    if ((*most).*member == 0) return;
    table.rows.push_back({name, mib(static_cast<double>((*least).*member)),
                          mib(sum / static_cast<double>(figures.ranks.size())),
                          mib(static_cast<double>((*most).*member)), fmt::format("{}", most->rank),
                          host_of(*most)});
  };
  add("peak RSS", &RankFigures::peak_rss_bytes);
  add("weights", &RankFigures::weight_bytes);
  add("KV blocks", &RankFigures::kv_bytes);
  return table;
}

Table nodes(const RunFigures& figures) {
  Table table{"Memory, MiB a node, most first",
              {{"node", "ranks", "peak RSS", "weights", "KV blocks"}}};
  const auto mib = [](std::uint64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / kMiB);
  };
  for (std::size_t i = 0; i < std::min(kNodes, figures.nodes.size()); ++i) {
    const NodeFigures& node = figures.nodes[i];
    table.rows.push_back({node.host.empty() ? "-" : node.host, fmt::format("{}", node.ranks),
                          mib(node.peak_rss_bytes), mib(node.weight_bytes), mib(node.kv_bytes)});
  }
  return table;
}

/// A date in UTC, e.g. "2026-01-31 18:04:12".
std::string date_of(double unix_seconds) {
  constexpr double kLast = 253402300799;  // end of the year 9999; damaged files can exceed it
  if (!(unix_seconds >= 0 && unix_seconds <= kLast)) return "?";
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(unix_seconds)));
}

/// Text such as ", 812.5 a core (8 cores)"; empty: `count` is 0.
std::string rate_of_each(double rate, std::uint64_t count, const char* what) {
  if (count == 0) return "";
  return fmt::format(", {:.1f} a {} ({})", rate / static_cast<double>(count), what,
                     counted(count, what));
}

/// Text such as " (250 by stop_id, 6 by length)".
std::string reasons_of(const RunFigures& figures) {
  std::map<FinishReason, std::size_t> counts;
  for (const ResponseFigures& response : figures.responses) ++counts[response.reason];
  std::vector<std::string> parts;
  for (const auto& [reason, count] : counts)
    parts.push_back(fmt::format("{} by {}", count, paceline::name_of(reason)));
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

double rate(const RunFigures& figures) {
  return figures.seconds > 0 ? static_cast<double>(figures.tokens) / figures.seconds : 0;
}

std::string columns_of(const Table& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table.rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = table.title + "\n";
  for (const auto& row : table.rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::vector<std::string> headline_of(const RunFigures& figures) {
  const double ranks = std::max<double>(1, static_cast<double>(figures.ranks.size()));
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{} in {:.3f} s: {:.1f} tokens/s, {:.1f} a rank ({}){}{}",
                              counted(figures.tokens, "token"), figures.seconds, rate(figures),
                              rate(figures) / ranks, counted(figures.ranks.size(), "rank"),
                              rate_of_each(rate(figures), figures.cores, "core"),
                              rate_of_each(rate(figures), figures.gpus, "GPU")));
  if (figures.started > 0) {
    lines.push_back(fmt::format("from {} to {} UTC on {}", date_of(figures.started),
                                date_of(figures.ended), counted(figures.nodes.size(), "node")));
  }
  lines.push_back(fmt::format(
      "{} finished{}{}, in {}{}", counted(figures.responses.size(), "response"),
      reasons_of(figures), figures.partial > 0 ? fmt::format(", {} partial", figures.partial) : "",
      counted(figures.attempt_ends.size(), "attempt"),
      figures.moves > 0 ? "; " + counted(figures.moves, "move") : ""));
  if (figures.drafted > 0) {
    lines.push_back(fmt::format(
        "{} verified, {} accepted ({} %)", counted(figures.drafted, "draft token"),
        figures.accepted,
        percent(static_cast<double>(figures.accepted), static_cast<double>(figures.drafted))));
  }
  if (figures.pregenerated > 0) {
    lines.push_back(fmt::format(
        "{} pregenerated for the next step's drafts, in {:.3f} s of the ranks' idle time",
        counted(figures.pregenerated, "token"), figures.pregenerating_seconds));
  }
  lines.push_back("largest loss: " + largest_loss(figures));
  return lines;
}

std::string progress_of(const std::optional<RewardFigures>& rewards) {
  if (!rewards || rewards->complete) return "";
  return fmt::format("{} of {} responses are finished: the run is still going, or was stopped",
                     rewards->responses, rewards->expected);
}

std::vector<Table> tables_of(const RunFigures& figures) {
  std::vector<Table> tables{phases(figures), progress(figures), lengths(figures)};
  std::ranges::move(turn_tables(figures), std::back_inserter(tables));
  std::ranges::move(std::vector<Table>{groups(figures), slowest(figures), acceptance(figures),
                                       memory(figures), nodes(figures), steps(figures)},
                    std::back_inserter(tables));
  std::erase_if(tables, [](const Table& table) { return table.rows.size() <= 1; });
  return tables;
}

Table comparison_of(const std::vector<NamedRun>& runs) {
  Table table{"Runs",
              {{"run", "seconds", "tokens", "tokens/s", "finished", "last tenth, s", "idle, %",
                "accepted, %"}}};
  const bool converses = std::ranges::any_of(
      runs, [](const NamedRun& run) { return !run.figures.turns.responses.empty(); });
  if (converses) table.rows[0].emplace_back("turns a response");
  for (const auto& [name, figures, rewards, pictured] : runs) {
    const PhaseSeconds all = figures.all_ranks();
    table.rows.push_back(
        {name, fmt::format("{:.3f}", figures.seconds), fmt::format("{}", figures.tokens),
         fmt::format("{:.1f}", rate(figures)), fmt::format("{}", figures.responses.size()),
         fmt::format("{:.3f}", figures.finished_by(1) - figures.finished_by(0.9)),
         percent(all[Phase::idle], all.sum()),
         percent(static_cast<double>(figures.accepted), static_cast<double>(figures.drafted))});
    if (converses) table.rows.back().push_back(fmt::format("{:.2f}", figures.turns.mean()));
  }
  return table;
}

std::string choice_of(const NamedRun& run) {
  if (!run.rewards || !run.rewards->choice) return "";
  const auto [prompts, kept, dropped] = *run.rewards->choice;
  const std::uint64_t finished = run.figures.responses.size();
  return fmt::format(
      "{} of {} kept, {} dropped, {} left over; {} finished but not used, {} cancelled", kept,
      counted(prompts, "prompt"), dropped, prompts - kept - dropped,
      counted(finished - std::min(finished, run.rewards->expected), "response"),
      run.figures.partial);
}

std::string text_of(const std::vector<NamedRun>& runs) {
  std::string text;
  if (const Table rewards = reward_table(runs); !rewards.rows.empty()) text += columns_of(rewards);
  if (runs.size() > 1) text += (text.empty() ? "" : "\n") + columns_of(comparison_of(runs));
  for (const NamedRun& run : runs) {
    const auto& [name, figures, rewards, pictured] = run;
    text += (text.empty() ? "" : "\n") + name + "\n";
    for (const std::string& line : {progress_of(rewards), choice_of(run)})
      if (!line.empty()) text += "  " + line + "\n";
    for (const std::string& line : headline_of(figures)) text += "  " + line + "\n";
    if (rewards) {
      for (const Table& table : reward_tables(*rewards)) text += "\n" + columns_of(table);
    }
    for (const Table& table : tables_of(figures)) text += "\n" + columns_of(table);
  }
  return text;
}

}  // namespace paceline::app
