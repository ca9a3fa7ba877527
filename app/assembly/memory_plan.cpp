#include "app/assembly/memory_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "app/assembly/compute.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/setup.hpp"
#include "app/assembly/weight_store.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "kernels/gpus.hpp"
#include "kernels/source_rows.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/draft/head_sequences.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/kv/host_tiers.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/eagle3_head.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/protocol/draft_messages.hpp"

namespace paceline::app {
namespace {

// Bytes of a rank's logits, the largest of a step's buffers: a row for every token of every draft,
// by the rank's columns and, within a group, its share of the rows by all columns.
std::uint64_t logit_bytes(const Setup& setup, std::uint64_t memory_per_rank) {
  const engine::ExecutorLimits most = executor_limits(setup);
  const std::int64_t rows = std::int64_t{most.max_batch} * (1 + most.max_draft);
  const std::uint64_t bytes = static_cast<std::uint64_t>(rows) * setup.model.vocab /
                              setup.layout.placement.least_tp() * sizeof(float) *
                              (setup.layout.placement.least_tp() > 1 ? 2 : 1);
  const bool fits = memory_per_rank == 0 || bytes <= memory_per_rank;
  if (fits && rows + most.prefill_chunk <= INT32_MAX) return bytes;
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (setup.given) {
    throw UsageError(fmt::format(
        "engine.prefill_chunk: the logits of {} rows a step take {:.1f} GiB a rank; lower it", rows,
        gib));
  }
  throw UsageError(fmt::format(
      "speculation.max_length: drafts of up to {} for {} are {} rows a step, whose logits take "
      "{:.1f} GiB a rank; lower it, speculation.paths or engine.max_batch",
      counted(most.max_draft, "token"), counted(most.max_batch, "request"), rows, gib));
}

// Bytes that a device holds beside packed weights, logits and KV. A host needs no such plan: it
// reads embeddings from mapped files, and its other buffers are small beside the memory left free.
std::uint64_t device_bytes(const Setup& setup) {
  const io::EngineSection& engine = setup.config.engine;
  const auto buffers = [](const ModelConfig& config, DType compute, int tp, std::uint64_t rows) {
    return kernels::attention_workspace(rows, config.heads / tp, config.head_dim) +
           rows * model::row_bytes(config, compute, tp);
  };
  const auto embeddings = [](const ModelConfig& config, const io::Checkpoint* weights,
                             DType compute, int tp) {
    return model::embedding_bytes(config, stored_dtype(config, weights), compute, tp);
  };
  const engine::ExecutorLimits most = executor_limits(setup);
  const std::uint64_t rows =
      std::uint64_t{1} * most.max_batch * (1 + most.max_draft) + most.prefill_chunk;
  const int tp = setup.layout.placement.least_tp();
  std::uint64_t bytes = buffers(setup.model, setup.compute, tp, rows);
  if (!setup.priced) bytes += embeddings(setup.model, setup.weights.get(), setup.compute, tp);
  for (const int degree : setup.layout.placement.degrees())
    bytes += degree > 1 ? fabric::kGroupExchangeBytes : 0;
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model == nullptr || !has_draft_models(setup, Role::verifier)) continue;
    const DraftModel& draft = *drafter.model;
    bytes += buffers(draft.config, draft.compute, 1, engine.max_batch + engine.prefill_chunk) +
             embeddings(draft.config, draft.weights.get(), draft.compute, 1) +
             sizeof(float) * engine.max_batch * draft.config.vocab;
  }
  if (has_head(setup, Role::verifier)) {
    const Eagle3Config& config = draft_head(setup)->checkpoint.config;
    // Rows of one tree level for each request.
    const std::uint64_t level =
        std::uint64_t{1} * engine.max_batch * setup.config.speculation.paths.value_or(1);
    // Two kinds of passes are recorded, each with a workspace.
    bytes += 2 * kernels::attention_workspace(level + engine.prefill_chunk, config.layer.heads,
                                              config.layer.head_dim) +
             (level + engine.prefill_chunk) * model::row_bytes(config, setup.compute) +
             sizeof(float) * level * (config.draft_vocab + setup.model.vocab) +
             feature_row_bytes(setup) * rows;
    // The head embeds any token, but in a group the rank has only a part of the target's table.
    if (config.own_embeddings) {
      const DType stored = io::embedding_dtype(draft_head(setup)->checkpoint);
      bytes += static_cast<std::uint64_t>(config.layer.vocab) * config.layer.hidden *
               size_of(kernels::copied_as(stored));
    } else if (std::ranges::any_of(setup.layout.placement.degrees(), [](int d) { return d > 1; })) {
      bytes += static_cast<std::uint64_t>(setup.model.vocab) * setup.model.hidden *
               size_of(kernels::copied_as(stored_dtype(setup.model, setup.weights.get())));
    }
  }
  return bytes;
}

