// Functions of the CUDA driver. The driver is not linked, so that the program starts without one.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "kernels/cuda/check.hpp"

namespace paceline::kernels::cuda {

/// Finds a function of the driver by name. Throws Error (internal) if it has none.
template <class Function>
Function* of_driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  PACELINE_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &how));
#else
  PACELINE_CUDA_CHECK(cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how));
#endif
  if (how != cudaDriverEntryPointSuccess)
    throw Error(ExitCode::internal, std::string("the CUDA driver has no ") + name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace paceline::kernels::cuda
