// Passes as CUDA graphs: one launch for the hundreds of kernels in a pass.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/memory.hpp"

namespace paceline::kernels::cuda {

/// Values that a captured pass contains as constants. All others are read from memory.
struct PassKey {
  PassRows rows;
  bool rotary = false;  ///< whether DeviceBatch::rotary is there
  AttentionGrid attention;
  bool operator==(const PassKey&) const = default;
};

/// The graphs of one owner, and the memory that only its passes use: for their batch and for states
/// of attention. A pass of a new kind is launched operation by operation. It is captured when its
/// kind comes again, since the ends of prompts have many sizes that never come again. The least
/// recently used graph is dropped to make room for another.
///
/// Which of these happens depends only on the owner's own passes. So the ranks of a tensor-parallel
/// group, whose passes are the same, launch, capture and replay in step, as NCCL requires, even
/// though only the leader has draft models in addition to the target.
class GraphRecording final : public Recording {
 public:
  /// `recordable`: if false, every pass is launched operation by operation.
  explicit GraphRecording(bool recordable) : recordable_(recordable) {}

  /// Makes room for a pass: bytes in the stage, and bytes of both parts of AttentionWorkspace. If
  /// memory has to move, waits for the stream and drops the graphs, which hold the old address.
  void make_room(std::size_t batch, std::size_t states, std::size_t arrivals, cudaStream_t stream);
  [[nodiscard]] MirroredStage& stage() { return stage_; }
  [[nodiscard]] std::byte* states() const { return states_.data(); }
  [[nodiscard]] std::byte* arrivals() const { return arrivals_.data(); }

  void run(const PassKey& key, cudaStream_t stream, const std::function<void()>& operations);

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const;
  };
  using Graph = std::unique_ptr<CUgraphExec_st, Destroy>;
  struct RecordedPass {
    PassKey key;
    Graph graph;  ///< null: the pass was seen once
    std::uint64_t used = 0;
  };
  static Graph capture(cudaStream_t stream, const std::function<void()>& operations);

  bool recordable_;
  MirroredStage stage_;
  DeviceMemory states_;
  DeviceMemory arrivals_;
  std::vector<RecordedPass> passes_;
  std::uint64_t clock_ = 0;
};

}  // namespace paceline::kernels::cuda
