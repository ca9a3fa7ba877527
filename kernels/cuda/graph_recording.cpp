#include "kernels/cuda/graph_recording.hpp"

#include <algorithm>

#include "kernels/cuda/check.hpp"

namespace paceline::kernels::cuda {
namespace {

/// Number of kinds of passes that an owner remembers. A graph of a large model takes a megabyte or
/// two.
constexpr std::size_t kMostPasses = 256;
/// Bytes of arrivals for as many rows as most owners ever have: 2,048 rows with 8 kv heads. If the
/// memory grew with each larger pass, the graphs would be dropped each time.
constexpr std::size_t kArrivalBytes = std::size_t{64} << 10;

}  // namespace

void GraphRecording::Destroy::operator()(cudaGraphExec_t graph) const {
  static_cast<void>(cudaGraphExecDestroy(graph));
}

void GraphRecording::make_room(std::size_t batch, std::size_t states, std::size_t arrivals,
                               cudaStream_t stream) {
  const std::byte* const before = stage_.device();
  static_cast<void>(stage_.room(batch, stream));
  if (stage_.device() != before) passes_.clear();
  if (states_.size() < states) {
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream));
    passes_.clear();  // the graphs hold the old addresses, and the next line may throw
    states_ = DeviceMemory(states);
  }
  if (arrivals_.size() < arrivals) {
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream));
    passes_.clear();
    arrivals_ = DeviceMemory(std::max(arrivals + arrivals / 2, kArrivalBytes));
    PACELINE_CUDA_CHECK(cudaMemsetAsync(arrivals_.data(), 0, arrivals_.size(), stream));
  }
}

void GraphRecording::run(const PassKey& key, cudaStream_t stream,
                         const std::function<void()>& operations) {
  if (!recordable_) return operations();
  auto at = std::ranges::find(passes_, key, &RecordedPass::key);
  if (at == passes_.end()) {
    operations();
    if (passes_.size() == kMostPasses) {
      passes_.erase(std::ranges::min_element(passes_, {}, &RecordedPass::used));
    }
    passes_.push_back({key, nullptr, ++clock_});
    return;
  }
  at->used = ++clock_;
  if (at->graph == nullptr) at->graph = capture(stream, operations);
  PACELINE_CUDA_CHECK(cudaGraphLaunch(at->graph.get(), stream));
}

GraphRecording::Graph GraphRecording::capture(cudaStream_t stream,
                                              const std::function<void()>& operations) {
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
  };
  std::unique_ptr<CUgraph_st, DestroyGraph> graph;
  const auto end = [&] {
    cudaGraph_t captured = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream, &captured);
    graph.reset(captured);
    return code;
  };
  PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    operations();
  } catch (...) {
    static_cast<void>(end());  // the first exception says more
    throw;
  }
  PACELINE_CUDA_CHECK(end());
  cudaGraphExec_t executable = nullptr;
  PACELINE_CUDA_CHECK(cudaGraphInstantiate(&executable, graph.get(), 0));
  return Graph(executable);
}

}  // namespace paceline::kernels::cuda
