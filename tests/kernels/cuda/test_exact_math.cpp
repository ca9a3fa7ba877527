// e^x, the noise of tokens and the bound that lets tokens be skipped, against float64.
#include "kernels/cuda/exact_math.cuh"

#include "kernels/cuda/launch.hpp"
#include "runtime/core/philox.hpp"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;

__global__ void evaluate(const float* x, const std::uint32_t* bits, float* exp_x, float* noise,
                         int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  exp_x[i] = cuda::exponential(x[i]);
  noise[i] = cuda::gumbel(bits[i]);
}

TEST(CudaExactMathTest, ExponentialAndGumbelAreAccurate) {
  Random random(4);
  const TestStream stream;
  constexpr int kCount = 100'000;
  std::vector<float> x(kCount);
  std::vector<std::uint32_t> bits(kCount);
  for (int i = 0; i < kCount; ++i) {
    x[i] = static_cast<float>((random.uniform() - 0.5) * 175);
    bits[i] = random.bits();
    if (i % 3 == 1) bits[i] >>= random.below(32);
    if (i % 3 == 2) bits[i] = ~(bits[i] >> random.below(32));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0F,      -0.0F,    -87.3F, -87.5F,       -1e30F,
                           -infinity, infinity, 88.3F,  std::nanf("")};
  std::copy(std::begin(special), std::end(special), x.begin());
  const std::uint32_t ends[] = {0, 1, 0xFFFFFFFFU, 0xFFFFFFFEU, 0x7FFFFFFFU, 0x80000000U};
  std::copy(std::begin(ends), std::end(ends), bits.begin());
  const DeviceArray<float> device_x(x);
  const DeviceArray<std::uint32_t> device_bits(bits);
  DeviceArray<float> device_exp(kCount);
  DeviceArray<float> device_noise(kCount);
  cuda::launch(evaluate, (kCount + 127) / 128, 128, 0, stream, device_x.data(), device_bits.data(),
               device_exp.data(), device_noise.data(), kCount);
  const std::vector<float> exp_x = device_exp.host();
  const std::vector<float> noise = device_noise.host();
  EXPECT_EQ(exp_x[0], 1.0F);
  EXPECT_EQ(exp_x[1], 1.0F);
  EXPECT_GT(exp_x[2], 0.0F);
  EXPECT_EQ(exp_x[3], 0.0F);
  EXPECT_EQ(exp_x[5], 0.0F);
  EXPECT_GT(exp_x[6], 2e38F);
  EXPECT_TRUE(std::isnan(exp_x[8]));
  for (int i = 0; i < kCount; ++i) {
    if (i >= 9) {
      const double e = x[i] < -87.3F ? 0 : std::exp(static_cast<double>(x[i]));
      ASSERT_NEAR(exp_x[i], e, e * 2.5e-7) << x[i];
    }
    const double w = (bits[i] + 0.5) / 4294967296.0;
    const double g = -std::log(w > 0.5 ? -std::log1p(-(4294967296.0 - bits[i] - 0.5) / 4294967296.0)
                                       : -std::log(w));
    ASSERT_NEAR(noise[i], g, 3e-7 + std::abs(g) * 2.5e-7) << bits[i];
    ASSERT_LT(noise[i], cuda::kGumbelBound);
  }
}

__global__ void count_bound_breaks(const float* needed, const float* score,
                                   const std::uint32_t* bits, unsigned* broken, unsigned* used,
                                   int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const std::uint32_t least = cuda::least_bits(needed[i], score[i]);
  // Bits just below the bound, and any.
  for (const std::uint32_t b : {bits[i], least - 1, least / 2}) {
    if (least == 0 || b >= least) continue;
    atomicAdd(used, 1U);
    const float s = score[i] - needed[i];
    if (s + cuda::gumbel(b) >= score[i]) atomicAdd(broken, 1U);
  }
}

TEST(CudaExactMathTest, NoTokenThatCouldWinIsSkipped) {
  Random random(5);
  const TestStream stream;
  constexpr int kCount = 50'000;
  std::vector<float> needed(kCount);
  std::vector<float> score(kCount);
  std::vector<std::uint32_t> bits(kCount);
  for (int i = 0; i < kCount; ++i) {
    needed[i] = static_cast<float>(random.uniform() * 30 - 6);
    score[i] = random.normal() * (i % 2 == 0 ? 20.0F : 2000.0F);
    bits[i] = random.bits();
  }
  const DeviceArray<float> device_needed(needed);
  const DeviceArray<float> device_score(score);
  const DeviceArray<std::uint32_t> device_bits(bits);
  DeviceArray<unsigned> counts(std::vector<unsigned>{0, 0});
  cuda::launch(count_bound_breaks, (kCount + 127) / 128, 128, 0, stream, device_needed.data(),
               device_score.data(), device_bits.data(), counts.data(), counts.data() + 1, kCount);
  const std::vector<unsigned> got = counts.host();
  EXPECT_EQ(got[0], 0U);
  EXPECT_GT(got[1], 80'000U);
}

__global__ void write_noise(NoiseKey noise, std::uint32_t step, std::uint32_t* out) {
  const uint4 words = cuda::noise_words(noise, step, threadIdx.x);
  for (int j = 0; j < 4; ++j) {
    const unsigned chunk = threadIdx.x / 16;
    const std::uint32_t all[4] = {words.x, words.y, words.z, words.w};
    out[64 * chunk + 16 * j + threadIdx.x % 16] = all[j];
  }
}

TEST(CudaExactMathTest, NoiseIsTheScalarDefinition) {
  Random random(6);
  const TestStream stream;
  for (int round = 0; round < 10; ++round) {
    const NoiseKey key = {std::uint64_t{random.bits()} << 32 | random.bits(),
                          std::uint64_t{random.bits()} << 32 | random.bits()};
    const std::uint32_t step = random.bits() >> 8;
    DeviceArray<std::uint32_t> out(1024);
    cuda::launch(write_noise, 1, 256, 0, stream, key, step, out.data());
    const std::vector<std::uint32_t> got = out.host();
    for (std::uint32_t token = 0; token < 1024; ++token) {
      ASSERT_EQ(got[token], noise_bits(key, step, token));
    }
  }
}

}  // namespace
}  // namespace paceline::kernels::test
