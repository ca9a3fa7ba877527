// What the emulated memory needs of the emulated streams. But for the lock itself and at_once(),
// whoever calls these holds the lock.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>

#include "include/cuda_runtime_api.h"

namespace paceline::cuda_host {

constexpr std::size_t kDeviceBytes = std::size_t{1} << 30;

/// Called until it says that it is done; anew where a graph is launched again.
using Operation = std::function<bool()>;

/// Held by every call of the runtime.
[[nodiscard]] std::recursive_mutex& runtime_mutex();

/// Remembers an error as the last one.
cudaError_t result(cudaError_t error);

/// A call that may not be made while work is recorded spoils the recording.
[[nodiscard]] bool forbidden_by_capture();

/// One that is done when it returns.
[[nodiscard]] Operation at_once(std::function<void()> work);

/// Puts an operation where work of `stream` goes: its queue, the recording it is part of, or, in
/// the default stream, behind all blocking streams at once.
cudaError_t enqueue(cudaStream_t stream, Operation operation);
/// Whether work of `stream` is recorded instead of done.
[[nodiscard]] bool recorded(cudaStream_t stream);

/// Does what a stream was given, or all of them were.
void drain(cudaStream_t stream);
void drain_all(bool only_blocking);

}  // namespace paceline::cuda_host
