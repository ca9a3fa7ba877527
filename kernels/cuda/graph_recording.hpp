// Passes as CUDA graphs: one launch for the hundreds of kernels of a pass.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/attention_plan.hpp"

namespace paceline::kernels::cuda {

/// All that a captured pass has baked in. What else changes is read from device memory.
struct PassKey {
  PassRows rows;
  AttentionGrid attention;
  const void* batch = nullptr;      ///< device memory the batch is read from
  const void* workspace = nullptr;  ///< of attention
  bool operator==(const PassKey&) const = default;
};

/// The graphs of one owner. A pass of a new kind is launched operation by operation; one that comes
/// again is captured, since prompts end in many sizes that never do. The least recently used graphs
/// make room for others.
class GraphRecording final : public Recording {
 public:
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

  std::vector<Entry> entries_;
  std::uint64_t clock_ = 0;
};

}  // namespace paceline::kernels::cuda
