// Embedding, norm, bias, activation and gathers on the device.
#include "kernels/cuda/elementwise.hpp"

#include <algorithm>

#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;

class CudaElementwiseTest : public testing::TestWithParam<DType> {};

TEST_P(CudaElementwiseTest, AddRmsNormMatchesFloat64) {
  Random random(1);
  const TestStream stream;
  const DType dtype = GetParam();
  for (const auto& [rows, width] : {std::tuple{1, 16},
                                    {3, 7},
                                    {70, 896},
                                    {3, 100},
                                    {2, 1031},
                                    {3, 3584},
                                    {2, 5121},
                                    {1, 20000},
                                    {1, 32768}}) {
    for (const bool with_delta : {false, true}) {
      const float size = width == 100 ? 1e-3F : 3.0F;  // so small that epsilon matters
      const std::vector<float> x = random.normals(rows * width, size);
      const std::vector<float> delta = random.normals(rows * width, size);
      const std::vector<float> weight = random.normals(width);
      const DeviceArray<float> device_delta(delta);
      const DeviceArray<float> device_weight(weight);
      const auto norm = [&](DeviceArray<float>& state, const float* added, int count) {
        DeviceArray<std::byte> out(count * width * size_of(dtype));
        cuda::add_rmsnorm(state.data(), added, device_weight.data(), 1e-6F, count, width, dtype,
                          out.data(), stream);
        return out.host();
      };
      DeviceArray<float> device_x(x);
      const std::vector<std::byte> out =
          norm(device_x, with_delta ? device_delta.data() : nullptr, rows);
      const std::vector<float> state = device_x.host();
      const std::vector<float> result = decode(out, dtype);
      for (int r = 0; r < rows; ++r) {
        double squares = 0;
        for (int i = r * width; i < (r + 1) * width; ++i) {
          ASSERT_EQ(state[i], with_delta ? x[i] + delta[i] : x[i]);
          squares += static_cast<double>(state[i]) * state[i];
        }
        const double scale = 1 / std::sqrt(squares / width + 1e-6);
        for (int i = 0; i < width; ++i) {
          const double expected = state[r * width + i] * scale * weight[i];
          ASSERT_NEAR(result[r * width + i], expected,
                      std::abs(expected) * (unit_roundoff(dtype) + 2e-6) + 1e-30);
        }
        if (r > 4) continue;
        // Alone, and so at another alignment where the width is odd, the row has the same bits.
        DeviceArray<float> alone(
            std::vector<float>(x.begin() + r * width, x.begin() + (r + 1) * width));
        const std::vector<std::byte> row =
            norm(alone, with_delta ? device_delta.data() + r * width : nullptr, 1);
        ASSERT_EQ(std::memcmp(row.data(), out.data() + r * row.size(), row.size()), 0);
      }
    }
  }
}

TEST_P(CudaElementwiseTest, ScalarAndVectorAccessesGiveTheSameNorm) {
  // The same row at an address that four elements cannot be read from at once.
  Random random(2);
  const TestStream stream;
  constexpr int kWidth = 1900;
  const std::vector<float> x = random.normals(kWidth);
  std::vector<float> shifted = {0};
  shifted.insert(shifted.end(), x.begin(), x.end());
  DeviceArray<float> aligned(x);
  DeviceArray<float> odd(shifted);
  const DeviceArray<float> weight(random.normals(kWidth));
  DeviceArray<std::byte> first(kWidth * size_of(GetParam()));
  DeviceArray<std::byte> second(kWidth * size_of(GetParam()));
  cuda::add_rmsnorm(aligned.data(), nullptr, weight.data(), 1e-5F, 1, kWidth, GetParam(),
                    first.data(), stream);
  cuda::add_rmsnorm(odd.data() + 1, nullptr, weight.data(), 1e-5F, 1, kWidth, GetParam(),
                    second.data(), stream);
  EXPECT_EQ(first.host(), second.host());
}

TEST_P(CudaElementwiseTest, SwigluMatchesFloat64) {
  Random random(3);
  const TestStream stream;
  const DType dtype = GetParam();
  for (const auto& [rows, width] : {std::tuple{1, 16}, {3, 37}, {2, 4864}, {70, 130}}) {
    std::vector<float> gate_up = random.normals(2 * rows * width, 4.0F);
    for (const float extreme : {-200.0F, -88.0F, -20.0F, 0.0F, 20.0F, 100.0F, 1e30F}) {
      gate_up[random.below(width)] = extreme;
    }
    const DeviceArray<float> in(gate_up);
    DeviceArray<std::byte> out(rows * width * size_of(dtype));
    cuda::swiglu(in.data(), rows, width, dtype, out.data(), stream);
    const std::vector<float> result = decode(out.host(), dtype);
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < width; ++i) {
        const double gate = gate_up[r * 2 * width + i];
        const double expected = gate / (1 + std::exp(-gate)) * gate_up[r * 2 * width + width + i];
        ASSERT_NEAR(result[r * width + i], expected,
                    std::abs(expected) * (unit_roundoff(dtype) + 1e-6) + 1e-34)
            << "gate " << gate;
      }
    }
  }
}

