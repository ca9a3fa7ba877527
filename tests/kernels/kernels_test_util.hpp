// Random input, poisoned output and float64 comparison for the kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/bf16.hpp"
#include "runtime/core/stored_floats.hpp"
#include "tests/kernels/test_backends.hpp"

namespace paceline::kernels::test {

/// A fixed generator: tests see the same numbers on every run and standard library.
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  [[nodiscard]] std::uint32_t bits() { return engine_(); }
  [[nodiscard]] double uniform() { return (engine_() + 0.5) / 4294967296.0; }
  [[nodiscard]] int below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
  /// Roughly normal.
  [[nodiscard]] float normal() {
    return static_cast<float>(std::sqrt(-2 * std::log(uniform())) *
                              std::cos(6.283185307179586 * uniform()));
  }
  [[nodiscard]] std::vector<float> normals(std::size_t n, float scale = 1.0F) {
    std::vector<float> out(n);
    for (float& x : out) x = normal() * scale;
    return out;
  }

 private:
  std::mt19937 engine_;
};

/// Values in a dtype: the bytes kernels read, and what they stand for.
struct Values {
  Values() = default;
  Values(const std::vector<float>& from, DType type) : dtype(type) {
    bytes.resize(from.size() * size_of(type));
    values.resize(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (type == DType::bf16) {
        const std::uint16_t x = cpu::float_to_bf16(from[i]);
        std::memcpy(bytes.data() + 2 * i, &x, 2);
        values[i] = cpu::bf16_to_float(x);
      } else {
        std::memcpy(bytes.data() + 4 * i, &from[i], 4);
        values[i] = from[i];
      }
    }
  }
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

/// An output of n values of a dtype, filled with NaN.
inline std::vector<std::byte> poisoned(std::size_t n, DType dtype) {
  return std::vector<std::byte>(n * size_of(dtype), std::byte{0xFF});
}
inline std::vector<float> poisoned(std::size_t n) {
  return std::vector<float>(n, std::numeric_limits<float>::quiet_NaN());
}

inline std::vector<float> decode(const std::vector<std::byte>& bytes, DType dtype) {
  std::vector<float> out(bytes.size() / size_of(dtype));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (dtype == DType::bf16) {
      std::uint16_t x;
      std::memcpy(&x, bytes.data() + 2 * i, 2);
      out[i] = cpu::bf16_to_float(x);
    } else {
      std::memcpy(&out[i], bytes.data() + 4 * i, 4);
    }
  }
  return out;
}

/// The batch of a test that computes no embeddings: tokens are 0.
class TestBatch {
 public:
  TestBatch(std::span<const Segment> segments, int heads, const KvShape& kv, std::byte* cache,
            int positions) {
    int rows = 0;
    for (const Segment& segment : segments) rows += segment.rows;
    tokens_.assign(rows, 0);
    batch_ = {tokens_, segments, {}, heads, kv, cache, 1, positions};
  }
  operator const Batch&() const { return batch_; }  // NOLINT: it is one

 private:
  std::vector<TokenId> tokens_;
  Batch batch_;
};

/// Half a unit in the last place of a dtype, relative.
inline double unit_roundoff(DType dtype) { return dtype == DType::bf16 ? 1.0 / 256 : 6e-8; }

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Values in memory of a backend.
template <class T>
class Array {
 public:
  Array(Backend& backend, const std::vector<T>& values)
      : backend_(backend), size_(values.size()), buffer_(upload(backend, values)) {}
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(buffer_->data()); }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(size_);
    backend_.read(buffer_->data(), std::as_writable_bytes(std::span(out)));
    return out;
  }

 private:
  Backend& backend_;
  std::size_t size_;
  std::unique_ptr<Buffer> buffer_;
};

/// Every instruction set of this machine.
class EachIsa : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::unique_ptr<Backend> backend(int threads = 1) const {
    return make_cpu_backend(threads, GetParam());
  }
};
/// Every backend, alone and with both dtypes.
class EachBackend : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::shared_ptr<Backend> backend(int threads = 1) const {
    return backend_named(GetParam(), threads);
  }
};
class EachBackendAndType : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  [[nodiscard]] DType dtype() const { return std::get<1>(GetParam()); }
  [[nodiscard]] std::shared_ptr<Backend> backend(int threads = 1) const {
    return backend_named(std::get<0>(GetParam()), threads);
  }
};

inline std::string name_of_backend(const testing::TestParamInfo<std::string>& info) {
  return info.param;
}
inline std::string name_of_type(const testing::TestParamInfo<DType>& info) {
  return name_of(info.param);
}
inline std::string name_of_backend_and_type(
    const testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  return std::get<0>(info.param) + "_" + name_of(std::get<1>(info.param));
}

#define PACELINE_EACH_BACKEND_AND_TYPE(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(                                                                      \
      On, suite,                                                                                 \
      testing::Combine(testing::ValuesIn(backends()), testing::Values(DType::bf16, DType::f32)), \
      name_of_backend_and_type)
#define PACELINE_EACH_BACKEND(suite) \
  INSTANTIATE_TEST_SUITE_P(On, suite, testing::ValuesIn(backends()), name_of_backend)
#define PACELINE_EACH_ISA(suite) \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, testing::ValuesIn(supported_cpu_isas()), name_of_backend)

/// An fp8 matrix whose scales, one for each block of 128 x 128, are fp32 or bf16.
struct ScaledMatrix {
  ScaledMatrix(Random& random, std::int64_t rows, std::int64_t columns, DType scale_dtype)
      : codes(rows * columns),
        blocks{(rows + 127) / 128, (columns + 127) / 128},
        scales(random_scales(random, blocks[0] * blocks[1]), scale_dtype),
        scales_view{scale_dtype, blocks, scales.bytes},
        view{DType::f8, {rows, columns}, std::as_bytes(std::span(codes)), &scales_view} {
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::uint8_t>(i % 127 + (i / 127 % 2) * 0x80);  // no NaN
  }
  ScaledMatrix(const ScaledMatrix&) = delete;
  ScaledMatrix& operator=(const ScaledMatrix&) = delete;

  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    return f8_weight(codes[row * view.shape[1] + column],
                     scales.values[row / 128 * blocks[1] + column / 128]);
  }

  static std::vector<float> random_scales(Random& random, std::int64_t count) {
    std::vector<float> all = random.normals(count);
    for (float& scale : all) scale = 0.01F * std::abs(scale) + 1e-4F;
    return all;
  }

  std::vector<std::uint8_t> codes;
  std::vector<std::int64_t> blocks;
  Values scales;
  TensorView scales_view;
  TensorView view;
};

}  // namespace paceline::kernels::test
