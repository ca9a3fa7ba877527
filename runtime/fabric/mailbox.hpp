// Messages between the roles of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace paceline::fabric {

/// Who a message is for. Rank 0 is home to three: its own role, the coordinator, and who is told of
/// faults.
struct Address {
  enum class Port : int { role = 1, coordinator = 2, fault = 3 };
  int rank = 0;
  Port port = Port::role;
  static Address coordinator() { return {0, Port::coordinator}; }
};

struct Envelope {
  int from = 0;  ///< rank of the sender
  std::vector<std::byte> bytes;
};

/// One participant's end. Messages from one sender arrive in the order sent. Used by one thread;
/// two mailboxes of a process may be used by two threads at once.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  /// Returns at once; the bytes are copied.
  virtual void send(Address to, std::span<const std::byte> bytes) = 0;
  /// The next message, if one is there.
  [[nodiscard]] virtual std::optional<Envelope> poll() = 0;
  /// Messages and bytes sent so far.
  struct Traffic {
    std::uint64_t messages = 0, bytes = 0;
  };
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace paceline::fabric
