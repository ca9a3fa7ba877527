// Staging of device memory for a network that reaches only host memory.
#pragma once

#include <cstddef>
#include <memory>

namespace paceline::fabric {

/// Copies between a device's memory and pinned host memory. Used by one thread; another one may
/// call is_device() before.
class DeviceStaging {
 public:
  virtual ~DeviceStaging() = default;
  [[nodiscard]] virtual bool is_device(const std::byte* memory) = 0;

  /// Bytes of pinned memory that allocate() returns. It is freed when this object is destroyed.
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  [[nodiscard]] virtual std::byte* allocate() = 0;
  /// to_host() and to_device() return when the copy is done.
  virtual void to_host(std::byte* host, const std::byte* device, std::size_t bytes) = 0;
  virtual void to_device(std::byte* device, const std::byte* host, std::size_t bytes) = 0;
};

/// Returns null where the program was built without CUDA, or the process sees no device.
[[nodiscard]] std::unique_ptr<DeviceStaging> make_device_staging();

}  // namespace paceline::fabric
