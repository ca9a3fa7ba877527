// The emulated runtime: its device, streams, events and graphs. Memory is in memory.cpp.
#include "runtime.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "include/cuda_runtime.h"
#include "streams.hpp"

namespace paceline::cuda_host {
namespace {

constexpr int kProcessors = 4;
constexpr int kDefaultShared = 48 * 1024;

/// What is emulated: PACELINE_HOST_DEVICE, by default sm_90.
struct Device {
  const char* isa;
  int major, minor;
  int block_shared;  ///< bytes that a block may have
  int shared;        ///< bytes of a multiprocessor
};
constexpr Device kDevices[] = {{"sm_90", 9, 0, 227 * 1024, 228 * 1024},
                               {"sm_75", 7, 5, 64 * 1024, 64 * 1024},
                               {"sm_80", 8, 0, 163 * 1024, 164 * 1024},
                               {"sm_86", 8, 6, 99 * 1024, 100 * 1024}};
const Device& device() {
  static const Device& chosen = []() -> const Device& {
    const char* wanted = std::getenv("PACELINE_HOST_DEVICE");
    for (const Device& known : kDevices) {
      if (wanted == nullptr || std::strcmp(wanted, known.isa) == 0) return known;
    }
    std::fprintf(stderr, "PACELINE_HOST_DEVICE: no device %s is known\n", wanted);
    std::abort();
  }();
  return chosen;
}

/// Work recorded instead of done. Its order of issue is one that its dependencies allow.
struct Capture {
  std::shared_ptr<std::vector<Operation>> operations = std::make_shared<std::vector<Operation>>();
  bool invalid = false;
};

/// Work that waits. Operations [0, done) have run.
struct Stream {
  std::deque<Operation> queue;
  std::uint64_t issued = 0;
  std::uint64_t done = 0;
  bool blocking = true;  ///< with the default stream
  std::shared_ptr<Capture> capture;
  std::uint64_t captured = 0;  ///< operations since it joined the capture
  std::uint64_t joined = 0;    ///< of them, those another stream of the capture waits for
};

struct Runtime {
  std::recursive_mutex mutex;
  std::set<Stream*> streams;
  std::unordered_map<const void*, int> shared_limit;
  std::weak_ptr<Capture> capture;  ///< the one that goes on
  cudaError_t last_error = cudaSuccess;
  long launches = 0;
};
Runtime& runtime() {
  static Runtime instance;
  return instance;
}

/// The next operation, as far as it gets.
void advance(Stream& stream) {
  bool done = false;
  try {
    done = stream.queue.front()();
  } catch (...) {
    stream.queue.clear();
    stream.done = stream.issued;
    throw;
  }
  if (!done) {
    // It waits for another process, which may want this one's core.
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    return;
  }
  stream.queue.pop_front();
  ++stream.done;
}
void run_until(Stream& stream, std::uint64_t position) {
  while (stream.done < position) advance(stream);
}
void drain(Stream& stream) { run_until(stream, stream.issued); }

Stream* stream_of(cudaStream_t stream) { return reinterpret_cast<Stream*>(stream); }

std::uint32_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return static_cast<std::uint32_t>((x ^ (x >> 31)) >> 32);
}

void run_launch(const Launch& launch) {
  Runtime& state = runtime();
  const std::uint64_t number = static_cast<std::uint64_t>(++state.launches) * 0x9E3779B97F4A7C15ULL;
  const bool backwards = (mixed(number) & 1U) != 0;
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = backwards ? blocks - 1 - i : i;
    const Index index = {static_cast<unsigned>(b % launch.grid.x),
                         static_cast<unsigned>(b / launch.grid.x % launch.grid.y),
                         static_cast<unsigned>(b / launch.grid.x / launch.grid.y)};
    Block::current().run(launch.thread, launch.name, launch.grid, index, launch.block,
                         launch.shared_bytes, mixed(number + b));
  }
}

}  // namespace

std::recursive_mutex& runtime_mutex() { return runtime().mutex; }

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) runtime().last_error = error;
  return error;
}

