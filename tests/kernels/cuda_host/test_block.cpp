// Blocks of the emulation: what threads see, how they meet, and what is caught.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "host_test_util.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/warpgroup_ptx.cuh"

namespace paceline::cuda_host {
namespace {

using kernels::cuda::cp_async_16;
using kernels::cuda::cp_async_commit;
using kernels::cuda::cp_async_wait;
using kernels::cuda::dynamic_shared;
using kernels::cuda::launch;
using kernels::cuda::Mbarrier;

__global__ void write_indices(int* out) {
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * threads + thread] = static_cast<int>(block * 1000 + thread);
}

TEST(CudaHostTest, EveryThreadOfEveryBlockRunsOnce) {
  const TestStream stream;
  DeviceArray<int> out(24 * 60);
  launch(write_indices, dim3(2, 3, 4), dim3(5, 4, 3), 0, stream, out.data());
  const std::vector<int> got = out.host();
  for (int i = 0; i < 24 * 60; ++i) ASSERT_EQ(got[i], i / 60 * 1000 + i % 60);
}

__global__ void reverse_in_shared(const int* in, int* out) {
  auto* shared = reinterpret_cast<int*>(dynamic_shared());
  const unsigned i = threadIdx.x;
  for (int round = 0; round < 3; ++round) {
    shared[i] = in[blockIdx.x * blockDim.x + i] + round;
    __syncthreads();
    out[blockIdx.x * blockDim.x + i] = shared[blockDim.x - 1 - i];
    __syncthreads();
  }
}

TEST(CudaHostTest, BarriersOrderSharedMemory) {
  const TestStream stream;
  std::vector<int> in(4 * 1024);
  for (int i = 0; i < 4 * 1024; ++i) in[i] = i * 7;
  const DeviceArray<int> source(in);
  DeviceArray<int> out(in.size());
  launch(reverse_in_shared, 4, 1024, 4096, stream, source.data(), out.data());
  const std::vector<int> got = out.host();
  for (int i = 0; i < 4 * 1024; ++i) {
    ASSERT_EQ(got[i], in[i / 1024 * 1024 + 1023 - i % 1024] + 2);
  }
}

__global__ void collect(int* out, float* sums) {
  const int i = static_cast<int>(threadIdx.x);
  int* row = out + i;
  row[0 * 64] = __shfl_sync(0xFFFFFFFFU, i, 5);
  row[1 * 64] = __shfl_sync(0xFFFFFFFFU, i, 9, 8);
  row[2 * 64] = __shfl_xor_sync(0xFFFFFFFFU, i, 16);
  row[3 * 64] = __shfl_up_sync(0xFFFFFFFFU, i, 3, 16);
  row[4 * 64] = __shfl_down_sync(0xFFFFFFFFU, i, 3);
  row[5 * 64] = static_cast<int>(__ballot_sync(0xFFFFFFFFU, i % 3 == 0));
  row[6 * 64] = __any_sync(0xFFFFFFFFU, i == 40) + 2 * __all_sync(0xFFFFFFFFU, i < 32);
  row[7 * 64] = __reduce_add_sync(0xFFFFFFFFU, i);
  row[8 * 64] = __reduce_max_sync(0xFFFFFFFFU, -i);
  row[9 * 64] = static_cast<int>(__match_any_sync(0xFFFFFFFFU, i / 8));
  row[10 * 64] = __syncthreads_count(i % 5 == 0);
  // Halves of a warp on ways of their own.
  const unsigned half = i % 32 < 16 ? 0xFFFFU : 0xFFFF0000U;
  if (i % 32 < 16) {
    row[11 * 64] = __reduce_add_sync(half, i);
  } else {
    row[11 * 64] = __reduce_min_sync(half, i);
  }
  float sum = 1.0F / static_cast<float>(i + 1);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, offset);
  sums[i] = sum;
}

