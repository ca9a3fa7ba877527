// Memory, streams, events and graphs of the emulation.
#include <gtest/gtest.h>

#include <cstdint>

#include "host_test_util.hpp"
#include "kernels/cuda/launch.hpp"
#include "runtime/core/error.hpp"

namespace paceline::cuda_host {
namespace {

using kernels::cuda::launch;

__global__ void add(int* to, const int* from, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] += from[i];
}
__global__ void touch_shared() { kernels::cuda::dynamic_shared()[0] = std::byte{1}; }

class Pinned {
 public:
  explicit Pinned(int n) { PACELINE_CUDA_CHECK(cudaMallocHost(&data_, n * sizeof(int))); }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  int& operator[](int i) { return data_[i]; }
  int* data() { return data_; }

 private:
  int* data_ = nullptr;
};

TEST(CudaHostRuntimeTest, ErrorsSayWhereAndWhat) {
  try {
    PACELINE_CUDA_CHECK(cudaSetDevice(7));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    const std::string what = error.what();
    EXPECT_NE(what.find("cudaSetDevice(7)"), std::string::npos) << what;
    EXPECT_NE(what.find("test_runtime.cpp:"), std::string::npos) << what;
    EXPECT_NE(what.find("cudaErrorInvalidDevice"), std::string::npos) << what;
  }
}

TEST(CudaHostRuntimeTest, MemoryIsPoisonedCheckedAndCounted) {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  PACELINE_CUDA_CHECK(cudaMemGetInfo(&before, &total));
  {
    DeviceArray<int> a(10);
    PACELINE_CUDA_CHECK(cudaMemGetInfo(&after, &total));
    EXPECT_EQ(before - after, 40U);
    for (const int x : a.host()) EXPECT_EQ(x, -1);
    PACELINE_CUDA_CHECK(cudaMemset(a.data() + 2, 0, 8));
    EXPECT_EQ(a.host(), (std::vector<int>{-1, -1, 0, 0, -1, -1, -1, -1, -1, -1}));
    std::vector<int> host(10);
    EXPECT_EQ(cudaMemcpy(host.data(), a.data() + 1, 40, cudaMemcpyDeviceToHost),
              cudaErrorInvalidValue);  // beyond the end
    EXPECT_EQ(cudaMemcpy(a.data(), host.data(), 40, cudaMemcpyDeviceToHost),
              cudaErrorInvalidValue);  // the wrong way
    EXPECT_EQ(cudaFreeHost(a.data()), cudaErrorInvalidValue);
  }
  PACELINE_CUDA_CHECK(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  void* much = nullptr;
  EXPECT_EQ(cudaMalloc(&much, total), before == total ? cudaSuccess : cudaErrorMemoryAllocation);
  cudaFree(much);
  EXPECT_EQ(cudaMalloc(&much, total + 1), cudaErrorMemoryAllocation);
}

TEST(CudaHostRuntimeTest, StreamsDeferAndPinnedMemoryIsReadLate) {
  const TestStream stream;
  DeviceArray<int> a(std::vector<int>{1, 2});
  DeviceArray<int> b(std::vector<int>{0, 0});
  Pinned pinned(2);
  std::vector<int> pageable = {10, 20};
  PACELINE_CUDA_CHECK(
      cudaMemcpyAsync(b.data(), pageable.data(), 8, cudaMemcpyHostToDevice, stream));
  pageable = {-1, -1};  // has been read
  launch(add, 1, 32, 0, stream, a.data(), static_cast<const int*>(b.data()), 2);
  pinned[0] = pinned[1] = 5;
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(b.data(), pinned.data(), 8, cudaMemcpyHostToDevice, stream));
  pinned[1] = 6;  // too early: has not
  launch(add, 1, 32, 0, stream, a.data(), static_cast<const int*>(b.data()), 2);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  stream.synchronize();
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(a.host(), (std::vector<int>{16, 28}));
}

TEST(CudaHostRuntimeTest, EventsOrderStreams) {
  const TestStream first;
  const TestStream second;
  DeviceArray<int> a(std::vector<int>{1});
  DeviceArray<int> b(std::vector<int>{10});
  cudaEvent_t done;
  PACELINE_CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  launch(add, 1, 1, 0, first, a.data(), static_cast<const int*>(b.data()), 1);  // a = 11
  PACELINE_CUDA_CHECK(cudaEventRecord(done, first));
  launch(add, 1, 1, 0, first, a.data(), static_cast<const int*>(b.data()), 1);  // not waited for
  PACELINE_CUDA_CHECK(cudaStreamWaitEvent(second, done, 0));
  launch(add, 1, 1, 0, second, b.data(), static_cast<const int*>(a.data()), 1);  // b = 21
  second.synchronize();
  first.synchronize();
  EXPECT_EQ(b.host()[0], 21);
  EXPECT_EQ(a.host()[0], 32);
  EXPECT_EQ(cudaEventQuery(done), cudaSuccess);
  PACELINE_CUDA_CHECK(cudaEventDestroy(done));
}

TEST(CudaHostRuntimeTest, LaunchesAreCheckedAsCudaDoes) {
  const TestStream stream;
  EXPECT_THROW(launch(touch_shared, 0, 32, 0, stream), Error);
  EXPECT_THROW(launch(touch_shared, 1, 1025, 0, stream), Error);
  EXPECT_THROW(launch(touch_shared, dim3(1, 65536), 32, 0, stream), Error);
  EXPECT_THROW(launch(touch_shared, 1, 32, 228 * 1024, stream), Error);
  launch(touch_shared, 1, 32, 227 * 1024, stream);
  const long before = launches();
  stream.synchronize();
  EXPECT_EQ(launches(), before + 1);
  cudaGetLastError();
}

TEST(CudaHostRuntimeTest, GraphsReplayWhatWasRecorded) {
  const TestStream stream;
  const TestStream side;
  DeviceArray<int> a(std::vector<int>{1, 2, 3});
  DeviceArray<int> b(std::vector<int>{0, 0, 0});
  Pinned in(3);
  Pinned out(3);
  for (int i = 0; i < 3; ++i) in[i] = 1;
  cudaEvent_t fork;
  cudaEvent_t join;
  PACELINE_CUDA_CHECK(cudaEventCreate(&fork));
  PACELINE_CUDA_CHECK(cudaEventCreate(&join));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(b.data(), in.data(), 12, cudaMemcpyHostToDevice, stream));
  PACELINE_CUDA_CHECK(cudaEventRecord(fork, stream));
  PACELINE_CUDA_CHECK(cudaStreamWaitEvent(side, fork, 0));
  launch(add, 1, 32, 0, side, a.data(), static_cast<const int*>(b.data()), 3);
  PACELINE_CUDA_CHECK(cudaEventRecord(join, side));
  PACELINE_CUDA_CHECK(cudaStreamWaitEvent(stream, join, 0));
  PACELINE_CUDA_CHECK(cudaMemcpyAsync(out.data(), a.data(), 12, cudaMemcpyDeviceToHost, stream));
  PACELINE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  PACELINE_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  PACELINE_CUDA_CHECK(cudaGraphDestroy(graph));
  EXPECT_EQ(a.host(), (std::vector<int>{1, 2, 3}));  // nothing has run
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 3; ++i) in[i] = round;
    PACELINE_CUDA_CHECK(cudaGraphLaunch(executable, stream));
    stream.synchronize();
    const int sum = round * (round + 1) / 2;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], i + 1 + sum);
  }
  PACELINE_CUDA_CHECK(cudaGraphExecDestroy(executable));
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
}