bool forbidden_by_capture() {
  const std::shared_ptr<Capture> capture = runtime().capture.lock();
  if (capture == nullptr) return false;
  capture->invalid = true;
  return true;
}

Operation at_once(std::function<void()> work) {
  return [work = std::move(work)] {
    work();
    return true;
  };
}

cudaError_t enqueue(cudaStream_t to, Operation operation) {
  Stream* const stream = stream_of(to);
  if (stream == nullptr) {
    if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
    drain_all(true);
    while (!operation()) {
    }
  } else if (stream->capture != nullptr) {
    stream->capture->operations->push_back(std::move(operation));
    ++stream->captured;
  } else {
    stream->queue.push_back(std::move(operation));
    ++stream->issued;
  }
  return cudaSuccess;
}

bool recorded(cudaStream_t stream) {
  return stream != nullptr && stream_of(stream)->capture != nullptr;
}

void drain(cudaStream_t stream) { drain(*stream_of(stream)); }

void drain_all(bool only_blocking) {
  for (Stream* stream : runtime().streams) {
    if (!only_blocking || stream->blocking) drain(*stream);
  }
}

cudaError_t enqueue_kernel(Launch launch, cudaStream_t stream) {
  Runtime& state = runtime();
  const std::scoped_lock lock(state.mutex);
  const Extent& g = launch.grid;
  const Extent& t = launch.block;
  const auto limit = state.shared_limit.find(launch.function);
  const int shared = limit == state.shared_limit.end() ? kDefaultShared : limit->second;
  const bool valid = g.x >= 1 && g.y >= 1 && g.z >= 1 && g.x <= 0x7FFFFFFFU && g.y <= 65535 &&
                     g.z <= 65535 && t.x >= 1 && t.y >= 1 && t.z >= 1 && t.z <= 64 &&
                     std::uint64_t{t.x} * t.y * t.z <= kMaxThreads;
  if (!valid) return result(cudaErrorInvalidConfiguration);
  if (launch.shared_bytes > static_cast<std::size_t>(shared)) return result(cudaErrorInvalidValue);
  return enqueue(stream, at_once([launch = std::move(launch)] { run_launch(launch); }));
}

cudaError_t enqueue_polled(std::function<bool()> operation, cudaStream_t stream) {
  const std::scoped_lock lock(runtime().mutex);
  return enqueue(stream, std::move(operation));
}

long launches() { return runtime().launches; }

}  // namespace paceline::cuda_host

using namespace paceline::cuda_host;

struct CUevent_st {
  std::shared_ptr<Capture> capture;  // where recorded within one
  Stream* stream = nullptr;          // null: never recorded, or in the default stream
  std::uint64_t position = 0;
};
struct CUgraph_st {
  std::shared_ptr<std::vector<Operation>> operations;
};
struct CUgraphExec_st {
  std::shared_ptr<std::vector<Operation>> operations;
};