TEST(CudaHostTest, WarpCollectives) {
  const TestStream stream;
  DeviceArray<int> out(12 * 64);
  DeviceArray<float> sums(64);
  launch(collect, 1, 64, 0, stream, out.data(), sums.data());
  const std::vector<int> got = out.host();
  const std::vector<float> sum = sums.host();
  for (int i = 0; i < 64; ++i) {
    const int base = i / 32 * 32;
    const int lane = i % 32;
    EXPECT_EQ(got[i], base + 5);
    EXPECT_EQ(got[64 + i], base + lane / 8 * 8 + 1);
    EXPECT_EQ(got[2 * 64 + i], base + (lane ^ 16));
    EXPECT_EQ(got[3 * 64 + i], lane % 16 < 3 ? i : i - 3);
    EXPECT_EQ(got[4 * 64 + i], lane > 28 ? i : i + 3);
    unsigned ballot = 0;
    for (int j = 0; j < 32; ++j) ballot |= (base + j) % 3 == 0 ? 1U << j : 0U;
    EXPECT_EQ(static_cast<unsigned>(got[5 * 64 + i]), ballot);
    EXPECT_EQ(got[6 * 64 + i], base == 0 ? 2 : 1);
    EXPECT_EQ(got[7 * 64 + i], 32 * base + 31 * 16);
    EXPECT_EQ(got[8 * 64 + i], -base);
    EXPECT_EQ(static_cast<unsigned>(got[9 * 64 + i]), 0xFFU << lane / 8 * 8);
    EXPECT_EQ(got[10 * 64 + i], 13);
    EXPECT_EQ(got[11 * 64 + i], lane < 16 ? 16 * base + 15 * 8 : base + 16);
    double expected = 0;
    for (int j = 0; j < 32; ++j) expected += 1.0 / (base + j + 1);
    EXPECT_NEAR(sum[i], expected, 1e-6);
    EXPECT_EQ(sum[i], sum[base]);
  }
}

__global__ void count_up(unsigned* counters) {
  atomicAdd(&counters[threadIdx.x % 3], 2U);
  atomicMax(&counters[3], threadIdx.x);
  atomicMin(&counters[4], threadIdx.x + 7);
  atomicOr(&counters[5], 1U << threadIdx.x % 32);
  atomicCAS(&counters[6], 9U, threadIdx.x);
}

TEST(CudaHostTest, Atomics) {
  const TestStream stream;
  DeviceArray<unsigned> counters(std::vector<unsigned>{0, 0, 0, 0, 100, 0, 8});
  launch(count_up, 1, 96, 0, stream, counters.data());
  EXPECT_EQ(counters.host(), (std::vector<unsigned>{64, 64, 64, 95, 7, 0xFFFFFFFFU, 8}));
}

__global__ void read_unwritten(float* out) {
  out[threadIdx.x] = reinterpret_cast<const float*>(dynamic_shared())[threadIdx.x];
}
__global__ void write_shared(float* out) {
  reinterpret_cast<float*>(dynamic_shared())[threadIdx.x] = 1;
  out[threadIdx.x] = 1;
}

TEST(CudaHostTest, SharedMemoryIsPoisonedForEveryBlock) {
  const TestStream stream;
  DeviceArray<float> out(32);
  launch(write_shared, 3, 32, 128, stream, out.data());
  launch(read_unwritten, 1, 32, 128, stream, out.data());
  for (const float x : out.host()) EXPECT_TRUE(std::isnan(x));
}

/// The fault of a launch, or nothing.
template <class... Parameters, class... Arguments>
std::string fault_of(void (*kernel)(Parameters...), unsigned threads, std::size_t shared,
                     Arguments... arguments) {
  const TestStream stream;
  launch(kernel, 1, threads, shared, stream, arguments...);
  try {
    stream.synchronize();
  } catch (const KernelFault& fault) {
    return fault.what();
  }
  return "";
}

