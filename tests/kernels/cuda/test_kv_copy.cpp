// Moves within the KV pool.
#include "kernels/cuda/kv_copy.hpp"

#include <algorithm>
#include <set>

#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;

std::vector<std::byte> random_bytes(std::size_t n, std::uint32_t seed) {
  Random random(seed);
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random.bits());
  return out;
}

const KvShape kShapes[] = {{3, 2, 64, 16, DType::bf16},     {1, 1, 128, 32, DType::f32},
                           {2, 3, 6, 16, DType::bf16},      {2, 1, 5, 16, DType::bf16},
                           {2, 4, 128, 16, DType::bf16},    {2, 1, 64, 16, DType::bf16, 0, 300},
                           {1, 2, 32, 16, DType::f32, 0, 3}};

TEST(CudaKvCopyTest, BlocksMoveWhole) {
  const TestStream stream;
  for (const KvShape& kv : kShapes) {
    const std::size_t bytes = kv.block_bytes();
    const std::vector<std::byte> before = random_bytes(7 * bytes, 1);
    DeviceArray<std::byte> cache(before);
    const DeviceArray<Backend::BlockCopy> copies(
        std::vector<Backend::BlockCopy>{{0, 3}, {2, 6}, {0, 5}});
    cuda::copy_blocks(kv, cache.data(), copies.data(), 3, stream);
    const int source[7] = {0, 1, 2, 0, 4, 0, 2};
    const std::vector<std::byte> after = cache.host();
    for (int b = 0; b < 7; ++b) {
      ASSERT_EQ(std::memcmp(after.data() + b * bytes, before.data() + source[b] * bytes, bytes), 0);
    }
  }
}

/// Moves done one after the other on the host.
void move_on_host(const KvShape& kv, std::vector<std::byte>& cache,
                  const std::vector<Backend::SlotMove>& moves) {
  const std::size_t row = kv.head_dim * size_of(kv.dtype);
  for (const Backend::SlotMove& move : moves) {
    for (int i = 0; i < kv.layers * 2 * kv.kv_heads; ++i) {
      const auto at = [&](int block, int slot) {
        return cache.data() + block * kv.block_bytes() + (i * kv.block + slot) * row;
      };
      std::memmove(at(move.to_block, move.to_slot), at(move.from_block, move.from_slot), row);
    }
    const auto experts = [&](int block, int slot) {
      return cache.data() + block * kv.block_bytes() + kv.routing_offset() +
             slot * kv.routed * sizeof(std::int16_t);
    };
    std::memmove(experts(move.to_block, move.to_slot), experts(move.from_block, move.from_slot),
                 kv.routed * sizeof(std::int16_t));
  }
}

TEST(CudaKvCopyTest, SlotMovesHaveTheEffectOfTheirOrder) {
  Random random(2);
  const TestStream stream;
  for (const KvShape& kv : kShapes) {
    for (int round = 0; round < 6; ++round) {
      std::vector<std::byte> expected = random_bytes(5 * kv.block_bytes(), 3 + round);
      std::vector<Backend::SlotMove> moves;
      const int slots = round % 2 == 0 ? kv.block : 4;  // few slots: long chains
      for (int i = 0; i < 12; ++i) {
        moves.push_back(
            {random.below(5), random.below(slots), random.below(5), random.below(slots)});
      }
      DeviceArray<std::byte> cache(expected);
      move_on_host(kv, expected, moves);
      const DeviceArray<cuda::GroupedMove> groups(cuda::grouped(moves));
      cuda::move_slots(kv, cache.data(), groups.data(), 12, stream);
      ASSERT_EQ(cache.host(), expected);
    }
  }
}

TEST(CudaKvCopyTest, GroupsShareNoSlotAndKeepTheirOrder) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Backend::SlotMove> moves;
    const int count = random.below(20);
    for (int i = 0; i < count; ++i) {
      moves.push_back({i, random.below(30), 100 + random.below(3), random.below(12)});
    }
    if (count > 3) moves[3] = {moves[1].to_block, moves[1].to_slot, 7, 7};  // after move 1
    const std::vector<cuda::GroupedMove> groups = cuda::grouped(moves);
    ASSERT_EQ(groups.size(), moves.size());
    std::set<std::pair<int, int>> others;
    std::size_t i = 0;
    while (i < groups.size()) {
      ASSERT_GT(groups[i].group, 0);
      std::set<std::pair<int, int>> mine;
      int last = -1;
      for (std::int32_t j = 0; j < groups[i].group; ++j) {
        const Backend::SlotMove& move = groups[i + j].move;
        ASSERT_TRUE(j == 0 || groups[i + j].group == 0);
        mine.insert({move.from_block, move.from_slot});
        mine.insert({move.to_block, move.to_slot});
        // from_block says which move it was, but for the third.
        const int number = move.from_block < 100 ? move.from_block : 3;
        ASSERT_GT(number, last);
        last = number;
      }
      for (const auto& slot : mine) ASSERT_TRUE(others.insert(slot).second);
      i += groups[i].group;
    }
  }
  // Independent moves are groups of their own.
  const std::vector<Backend::SlotMove> apart = {{0, 5, 0, 1}, {1, 5, 1, 1}, {0, 6, 0, 2}};
  for (const cuda::GroupedMove& move : cuda::grouped(apart)) EXPECT_EQ(move.group, 1);
}

}  // namespace
}  // namespace paceline::kernels::test
