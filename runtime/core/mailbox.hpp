// Messages between the roles of a run. The fabric implements this; tests have mailboxes in memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace paceline {

/// Who sends a message, or whom it is for. A rank is home to its own role, rank 0 to the
/// coordinator too, and some to a draft server.
struct Address {
  enum class Port : int { role = 1, coordinator = 2, draft_server = 3 };
  static constexpr int kPorts = 3;
  int rank = 0;
  Port port = Port::role;
  static Address coordinator() { return {0, Port::coordinator}; }
  friend auto operator<=>(const Address&, const Address&) = default;
};

struct Envelope {
  Address from;
  std::vector<std::byte> bytes;
};

/// One participant's end. Messages from one sender arrive in the order sent; those of different
/// senders in any. Used by one thread, but for wake(); two mailboxes of a process may be used by
/// two threads at once. What goes wrong on the way is thrown by whichever call notices it.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  /// Returns at once; the bytes are copied. A message may be held back for others to the same peer
  /// until flush(), poll() or wait().
  virtual void send(Address to, std::span<const std::byte> bytes) = 0;
  /// Hands what was sent to the network.
  virtual void flush() = 0;
  /// The same, and returns when the network needs no more help with what was sent to these: for a
  /// sender whose receivers must have it before the sender's next call, such as what comes before a
  /// collective. It waits for them to read, and for nobody else: a peer that does not is no reason
  /// to stand still.
  virtual void deliver(std::span<const Address> to) = 0;
  /// The next message, if one is there.
  [[nodiscard]] virtual std::optional<Envelope> poll() = 0;
  /// Sleeps until a message may be there, somebody has called wake(), or `seconds` have passed.
  /// Returns at once where one of the first two is so already. False: the time has passed.
  virtual bool wait(double seconds) = 0;
  /// Ends the wait() under way, or the next one. For any thread.
  virtual void wake() = 0;
  /// The peer is far behind with what it was sent. send() still takes every message, so that roles
  /// never wait for one another; but a message that may as well be left out should be.
  [[nodiscard]] virtual bool full(Address to) const = 0;

  /// Counted since the mailbox was made.
  struct Traffic {
    std::uint64_t messages = 0;  ///< sent
    std::uint64_t bytes = 0;     ///< in them
    std::uint64_t batches = 0;   ///< that they travelled in
    std::uint64_t stalls = 0;    ///< times that a peer became full
    std::uint64_t queued = 0;    ///< messages that wait for a peer now
    std::uint64_t most_queued = 0;
  };
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace paceline
