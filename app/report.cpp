#include "app/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "app/costs.hpp"
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "--";
  const auto s = static_cast<long>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s % 3600 / 60);
}

std::string ranks_text(const Setup& setup, const fabric::RankFacts& node) {
  std::string text;
  for (std::size_t rank = 0; rank < setup.facts.size(); ++rank) {
    if (setup.facts[rank].node != node.node) continue;
    const auto number = static_cast<int>(rank);
    const int group = setup.layout.placement.group(number);
    text += fmt::format(" {}:{}{}", rank, name_of(setup.layout.placement.role(number)),
                        group >= 0 ? fmt::format("[{}]", group) : "");
  }
  return text;
}

}  // namespace

void print_banner(const Setup& setup, int ranks) {
  say("paceline {}", version());
  say("  {}; compiler {}", fabric::MpiEnvironment::library(), __VERSION__);
  say("  {} ranks, {} threads each, backend {} ({}{}{})", ranks, setup.threads, setup.backend.name,
      setup.backend.device_name, setup.backend.on_device() ? ", " : "", setup.backend.isa);
  say("  model {} ({}, {} layers, hidden {}, {} heads, {} kv heads, vocabulary {}, {})",
      setup.config.model.path, name_of(setup.model.architecture), setup.model.layers,
      setup.model.hidden, setup.model.heads, setup.model.kv_heads, setup.model.vocab,
      name_of(setup.compute));
  say("  {} prompts x {} samples from {}, longest prompt {} tokens", setup.prompts.prompts.size(),
      setup.config.prompts.samples, setup.config.prompts.path, setup.longest_prompt);
  if (!setup.prompts.skipped.empty())
    say("  warning: {} over-long prompts skipped", setup.prompts.skipped.size());
  if (!setup.prompts.truncated.empty()) {
    say("  warning: {} over-long prompts truncated", setup.prompts.truncated.size());
  }
}

std::string plan_text(const Setup& setup) {
  std::string text;
  int last_node = -1;
  for (const fabric::RankFacts& fact : setup.facts) {
    if (fact.node == last_node) continue;
    last_node = fact.node;
    text += fmt::format("  node {} ({}, {} ranks):{}\n", fact.node, fact.host, fact.local_ranks,
                        ranks_text(setup, fact));
  }
  if (!setup.backend.explanation.empty()) text += fmt::format("  {}\n", setup.backend.explanation);
  for (const std::string& line : setup.layout.explanation) text += fmt::format("  {}\n", line);
  text += fmt::format("  {}\n", setup.kv.explanation);
  if (setup.profile) {
    const std::string& path = *setup.config.engine.profile;
    text += setup.profile_fault.empty()
                ? fmt::format("  costs by {} (engine.profile)\n", path)
                : fmt::format("  warning: {} does not hold here: {}; costs are measured anew\n",
                              path, setup.profile_fault);
  } else if (wants_costs(setup)) {
    text += "  costs by a measurement at the start, of at most 2 s (engine.profile: auto)\n";
  }
  if (setup.drafters.empty()) return text;
  const io::SpeculationSection& settings = setup.config.speculation;
  std::string names;
  for (const DrafterPlan& plan : setup.drafters)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", plan.name);
  text += fmt::format("  drafts by {}: up to {} tokens in {} paths of up to {}, {}\n", names,
                      draft_tokens(settings), settings.paths, settings.max_length,
                      settings.policy == io::SpeculationPolicy::fixed
                          ? "always (speculation.policy: fixed)"
                          : "where it pays (speculation.policy: goodput)");
  const bool ahead = setup.layout.drafters() > 0;
  if (ahead) {
    text += fmt::format("  drafter ranks send {} tokens at a time (speculation.window)\n",
                        draft_window(settings));
  }
  const DrafterMemory memory = drafter_memory(setup, ahead ? Role::drafter : Role::verifier);
  if (memory.weights > 0) {
    text +=
        fmt::format("  draft models on each {}: weights {:.1f} MiB, KV up to {:.1f} MiB\n",
                    ahead ? "drafter rank" : "verifier", static_cast<double>(memory.weights) / kMiB,
                    static_cast<double>(memory.kv) / kMiB);
  }
  return text;
}

void print_plan(const Setup& setup, const TimeLimit& limit) {
  say("layout");
  write_to_user(plan_text(setup));
  const double weights = static_cast<double>(model::weight_bytes(
                             setup.model, setup.compute, setup.layout.placement.least_tp())) /
                         kMiB;
  say("  weights {:.1f} MiB a rank; longest sequence {} tokens", weights, setup.longest_sequence);
  if (setup.backend.on_device()) {
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
    const MemoryPlan& m = setup.memory;
    say("  device memory of a rank, MiB: {:.0f} to plan with; weights {:.0f}, embeddings and "
        "buffers {:.0f}, logits {:.0f}, KV {:.0f}",
        mib(setup.backend.memory), mib(m.weights), mib(m.copies), mib(m.logits), mib(m.kv));
  }
  int threads = 0;
  for (const fabric::RankFacts& fact : setup.facts) {
    if (fact.node == setup.facts[0].node) threads += setup.threads;
  }
  if (setup.facts[0].sharers == setup.facts[0].local_ranks && threads > setup.facts[0].cores) {
    say("  warning: {} threads on {} cores of a node: ranks will take turns", threads,
        setup.facts[0].cores);
  }
  if (limit.seconds) {
    say("  stops {} before {}: {} from now", duration(setup.config.limits.margin), limit.origin,
        duration(*limit.seconds));
  } else {
    say("  no wall-clock limit ({})", limit.origin);
  }
}