TEST(CudaHostRuntimeTest, WorkThatWaitsForOthersKeepsItsPlace) {
  const TestStream stream;
  DeviceArray<int> a(std::vector<int>{1});
  DeviceArray<int> b(std::vector<int>{10});
  int asked = 0;
  const auto wait = [&asked] { return ++asked % 3 == 0; };  // done when asked for the third time
  PACELINE_CUDA_CHECK(enqueue_polled(wait, stream));
  launch(add, 1, 1, 0, stream, a.data(), static_cast<const int*>(b.data()), 1);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(asked, 2);
  stream.synchronize();
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(a.host()[0], 11);
  // And in a graph, each time.
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  PACELINE_CUDA_CHECK(enqueue_polled(wait, stream));
  launch(add, 1, 1, 0, stream, a.data(), static_cast<const int*>(b.data()), 1);
  PACELINE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  PACELINE_CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  PACELINE_CUDA_CHECK(cudaGraphDestroy(graph));
  for (int round = 1; round <= 2; ++round) {
    PACELINE_CUDA_CHECK(cudaGraphLaunch(executable, stream));
    stream.synchronize();
    EXPECT_EQ(asked, 3 + 3 * round);
    EXPECT_EQ(a.host()[0], 11 + 10 * round);
  }
  PACELINE_CUDA_CHECK(cudaGraphExecDestroy(executable));
}

TEST(CudaHostRuntimeTest, RecordingRefusesWhatCannotBeRecorded) {
  const TestStream stream;
  const TestStream side;
  cudaGraph_t graph;
  PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);

  cudaEvent_t fork;
  PACELINE_CUDA_CHECK(cudaEventCreate(&fork));
  PACELINE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  PACELINE_CUDA_CHECK(cudaEventRecord(fork, stream));
  PACELINE_CUDA_CHECK(cudaStreamWaitEvent(side, fork, 0));
  launch(touch_shared, 1, 32, 16, side);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  PACELINE_CUDA_CHECK(cudaEventDestroy(fork));
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnmatched);
  cudaGetLastError();
}

}  // namespace
}  // namespace paceline::cuda_host
