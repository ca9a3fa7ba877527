// Messages between the roles of a run. The fabric implements this; tests have mailboxes in memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace paceline {

/// Sender or receiver of a message. A rank is home to its own role, rank 0 also to the coordinator,
/// and some ranks to a draft server.
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

/// One participant's end. Messages from one sender arrive in the order sent; from different senders
/// in any. Used by one thread, but for wake(); two threads may use two mailboxes of a process at
/// once. Any call that notices a transmission error throws it.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  /// Sends a message; returns at once, for the bytes are copied. A message may be held back for
  /// others to the same peer until flush(), poll() or wait().
  virtual void send(Address to, std::span<const std::byte> bytes) = 0;
  /// Hands all sent messages to the network.
  virtual void flush() = 0;
  /// Flushes, and returns when the network needs no more help with messages to these receivers: for
  /// a sender whose receivers need them before its next call, such as before a collective. It waits
  /// for these receivers alone, not for slower peers.
  virtual void deliver(std::span<const Address> to) = 0;
  /// The next message, if one is there.
  [[nodiscard]] virtual std::optional<Envelope> poll() = 0;
  /// Sleeps until a message may be there, wake() was called, or `seconds` have passed. Returns at
  /// once where one of the first two holds already. False: the time has passed.
  virtual bool wait(double seconds) = 0;
  /// Ends the wait() under way, or the next one. For any thread.
  virtual void wake() = 0;
  /// Whether the peer is far behind: backpressure. send() still takes every message, so that roles
  /// never wait for one another; but optional messages should be left out.
  [[nodiscard]] virtual bool full(Address to) const = 0;

  /// Totals since the mailbox was made.
  struct Traffic {
    std::uint64_t messages = 0;  ///< sent
    std::uint64_t bytes = 0;     ///< of messages
    std::uint64_t batches = 0;   ///< batches that carried messages
    std::uint64_t stalls = 0;    ///< times that a peer became full
    std::uint64_t queued = 0;    ///< messages now waiting for a peer
    std::uint64_t most_queued = 0;
  };
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace paceline
