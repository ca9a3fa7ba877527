// The functions for CUDA in builds without CUDA, which have no CUDA backend.
#include "kernels/gpus.hpp"
#include "runtime/core/error.hpp"

namespace paceline::kernels {
namespace {

constexpr const char* kWhy = "this build has no CUDA backend (CMake found no CUDA compiler)";

}  // namespace

GpuList visible_gpus() { return {{}, kWhy}; }
std::uint64_t free_gpu_memory(int) { throw UsageError(kWhy); }
std::unique_ptr<Backend> make_cuda_backend(int) { throw UsageError(kWhy); }

}  // namespace paceline::kernels
