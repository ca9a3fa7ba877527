#include "app/commands/report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

#include "app/assembly/coordination.hpp"
#include "app/assembly/make_speculator.hpp"
#include "app/assembly/scoring.hpp"
#include "app/assembly/token_sets.hpp"
#include "app/assembly/weight_store.hpp"
#include "app/commands/version.hpp"
#include "app/terminal/terminal.hpp"
#include "io/text/printable.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/duration.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

std::string range_text(int first, int last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

/// Roles of a node's ranks, as "ranks 0-3 verifier groups 0-1, ranks 4-5 drafters, rank 6 spare".
std::string roles_text(const Setup& setup, int node) {
  const policy::Placement& placement = setup.layout.placement;
  const auto kind = [&](int rank) {  // all ranks of a group count as one kind
    const Role role = placement.role(rank);
    return role == Role::verifier_member ? Role::verifier : role;
  };
  const auto ranks = static_cast<int>(setup.facts.size());
  std::string text;
  for (int first = 0; first < ranks;) {
    int last = first;
    while (last + 1 < ranks && setup.facts[last + 1].node == setup.facts[first].node &&
           kind(last + 1) == kind(first))
      ++last;
    if (setup.facts[first].node == node) {
      const bool several = last > first;
      text += fmt::format("{}{} {} ", text.empty() ? "" : ", ", several ? "ranks" : "rank",
                          range_text(first, last));
      switch (kind(first)) {
        case Role::drafter:
          text += several ? "drafters" : "drafter";
          break;
        case Role::spare:
          text += "spare";
          break;
        case Role::verifier:
        case Role::verifier_member:
          text += fmt::format("verifier {} {}",
                              placement.group(last) > placement.group(first) ? "groups" : "group",
                              range_text(placement.group(first), placement.group(last)));
          break;
      }
    }
    first = last + 1;
  }
  return text;
}

/// Explains the names of the roles that the placement has.
std::string roles_explained(const policy::Placement& placement) {
  const std::vector<int> degrees = placement.degrees();
  std::string text =
      degrees.back() == 1
          ? "  a verifier group is one rank, the verifier: it holds the weights and generates\n"
          : fmt::format(
                "  a verifier group is {} ranks that share the weights and generate: the "
                "verifier, which leads, and its member{}\n",
                fmt::join(degrees, " or "), degrees.back() == 2 ? "" : "s");
  if (!placement.drafters.empty())
    text += "  a drafter proposes tokens to the groups, which verify them\n";
  bool spare = false;
  for (int rank = 0; rank < placement.ranks; ++rank)
    spare = spare || placement.role(rank) == Role::spare;
  if (spare) text += "  a spare rank has no role and stays idle\n";
  return text;
}

std::string memory_text(const Setup& setup) {
  const auto least =
      std::min_element(setup.facts.begin(), setup.facts.end(),
                       [](const fabric::RankFacts& a, const fabric::RankFacts& b) {
                         return a.memory_bytes / a.local_ranks < b.memory_bytes / b.local_ranks;
                       });
  std::string text =
      fmt::format("  memory {:.2f} GiB a rank: of node {}'s {:.2f} GiB, {}\n",
                  static_cast<double>(least->memory_bytes) / least->local_ranks / kGiB, least->node,
                  static_cast<double>(least->memory_bytes) / kGiB, name_of(least->memory_bound));
  const auto of_any = [&](auto slow) {
    return std::find_if(setup.facts.begin(), setup.facts.end(), slow);
  };
  const auto wide =
      of_any([](const fabric::RankFacts& fact) { return std::popcount(fact.numa_nodes) > 1; });
  if (wide != setup.facts.end())
    text += fmt::format(
        "  warning: rank {} runs on {} NUMA nodes, where much of what it reads is far: take a rank "
        "or more for each (mpirun --map-by numa --bind-to numa, srun --cpu-bind=ldoms)\n",
        wide - setup.facts.begin(), std::popcount(wide->numa_nodes));
  const auto small = of_any([](const fabric::RankFacts& fact) { return fact.huge_pages == 0; });
  if (small != setup.facts.end())
    text += fmt::format(
        "  warning: node {} ({}) gives no huge pages, without which weights and KV are read more "
        "slowly: /sys/kernel/mm/transparent_hugepage/enabled should say madvise\n",
        small->node, small->host);
  const auto apart = of_any([](const fabric::RankFacts& fact) { return fact.shares_memory == 0; });
  if (apart != setup.facts.end())
    text += fmt::format(
        "  warning: ranks of node {} ({}) cannot map memory of one another (by /proc): each keeps "
        "weights of its own\n",
        apart->node, apart->host);
  return text;
}

/// Text on weights that ranks share, as " in one copy for 4 ranks".
std::string copy_text(const Setup& setup, const policy::WeightsId& id) {
  const std::vector<policy::WeightCopy> copies = weight_copies(setup);
  const auto copy = std::find_if(copies.begin(), copies.end(),
                                 [&](const policy::WeightCopy& c) { return c.id == id; });
  const std::size_t ranks = copy == copies.end() ? 1 : copy->ranks.size();
  return ranks == 1 ? "" : fmt::format(" in one copy for {} ranks", ranks);
}

std::string drafts_text(const Setup& setup) {
  const io::SpeculationSection& settings = setup.config.speculation;
  std::string names;
  for (const ConfiguredDrafter& drafter : setup.drafters)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", drafter.name);
  const int tokens = draft_tokens(settings);
  const int longest = std::min(tokens, settings.max_length);
  std::string text = fmt::format(
      "  drafts by {}: {}, {} (speculation.policy: {})\n", names,
      settings.paths.value_or(1) == 1 ? fmt::format("up to {}", counted(longest, "token"))
                                      : fmt::format("up to {} tokens in {} paths of up to {}",
                                                    tokens, *settings.paths, longest),
      drafts_always(settings.policy) ? "always" : "where it pays", name_of(settings.policy));
  const bool ahead = setup.layout.drafters() > 0;
  if (ahead) {
    text += fmt::format("  drafter ranks send {} at a time (speculation.window)\n",
                        counted(draft_window(settings), "token"));
  }
  if (const std::string why = not_reconfigured(setup); !why.empty())
    text += fmt::format("  no request gets a mode of its own (speculation.reconfigure): {}\n", why);
  if (const std::uint32_t every = reconfigure_every(setup); every > 0) {
    text += fmt::format(
        "  every {} a request that accepts little gets a mode and window of its own "
        "(speculation.reconfigure)\n",
        counted(every, "token"));
  }
  if (races(setup)) {
    text +=
        "  groups that run dry race for requests of others, by another drafter "
        "(speculation.best_of_n)\n";
  } else if (settings.best_of_n) {
    text +=
        "  no group races for others' requests (speculation.best_of_n): that takes two groups "
        "and two drafters\n";
  }
  if (const std::vector<std::int32_t> methods = tail_methods(setup); !methods.empty()) {
    std::string models;
    for (const std::int32_t d : methods)
      models += (models.empty() ? "" : ", ") + setup.drafters[d].name;
    text += fmt::format(
        "  or ranks of theirs draft for the last requests (speculation.best_of_n), by {}\n",
        models);
  }
  const DrafterMemory memory = drafter_memory(setup, ahead ? Role::drafter : Role::verifier);
  if (memory.weights > 0) {
    const auto first =
        std::find_if(setup.drafters.begin(), setup.drafters.end(),
                     [](const ConfiguredDrafter& drafter) { return drafter.model != nullptr; });
    text +=
        fmt::format("  draft models on each {}: weights {:.1f} MiB{}, KV up to {:.1f} MiB\n",
                    ahead ? "drafter rank" : "verifier", static_cast<double>(memory.weights) / kMiB,
                    copy_text(setup, {static_cast<std::int32_t>(first - setup.drafters.begin())}),
                    static_cast<double>(memory.kv) / kMiB);
  }
  for (const Role role : {Role::verifier, Role::drafter}) {
    const DrafterMemory head = head_memory(setup, role);
    if (head.weights == 0) continue;
    const auto at = std::find_if(setup.drafters.begin(), setup.drafters.end(),
                                 [](const auto& drafter) { return drafter.head != nullptr; });
    text += fmt::format(
        "  EAGLE-3 head on each {}: weights {:.1f} MiB{}, KV up to {:.1f} MiB, the model's "
        "features up to {:.1f} MiB\n",
        role == Role::verifier      ? "verifier"
        : has_own_embeddings(setup) ? "drafter rank"
                                    : "drafter rank, with the model's embeddings",
        static_cast<double>(head.weights) / kMiB,
        copy_text(setup, {static_cast<std::int32_t>(at - setup.drafters.begin())}),
        static_cast<double>(head.kv) / kMiB,
        static_cast<double>(feature_memory(setup, role)) / kMiB);
    text += fmt::format("  it reads what enters layers {} of the model's {}{}{}\n",
                        fmt::join(read_layers(setup), ", "), setup.model.layers,
                        at->head->checkpoint.config.read_layers.empty()
                            ? " (the default, for its config.json names none)"
                            : "",
                        has_own_embeddings(setup) ? ", and embeddings of its own" : "");
    if (role == Role::verifier) continue;
    const std::uint64_t row = feature_row_bytes(setup);
    text += fmt::format(
        "  groups send it {:.1f} KiB of features a token, of which they keep up to {:.1f} MiB\n",
        static_cast<double>(row) / 1024, static_cast<double>(setup.memory.features) / kMiB);
  }
  return text;
}

/// Text on the memory that draft models lend to KV.
std::string elastic_text(const Setup& setup) {
  if (!setup.config.elastic()) return "";
  if (setup.kv_gain == 0)
    return "  KV gets no memory of draft models (speculation.elastic_memory): verifiers have none "
           "to give\n";
  return fmt::format(
      "  while KV is short and nothing is drafted, a verifier's draft models give it their memory: "
      "{} KV blocks more (speculation.elastic_memory)\n{}",
      setup.kv_gain,
      weights_to_lend(setup) > 0
          ? ""
          : "  their weights stay, for other ranks or other roles have them too\n");
}

/// Text on the KV pool, which holds KV of requests that wait for their next chunk.
std::string kv_pool_text(const Setup& setup) {
  std::string text = fmt::format("  {}\n", setup.kv_pool.explanation);
  const io::KvPoolSection& pool = setup.config.kv_pool;
  if (!pool.disk) return text;
  return text + (pool.disk_size
                     ? fmt::format("  and {:.2f} GiB on each node in {} (kv_pool.disk_size)\n",
                                   static_cast<double>(*pool.disk_size) / kGiB, *pool.disk)
                     : fmt::format("  and half of what is free on each node in {} (override: "
                                   "kv_pool.disk_size)\n",
                                   *pool.disk));
}

}  // namespace

