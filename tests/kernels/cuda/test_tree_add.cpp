// The canonical sum of collectives, bit for bit.
#include <gtest/gtest.h>

#include "kernels/cuda/tree_add.hpp"
#include "runtime/core/error.hpp"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::cuda {
namespace {

float tree(const float* parts, int count, std::size_t stride) {
  if (count == 1) return *parts;
  return tree(parts, count / 2, stride) + tree(parts + count / 2 * stride, count / 2, stride);
}

TEST(TreeAddTest, AddsNeighboursFirst) {
  test::Random random(1);
  const cuda_host::TestStream stream;
  for (const int parts : {2, 4, 8, 16, 32, 64}) {
    for (const std::size_t count : {1, 255, 256, 1000}) {
      std::vector<float> values = random.normals(parts * count);
      for (float& v : values) v = std::ldexp(v, random.below(20));
      cuda_host::DeviceArray<float> in(values);
      cuda_host::DeviceArray<float> out(count);
      tree_add(in.data(), parts, count, out.data(), stream);
      stream.synchronize();
      std::vector<float> expected;
      for (std::size_t i = 0; i < count; ++i)
        expected.push_back(tree(values.data() + i, parts, count));
      EXPECT_TRUE(test::same_bits(out.host(), expected)) << parts << " parts of " << count;
    }
  }
  cuda_host::DeviceArray<float> some(3);
  EXPECT_THROW(tree_add(some.data(), 3, 1, some.data(), stream), Error);
}

}  // namespace
}  // namespace paceline::kernels::cuda
