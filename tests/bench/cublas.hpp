// cuBLAS, loaded where it is: what a library that is free to choose the order of additions makes of
// the same products.
#pragma once

#include <cublas_v2.h>

#include <cstddef>

#include "kernels/cuda/memory.hpp"

namespace paceline::bench {

class Cublas {
 public:
  /// Throws UsageError with what was not found.
  Cublas();
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  /// out = in * weight^T. in: [rows, k] bf16; weight: [n, k] bf16; out: [rows, n] of fp32, or of
  /// bf16. All in device memory.
  void product(const std::byte* weight, const std::byte* in, int n, int k, int rows, std::byte* out,
               cudaDataType_t out_type, cudaStream_t stream) const;

 private:
  decltype(&cublasCreate_v2) create_ = nullptr;
  decltype(&cublasDestroy_v2) destroy_ = nullptr;
  decltype(&cublasSetStream_v2) set_stream_ = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace_ = nullptr;
  decltype(&cublasGemmEx_64) gemm_ = nullptr;
  cublasHandle_t handle_ = nullptr;
  kernels::cuda::DeviceMemory workspace_;
};

}  // namespace paceline::bench