std::string banner_text(const Setup& setup, int ranks) {
  std::string text = fmt::format("paceline {}\n  {}; compiler {}\n", version(),
                                 fabric::MpiEnvironment::library(), __VERSION__);
  text +=
      fmt::format("  {}, {} each, backend {} ({}{}{})\n", counted(ranks, "rank"),
                  counted(setup.threads, "thread"), setup.backend.name, setup.backend.device_name,
                  setup.backend.device_name.empty() ? "" : ", ", setup.backend.isa);
  text += fmt::format("  model {} ({}, {}, hidden {}, {}, {}, vocabulary {}, {})\n",
                      setup.config.model.path, setup.model.family->model_type,
                      counted(setup.model.layers, "layer"), setup.model.hidden,
                      counted(setup.model.heads, "head"), counted(setup.model.kv_heads, "kv head"),
                      setup.model.vocab, name_of(setup.compute));
  text += fmt::format("  {} x {} from {}, longest prompt {}\n",
                      counted(setup.prompts.prompts.size(), "prompt"),
                      counted(setup.config.prompts.samples, "sample"), setup.config.prompts.path,
                      counted(setup.longest_prompt, "token"));
  for (const std::string& warning : setup.warnings) text += fmt::format("  warning: {}\n", warning);
  if (!setup.prompts.skipped.empty()) {
    text += fmt::format("  warning: {} skipped\n",
                        counted(setup.prompts.skipped.size(), "over-long prompt"));
  }
  if (!setup.prompts.truncated.empty()) {
    text += fmt::format("  warning: {} truncated\n",
                        counted(setup.prompts.truncated.size(), "over-long prompt"));
  }
  if (const std::vector<std::string>& closed = setup.prompts.closed; !closed.empty()) {
    text += fmt::format(
        "  warning: {} of the prompts (first {}) end with a message of the assistant's, which is "
        "closed, and a new turn begun; prompts.chat.continue_final_message: true lets it go on, "
        "false is as now, without this warning\n",
        closed.size(), io::printable(closed.front()));
  }
  if (const auto& own = setup.prompts.fields.honoured; !own.empty())
    text += fmt::format("  lines of the prompts have their own {}\n", fmt::join(own, ", "));
  for (const auto& [field, ignored] : setup.prompts.fields.ignored) {
    text += fmt::format(
        "  warning: {} lines have {} (the first is line {}), which is kept for trainers and not "
        "acted on\n",
        ignored.lines, field, ignored.first);
  }
  return text + token_text(setup);
}