/// The most groups that one drafter rank drafts for; 1 where groups draft for themselves.
std::int64_t groups_of_drafter(const Setup& setup) {
  const int drafters = setup.layout.drafters();
  return drafters == 0 ? 1 : (setup.layout.groups() + drafters - 1) / drafters;
}

kernels::KvShape head_shape(const Setup& setup, const DraftHead& head) {
  return model::kv_shape(head.checkpoint.config.layer, 1, setup.config.engine.kv_block,
                         setup.compute);
}

/// Blocks that suspended draft models give to a group's pool: their KV, and their weights where the
/// rank has a copy of its own. A group's member has no draft models, and as much memory.
std::int32_t kv_gain(const Setup& setup, const kernels::KvShape& shape) {
  if (!setup.config.elastic()) return 0;
  const std::uint64_t bytes = weights_to_lend(setup) + drafter_memory(setup, Role::verifier).kv;
  return static_cast<std::int32_t>(
      std::min<std::uint64_t>(bytes / shape.block_bytes(), INT32_MAX - setup.kv.blocks));
}

/// Plans the host memory that a rank gives to KV of requests that wait. On a machine with devices,
/// host memory has little else to hold.
void plan_kv_pool(Setup& setup, const kernels::KvShape& shape, std::int32_t blocks_per_request) {
  policy::KvPoolFacts facts;
  facts.host_memory = UINT64_MAX;
  for (const fabric::RankFacts& rank : setup.facts)
    facts.host_memory = std::min(facts.host_memory, rank.memory_bytes / rank.local_ranks);
  if (!setup.backend.on_device()) facts.taken = setup.memory.beside_kv() + setup.memory.kv;
  facts.block_bytes = kv::HostTiers::stride(shape.block_bytes());
  facts.most = facts.block_bytes * blocks_per_request * setup.responses;
  const io::KvPoolSection& pool = setup.config.kv_pool;
  setup.kv_pool = policy::plan_kv_pool(facts, {pool.memory, pool.disk.has_value()});
}

}  // namespace

DrafterMemory drafter_memory(const Setup& setup, Role role) {
  DrafterMemory memory;
  if (!has_draft_models(setup, role)) return memory;
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model == nullptr) continue;
    const DraftModel& draft = *drafter.model;
    const kernels::KvShape shape =
        model::kv_shape(draft.config, 1, setup.config.engine.kv_block, draft.compute);
    memory.weights += model::weight_bytes(draft.config, draft.compute, 1);
    memory.kv += shape.block_bytes() * draft.kv_blocks;
  }
  return memory;
}

DrafterMemory head_memory(const Setup& setup, Role role) {
  if (!has_head(setup, role)) return {};
  const DraftHead* head = draft_head(setup);
  return {model::weight_bytes(head->checkpoint.config, setup.compute),
          head_shape(setup, *head).block_bytes() * head->kv_blocks};
}

// Features of a batch: those of its responses that wait to be read by a head or sent to one and, on
// the head's rank, those of its prompts.
std::uint64_t feature_memory(const Setup& setup, Role role) {
  const bool reads = has_head(setup, role);
  const bool sends = role == Role::verifier && has_head(setup, Role::drafter);
  if (!reads && !sends) return 0;
  const std::uint64_t row = feature_row_bytes(setup);
  const std::int64_t groups = role == Role::drafter ? groups_of_drafter(setup) : 1;
  return row * groups * setup.config.engine.max_batch *
         ((reads ? setup.longest_prompt : 0) + 2 * draft::kMostKeptFeatures);
}

namespace {

/// Advice on how to get a rank more memory, or to need less.
std::string remedy(const Setup& setup) {
  if (setup.priced)
    return "take a higher layout.verifier_tp or simulation.gpus_per_rank, or GPUs of more memory "
           "(simulation.gpu_memory)";
  return setup.backend.on_device()
             ? "take a higher layout.verifier_tp, or GPUs of more memory"
             : "take fewer ranks a node, nodes with more memory or a higher layout.verifier_tp";
}

/// Throws UsageError where weights and buffers alone do not fit a rank's memory.
void require_room(const Setup& setup, std::uint64_t taken) {
  const std::uint64_t memory = setup.backend.memory;
  if (memory == 0 || taken < memory) return;
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  throw UsageError(fmt::format(
      "layout.verifier_tp: at degree {} a rank's weights take {:.2f} GiB and a step's buffers "
      "{:.2f} GiB, which is {:.2f} GiB more than the {:.2f} GiB that it can plan with; {}, or "
      "lower "
      "engine.max_batch",
      setup.layout.placement.least_tp(), gib(setup.memory.weights),
      gib(taken - setup.memory.weights), gib(taken - memory), gib(memory), remedy(setup)));
}

}  // namespace

