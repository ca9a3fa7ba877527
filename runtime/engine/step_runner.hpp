// What runs the steps of a verifier group, as roles see it, and the KV pool that it runs them on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/engine/step.hpp"

namespace paceline::engine {

/// What a verifier needs of whatever runs its steps: the real executor below, or a cost model.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Executes the step and returns one token for each of its samples, in their order. The result is
  /// valid until the next call.
  virtual std::span<const kernels::Sampled> run(const Step& step) = 0;
  /// What each sample of the last step could have been (SamplingParams::keep_masks): as many ids as
  /// its Sampled::kept says, one sample after the other. Valid until the next run().
  [[nodiscard]] virtual std::span<const TokenId> kept_ids() const { return {}; }
  /// Bytes of what a drafter may read of a row of the target (model::Decoder::features()); 0: none
  /// are kept.
  [[nodiscard]] virtual std::size_t feature_bytes() const { return 0; }
  /// Copies those of these rows of the last step, in their order: [rows, feature_bytes()].
  virtual void read_features(std::span<const std::int32_t> /*rows*/, std::span<std::byte> /*out*/) {
  }
  /// Seconds of the last step that went into the forward pass, and into sampling.
  [[nodiscard]] virtual double forward_seconds() const = 0;
  [[nodiscard]] virtual double sample_seconds() const = 0;
  /// What the last step's collectives took of them, and sent.
  [[nodiscard]] virtual GroupTraffic traffic() const { return {}; }
};

/// A rank's share of the KV pool.
struct KvMemory {
  kernels::KvShape shape;
  std::span<std::byte> bytes;   ///< [blocks] chunks of shape.block_bytes()
  std::shared_ptr<void> owner;  ///< whoever has it keeps them; null: they are kept otherwise
  [[nodiscard]] std::span<std::byte> block(std::int32_t index) const {
    return bytes.subspan(index * shape.block_bytes(), shape.block_bytes());
  }
};

/// Sizes of the largest step and of the KV pool.
struct ExecutorLimits {
  int max_batch = 64;       ///< requests in a step
  int max_draft = 0;        ///< draft rows a request
  int prefill_chunk = 256;  ///< prompt rows in a step
  int kv_block = 16;        ///< positions
  int kv_blocks = 0;        ///< blocks in the pool at the start
  int most_kv_blocks = 0;   ///< that it may come to have; 0: no more
  int max_position = 0;     ///< longest sequence
  /// Layers whose features of the rows are kept, on the leader of a group (model::Decoder).
  std::vector<std::int32_t> features = {};
  std::string weights = "the weights";  ///< where they are, for errors
};

}  // namespace paceline::engine
