// Checks: of return codes of the CUDA runtime, at each call, and of what the backend is given.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "runtime/core/error.hpp"

namespace paceline::kernels::cuda {

[[noreturn]] inline void throw_cuda_error(cudaError_t code, const char* expression,
                                          const char* file, int line) {
  throw Error(ExitCode::internal, std::string(file) + ":" + std::to_string(line) + ": " +
                                      expression + ": " + cudaGetErrorName(code) + ": " +
                                      cudaGetErrorString(code));
}

inline void expect(bool condition, const char* what) {
  if (!condition) throw Error(ExitCode::internal, std::string("cuda backend: ") + what);
}

}  // namespace paceline::kernels::cuda

/// Throws Error (internal) with the expression, its place in the source and CUDA's own message.
#define PACELINE_CUDA_CHECK(expression)                                                            \
  do {                                                                                             \
    if (const cudaError_t paceline_code = (expression); paceline_code != cudaSuccess) {            \
      ::paceline::kernels::cuda::throw_cuda_error(paceline_code, #expression, __FILE__, __LINE__); \
    }                                                                                              \
  } while (false)