TEST_P(CudaElementwiseTest, EmbedMovesBits) {
  Random random(4);
  const TestStream stream;
  for (const int width : {896, 100, 37}) {
    const Values table(random.normals(20 * width), GetParam());
    const DeviceArray<std::byte> device_table(table.bytes);
    const std::vector<std::int32_t> tokens = {3, 0, 19, 3};
    const DeviceArray<std::int32_t> device_tokens(tokens);
    DeviceArray<float> out(tokens.size() * width);
    cuda::embed(device_table.data(), GetParam(), {0, 20, width}, device_tokens.data(), 4,
                out.data(), stream);
    const std::vector<float> got = out.host();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], table.values[tokens[i / width] * width + i % width]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaElementwiseTest, testing::Values(DType::bf16, DType::f32),
                         name_of_type);

TEST(CudaRowsTest, AddBias) {
  Random random(5);
  const TestStream stream;
  for (const auto& [rows, width] : {std::tuple{3, 37}, {70, 1000}}) {
    const std::vector<float> x = random.normals(rows * width);
    const std::vector<float> bias = random.normals(width);
    DeviceArray<float> device_x(x);
    const DeviceArray<float> device_bias(bias);
    cuda::add_bias(device_x.data(), device_bias.data(), rows, width, stream);
    const std::vector<float> got = device_x.host();
    for (int i = 0; i < rows * width; ++i) ASSERT_EQ(got[i], x[i] + bias[i % width]);
  }
}

TEST(CudaRowsTest, ColumnsAreStoredRoundedAndScattered) {
  Random random(8);
  const TestStream stream;
  for (const auto& [rows, width, out_width, first] :
       {std::tuple{1, 16, 16, 0}, {3, 7, 20, 5}, {70, 896, 1792, 896}, {2, 64, 190, 63}}) {
    const std::vector<float> x = random.normals(rows * width);
    const DeviceArray<float> in(x);
    std::vector<std::int32_t> columns(width);
    for (int i = 0; i < width; ++i) columns[i] = (7 * i + 3) % out_width;
    for (const DType dtype : {DType::bf16, DType::f32}) {
      DeviceArray<std::byte> out(rows * out_width * size_of(dtype));
      cuda::store_columns(in.data(), rows, width, dtype, out.data(), out_width, first, stream);
      const std::vector<std::byte> got = out.host();
      const Values expected(x, dtype);
      for (int r = 0; r < rows; ++r) {
        for (std::size_t b = 0; b < out_width * size_of(dtype); ++b) {
          const std::size_t begin = first * size_of(dtype);
          const bool written = b >= begin && b < begin + width * size_of(dtype);
          ASSERT_EQ(
              got[r * out_width * size_of(dtype) + b],
              written ? expected.bytes[r * width * size_of(dtype) + b - begin] : std::byte{0xFF});
        }
      }
    }
    if (out_width % 7 == 0) continue;  // columns would be there twice
    const DeviceArray<std::int32_t> to(columns);
    DeviceArray<float> scattered(std::vector<float>(rows * out_width, -1e30F));
    cuda::scatter_columns(in.data(), rows, width, to.data(), scattered.data(), out_width, stream);
    const std::vector<float> places = scattered.host();
    EXPECT_EQ(std::count(places.begin(), places.end(), -1e30F), rows * (out_width - width));
    for (int i = 0; i < rows * width; ++i)
      ASSERT_EQ(places[i / width * out_width + columns[i % width]], x[i]);
  }
}

TEST(CudaRowsTest, GatherRowsMovesBytes) {
  Random random(6);
  const TestStream stream;
  for (const std::size_t bytes :
       {std::size_t{16}, std::size_t{1792}, std::size_t{4100}, std::size_t{20}, std::size_t{7}}) {
    std::vector<std::byte> in(5 * bytes);
    for (std::byte& b : in) b = static_cast<std::byte>(random.bits());
    const std::vector<std::int32_t> index = {2, -1, 4, 0, 2, 3};
    const DeviceArray<std::byte> device_in(in);
    const DeviceArray<std::int32_t> device_index(index);
    DeviceArray<std::byte> out(index.size() * bytes);
    cuda::gather_rows(device_in.data(), device_index.data(), 6, bytes, out.data(), stream);
    const std::vector<std::byte> got = out.host();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const int from = index[i / bytes];
      ASSERT_EQ(got[i], from < 0 ? std::byte{0xFF} : in[from * bytes + i % bytes]);
    }
  }
}

}  // namespace
}  // namespace paceline::kernels::test
