// Memory that blocks are sent from and received into, as UCX knows it.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <map>
#include <span>

#include "runtime/fabric/device_staging.hpp"
#include "runtime/fabric/ucx_context.hpp"

namespace paceline::fabric {

/// One end of a stretch of a transfer.
struct Piece {
  std::byte* memory = nullptr;
  std::size_t size = 0;
  ucp_mem_h registration = nullptr;  ///< null: of no registered region
  bool staged = false;               ///< of a device that UCX does not reach
};

/// Used by one thread.
class RegisteredMemory {
 public:
  /// staging: null where there is no device that UCX does not reach. Both must outlive it.
  RegisteredMemory(const UcxContext& context, DeviceStaging* staging)
      : context_(context), staging_(staging) {}
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  /// Throw Error (internal) with UCX's words, std::logic_error on what is there already, or is not.
  void add(std::span<std::byte> region);
  void remove(std::span<std::byte> region);

  /// With the registration of the region that it lies in, if any.
  [[nodiscard]] Piece piece_of(const std::byte* memory, std::size_t size) const;

 private:
  struct Region {
    std::size_t size;
    ucp_mem_h registration;
    bool staged;
  };

  const UcxContext& context_;
  DeviceStaging* staging_;
  std::map<const std::byte*, Region> regions_;
};

}  // namespace paceline::fabric
