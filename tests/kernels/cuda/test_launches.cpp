// How many kernels a layer takes: each costs a microsecond or two of a device that has nothing else
// to do.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/gpus.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "tests/kernels/cuda_host/runtime.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/random_model.hpp"

namespace paceline {
namespace {

constexpr int kBlock = 16;
constexpr int kContext = 2 * kernels::cuda::kAttentionSplit;

/// Kernels of a pass that computes the last of so many positions.
long launches_of(int layers, int positions) {
  const ModelConfig config = test::small_config(layers, kContext);
  const test::RandomModel weights(config);
  const auto backend = kernels::make_cuda_backend(0);
  fabric::SingleRankGroup group;
  model::Decoder decoder(*backend,
                         model::load_weights(*backend, config, weights, group, DType::bf16), group,
                         1, 1, kContext);
  const kernels::KvShape kv = decoder.kv_shape(kBlock);
  std::vector<std::int32_t> blocks(kContext / kBlock);
  std::iota(blocks.begin(), blocks.end(), 0);
  const auto cache = backend->allocate(kv.block_bytes() * blocks.size());
  const kernels::Segment segment{0, 1, positions - 1, blocks.data(), nullptr};
  const TokenId token = 1;
  const std::int32_t row = 0;
  std::byte any;
  backend->read(cache->data(), {&any, 1});  // waits for what loading has put into the stream
  const long before = cuda_host::launches();
  decoder.forward({&token, 1}, {&segment, 1}, {&row, 1}, kv, cache->data());
  EXPECT_GE(backend->pass_seconds(), 0);
  return cuda_host::launches() - before;
}

// Norm, q/k/v, rotation, attention, output; norm, gate and up with SwiGLU, down. Splits of a
// context are merged by those who attend.
TEST(CudaLaunches, OfALayer) {
  for (const auto& [positions, expected] :
       {std::pair{kernels::cuda::kAttentionSplit, 8}, {kContext, 8}}) {
    EXPECT_EQ(launches_of(5, positions) - launches_of(3, positions), 2 * expected) << positions;
  }
}

}  // namespace
}  // namespace paceline
