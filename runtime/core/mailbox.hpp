// Messages between the roles of a run. The fabric implements this; tests have mailboxes in memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace paceline {

/// Sender or receiver of a message. A rank has its own role, rank 0 also the coordinator, and some
/// ranks a draft server.
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

/// One participant's end. Messages from one sender arrive in the order sent, messages from
/// different senders in any order. Used by one thread, except for wake(). Two threads may use two
/// mailboxes of a process at once. Any call that notices a transmission error throws it.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  /// Sends a message. Returns at once, for the bytes are copied. A message may be held back until
  /// flush(), poll() or wait(), to go together with others to the same peer.
  virtual void send(Address to, std::span<const std::byte> bytes) = 0;
  /// Hands all sent messages to the network.
  virtual void flush() = 0;
  /// Flushes, and returns when the network needs no more help with messages to these receivers. For
  /// a sender whose receivers need the messages before its next call, for instance before a
  /// collective. Waits for these receivers alone, not for slower peers.
  virtual void deliver(std::span<const Address> to) = 0;
  /// The next message, if one is there.
  [[nodiscard]] virtual std::optional<Envelope> poll() = 0;
  /// Sleeps until a message may be there, wake() was called, or `seconds` have passed. Returns at
  /// once if one of the first two holds already. False: the time has passed.
  virtual bool wait(double seconds) = 0;
  /// Ends the wait() under way, or the next one. May be called by any thread.
  virtual void wake() = 0;
  /// Whether the peer is far behind (backpressure). send() still takes every message, so that roles
  /// never wait for one another, but optional messages should not be sent.
  [[nodiscard]] virtual bool full(Address to) const = 0;

  /// Totals since the mailbox was made.
  struct Traffic {
    std::uint64_t messages = 0;  ///< messages sent
    std::uint64_t bytes = 0;     ///< bytes of these messages
    std::uint64_t batches = 0;   ///< batches that carried messages
    std::uint64_t stalls = 0;    ///< times that a peer became full
    std::uint64_t queued = 0;    ///< messages that wait for a peer now
    std::uint64_t most_queued = 0;
  };
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace paceline
