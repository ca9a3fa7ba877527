#include "tests/bench/cublas.hpp"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "runtime/core/error.hpp"

namespace paceline::bench {
namespace {

/// What NVIDIA recommends for Hopper. One of its own would be allocated in captures.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::internal, std::string(what) + " returned " + std::to_string(status));
}

}  // namespace

Cublas::Cublas() {
  const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays for good
  if (library == nullptr) throw UsageError(dlerror());
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr) throw UsageError(name + " has no " + symbol);
  };
  find(create_, "cublasCreate_v2");
  find(destroy_, "cublasDestroy_v2");
  find(set_stream_, "cublasSetStream_v2");
  find(set_workspace_, "cublasSetWorkspace_v2");
  find(gemm_, "cublasGemmEx_64");
  workspace_ = kernels::cuda::DeviceMemory(kWorkspaceBytes);
  check(create_(&handle_), "cublasCreate");
}

Cublas::~Cublas() { static_cast<void>(destroy_(handle_)); }

// To cuBLAS, whose matrices are in columns, ours are their transposes: out^T = weight * in^T.
void Cublas::product(const std::byte* weight, const std::byte* in, int n, int k, int rows,
                     std::byte* out, cudaDataType_t out_type, cudaStream_t stream) const {
  const float one = 1;
  const float zero = 0;
  check(set_stream_(handle_, stream), "cublasSetStream");  // which forgets the workspace
  check(set_workspace_(handle_, workspace_.data(), kWorkspaceBytes), "cublasSetWorkspace");
  check(gemm_(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, rows, k, &one, weight, CUDA_R_16BF, k, in,
              CUDA_R_16BF, k, &zero, out, out_type, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx_64");
}

}  // namespace paceline::bench
