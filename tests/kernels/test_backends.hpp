// The backends that tests run on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/gpus.hpp"

namespace paceline::kernels::test {

/// The instruction sets of this machine, and "cuda" where there is a device.
inline std::vector<std::string> backends() {
  std::vector<std::string> names = supported_cpu_isas();
  if (!visible_gpus().gpus.empty()) names.emplace_back("cuda");
  return names;
}
/// `threads`: of the cpu. There is one backend for the device.
inline std::shared_ptr<Backend> backend_named(const std::string& name, int threads = 1) {
  if (name != "cuda") return make_cpu_backend(threads, name);
  static const std::shared_ptr<Backend> device = make_cuda_backend(0);
  return device;
}

inline MatrixSlice whole(const TensorView& matrix) {
  return {&matrix, 0, matrix.shape[0], 0, matrix.shape[1]};
}

/// A pass: calls `compute` with the operations on all rows of the batch.
inline void operate(Backend& backend, const Batch& batch,
                    const std::function<void(Operations&)>& compute) {
  backend.begin(batch);
  backend.run(*backend.make_recording({}), compute);
}
/// Where `compute` calls nothing that has to do with a batch.
inline void operate(Backend& backend, const std::function<void(Operations&)>& compute) {
  operate(backend, {}, compute);
}

}  // namespace paceline::kernels::test
