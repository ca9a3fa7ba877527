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

/// Calls `compute` with the operations on all rows of the batch begun last, if any.
inline void operate(Backend& backend, const std::function<void(Operations&)>& compute) {
  backend.run(*backend.make_recording({}), compute);
}

}  // namespace paceline::kernels::test
