#include "app/assembly/plan_text.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <ranges>
#include <set>

#include "app/assembly/conversing.hpp"
#include "app/assembly/coordination.hpp"
#include "app/assembly/costs.hpp"
#include "app/assembly/dynamic_sampling.hpp"
#include "app/assembly/scoring.hpp"
#include "app/assembly/token_sets.hpp"
#include "app/assembly/weight_plan.hpp"
#include "app/commands/version.hpp"
#include "app/terminal/terminal.hpp"
#include "io/text/printable.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kGiB = 1024.0 * kMiB;

std::string range_text(int first, int last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

/// Text of the roles of a node's ranks, e.g. "ranks 0-3 verifier groups 0-1, ranks 4-5 drafters".
std::string roles_text(const Machine& machine, const Plan& plan, int node) {
  const policy::Placement& placement = plan.layout.placement;
  const auto kind = [&](int rank) {  // leader and members count as one kind
    const Role role = placement.role(rank);
    return role == Role::verifier_member ? Role::verifier : role;
  };
  const auto ranks = static_cast<int>(machine.ranks.size());
  std::string text;
  for (int first = 0; first < ranks;) {
    int last = first;
    while (last + 1 < ranks && machine.ranks[last + 1].node == machine.ranks[first].node &&
           kind(last + 1) == kind(first))
      ++last;
    if (machine.ranks[first].node == node) {
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
  if (spare) text += "  a spare rank has no role and is idle at the start\n";
  return text;
}

std::string memory_text(const Machine& machine) {
  const auto least = std::ranges::min_element(machine.ranks, {}, &fabric::RankFacts::own_memory);
  std::string text = fmt::format(
      "  memory per rank: {:.2f} GiB, a share of the {:.2f} GiB on node {} ({})\n",
      static_cast<double>(least->memory_bytes) / least->local_ranks / kGiB,
      static_cast<double>(least->memory_bytes) / kGiB, least->node, name_of(least->memory_bound));
  const auto first_rank = [&](auto predicate) {
    return std::ranges::find_if(machine.ranks, predicate);
  };
  const auto wide =
      first_rank([](const fabric::RankFacts& fact) { return std::popcount(fact.numa_nodes) > 1; });
  if (wide != machine.ranks.end())
    text += fmt::format(
        "  warning: rank {} runs on {} NUMA nodes, so many of its reads are remote. Start at least "
        "one rank on each NUMA node (mpirun --map-by numa --bind-to numa, srun --cpu-bind=ldoms)\n",
        wide - machine.ranks.begin(), std::popcount(wide->numa_nodes));
  const auto small = first_rank([](const fabric::RankFacts& fact) { return fact.huge_pages == 0; });
  if (small != machine.ranks.end())
    text += fmt::format(
        "  warning: node {} ({}) gives no huge pages, so weights and KV are read more slowly. "
        "/sys/kernel/mm/transparent_hugepage/enabled should say madvise\n",
        small->node, small->host);
  const auto apart =
      first_rank([](const fabric::RankFacts& fact) { return fact.shares_memory == 0; });
  if (apart != machine.ranks.end())
    text += fmt::format(
        "  warning: ranks of node {} ({}) cannot map one another's memory (by /proc), so each "
        "keeps its own weights\n",
        apart->node, apart->host);
  return text;
}

/// Text about weights that ranks share, e.g. " in one copy for 4 ranks".
std::string copy_text(const Plan& plan, const policy::WeightsId& id) {
  const std::vector<policy::WeightCopy>& copies = plan.weights.copies;
  const auto copy = std::ranges::find(copies, id, &policy::WeightCopy::id);
  const std::size_t ranks = copy == copies.end() ? 1 : copy->ranks.size();
  return ranks == 1 ? "" : fmt::format(" in one copy for {} ranks", ranks);
}

std::string drafts_text(const Inputs& inputs, const Plan& plan) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  const auto names = plan.drafters | std::views::transform(&PlannedDrafter::name);
  const int tokens = draft_tokens(settings);
  const int longest = std::min(tokens, settings.max_length);
  std::string text = fmt::format(
      "  drafts by {}: {}, {} (speculation.policy: {})\n", fmt::join(names, ", "),
      settings.paths.value_or(1) == 1 ? fmt::format("up to {}", counted(longest, "token"))
                                      : fmt::format("up to {} tokens in {} paths of up to {}",
                                                    tokens, *settings.paths, longest),
      drafts_always(settings.policy) ? "always" : "where it pays", name_of(settings.policy));
  const bool ahead = plan.layout.drafters() > 0;
  if (ahead) {
    text += fmt::format("  drafter ranks send {} at a time (speculation.window){}\n",
                        counted(plan.speculation.window.tokens, "token"),
                        plan.speculation.window.eager == 0
                            ? ""
                            : fmt::format("; a rank with up to {} sends each token at once",
                                          counted(inputs.config.engine.max_batch, "request")));
  }
  if (plan.best_of_n.races) {
    text +=
        "  a group without requests races another group: both generate the same response, with "
        "different drafters (speculation.best_of_n)\n";
  } else if (settings.best_of_n) {
    text +=
        "  no group races another (speculation.best_of_n): races need two groups and two "
        "drafters\n";
  }
  if (const std::vector<std::int32_t>& methods = plan.best_of_n.tail_methods; !methods.empty()) {
    const auto name = [&](std::int32_t d) { return plan.drafters[d].name; };
    text += fmt::format(
        "  ranks of groups without requests may draft for the last requests, by {} "
        "(speculation.best_of_n)\n",
        fmt::join(methods | std::views::transform(name), ", "));
  }
  const DrafterMemory memory =
      draft_model_memory(inputs, plan, ahead ? Role::drafter : Role::verifier);
  if (memory.weights > 0) {
    std::set<std::string> copies;  // several texts if numbers of sharing ranks differ
    for (std::size_t d = 0; d < plan.drafters.size(); ++d) {
      if (plan.drafters[d].model != nullptr)
        copies.insert(copy_text(plan, {static_cast<std::int32_t>(d)}));
    }
    text +=
        fmt::format("  draft models on each {}: weights {:.1f} MiB{}, KV up to {:.1f} MiB\n",
                    ahead ? "drafter rank" : "verifier", static_cast<double>(memory.weights) / kMiB,
                    copies.size() == 1 ? *copies.begin() : " in copies for several ranks",
                    static_cast<double>(memory.kv) / kMiB);
  }
  for (const Role role : {Role::verifier, Role::drafter}) {
    if (role == Role::drafter && !ahead) continue;
    const std::uint64_t texts = text_memory(inputs, plan, role);
    if (texts == 0) continue;
    text += fmt::format("  texts for lookup on each {}: up to {:.1f} MiB of host memory\n",
                        role == Role::drafter ? "drafter rank" : "verifier",
                        static_cast<double>(texts) / kMiB);
  }
  if (const std::uint64_t log = log_memory(inputs, plan); log > 0) {
    text +=
        fmt::format("  responses that each draft server holds: up to {:.1f} MiB of host memory\n",
                    static_cast<double>(log) / kMiB);
  }
  for (const Role role : {Role::verifier, Role::drafter}) {
    const DrafterMemory head = head_memory(inputs, plan, role);
    if (head.weights == 0) continue;
    const auto at = std::ranges::find_if(
        plan.drafters, [](const auto& drafter) { return drafter.head != nullptr; });
    const PublishedHead* own = published(at->head->config);
    text += fmt::format(
        "  {} on each {}: weights {:.1f} MiB{}, KV up to {:.1f} MiB, the model's "
        "features up to {:.1f} MiB\n",
        kind_of(at->head->config),
        role == Role::verifier     ? "verifier"
        : has_own_embeddings(plan) ? "drafter rank"
                                   : "drafter rank, with the model's embeddings",
        static_cast<double>(head.weights) / kMiB,
        copy_text(plan, {static_cast<std::int32_t>(at - plan.drafters.begin())}),
        static_cast<double>(head.kv) / kMiB,
        static_cast<double>(feature_memory(inputs, plan, role)) / kMiB);
    const std::string embeddings = has_own_embeddings(plan) ? ", and embeddings of its own" : "";
    text +=
        own == nullptr
            ? fmt::format("  this layer reads the model's last hidden state{}\n", embeddings)
            : fmt::format(
                  "  the head reads the inputs of layers {} (the model has {} layers{}){}\n",
                  fmt::join(read_layers(inputs, plan), ", "), inputs.target.config.layers,
                  own->read_layers.empty() ? "; config.json names none, so these are the default"
                                           : "",
                  embeddings);
    if (role == Role::verifier) continue;
    const std::uint64_t row = feature_row_bytes(inputs, plan);
    text += fmt::format(
        "  groups send drafter ranks {:.1f} KiB of features for each token, and keep up to {:.1f} "
        "MiB of features\n",
        static_cast<double>(row) / 1024, static_cast<double>(plan.memory.use.features) / kMiB);
  }
  return text;
}

/// Text about the memory that draft models lend to KV.
std::string elastic_text(const Inputs& inputs, const Plan& plan) {
  if (!inputs.config.elastic()) return "";
  if (plan.memory.kv_gain == 0)
    return "  draft models lend no memory to KV, because verifiers have no draft models "
           "(speculation.elastic_memory)\n";
  return fmt::format(
      "  while KV is short and draft models are not in use, a verifier lends their memory to KV: "
      "{} more KV blocks (speculation.elastic_memory)\n{}",
      plan.memory.kv_gain,
      weights_to_lend(inputs, plan) > 0 ? ""
                                        : "  only memory of draft models' KV is lent: other "
                                          "ranks or roles need their weights too\n");
}

/// Text about the KV pool, which holds the KV of requests that wait to be continued.
std::string kv_pool_text(const Inputs& inputs, const Plan& plan) {
  std::string text = fmt::format("  {}\n", plan.memory.kv_pool.explanation);
  const io::KvPoolSection& pool = inputs.config.kv_pool;
  if (!pool.disk) return text;
  return text + (pool.disk_size
                     ? fmt::format("  and {:.2f} GiB of {} on each node (kv_pool.disk_size)\n",
                                   static_cast<double>(*pool.disk_size) / kGiB, *pool.disk)
                     : fmt::format("  and half of the free space of {} on each node (override: "
                                   "kv_pool.disk_size)\n",
                                   *pool.disk));
}

}  // namespace

std::string banner_text(const Inputs& inputs, const Machine& machine, int ranks) {
  std::string text = fmt::format("paceline {}\n  {}; compiler {}\n", version(),
                                 fabric::MpiEnvironment::library(), __VERSION__);
  const BackendChoice& backend = machine.backend;
  const ModelConfig& model = inputs.target.config;
  text += fmt::format("  {}, {} each, backend {} ({}{}{})\n", counted(ranks, "rank"),
                      counted(machine.threads, "thread"), backend.name, backend.device_name,
                      backend.device_name.empty() ? "" : ", ", backend.isa);
  const std::string kept = model.latent ? fmt::format("latent vectors of {} + {}",
                                                      model.latent->kv_rank, model.latent->rope)
                                        : counted(model.kv_heads, "kv head");
  text += fmt::format("  model {} ({}, {}, hidden {}, {}, {}, vocabulary {}, {})\n",
                      inputs.config.model.path, model.family->model_type,
                      counted(model.layers, "layer"), model.hidden, counted(model.heads, "head"),
                      kept, model.vocab, name_of(inputs.target.compute));
  text += fmt::format("  {} x {} from {}, longest prompt {}\n",
                      counted(inputs.prompts.prompts.size(), "prompt"),
                      counted(inputs.config.prompts.samples, "sample"), inputs.config.prompts.path,
                      counted(inputs.sizes.longest_prompt, "token"));
  for (const std::string& warning : inputs.warnings)
    text += fmt::format("  warning: {}\n", warning);
  if (!inputs.prompts.skipped.empty()) {
    text += fmt::format("  warning: {} skipped\n",
                        counted(inputs.prompts.skipped.size(), "over-long prompt"));
  }
  if (!inputs.prompts.truncated.empty()) {
    text += fmt::format("  warning: {} truncated\n",
                        counted(inputs.prompts.truncated.size(), "over-long prompt"));
  }
  if (const std::vector<std::string>& closed = inputs.prompts.closed; !closed.empty()) {
    text += fmt::format(
        "  warning: {} of the prompts (first {}) end with an assistant message. That message is "
        "closed and a new turn begins. Set prompts.chat.continue_final_message: true to continue "
        "the message, or false to keep this behaviour without the warning.\n",
        closed.size(), io::printable(closed.front()));
  }
  if (const auto& own = inputs.prompts.fields.honoured; !own.empty())
    text += fmt::format("  lines of the prompts have their own {}\n", fmt::join(own, ", "));
  for (const auto& [field, ignored] : inputs.prompts.fields.ignored) {
    text += fmt::format(
        "  warning: {} lines have {} (the first is line {}). This field is kept for trainers, and "
        "has no effect here\n",
        ignored.lines, field, ignored.first);
  }
  return text + token_text(inputs);
}

std::string plan_text(const Inputs& inputs, const Machine& machine, const Plan& plan) {
  std::string text;
  int last_node = -1;
  for (const fabric::RankFacts& fact : machine.ranks) {
    if (fact.node == last_node) continue;
    last_node = fact.node;
    text += fmt::format("  node {} ({}): {}\n", fact.node, fact.host,
                        roles_text(machine, plan, fact.node));
  }
  text += roles_explained(plan.layout.placement);
  if (!machine.backend.explanation.empty())
    text += fmt::format("  {}\n", machine.backend.explanation);
  if (!machine.backend.on_device()) text += memory_text(machine);
  for (const std::string& line : plan.layout.explanation) text += fmt::format("  {}\n", line);
  if (const std::string& servers = plan.draft_servers.explanation; !servers.empty())
    text += fmt::format("  {}\n", servers);
  text += fmt::format("  {}\n  {}\n", plan.memory.kv.explanation, chunk_text(inputs, plan));
  text += kv_pool_text(inputs, plan);
  text += elastic_text(inputs, plan);
  const int tp = plan.layout.placement.least_tp();
  const auto weights =
      static_cast<double>(model::weight_bytes(inputs.target.config, inputs.target.compute, tp));
  text += fmt::format("  weights {:.1f} MiB a rank{}; longest sequence {} tokens\n", weights / kMiB,
                      copy_text(plan, {{}, tp, 0}), inputs.sizes.longest_sequence);
  if (inputs.sizes.largest_picture > 0) {
    text += fmt::format(
        "  pictures of up to {} patches: a vision tower of {:.1f} MiB{}, buffers {:.1f} MiB\n",
        inputs.sizes.largest_picture, static_cast<double>(tower_bytes(inputs)) / kMiB,
        copy_text(plan, {.tower = true}), static_cast<double>(plan.memory.use.pictures) / kMiB);
  }
  if (machine.backend.on_device()) text += memory_use_text(machine, plan);
  if (plan.costs.profile) {
    const std::string& path = *inputs.config.engine.profile;
    text += plan.costs.profile_holds()
                ? fmt::format("  costs from {} (engine.profile)\n", path)
                : fmt::format("  warning: {}{} (engine.profile) does not apply to this run: {}\n",
                              wants_costs(inputs, plan) ? "a run measures its costs anew, because "
                                                        : "no policy asks for costs, and ",
                              path, plan.costs.fault);
  }
  if (!plan.drafters.empty()) text += drafts_text(inputs, plan);
  return text + conversing_text(inputs) + scoring_text(inputs) + sampling_text(inputs);
}

std::string memory_use_text(const Machine& machine, const Plan& plan) {
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; };
  const MemoryUse& m = plan.memory.use;
  if (!machine.backend.on_device()) {
    return fmt::format(
        "  host memory of a rank, MiB: weights {:.0f}, logits {:.0f}, KV {:.0f}; modelled nodes "
        "are assumed to have enough\n",
        mib(m.weights), mib(m.logits), mib(m.kv));
  }
  return fmt::format(
      "  device memory of a rank, MiB: {:.0f} to plan with; weights {:.0f}, embeddings and "
      "buffers {:.0f}, logits {:.0f}, KV {:.0f}\n",
      mib(machine.backend.memory), mib(m.weights), mib(m.device_buffers), mib(m.logits), mib(m.kv));
}

std::string circumstances_text(const Inputs& inputs, const Machine& machine,
                               const TimeLimit& limit) {
  std::string text;
  int threads = 0;
  for (const fabric::RankFacts& fact : machine.ranks) {
    if (fact.node == machine.ranks[0].node) threads += machine.threads;
  }
  if (machine.ranks[0].sharers == machine.ranks[0].local_ranks &&
      threads > machine.ranks[0].cores) {
    text += fmt::format("  warning: {} on {} of a node: ranks will take turns\n",
                        counted(threads, "thread"), counted(machine.ranks[0].cores, "core"));
  }
  text += limit.seconds ? fmt::format("  stops {} before {}, which is {} from now\n",
                                      duration_text(inputs.config.limits.margin), limit.origin,
                                      duration_text(*limit.seconds))
                        : fmt::format("  no wall-clock limit ({})\n", limit.origin);
  return text;
}

}  // namespace paceline::app
