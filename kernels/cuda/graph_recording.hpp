// Passes as CUDA graphs: one launch for the hundreds of kernels of a pass.
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

/// All that a captured pass has baked in, but for memory. What else changes is read from that.
struct PassKey {
  PassRows rows;
  AttentionGrid attention;
  bool operator==(const PassKey&) const = default;
};

/// The graphs of one owner, and the memory that its passes, and nobody else's, are read from and
/// keep states of attention in. A pass of a new kind is launched operation by operation; one that
/// comes again is captured, since prompts end in many sizes that never do. The least recently used
/// graphs make room for others.
///
/// Which of these is done with a pass follows from the owner's own passes alone. So the ranks of a
/// tensor-parallel group, whose passes are the same, launch, capture and replay in step, as NCCL
/// wants it, though the leader has draft models beside the target and the others do not.
class GraphRecording final : public Recording {
 public:
  /// `recordable`: false: every pass is launched operation by operation.
  explicit GraphRecording(bool recordable) : recordable_(recordable) {}

  /// Room for a pass: `batch` bytes in the stage, and those of AttentionWorkspace. Where one of
  /// them has to move, the stream is waited for and the graphs are dropped, which knew the old
  /// place.
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
  struct Entry {
    PassKey key;
    Graph graph;  ///< null: seen once
    std::uint64_t used = 0;
  };
  static Graph capture(cudaStream_t stream, const std::function<void()>& operations);

  bool recordable_;
  MirroredStage stage_;
  DeviceMemory states_;
  DeviceMemory arrivals_;
  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace paceline::kernels::cuda