std::string plan_text(const Setup& setup) {
  std::string text;
  int last_node = -1;
  for (const fabric::RankFacts& fact : setup.facts) {
    if (fact.node == last_node) continue;
    last_node = fact.node;
    text += fmt::format("  node {} ({}): {}\n", fact.node, fact.host, roles_text(setup, fact.node));
  }
  text += roles_explained(setup.layout.placement);
  if (!setup.backend.explanation.empty()) text += fmt::format("  {}\n", setup.backend.explanation);
  if (!setup.backend.on_device()) text += memory_text(setup);
  for (const std::string& line : setup.layout.explanation) text += fmt::format("  {}\n", line);
  text += fmt::format("  {}\n  {}\n", setup.kv.explanation, chunk_text(setup));
  text += kv_pool_text(setup);
  text += elastic_text(setup);
  const int tp = setup.layout.placement.least_tp();
  const auto weights = static_cast<double>(model::weight_bytes(setup.model, setup.compute, tp));
  text += fmt::format("  weights {:.1f} MiB a rank{}; longest sequence {} tokens\n", weights / kMiB,
                      copy_text(setup, {{}, tp, 0}), setup.longest_sequence);
  if (setup.backend.on_device()) text += memory_use_text(setup);
  if (setup.profile) {
    const std::string& path = *setup.config.engine.profile;
    text += setup.profile_holds()
                ? fmt::format("  costs by {} (engine.profile)\n", path)
                : fmt::format("  warning: {} does not hold here: {}; costs are measured anew\n",
                              path, setup.profile_fault);
  }
  if (!setup.drafters.empty()) text += drafts_text(setup);
  return text + scoring_text(setup);
}

