// Memory owned by the backend: on the device, and pinned on the host for copies between both.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>

namespace paceline::kernels::cuda {

/// Device memory of plain cudaMalloc, aligned to 256 bytes, uninitialised. Throws Error (internal),
/// which states the bytes that are left, if there is not enough.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

/// Page-locked host memory, which copy engines can access directly.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

class Event {
 public:
  /// `timed`: the event records when it happens.
  explicit Event(bool timed);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream);
  [[nodiscard]] cudaError_t query() const { return cudaEventQuery(event_); }
  void wait() const;  ///< returns at once if nothing was recorded
  /// Returns the seconds between two timed events that have happened.
  [[nodiscard]] static double seconds(const Event& from, const Event& to);

 private:
  cudaEvent_t event_ = nullptr;
};

/// Pinned memory that is written, copied from in stream order, and written again after the copy has
/// ended.
class Stage {
 public:
  /// Returns room for at least `bytes`. Waits until the previous copy has ended.
  std::byte* room(std::size_t bytes);
  /// Copies the first `bytes` bytes of the room to the device.
  void copy(std::byte* to, std::size_t bytes, cudaStream_t stream);

 private:
  PinnedMemory memory_;
  Event copied_{false};
};

/// A stage with its counterpart on the device.
class MirroredStage {
 public:
  /// Returns room for at least `bytes` on both sides. Waits for the stream if the counterpart has
  /// to move.
  std::byte* room(std::size_t bytes, cudaStream_t stream);
  void copy(std::size_t bytes, cudaStream_t stream) { stage_.copy(mirror_.data(), bytes, stream); }
  [[nodiscard]] std::byte* device() const { return mirror_.data(); }

 private:
  Stage stage_;
  DeviceMemory mirror_;
};

}  // namespace paceline::kernels::cuda