void plan_memory(Setup& setup) {
  const std::uint64_t memory_per_rank = setup.backend.memory;
  const io::EngineSection& engine = setup.config.engine;
  const std::int32_t blocks_per_request =
      kv::Sequences::blocks_needed(setup.longest_sequence, engine.kv_block);
  const kernels::KvShape shape = model::kv_shape(setup.model, setup.layout.placement.least_tp(),
                                                 engine.kv_block, setup.compute);
  MemoryPlan& memory_plan = setup.memory;
  memory_plan.weights = weight_memory(setup);
  memory_plan.logits = logit_bytes(setup, memory_per_rank);
  if (setup.backend.on_device()) memory_plan.copies = device_bytes(setup);
  memory_plan.features = feature_memory(setup, Role::verifier);
  // Features are in host memory, which a device does not count.
  const std::uint64_t taken =
      memory_plan.beside_kv() - (setup.backend.on_device() ? memory_plan.features : 0);
  require_room(setup, taken);
  const std::uint64_t memory = memory_per_rank == 0 ? 0 : memory_per_rank - taken;
  // Draft models hold the same positions at most, so each KV block comes with one of theirs.
  std::size_t block_bytes = shape.block_bytes();
  for (ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model != nullptr) drafter.model->kv_blocks = 1;
  }
  if (DraftHead* head = draft_head(setup)) head->kv_blocks = 1;
  block_bytes += drafter_memory(setup, Role::verifier).kv + head_memory(setup, Role::verifier).kv;
  setup.kv = policy::plan_kv({.block_bytes = block_bytes,
                              .memory_per_rank = memory,
                              .shared = !setup.backend.on_device(),
                              .max_batch = engine.max_batch,
                              .blocks_per_request = blocks_per_request,
                              .remedy = remedy(setup)},
                             engine.kv_memory);
  // Room to draft for whole batches at their longest, but for no more text than the target holds. A
  // drafter rank has batches of several groups, and at most as much memory as a verifier has for
  // KV.
  const std::int64_t longest = blocks_per_request;
  const auto blocks_for_texts = [&](const kernels::KvShape& of_draft, bool ahead) {
    const std::int64_t groups = ahead ? groups_of_drafter(setup) : 1;
    std::int64_t most = std::max<std::int64_t>(setup.kv.blocks * groups, longest);
    if (ahead && memory > 0) {
      most = std::min<std::int64_t>(
          most, std::max<std::int64_t>(
                    longest, static_cast<std::int64_t>(memory / 2 / of_draft.block_bytes())));
    }
    return std::min(groups * engine.max_batch * longest, most);
  };
  for (ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.model == nullptr) continue;
    const ModelConfig& draft = drafter.model->config;
    drafter.model->kv_blocks = static_cast<std::int32_t>(
        blocks_for_texts(model::kv_shape(draft, 1, engine.kv_block, drafter.model->compute),
                         setup.layout.drafters() > 0));
  }
  if (DraftHead* head = draft_head(setup)) {
    const io::SpeculationSection& settings = setup.config.speculation;
    const bool ahead = has_head(setup, Role::drafter);
    // Tokens drafted behind the text of each request. A tree's rows take one position each,
    // whatever they follow.
    const std::int64_t drafted =
        ahead ? std::int64_t{protocol::most_ahead(draft_window(settings))}
              : std::int64_t{settings.max_length} * settings.paths.value_or(1);
    head->kv_blocks =
        static_cast<std::int32_t>(blocks_for_texts(head_shape(setup, *head), ahead) +
                                  engine.max_batch * kv::blocks_for(drafted, engine.kv_block));
  }
  memory_plan.kv = shape.block_bytes() * setup.kv.blocks +
                   drafter_memory(setup, Role::verifier).kv + head_memory(setup, Role::verifier).kv;
  setup.kv_gain = kv_gain(setup, shape);
  plan_kv_pool(setup, shape, blocks_per_request);
}

}  // namespace paceline::app