std::string memory_use_text(const Setup& setup) {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
  const MemoryPlan& m = setup.memory;
  if (!setup.backend.on_device()) {
    return fmt::format(
        "  host memory of a rank, MiB: weights {:.0f}, logits {:.0f}, KV {:.0f}; nodes are "
        "modelled "
        "that have as much\n",
        mib(m.weights), mib(m.logits), mib(m.kv));
  }
  return fmt::format(
      "  device memory of a rank, MiB: {:.0f} to plan with; weights {:.0f}, embeddings and "
      "buffers {:.0f}, logits {:.0f}, KV {:.0f}\n",
      mib(setup.backend.memory), mib(m.weights), mib(m.copies), mib(m.logits), mib(m.kv));
}

std::string circumstances_text(const Setup& setup, const TimeLimit& limit) {
  std::string text;
  int threads = 0;
  for (const fabric::RankFacts& fact : setup.facts) {
    if (fact.node == setup.facts[0].node) threads += setup.threads;
  }
  if (setup.facts[0].sharers == setup.facts[0].local_ranks && threads > setup.facts[0].cores) {
    text += fmt::format("  warning: {} on {} of a node: ranks will take turns\n",
                        counted(threads, "thread"), counted(setup.facts[0].cores, "core"));
  }
  text += limit.seconds ? fmt::format("  stops {} before {}: {} from now\n",
                                      duration_text(setup.config.limits.margin), limit.origin,
                                      duration_text(*limit.seconds))
                        : fmt::format("  no wall-clock limit ({})\n", limit.origin);
  return text;
}

void print_banner(const Setup& setup, int ranks) { write_to_user(banner_text(setup, ranks)); }

void print_plan(const Setup& setup, const TimeLimit& limit) {
  write_to_user("layout\n" + plan_text(setup) + circumstances_text(setup, limit));
}

}  // namespace paceline::app