__global__ void some_skip_the_barrier(unsigned first) {
  if (threadIdx.x >= first) __syncthreads();
}
__global__ void two_barriers(unsigned first) {
  if (threadIdx.x < first) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void missing_lane(unsigned missing) {
  if (threadIdx.x != missing) __syncwarp();
}
__global__ void two_collectives(unsigned first) {
  if (threadIdx.x < first) {
    __ballot_sync(0xFFFFFFFFU, 1);
  } else {
    __any_sync(0xFFFFFFFFU, 1);
  }
}
__global__ void lane_outside_the_mask() {
  if (threadIdx.x < 16) __shfl_sync(0xFFFFU, 1.0F, 20);
}
__global__ void beyond_shared(unsigned index) { dynamic_shared()[index] = std::byte{0}; }
__global__ void trap_at(unsigned thread) {
  if (threadIdx.x == thread) __trap();
}
__global__ void copy_to_nowhere(const float4* from, float4* to) { cp_async_16(to, from, true); }
__global__ void copy_without_waiting(const float4* from) {
  cp_async_16(dynamic_shared(), from, true);
  cp_async_commit();
}

TEST(CudaHostTest, WhatIsUndefinedIsCaught) {
  DeviceArray<float4> memory(4);
  EXPECT_EQ(fault_of(some_skip_the_barrier, 96, 0, 0U), "");
  EXPECT_NE(fault_of(some_skip_the_barrier, 96, 0, 1U).find("has finished"), std::string::npos);
  EXPECT_NE(fault_of(some_skip_the_barrier, 96, 0, 64U).find("barrier of"), std::string::npos);
  EXPECT_NE(fault_of(two_barriers, 64, 0, 32U).find("while others"), std::string::npos);
  EXPECT_EQ(fault_of(two_barriers, 64, 0, 64U), "");
  EXPECT_NE(fault_of(missing_lane, 32, 0, 31U).find("warp collective"), std::string::npos);
  EXPECT_NE(fault_of(missing_lane, 31, 0, 40U).find("does not have"), std::string::npos);
  EXPECT_EQ(fault_of(missing_lane, 64, 0, 64U), "");
  EXPECT_NE(fault_of(two_collectives, 32, 0, 4U).find("while other lanes"), std::string::npos);
  EXPECT_NE(fault_of(lane_outside_the_mask, 32, 0).find("outside the mask"), std::string::npos);
  EXPECT_NE(fault_of(beyond_shared, 1, 64, 64U).find("beyond its shared"), std::string::npos);
  EXPECT_EQ(fault_of(beyond_shared, 1, 64, 63U), "");
  EXPECT_NE(fault_of(trap_at, 64, 0, 33U).find("thread (33, 0, 0)"), std::string::npos);
  EXPECT_NE(fault_of(copy_to_nowhere, 1, 64, memory.data(), memory.data() + 1)
                .find("not to shared memory"),
            std::string::npos);
  EXPECT_NE(fault_of(copy_without_waiting, 1, 64, memory.data()).find("nothing waited for"),
            std::string::npos);
}

__global__ void neighbour_without_barrier(int* out) {
  auto* shared = reinterpret_cast<int*>(dynamic_shared());
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
}

TEST(CudaHostTest, AMissingBarrierShowsAsAResultThatChanges) {
  const TestStream stream;
  std::vector<std::vector<int>> results;
  for (int i = 0; i < 8; ++i) {
    DeviceArray<int> out(128);
    launch(neighbour_without_barrier, 1, 128, 512, stream, out.data());
    results.push_back(out.host());
  }
  EXPECT_NE(std::count(results.begin(), results.end(), results[0]), 8);
}

__global__ void copy_in_background(const float* from, float* out) {
  auto* shared = reinterpret_cast<float*>(dynamic_shared());
  const unsigned i = threadIdx.x;
  cp_async_16(shared + 4 * i, from + 4 * i, true);
  cp_async_commit();
  cp_async_16(shared + 128 + 4 * i, from + 128 + 4 * i, i % 2 == 0);
  cp_async_commit();
  out[i] = shared[4 * i];  // not yet there
  cp_async_wait<1>();
  out[32 + i] = shared[4 * i + 3];
  out[64 + i] = shared[128 + 4 * i];
  cp_async_wait<0>();
  __syncthreads();
  out[96 + i] = shared[128 + (4 * i + 4) % 128];
}

TEST(CudaHostTest, AsynchronousCopiesLandWhenWaitedFor) {
  const TestStream stream;
  std::vector<float> in(256);
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i + 1);
  const DeviceArray<float> from(in);
  DeviceArray<float> out(128);
  launch(copy_in_background, 1, 32, 1024, stream, from.data(), out.data());
  const std::vector<float> got = out.host();
  for (int i = 0; i < 32; ++i) {
    EXPECT_TRUE(std::isnan(got[i]));
    EXPECT_EQ(got[32 + i], in[4 * i + 3]);
    EXPECT_TRUE(std::isnan(got[64 + i]));
    EXPECT_EQ(got[96 + i], (i + 1) % 2 == 0 ? in[128 + (4 * i + 4) % 128] : 0);
  }
}

