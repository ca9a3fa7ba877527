// The q/k/v stage on the device, against float64.
#include "kernels/cuda/rope.hpp"

#include "kernels/cuda/kv_layout.cuh"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;

struct RopeCase {
  int heads, kv_heads, head_dim, layers, block;
  bool norm;
};

std::vector<double> rotated(const float* in, const std::vector<float>& weight, bool norm,
                            const float* cos_sin, int d) {
  std::vector<double> x(in, in + d);
  if (norm) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale = 1 / std::sqrt(squares / d + 1e-6);
    for (int i = 0; i < d; ++i) x[i] *= scale * weight[i];
  }
  std::vector<double> out(d);
  for (int i = 0; i < d / 2; ++i) {
    const double c = cos_sin[i];
    const double s = cos_sin[d / 2 + i];
    out[i] = x[i] * c - x[d / 2 + i] * s;
    out[d / 2 + i] = x[d / 2 + i] * c + x[i] * s;
  }
  return out;
}

class CudaRopeTest : public testing::TestWithParam<DType> {};

TEST_P(CudaRopeTest, MatchesFloat64AndStoresWhereSlotsSay) {
  Random random(1);
  const TestStream stream;
  const DType dtype = GetParam();
  for (const RopeCase& c : {RopeCase{14, 2, 64, 2, 16, false},
                            {4, 4, 128, 1, 32, true},
                            {3, 1, 256, 2, 16, true},
                            {6, 3, 100, 1, 16, true},
                            {2, 1, 18, 1, 16, true}}) {
    const KvShape kv = {c.layers, c.kv_heads, c.head_dim, c.block, dtype};
    constexpr int kRows = 7;
    constexpr int kBlocks = 4;
    const int layer = c.layers - 1;
    const int d = c.head_dim;
    const int width = (c.heads + 2 * c.kv_heads) * d;
    std::vector<float> table(50 * d);
    for (int p = 0; p < 50; ++p) {
      for (int i = 0; i < d / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / d);
        table[p * d + i] = static_cast<float>(std::cos(angle));
        table[p * d + d / 2 + i] = static_cast<float>(std::sin(angle));
      }
    }
    const std::vector<std::int32_t> positions = {0, 49, 7, -1, 16, 17, 7};
    std::vector<std::int64_t> slots = {3 * c.block + 1, 0, c.block + 15, -1, c.block,
                                       2 * c.block,     5};
    const std::vector<float> qkv = random.normals(kRows * width, 2.0F);
    const std::vector<float> q_weight = random.normals(d);
    const std::vector<float> k_weight = random.normals(d);
    const DeviceArray<float> device_table(table);
    const DeviceArray<float> device_qkv(qkv);
    const DeviceArray<float> device_q_weight(q_weight);
    const DeviceArray<float> device_k_weight(k_weight);
    const DeviceArray<std::int32_t> device_positions(positions);
    const DeviceArray<std::int64_t> device_slots(slots);
    DeviceArray<std::byte> cache(kBlocks * kv.block_bytes());
    DeviceArray<std::byte> q(kRows * c.heads * d * size_of(dtype));
    const QkvParams params = {c.heads,
                              c.kv_heads,
                              d,
                              c.norm ? device_q_weight.data() : nullptr,
                              c.norm ? device_k_weight.data() : nullptr,
                              1e-6F};
    const RopeTable rope = {device_table.data(), d, 50};
    cuda::rope_and_store(params, rope, kv, layer, cache.data(), device_positions.data(),
                         device_slots.data(), kRows, device_qkv.data(), q.data(), stream);
    const std::vector<std::byte> q_bytes = q.host();
    const std::vector<float> got_q = decode(q_bytes, dtype);
    const std::vector<std::byte> cache_bytes = cache.host();
    const std::vector<float> got_cache = decode(cache_bytes, dtype);
    const double unit = unit_roundoff(dtype) + 3e-6;
    std::vector<bool> written(got_cache.size());
    for (int r = 0; r < kRows; ++r) {
      if (positions[r] < 0) {
        for (int i = 0; i < c.heads * d; ++i) {
          ASSERT_TRUE(std::isnan(got_q[r * c.heads * d + i]));
        }
        continue;
      }
      const float* cos_sin = table.data() + positions[r] * d;
      const float* row = qkv.data() + r * width;
      for (int h = 0; h < c.heads; ++h) {
        const std::vector<double> expected = rotated(row + h * d, q_weight, c.norm, cos_sin, d);
        for (int i = 0; i < d; ++i) {
          ASSERT_NEAR(got_q[(r * c.heads + h) * d + i], expected[i],
                      std::abs(expected[i]) * unit + 4e-6);
        }
      }
      // [block][layer][K, V][head][position][head_dim]
      const auto at = [&](int value, int h) {
        const std::int64_t block = slots[r] / c.block;
        return ((((block * c.layers + layer) * 2 + value) * c.kv_heads + h) * c.block +
                slots[r] % c.block) *
               d;
      };
      for (int h = 0; h < c.kv_heads; ++h) {
        const std::vector<double> k =
            rotated(row + (c.heads + h) * d, k_weight, c.norm, cos_sin, d);
        const float* v = row + (c.heads + c.kv_heads + h) * d;
        for (int i = 0; i < d; ++i) {
          ASSERT_NEAR(got_cache[at(0, h) + i], k[i], std::abs(k[i]) * unit + 4e-6);
          ASSERT_NEAR(got_cache[at(1, h) + i], v[i], std::abs(v[i]) * unit);
          written[at(0, h) + i] = written[at(1, h) + i] = true;
        }
      }
    }
    for (std::size_t i = 0; i < written.size(); ++i) {
      ASSERT_TRUE(written[i] || std::isnan(got_cache[i])) << i;
    }

    // A row alone has the same bits as among others.
    DeviceArray<std::byte> cache_alone(kBlocks * kv.block_bytes());
    DeviceArray<std::byte> q_alone(c.heads * d * size_of(dtype));
    cuda::rope_and_store(params, rope, kv, layer, cache_alone.data(), device_positions.data() + 4,
                         device_slots.data() + 4, 1, device_qkv.data() + 4 * width, q_alone.data(),
                         stream);
    const std::vector<std::byte> alone = q_alone.host();
    EXPECT_EQ(std::memcmp(alone.data(), q_bytes.data() + 4 * alone.size(), alone.size()), 0);
    const std::vector<float> kept = decode(cache_alone.host(), dtype);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      ASSERT_TRUE(std::isnan(kept[i]) || kept[i] == got_cache[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaRopeTest, testing::Values(DType::bf16, DType::f32),
                         name_of_type);

}  // namespace
}  // namespace paceline::kernels::test
