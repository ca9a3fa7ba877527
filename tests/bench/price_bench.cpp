// The price of exactness: the products of a decoder on the device, as the CUDA backend computes
// them and as cuBLAS does where it is free to choose: bench_price MODEL_DIR... A MODEL_DIR needs a
// config.json alone (shapes/). Both read bf16 and write fp32, gates and ups too, so that products
// alone are compared; launches go through a graph, over copies of the weight that no cache holds.
// Sums are over the products of one step: every layer's, and the head's for the rows whose logits
// are wanted.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "io/checkpoint/model_config_reader.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/linear.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/bench/cublas.hpp"
#include "tests/bench/device_timing.hpp"

namespace {

using namespace paceline;
using namespace paceline::kernels::cuda;
using bench::Stream;

struct Product {
  const char* name;
  int n, k, segments;
  int times;  ///< in a step
};

std::vector<Product> products_of(const ModelConfig& c) {
  const int q = c.heads * c.head_dim;
  const int kv = c.kv_heads * c.head_dim;
  return {{"qkv", q + 2 * kv, c.hidden, column_segments(c.hidden), c.layers},
          {"o", c.hidden, q, c.segments(), c.layers},
          {"gate_up", 2 * c.intermediate, c.hidden, kGateUpSegments, c.layers},
          {"down", c.hidden, c.intermediate, c.segments(), c.layers},
          {"head", c.vocab, c.hidden, 1, 1}};
}

/// Decoding; verification of 256 x 5 tokens; a prompt, of which one row's logits are wanted.
struct Rows {
  int rows, logit_rows;
};
constexpr Rows kRows[] = {{1, 1},     {8, 8},       {32, 32}, {128, 128},
                          {256, 256}, {1280, 1280}, {4096, 1}};
constexpr std::size_t kMost = std::size(kRows);

struct Times {
  double ours = 0;
  double cublas = 0;
};

/// One product with its operands on the device.
class Measured {
 public:
  Measured(const Product& product, const LinearDevice& device, const bench::Cublas& cublas)
      : product_(product),
        device_(device),
        cublas_(cublas),
        layout_(linear_layout(product.n, product.k, product.segments, DType::bf16)),
        in_(bench::random_on_device(most_rows() * product.k, 2)),
        ours_(most_rows() * product.n * sizeof(float)),
        theirs_(ours_.size()),
        workspace_(kLinearWorkspaceBytes) {
    PACELINE_CUDA_CHECK(cudaMemsetAsync(workspace_.data(), 0, workspace_.size(), stream_));
    constexpr std::size_t kBeyondCaches = std::size_t{300} << 20;
    const std::size_t values = static_cast<std::size_t>(product.n) * product.k;
    do {
      stored_.push_back(bench::random_on_device(values, 1));
      packed_.emplace_back(layout_.bytes());
      DeviceMemory& packed = packed_.back();
      PACELINE_CUDA_CHECK(cudaMemsetAsync(packed.data(), 0, packed.size(), stream_));
      pack_rows(layout_, packed.data(), 0, product.n, stored_.back().data(), DType::bf16, stream_);
    } while (2 * values * stored_.size() < kBeyondCaches);
    check();
  }

  [[nodiscard]] Times time(int rows) const {
    return {bench::time_of(stream_, [&](int launch) { run_ours(launch, rows); }),
            bench::time_of(stream_, [&](int launch) { run_cublas(launch, rows); })};
  }

 private:
  [[nodiscard]] std::size_t most_rows() const { return product_.times == 1 ? 1280 : 4096; }

  void run_ours(int launch, int rows) const {
    const DeviceLinear weight{layout_, packed_[launch % packed_.size()].data(), nullptr};
    linear(plan_linear(layout_, rows, device_), weight, in_.data(), rows,
           reinterpret_cast<float*>(ours_.data()), {workspace_.data()}, stream_);
  }
  void run_cublas(int launch, int rows) const {
    cublas_.product(stored_[launch % stored_.size()].data(), in_.data(), product_.n, product_.k,
                    rows, theirs_.data(), CUDA_R_32F, stream_);
  }

  /// Whether both are one product: they differ in the order of additions alone.
  void check() const {
    constexpr int kChecked = 8;
    run_ours(0, kChecked);
    run_cublas(0, kChecked);
    std::vector<float> ours(static_cast<std::size_t>(kChecked) * product_.n);
    std::vector<float> theirs(ours.size());
    PACELINE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    const auto fetch = [](std::vector<float>& to, const DeviceMemory& from) {
      PACELINE_CUDA_CHECK(
          cudaMemcpy(to.data(), from.data(), to.size() * sizeof(float), cudaMemcpyDeviceToHost));
    };
    fetch(ours, ours_);
    fetch(theirs, theirs_);
    const double typical = std::sqrt(product_.k) / 3;  // sums of products of values in (-1, 1)
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (!(std::abs(ours[i] - theirs[i]) < 1e-3 * typical))
        throw Error(ExitCode::internal, std::string(product_.name) + ": cuBLAS has another result");
    }
  }

  Product product_;
  LinearDevice device_;
  const bench::Cublas& cublas_;
  LinearLayout layout_;
  Stream stream_;
  DeviceMemory in_;      ///< [most rows, k] bf16
  DeviceMemory ours_;    ///< [most rows, n] fp32
  DeviceMemory theirs_;  ///< likewise
  DeviceMemory workspace_;
  std::vector<DeviceMemory> stored_;  ///< [n, k] bf16 each
  std::vector<DeviceMemory> packed_;
};

void print(const char* name, int rows, const Times& t, double weight_bytes, double flops) {
  std::printf("%-8s %5d  %10.2f  %10.2f  %5.2f  %7.1f  %8.1f\n", name, rows, t.ours * 1e6,
              t.cublas * 1e6, t.ours / t.cublas, weight_bytes / t.ours * 1e-9,
              flops / t.ours * 1e-12);
}

void bench_model(const std::string& folder, const LinearDevice& device,
                 const bench::Cublas& cublas) {
  const ModelConfig config = io::load_model_config(model::families(), folder);
  std::printf("\n%s\n", folder.c_str());
  std::printf("product   rows     ours us   cuBLAS us  ratio     GB/s   TFLOP/s\n");
  Times step[kMost];
  double bytes[kMost] = {};
  double flops[kMost] = {};
  for (const Product& product : products_of(config)) {
    const Measured measured(product, device, cublas);
    const double weight = 2.0 * product.n * product.k;
    for (std::size_t i = 0; i < kMost; ++i) {
      const bool head = product.times == 1;
      const int rows = head ? kRows[i].logit_rows : kRows[i].rows;
      const Times times = measured.time(rows);
      print(product.name, rows, times, weight, weight * rows);
      step[i].ours += product.times * times.ours;
      step[i].cublas += product.times * times.cublas;
      bytes[i] += product.times * weight;
      flops[i] += product.times * weight * rows;
    }
  }
  for (std::size_t i = 0; i < kMost; ++i) print("step", kRows[i].rows, step[i], bytes[i], flops[i]);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIR...\n", argv[0]);
    return 64;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    int number = 0;
    PACELINE_CUDA_CHECK(cudaGetDevice(&number));
    const LinearDevice device = facts_of(number);
    const bench::Cublas cublas;
    for (int i = 1; i < argc; ++i) bench_model(argv[i], device, cublas);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 70;
  }
}
