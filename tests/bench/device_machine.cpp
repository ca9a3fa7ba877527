#include <cuda_runtime_api.h>

#include <cstdio>

#include "runtime/core/error.hpp"
#include "tests/bench/cublas.hpp"
#include "tests/bench/device_timing.hpp"
#include "tests/bench/machine.hpp"

namespace paceline::bench {

Machine measure_device() {
  using kernels::cuda::DeviceMemory;
  const Stream stream;
  Machine machine;
  {
    constexpr std::size_t kBytes = std::size_t{2} << 30;
    const DeviceMemory from(kBytes);
    const DeviceMemory to(kBytes);
    PACELINE_CUDA_CHECK(cudaMemsetAsync(from.data(), 1, kBytes, stream));
    constexpr int kCopies = 10;
    const double time = best_on_device(stream, [&] {
      for (int i = 0; i < kCopies; ++i) {
        PACELINE_CUDA_CHECK(
            cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
      }
    });
    machine.bandwidth = 2.0 * kBytes * kCopies / time;
  }
  try {
    const Cublas cublas;
    constexpr int kSize = 8192;
    constexpr std::size_t kValues = std::size_t{kSize} * kSize;
    const DeviceMemory a = random_on_device(kValues, 1);  // zeros would be faster
    const DeviceMemory b = random_on_device(kValues, 2);
    const DeviceMemory out(2 * kValues);
    const double time = time_of(stream, [&](int) {
      cublas.product(a.data(), b.data(), kSize, kSize, kSize, out.data(), CUDA_R_16BF, stream);
    });
    machine.products = 2.0 * kValues * kSize / time;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "no matrix peak, and no shares of it: %s\n", error.what());
  }
  return machine;
}

}  // namespace paceline::bench