enum class Mistake { none, reads_early, announces_too_little, never_arrives, arrives_twice };

/// A slot of shared memory that thread 32 fills four times, and a warp reads.
__global__ void fill_and_read(const float* from, float* out, Mistake mistake) {
  auto* slot = reinterpret_cast<float*>(dynamic_shared());
  auto* full = reinterpret_cast<Mbarrier*>(dynamic_shared() + 128);
  Mbarrier* empty = full + 1;
  if (threadIdx.x == 0) {
    kernels::cuda::mbarrier_init(full, 1);
    kernels::cuda::mbarrier_init(empty, 32);
  }
  __syncthreads();
  for (unsigned round = 0; round < 4; ++round) {
    if (threadIdx.x == 32) {
      kernels::cuda::mbarrier_wait(empty, round % 2 ^ 1U);
      if (mistake != Mistake::never_arrives) {
        kernels::cuda::mbarrier_arrive_expect(full,
                                              mistake == Mistake::announces_too_little ? 64 : 128);
      }
      if (mistake == Mistake::arrives_twice) kernels::cuda::mbarrier_arrive(full);
      kernels::cuda::bulk_copy(dynamic_shared(),
                               reinterpret_cast<const std::byte*>(from + 32 * round), 128, full);
    } else if (threadIdx.x < 32) {
      if (mistake == Mistake::reads_early) out[32 * round + threadIdx.x] = slot[threadIdx.x];
      kernels::cuda::mbarrier_wait(full, round % 2);
      if (mistake != Mistake::reads_early) out[32 * round + threadIdx.x] = slot[threadIdx.x];
      kernels::cuda::mbarrier_arrive(empty);
    }
  }
}

TEST(CudaHostTest, CopiesThatABarrierCountsLandWhenItIsWaitedFor) {
  std::vector<float> in(128);
  for (int i = 0; i < 128; ++i) in[i] = static_cast<float>(i + 1);
  const DeviceArray<float> from(in);
  DeviceArray<float> out(128);
  EXPECT_EQ(fault_of(fill_and_read, 64, 256, from.data(), out.data(), Mistake::none), "");
  EXPECT_EQ(out.host(), in);
  EXPECT_EQ(fault_of(fill_and_read, 64, 256, from.data(), out.data(), Mistake::reads_early), "");
  EXPECT_NE(out.host(), in);
  EXPECT_NE(
      fault_of(fill_and_read, 64, 256, from.data(), out.data(), Mistake::announces_too_little), "");
  EXPECT_NE(fault_of(fill_and_read, 64, 256, from.data(), out.data(), Mistake::never_arrives)
                .find("waits for a phase"),
            std::string::npos);
  EXPECT_NE(fault_of(fill_and_read, 64, 256, from.data(), out.data(), Mistake::arrives_twice)
                .find("once too often"),
            std::string::npos);
}

}  // namespace
}  // namespace paceline::cuda_host
