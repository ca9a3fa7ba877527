// Memory of block transfers that is registered with UCX.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <map>
#include <span>

#include "runtime/fabric/device_staging.hpp"
#include "runtime/fabric/ucx_context.hpp"

namespace paceline::fabric {

/// One end of a contiguous part of a transfer.
struct Piece {
  std::byte* memory = nullptr;
  std::size_t size = 0;
  ucp_mem_h registration = nullptr;  ///< null: the memory is in no registered region
  bool staged = false;               ///< the memory is on a device that UCX does not reach
};

/// The registered regions of this process. Used by one thread.
class RegisteredMemory {
 public:
  /// `staging`: null where UCX reaches every device. Both arguments must outlive this object.
  RegisteredMemory(const UcxContext& context, DeviceStaging* staging)
      : context_(context), staging_(staging) {}
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  /// add() and remove() throw Error (internal) with UCX's words, and std::logic_error on adding a
  /// known region or removing an unknown one.
  void add(std::span<std::byte> region);
  void remove(std::span<std::byte> region);

  /// The piece of this memory, with the registration of the region that contains it, if any.
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