namespace {

/// Operations of the event's stream that must have run; none where the stream is gone (it was
/// drained).
void await(const CUevent_st& event) {
  if (runtime().streams.contains(event.stream)) run_until(*event.stream, event.position);
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaGetLastError() { return std::exchange(runtime().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return runtime().last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : result(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  if (number != 0) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "host emulation");
  properties->totalGlobalMem = kDeviceBytes;
  properties->sharedMemPerBlockOptin = device().block_shared;
  properties->multiProcessorCount = kProcessors;
  properties->major = device().major;
  properties->minor = device().minor;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int number) {
  if (number != 0) return result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = kProcessors;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = device().shared;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = device().block_shared;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 50 * 1024 * 1024;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = device().major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = device().minor;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  const std::scoped_lock lock(runtime().mutex);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  drain_all(false);
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const std::scoped_lock lock(runtime().mutex);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > device().block_shared) return result(cudaErrorInvalidValue);
    runtime().shared_limit[function] = std::max(value, kDefaultShared);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const std::scoped_lock lock(runtime().mutex);
  auto* made = new Stream;
  made->blocking = (flags & cudaStreamNonBlocking) == 0;
  runtime().streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::scoped_lock lock(runtime().mutex);
  Stream* const gone = stream_of(stream);
  if (!runtime().streams.contains(gone)) return result(cudaErrorInvalidResourceHandle);
  drain(*gone);
  runtime().streams.erase(gone);
  delete gone;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const std::scoped_lock lock(runtime().mutex);
  if (forbidden_by_capture()) return result(cudaErrorStreamCaptureUnsupported);
  if (stream == nullptr) {
    drain_all(true);
  } else {
    drain(*stream_of(stream));
  }
  return cudaSuccess;
}
/// Takes one operation further a call, so that asking again and again comes to an end.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::scoped_lock lock(runtime().mutex);
  Stream* const asked = stream_of(stream);
  if (asked == nullptr || asked->done == asked->issued) return cudaSuccess;
  advance(*asked);
  return cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::scoped_lock lock(runtime().mutex);
  Stream* const waiting = stream_of(stream);
  if (event->capture != nullptr) {
    if (waiting == nullptr) return result(cudaErrorStreamCaptureIsolation);
    if (waiting->capture == nullptr) {
      waiting->capture = event->capture;
      waiting->captured = waiting->joined = 0;
    }
    if (waiting->capture != event->capture) return result(cudaErrorStreamCaptureIsolation);
    event->stream->joined = std::max(event->stream->joined, event->position);
    ++waiting->captured;
    return cudaSuccess;
  }
  if (event->stream == nullptr) return cudaSuccess;
  if (waiting != nullptr && waiting->capture != nullptr) {
    waiting->capture->invalid = true;
    return result(cudaErrorStreamCaptureIsolation);
  }
  return enqueue(stream, at_once([copy = *event] { await(copy); }));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::scoped_lock lock(runtime().mutex);
  Stream* const at = stream_of(stream);
  if (at == nullptr) drain_all(true);
  *event = {};
  event->stream = at;
  if (at == nullptr) return cudaSuccess;
  event->capture = at->capture;
  event->position = at->capture != nullptr ? at->captured : at->issued;
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::scoped_lock lock(runtime().mutex);
  if (event->capture != nullptr || forbidden_by_capture()) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  await(*event);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::scoped_lock lock(runtime().mutex);
  if (event->capture != nullptr) return result(cudaErrorStreamCaptureUnsupported);
  if (!runtime().streams.contains(event->stream) || event->stream->done >= event->position) {
    return cudaSuccess;
  }
  advance(*event->stream);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::scoped_lock lock(runtime().mutex);
  for (const cudaEvent_t event : {start, end}) {
    if (event->stream == nullptr || event->capture != nullptr) {
      return result(cudaErrorInvalidResourceHandle);
    }
    if (event->stream->done < event->position) return cudaErrorNotReady;
  }
  *milliseconds = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::scoped_lock lock(runtime().mutex);
  Stream* const origin = stream_of(stream);
  if (origin == nullptr || origin->capture != nullptr || !runtime().capture.expired()) {
    return result(cudaErrorStreamCaptureUnsupported);
  }
  origin->capture = std::make_shared<Capture>();
  origin->captured = origin->joined = 0;
  runtime().capture = origin->capture;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::scoped_lock lock(runtime().mutex);
  Stream* const origin = stream_of(stream);
  *graph = nullptr;
  if (origin == nullptr || origin->capture == nullptr) {
    return result(cudaErrorStreamCaptureUnmatched);
  }
  const std::shared_ptr<Capture> capture = std::move(origin->capture);
  runtime().capture.reset();
  bool joined = true;
  for (Stream* other : runtime().streams) {
    if (other->capture != capture) continue;
    joined = joined && other->joined == other->captured;
    other->capture.reset();
  }
  if (capture->invalid) return result(cudaErrorStreamCaptureInvalidated);
  if (!joined) return result(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{capture->operations};
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::scoped_lock lock(runtime().mutex);
  *status = recorded(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  if (graph == nullptr) return result(cudaErrorInvalidValue);
  *executable = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::scoped_lock lock(runtime().mutex);
  return enqueue(stream, [operations = executable->operations, next = std::size_t{0}]() mutable {
    while (next < operations->size()) {
      if (!(*operations)[next]()) return false;
      ++next;
    }
    return true;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
