#include "runtime/sim/engine.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace paceline::sim {

StepShape shape_of(const engine::Step& step) {
  StepShape shape;
  double decode_context = 0;
  double prefill_context = 0;
  std::size_t next = 0;
  for (const engine::StepPart& part : step.parts) {
    const std::size_t first = next;
    while (next < step.samples.size() && step.samples[next].row < part.first_row + part.rows)
      ++next;
    // A request past its prompt has all its rows sampled; a chunk of a prompt at most its last row.
    if (next - first == static_cast<std::size_t>(part.rows)) {
      ++shape.requests;
      shape.drafted += part.rows - 1;
      decode_context += part.first_position;
    } else {
      shape.prefill_rows += part.rows;
      prefill_context += static_cast<double>(part.first_position) * part.rows;
    }
  }
  if (shape.requests > 0) shape.context = decode_context / shape.requests;
  if (shape.prefill_rows > 0) shape.prefill_context = prefill_context / shape.prefill_rows;
  return shape;
}

ModelledRunner::ModelledRunner(World& world, ActorId actor, StepSeconds seconds,
                               const Responses& responses, std::optional<engine::KvMemory> memory,
                               bool leads)
    : world_(world),
      actor_(actor),
      seconds_(std::move(seconds)),
      responses_(responses),
      memory_(std::move(memory)),
      leads_(leads) {
  if (memory_ && (memory_->shape.dtype != DType::f32 || memory_->shape.head_dim != 1))
    throw std::invalid_argument("KV that is looked at has 4 bytes a head and slot");
}

engine::StepResult ModelledRunner::run(const engine::Step& step) {
  if (memory_) store(step);
  sampled_.clear();
  if (step.empty()) return {};
  if (leads_ || memory_) sample(step);
  const double before = world_.clock(actor_).now();
  world_.work(actor_, seconds_(shape_of(step), before));
  return {.sampled = sampled_, .forward_seconds = world_.clock(actor_).now() - before};
}

void ModelledRunner::sample(const engine::Step& step) {
  std::size_t next = 0;
  for (const engine::StepPart& part : step.parts) {
    const Response* response = nullptr;  // the same for all samples of the part
    for (; next < step.samples.size() && step.samples[next].row < part.first_row + part.rows;
         ++next) {
      const engine::StepSample& sample = step.samples[next];
      if (response == nullptr) {
        response = &response_of(part.sequence, sample.noise);
        if (memory_) look(part, *response);
      }
      sampled_.push_back({responses_.token(*response, sample.index), 0, 0});
    }
  }
}

/// The response with this noise, which is mostly the one that the sequence had before.
const Response& ModelledRunner::response_of(kv::Handle sequence, const NoiseKey& noise) {
  if (sequence >= static_cast<kv::Handle>(last_.size())) last_.resize(sequence + 1);
  const Response*& last = last_[sequence];
  if (last == nullptr || last->noise != noise) last = &responses_.of(noise);
  return *last;
}

// Heads are neighbours within each run of K or V, as in a real cache, so that a share for a group
// of another degree can be cut out.
std::int32_t* ModelledRunner::slot(std::int32_t block, int head, std::int32_t slot) {
  const kernels::KvShape& shape = memory_->shape;
  std::byte* bytes = memory_->block(block).data();
  return reinterpret_cast<std::int32_t*>(bytes) + static_cast<std::size_t>(head) * shape.block +
         slot;
}

void ModelledRunner::store(const engine::Step& step) {
  const kernels::KvShape& shape = memory_->shape;
  const int heads = shape.layers * shape.vectors();
  const std::size_t now = memory_->bytes.size();
  const std::size_t bytes = step.kv.blocks == 0 ? now : step.kv.blocks * shape.block_bytes();
  if (bytes > now) memory_->bytes = {memory_->bytes.data(), bytes};
  tables_.apply(step.kv.edits);
  for (const auto& move : step.kv.moves) {
    for (int head = 0; head < heads; ++head)
      *slot(move.to_block, head, move.to_slot) = *slot(move.from_block, head, move.from_slot);
  }
  for (const auto& copy : step.kv.copies) {
    const auto from = memory_->block(copy.from);
    std::copy(from.begin(), from.end(), memory_->block(copy.to).begin());
  }
  if (bytes < now) {  // blocks that are given back lose their contents
    const std::span<std::byte> gone = memory_->bytes.subspan(bytes);
    std::fill(gone.begin(), gone.end(), std::byte{0xFF});
    memory_->bytes = memory_->bytes.first(bytes);
  }
  for (const engine::StepPart& part : step.parts) {
    for (std::int32_t row = 0; row < part.rows; ++row) {
      const std::int32_t position = part.first_position + row;
      const std::int32_t block = tables_.of(part.sequence)[position / shape.block];
      for (int head = 0; head < heads; ++head)
        *slot(block, head, position % shape.block) = step.tokens[part.first_row + row];
    }
  }
}

/// Checks the KV of the text before the part, and of the token that its drafts follow. Throws
/// std::logic_error.
void ModelledRunner::look(const engine::StepPart& part, const Response& response) {
  const kernels::KvShape& shape = memory_->shape;
  const int heads = shape.layers * shape.vectors();
  const std::vector<TokenId>& prompt = response.prompt->tokens;
  const auto length = static_cast<std::int32_t>(prompt.size());
  for (std::int32_t position = 0; position <= part.first_position; ++position) {
    const TokenId token =
        position < length ? prompt[position] : responses_.token(response, position - length);
    const std::int32_t block = tables_.of(part.sequence)[position / shape.block];
    for (int head = 0; head < heads; ++head) {
      if (*slot(block, head, position % shape.block) != token)
        throw std::logic_error("a row sees KV that is not that of its text");
    }
  }
}

}  // namespace paceline::sim
