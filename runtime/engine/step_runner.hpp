// The runner of a verifier group's steps, as roles see it, and the KV pool that it runs them on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/backend.hpp"
#include "runtime/engine/step.hpp"

namespace paceline::engine {

/// The runner of a verifier's steps: the real executor (executor.hpp), or a cost model.
class StepRunner {
 public:
  virtual ~StepRunner() = default;
  /// Executes the step.
  virtual StepResult run(const Step& step) = 0;
  /// Routed experts of the positions in these places of the KV pool, all of one owner: [places,
  /// layers with experts, chosen]. Empty: experts are not kept. If ranks have the KV of their own
  /// requests, all ranks of the group must call this.
  [[nodiscard]] virtual std::vector<std::int16_t> read_routing(
      std::span<const kv::Place> /*places*/) {
    return {};
  }
  /// Bytes of one row's features of the target, which a drafter may read
  /// (model::Decoder::features()); 0: none are kept.
  [[nodiscard]] virtual std::size_t feature_bytes() const { return 0; }
  /// Copies the features of `rows` of the last step, in their order. `out`: [rows,
  /// feature_bytes()].
  virtual void read_features(std::span<const std::int32_t> /*rows*/, std::span<std::byte> /*out*/) {
  }
};

/// A rank's share of the KV pool.
struct KvMemory {
  kernels::KvShape shape;
  std::span<std::byte> bytes;   ///< [blocks] chunks of shape.block_bytes()
  std::shared_ptr<void> owner;  ///< keeps `bytes` alive; null: kept alive otherwise
  [[nodiscard]] std::span<std::byte> block(std::int32_t index) const {
    return bytes.subspan(index * shape.block_bytes(), shape.block_bytes());
  }
};

/// Sizes of the largest step and of the KV pool.
struct ExecutorLimits {
  int max_batch = 64;          ///< requests in a step
  int max_draft = 0;           ///< draft rows of a request
  int prefill_chunk = 256;     ///< prompt rows in a step
  int kv_block = 16;           ///< positions per block
  int kv_blocks = 0;           ///< blocks in the pool at the start
  int most_kv_blocks = 0;      ///< most blocks that the pool may grow to; 0: it never grows
  int max_position = 0;        ///< longest sequence
  bool keep_routing = false;   ///< the KV pool keeps the experts of each position
  bool gives_routing = false;  ///< experts of rows are given (Executor::give_routing())
  /// Layers whose features are kept for each row, on the leader of a group (model::Decoder).
  std::vector<std::int32_t> features = {};
  std::string weights = "the weights";  ///< path of the weights, for error messages
};

}  // namespace paceline::engine
