// Device memory on a network that reaches only the host's.
#pragma once

#include <cstddef>
#include <memory>

namespace paceline::fabric {

/// Copies between a device's memory and pinned memory of the host. Used by one thread, but for
/// is_device(), which another may call before.
class DeviceStaging {
 public:
  virtual ~DeviceStaging() = default;
  [[nodiscard]] virtual bool is_device(const std::byte* memory) = 0;

  /// Bytes of allocate()'s piece of pinned memory, which is freed with the staging.
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  [[nodiscard]] virtual std::byte* allocate() = 0;
  /// Copies to and from the device return when the copy is done.
  virtual void to_host(std::byte* host, const std::byte* device, std::size_t bytes) = 0;
  virtual void to_device(std::byte* device, const std::byte* host, std::size_t bytes) = 0;
};

/// Null where the program was built without devices, or the process sees none.
[[nodiscard]] std::unique_ptr<DeviceStaging> make_device_staging();

}  // namespace paceline::fabric
