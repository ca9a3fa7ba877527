#include "app/assembly/memory_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/assembly/compute.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/weight_plan.hpp"
#include "kernels/gpus.hpp"
#include "kernels/source_rows.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/earlier_responses.hpp"
#include "runtime/core/error.hpp"
#include "runtime/draft/head_drafter.hpp"
#include "runtime/draft/head_sequences.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_tree.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/kv/host_tiers.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/feature_head.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/model/tower.hpp"
#include "runtime/protocol/draft_messages.hpp"

namespace paceline::app {
namespace {

// Bytes of a step's logits on a rank. A request has a row for its next token and a row for each
// token of its draft. In `paceline score`, each token of a prefill chunk has a row. In a group of
// several ranks, a rank has its part of the vocabulary for all rows, and the whole vocabulary for
// its share of the rows.
std::uint64_t logit_bytes(const Inputs& inputs, const Plan& plan, std::uint64_t memory_per_rank) {
  const engine::ExecutorLimits most = executor_limits(inputs, plan);
  const std::int64_t rows = std::int64_t{most.max_batch} * (1 + most.max_draft);
  const std::uint64_t bytes = static_cast<std::uint64_t>(rows) * inputs.vocabulary() /
                              plan.layout.placement.least_tp() * sizeof(float) *
                              (plan.layout.placement.least_tp() > 1 ? 2 : 1);
  // If even the logits of a step without drafts do not fit, shorter drafts would not help. In this
  // case require_room() reports later that memory is too small.
  const bool fits = memory_per_rank == 0 || bytes <= memory_per_rank ||
                    (!inputs.given && bytes / (1 + most.max_draft) > memory_per_rank);
  if (fits && rows + most.prefill_chunk <= INT32_MAX) return bytes;
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (inputs.given) {
    throw UsageError(fmt::format(
        "engine.prefill_chunk: the logits of {} rows per step take {:.1f} GiB per rank; lower "
        "prefill_chunk",
        rows, gib));
  }
  throw UsageError(fmt::format(
      "speculation.max_length: drafts of up to {} for each of {} make {} rows per step, whose "
      "logits take {:.1f} GiB per rank; lower max_length, speculation.paths or engine.max_batch",
      counted(most.max_draft, "token"), counted(most.max_batch, "request"), rows, gib));
}

/// Greatest numbers of rows that one request can have in one pass of the draft head.
kernels::PassRows head_rows(const Inputs& inputs, const Plan& plan) {
  return draft::rows_of_request(draft_head(plan)->config,
                                inputs.config.speculation.paths.value_or(1),
                                longest_draft(inputs, plan));
}

/// Bytes of the head's logits for a full batch. A row covers the head's own vocabulary and, if the
/// head numbers tokens differently from the target, the target's vocabulary as well.
std::uint64_t head_logit_bytes(const Inputs& inputs, const Plan& plan) {
  const HeadConfig& head = draft_head(plan)->config;
  const PublishedHead* own = published(head);
  const bool mapped = own != nullptr && !own->target_ids.empty();
  return sizeof(float) * inputs.config.engine.max_batch * head_rows(inputs, plan).logit_rows *
         (draft_vocab(head) + (mapped ? inputs.vocabulary() : 0));
}

// Bytes on a device in addition to packed weights, the target's logits, pictures and KV. A host
// needs no such plan: it reads embeddings from mapped files, and its other buffers are small
// compared with the memory that plans leave free.
std::uint64_t device_bytes(const Inputs& inputs, const Plan& plan) {
  const io::EngineSection& engine = inputs.config.engine;
  // Latent attention needs no workspace, because it keeps partial results in registers.
  const auto states = [](const ModelConfig& config, std::uint64_t rows, int tp) {
    return config.latent ? 0
                         : kernels::attention_workspace(rows, config.heads / tp, config.head_dim);
  };
  const auto buffers = [&](const ModelConfig& config, DType compute, int tp, std::uint64_t rows) {
    return states(config, rows, tp) + rows * model::row_bytes(config, compute, tp);
  };
  const auto embeddings = [](const ModelCheckpoint& of, int tp) {
    return model::embedding_bytes(of.config, of.stored(), of.compute, tp);
  };
  const engine::ExecutorLimits most = executor_limits(inputs, plan);
  const std::uint64_t rows =
      std::uint64_t{1} * most.max_batch * (1 + most.max_draft) + most.prefill_chunk;
  const int tp = plan.layout.placement.least_tp();
  std::uint64_t bytes = buffers(inputs.target.config, inputs.target.compute, tp, rows);
  if (!inputs.priced) bytes += embeddings(inputs.target, tp);
  for (const int degree : plan.layout.placement.degrees())
    bytes += degree > 1 ? fabric::kGroupExchangeBytes : 0;
  bytes += plan.tail_groups.costs.size() * fabric::kGroupExchangeBytes;
  for (const PlannedDrafter& drafter : plan.drafters) {
    if (drafter.model == nullptr || !has_draft_models(plan, Role::verifier)) continue;
    const ModelCheckpoint& draft = *drafter.model;
    bytes += buffers(draft.config, draft.compute, 1, engine.max_batch + engine.prefill_chunk) +
             embeddings(draft, 1) + sizeof(float) * engine.max_batch * draft.config.vocab;
  }
  if (has_head(plan, Role::verifier)) {
    const HeadConfig& config = draft_head(plan)->config;
    const ModelConfig& layer = layer_of(config);
    const std::uint64_t level = std::uint64_t{1} * engine.max_batch * head_rows(inputs, plan).rows;
    // The head captures CUDA graphs of two kinds of passes, and each kind has its own workspace.
    bytes += 2 * states(layer, level + engine.prefill_chunk, 1) +
             (level + engine.prefill_chunk) * model::row_bytes(config, inputs.target.compute) +
             head_logit_bytes(inputs, plan) + feature_row_bytes(inputs, plan) * rows;
    // A head reads a whole embedding table: its own, or the target's. In a group of several ranks,
    // each rank has only a part of the target's table, so the head's rank makes a whole copy.
    if (has_own_embeddings(config)) {
      const std::string name = model::describe_head(config).embedding->name + ".weight";
      const DType stored = draft_head(plan)->weights->find(name)->dtype;
      bytes += static_cast<std::uint64_t>(layer.vocab) * layer.hidden *
               size_of(kernels::copied_as(stored));
    } else if (std::ranges::any_of(plan.layout.placement.degrees(), [](int d) { return d > 1; })) {
      bytes += static_cast<std::uint64_t>(inputs.vocabulary()) * inputs.target.config.hidden *
               size_of(kernels::copied_as(inputs.target.stored()));
    }
  }
  return bytes;
}

/// Full batches that each drafter rank drafts for, rounded up; 1 if there are no drafter ranks.
std::int64_t batches_per_drafter(const Plan& plan) {
  const int drafters = plan.layout.drafters();
  return drafters == 0 ? 1 : (plan.layout.groups() + drafters - 1) / drafters;
}

/// The shape of KV blocks of `drafter`, a draft model or a head.
kernels::KvShape kv_shape(const Inputs& inputs, const PlannedDrafter& drafter) {
  const std::int32_t block = inputs.config.engine.kv_block;
  if (drafter.head != nullptr)
    return model::kv_shape(layer_of(drafter.head->config), 1, block, inputs.target.compute);
  return model::kv_shape(drafter.model->config, 1, block, drafter.model->compute);
}

/// Bytes of the draft models on a rank of this role. `blocks`: [drafters] KV blocks.
DrafterMemory models_memory(const Inputs& inputs, const Plan& plan, Role role,
                            std::span<const std::int32_t> blocks) {
  DrafterMemory memory;
  if (!has_draft_models(plan, role)) return memory;
  for (std::size_t d = 0; d < plan.drafters.size(); ++d) {
    const PlannedDrafter& drafter = plan.drafters[d];
    if (drafter.model == nullptr) continue;
    memory.weights += drafter_bytes(inputs, drafter.model, nullptr);
    memory.kv += kv_shape(inputs, drafter).block_bytes() * blocks[d];
  }
  return memory;
}

/// Bytes of the head on a rank of this role. `blocks`: [drafters] KV blocks.
DrafterMemory head_memory(const Inputs& inputs, const Plan& plan, Role role,
                          std::span<const std::int32_t> blocks) {
  if (!has_head(plan, role)) return {};
  const auto at = std::find_if(plan.drafters.begin(), plan.drafters.end(),
                               [](const auto& drafter) { return drafter.head != nullptr; });
  return {drafter_bytes(inputs, nullptr, at->head),
          kv_shape(inputs, *at).block_bytes() * blocks[at - plan.drafters.begin()]};
}

/// Bytes of the KV of a verifier's own drafters. `blocks`: [drafters] KV blocks.
std::uint64_t draft_kv(const Inputs& inputs, const Plan& plan,
                       std::span<const std::int32_t> blocks) {
  return models_memory(inputs, plan, Role::verifier, blocks).kv +
         head_memory(inputs, plan, Role::verifier, blocks).kv;
}

/// [drafters] KV blocks of a head for the draft tokens of a full batch; 0 for other drafters. Each
/// token of a draft tree takes a KV position. plan_draft_blocks() adds blocks for the texts.
std::vector<std::int32_t> drafted_blocks(const Inputs& inputs, const Plan& plan) {
  const io::EngineSection& engine = inputs.config.engine;
  const io::SpeculationSection& settings = inputs.config.speculation;
  std::vector<std::int32_t> blocks;
  for (const PlannedDrafter& drafter : plan.drafters) {
    if (drafter.head == nullptr) {
      blocks.push_back(0);
      continue;
    }
    const std::int64_t longest =
        has_head(plan, Role::drafter)
            ? std::int64_t{protocol::most_ahead(plan.speculation.window.most())}
            : std::int64_t{settings.max_length} * settings.paths.value_or(1);
    const std::int64_t block = block_size(drafter.head->config);
    blocks.push_back(static_cast<std::int32_t>(
        engine.max_batch * kv::blocks_for(std::max(longest, block), engine.kv_block)));
  }
  return blocks;
}

/// [drafters] Plans each drafter's number of KV blocks. A draft model or head gets blocks for the
/// longest sequences of a full batch, but no more than the target has. On a drafter rank, both
/// numbers are multiplied by batches_per_drafter(), and half of `memory` is a further limit. One
/// longest sequence always fits. A head also gets its drafted_blocks(). `memory`: bytes for KV on a
/// verifier; 0: unknown. `target`, `longest`: KV blocks of the target and of a longest sequence.
std::vector<std::int32_t> plan_draft_blocks(const Inputs& inputs, const Plan& plan,
                                            std::uint64_t memory, std::int32_t target,
                                            std::int64_t longest) {
  const io::EngineSection& engine = inputs.config.engine;
  const auto blocks_for_texts = [&](const PlannedDrafter& drafter, bool ahead) {
    const std::int64_t batches = ahead ? batches_per_drafter(plan) : 1;
    std::int64_t most = std::max<std::int64_t>(target * batches, longest);
    if (ahead && memory > 0) {
      const std::uint64_t half = memory / 2 / kv_shape(inputs, drafter).block_bytes();
      most = std::min(most, std::max(longest, static_cast<std::int64_t>(half)));
    }
    return std::min(batches * engine.max_batch * longest, most);
  };
  std::vector<std::int32_t> blocks = drafted_blocks(inputs, plan);
  for (std::size_t d = 0; d < blocks.size(); ++d) {
    const PlannedDrafter& drafter = plan.drafters[d];
    std::int64_t texts = 0;
    if (drafter.model != nullptr) texts = blocks_for_texts(drafter, plan.layout.drafters() > 0);
    if (drafter.head != nullptr) texts = blocks_for_texts(drafter, has_head(plan, Role::drafter));
    blocks[d] += static_cast<std::int32_t>(texts);
  }
  return blocks;
}

/// Plans the host memory in which a rank stores the KV of waiting requests. On a machine with GPUs,
/// host memory holds little else, so no other use of it is counted.
policy::KvPoolPlan plan_kv_pool(const Inputs& inputs, const Machine& machine, const MemoryUse& use,
                                const kernels::KvShape& shape, std::int32_t blocks_per_request) {
  policy::KvPoolFacts facts;
  facts.host_memory =
      std::ranges::min(machine.ranks, {}, &fabric::RankFacts::own_memory).own_memory();
  if (!machine.backend.on_device()) facts.taken = use.beside_kv() + use.kv;
  facts.block_bytes = kv::HostTiers::stride(shape.block_bytes());
  facts.most = facts.block_bytes * blocks_per_request * inputs.sizes.responses;
  const io::KvPoolSection& pool = inputs.config.kv_pool;
  return policy::plan_kv_pool(facts, {pool.memory, pool.disk.has_value()});
}

}  // namespace

DrafterMemory draft_model_memory(const Inputs& inputs, const Plan& plan, Role role) {
  return models_memory(inputs, plan, role, plan.memory.draft_blocks);
}

DrafterMemory head_memory(const Inputs& inputs, const Plan& plan, Role role) {
  return head_memory(inputs, plan, role, plan.memory.draft_blocks);
}

// Counts the features of a verifier's full batch, or of a drafter rank's batches_per_drafter() full
// batches. Features of responses wait until the head reads them or the verifier sends them to the
// head's rank. A rank with the head also keeps the features of prompts.
std::uint64_t feature_memory(const Inputs& inputs, const Plan& plan, Role role) {
  const bool reads = has_head(plan, role);
  const bool sends = role == Role::verifier && has_head(plan, Role::drafter);
  if (!reads && !sends) return 0;
  const std::uint64_t row = feature_row_bytes(inputs, plan);
  const std::int64_t batches = role == Role::drafter ? batches_per_drafter(plan) : 1;
  return row * batches * inputs.config.engine.max_batch *
         ((reads ? inputs.sizes.longest_prompt : 0) + 2 * draft::kMostKeptFeatures);
}

namespace {

/// Greatest number of responses in suffix trees: those of the run and, if speculation.history is
/// set, the same number from each of kMostEarlierSteps earlier training steps.
std::uint64_t known_responses(const Inputs& inputs) {
  return inputs.sizes.responses * (inputs.config.speculation.history ? 1 + kMostEarlierSteps : 1);
}

/// Estimates the number of tokens in all known_responses().
std::uint64_t known_tokens(const Inputs& inputs) {
  return static_cast<std::uint64_t>(static_cast<double>(known_responses(inputs)) *
                                    inputs.sizes.mean_max_tokens);
}

}  // namespace

/// Counts texts of active requests. Suffix trees also hold known_tokens(), up to max_memory bytes.
std::uint64_t text_memory(const Inputs& inputs, const Plan& plan, Role role) {
  const std::int64_t batches = role == Role::drafter ? batches_per_drafter(plan) : 1;
  const std::uint64_t requests =
      std::min<std::uint64_t>(batches * inputs.config.engine.max_batch, inputs.sizes.responses);
  const std::uint64_t own = requests * inputs.sizes.longest_sequence;
  const std::uint64_t trees = known_responses(inputs) / inputs.config.prompts.samples + 1;
  std::uint64_t bytes = 0;
  for (const std::int32_t d : own_drafters(plan, role)) {
    const io::DrafterSetting& setting = plan.drafters[d].setting;
    if (setting.method == io::DrafterMethod::ngram)
      bytes += draft::NgramIndex::most_bytes({setting.min_match, setting.max_match}, own);
    if (setting.method != io::DrafterMethod::suffix) continue;
    bytes +=
        own * 2 * sizeof(TokenId) + draft::SuffixTree::most_bytes(requests, own) +  // texts, trees
        std::min(setting.max_memory, draft::SuffixTree::most_bytes(trees, known_tokens(inputs)));
  }
  return bytes;
}

std::uint64_t log_memory(const Inputs& inputs, const Plan& plan) {
  if (plan.draft_servers.ranks.empty()) return 0;
  return std::min<std::uint64_t>(draft_log_limits(inputs, {}).max_bytes,
                                 known_tokens(inputs) * sizeof(TokenId));
}

namespace {

/// Advises the user how to give a rank more memory, or how to make the rank need less. In a
/// simulation, the advice names only settings that the simulation would accept.
std::string remedy(const Inputs& inputs, bool on_device) {
  if (inputs.priced) {
    const io::SimulationSection& simulation = inputs.config.simulation;
    std::vector<std::string_view> keys;
    if (simulation.instance == 1) keys.emplace_back("layout.verifier_tp");
    if (simulation.gpu_tables) {
      if (simulation.instance == 1 && !inputs.priced->latent)
        keys.emplace_back("simulation.gpus_per_rank");
      if (inputs.priced->experts) keys.emplace_back("simulation.instance");
    }
    return fmt::format("take a higher {}, or GPUs of more memory (simulation.gpu_memory)",
                       fmt::join(keys, " or "));
  }
  return on_device
             ? "take a higher layout.verifier_tp, or GPUs of more memory"
             : "take fewer ranks per node, nodes with more memory or a higher layout.verifier_tp";
}

/// Throws UsageError if weights and buffers do not fit into a rank's `memory` bytes (0: unknown).
/// `taken`: bytes of weights and buffers together.
void require_room(std::uint64_t memory, std::uint64_t weights, std::uint64_t taken, int tp,
                  const std::string& remedy) {
  if (memory == 0 || taken < memory) return;
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw UsageError(fmt::format(
      "layout.verifier_tp: at degree {} a rank's weights take {:.2f} GiB and a step's buffers "
      "{:.2f} GiB, which is {:.2f} GiB more than the {:.2f} GiB that the rank may use; {}, or "
      "lower engine.max_batch",
      tp, gib(weights), gib(taken - weights), gib(taken - memory), gib(memory), remedy));
}

}  // namespace

// A picture's rows are seldom needed twice, because all responses to a prompt share the prompt's
// KV. In a model of width 8,192, kBytes hold eight pictures of 1,024 rows besides the largest one.
std::int64_t kept_picture_rows(const Inputs& inputs) {
  if (inputs.sizes.largest_picture == 0) return 0;
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  const std::int32_t merge = inputs.target.config.vision->tower->merge;
  return inputs.sizes.largest_picture / (merge * merge) +
         kBytes / (inputs.target.config.hidden * std::int64_t{sizeof(float)});
}

namespace {

/// Bytes that pictures take on the rank's device or, without a device, on its host. Kept rows are
/// on the host. A device has only the rows of one pass and of the picture that its tower computes.
std::uint64_t picture_bytes(const Inputs& inputs, bool on_device) {
  if (inputs.sizes.largest_picture == 0) return 0;
  const TowerConfig& tower = *inputs.target.config.vision->tower;
  const std::int64_t patches = inputs.sizes.largest_picture;
  const std::int64_t rows =
      on_device ? inputs.config.engine.prefill_chunk + patches / (tower.merge * tower.merge)
                : kept_picture_rows(inputs);
  const std::uint64_t states =
      on_device ? kernels::attention_workspace(patches, tower.heads, tower.head_dim()) : 0;
  return rows * sizeof(float) * inputs.target.config.hidden + states +
         model::tower_pass_bytes(tower, inputs.target.compute, patches);
}

}  // namespace

MemoryPlan plan_memory(const Inputs& inputs, const Machine& machine, const Plan& plan) {
  const io::EngineSection& engine = inputs.config.engine;
  const bool on_device = machine.backend.on_device();
  const int tp = plan.layout.placement.least_tp();
  const std::int32_t blocks_per_request =
      kv::Sequences::blocks_needed(inputs.sizes.longest_sequence, engine.kv_block);
  const kernels::KvShape shape =
      model::kv_shape(inputs.target.config, model::attention_ranks(tp, inputs.attention()),
                      engine.kv_block, inputs.target.compute, inputs.config.sampling.keep_routing);
  const std::string more = remedy(inputs, on_device);
  MemoryPlan memory;
  MemoryUse& use = memory.use;
  use.weights = plan.weights.most;
  use.logits = logit_bytes(inputs, plan, machine.backend.memory);
  if (on_device) {
    use.device_buffers = device_bytes(inputs, plan);
  } else if (!inputs.priced && draft_head(plan) != nullptr) {
    use.logits += head_logit_bytes(inputs, plan);
  }
  use.features = feature_memory(inputs, plan, Role::verifier);
  use.pictures = picture_bytes(inputs, on_device);
  // Features are in host memory, so they do not count on a device.
  const std::uint64_t taken = use.beside_kv() - (on_device ? use.features : 0) +
                              draft_kv(inputs, plan, drafted_blocks(inputs, plan));
  require_room(machine.backend.memory, use.weights, taken, tp, more);
  const std::uint64_t room = machine.backend.memory == 0 ? 0 : machine.backend.memory - taken;
  // If layout.attention is `data`, `owners` ranks divide a batch, each with KV for its part only.
  const int owners = inputs.owners(tp);
  // The leader's drafters keep KV for the positions of all `owners` ranks. So each KV block of the
  // target is planned with `owners` blocks of each drafter.
  const std::vector<std::int32_t> one_each(plan.drafters.size(), 1);
  memory.kv = policy::plan_kv(
      {.block_bytes = shape.block_bytes() + owners * draft_kv(inputs, plan, one_each),
       .memory_per_rank = room,
       .shared = !on_device,
       .max_batch = (engine.max_batch + owners - 1) / owners,
       .blocks_per_request = blocks_per_request,
       .remedy = more},
      engine.kv_memory);
  memory.draft_blocks =
      plan_draft_blocks(inputs, plan, room, owners * memory.kv.blocks, blocks_per_request);
  use.kv = shape.block_bytes() * memory.kv.blocks + draft_kv(inputs, plan, memory.draft_blocks);
  if (inputs.config.elastic()) {
    // Only the leader has draft models, so other ranks of the group always have this memory free.
    const std::uint64_t lent = weights_to_lend(inputs, plan) +
                               models_memory(inputs, plan, Role::verifier, memory.draft_blocks).kv;
    memory.kv_gain = static_cast<std::int32_t>(
        std::min<std::uint64_t>(lent / shape.block_bytes(), INT32_MAX - memory.kv.blocks));
  }
  memory.kv_pool = plan_kv_pool(inputs, machine, use, shape, blocks_per_request);
  return memory;
}

}  // namespace paceline::app