ProgressPrinter::ProgressPrinter() : terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressPrinter::update(double now, const roles::Progress& progress) {
  const double interval = terminal_ ? 0.25 : 10.0;
  if (now - last_print_ < interval) return;
  last_print_ = now;
  print(now, progress);
}

void ProgressPrinter::print(double now, const roles::Progress& progress) {
  if (now - last_rate_time_ > 0.5) {
    rate_ = static_cast<double>(progress.tokens - last_tokens_) / (now - last_rate_time_);
    last_rate_time_ = now;
    last_tokens_ = progress.tokens;
  }
  const double done = static_cast<double>(progress.finished) /
                      static_cast<double>(std::max<std::size_t>(1, progress.total));
  // Of this attempt's pace: what earlier attempts finished took none of its time.
  const auto own = static_cast<double>(progress.finished - progress.finished_before);
  const double eta =
      own > 0 ? now * static_cast<double>(progress.total - progress.finished) / own : INFINITY;
  std::string line =
      fmt::format("{}/{} finished, {} active, {} waiting, {:.0f} tokens/s, {} elapsed, ETA {}",
                  progress.finished, progress.total, progress.active, progress.pending, rate_,
                  duration(now), duration(eta));
  if (terminal_) {
    constexpr int kWidth = 24;
    const int filled = static_cast<int>(done * kWidth);
    line = fmt::format("\r[{:#<{}}{:.<{}}] {}\x1b[K", "", filled, "", kWidth - filled, line);
    write_to_user(line);
  } else {
    say("{}", line);
  }
}

void ProgressPrinter::end(double now, const roles::Progress& progress) {
  print(now, progress);
  if (terminal_) write_to_user("\n");
}

void print_accounting(std::span<const RankSummary> summaries, double seconds) {
  struct Row {
    const char* name;
    std::function<double(const RankSummary&)> value;
  };
  const Row rows[] = {
      {"busy, % of time", [&](const RankSummary& s) { return 100 * s.busy_seconds / seconds; }},
      {"steps", [](const RankSummary& s) { return static_cast<double>(s.steps); }},
      {"prefill tokens",
       [](const RankSummary& s) { return static_cast<double>(s.prefill_tokens); }},
      {"response tokens",
       [](const RankSummary& s) { return static_cast<double>(s.response_tokens); }},
      {"response tokens/s",
       [&](const RankSummary& s) { return static_cast<double>(s.response_tokens) / seconds; }},
      {"drafted tokens", [](const RankSummary& s) { return static_cast<double>(s.drafted); }},
      {"of them accepted, %",
       [](const RankSummary& s) {
         return 100.0 * static_cast<double>(s.accepted) /
                static_cast<double>(std::max<std::uint64_t>(1, s.drafted));
       }},
      {"messages sent", [](const RankSummary& s) { return static_cast<double>(s.messages_sent); }},
      {"weights, MiB",
       [](const RankSummary& s) { return static_cast<double>(s.weight_bytes) / kMiB; }},
      {"KV pool, MiB", [](const RankSummary& s) { return static_cast<double>(s.kv_bytes) / kMiB; }},
      {"peak RSS, MiB",
       [](const RankSummary& s) { return static_cast<double>(s.peak_rss_bytes) / kMiB; }},
  };
  for (const Role role : {Role::verifier, Role::verifier_member, Role::drafter, Role::spare}) {
    std::vector<const RankSummary*> ranks;
    for (const RankSummary& s : summaries) {
      if (s.role == static_cast<std::uint32_t>(role)) ranks.push_back(&s);
    }
    if (ranks.empty()) continue;
    say("{:<24}{:>12}{:>12}{:>12}", fmt::format("{} x {}", ranks.size(), name_of(role)), "min",
        "avg", "max");
    for (const Row& row : rows) {
      double least = INFINITY;
      double most = -INFINITY;
      double sum = 0;
      for (const RankSummary* s : ranks) {
        const double value = row.value(*s);
        least = std::min(least, value);
        most = std::max(most, value);
        sum += value;
      }
      say("  {:<22}{:>12.1f}{:>12.1f}{:>12.1f}", row.name, least,
          sum / static_cast<double>(ranks.size()), most);
    }
  }
}

}  // namespace paceline::app
