// Bulk data between ranks, such as blocks of KV, while both go on with their work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace paceline {

/// A transfer as one of its two ends sees it. Never used twice.
using Ticket = std::uint64_t;

enum class TransferState : std::uint8_t { pending, done, failed };

/// Transfers are matched: data moves once the one rank has called send() and the other receive()
/// with the same key, in either order. A key names one transfer between two ranks in one direction
/// and is never used again, also where the transfer failed. Both ends name as many bytes in all;
/// how they are cut into pieces may differ.
///
/// Data moves on a thread of the transport, which wakes the participant's mailbox whenever a ticket
/// ends. A transfer that waits for its other end holds up no other one. Used by one thread.
class BlockTransport {
 public:
  virtual ~BlockTransport() = default;

  /// Memory that many transfers will use, host's or a device's: prepared once, for as long as it is
  /// registered. Other memory, the host's alone, is prepared by each transfer.
  virtual void register_memory(std::span<std::byte> region) = 0;
  /// The same region, before it is freed. No ticket that uses it may be pending: where one stays
  /// so, the region stays registered, and its memory must not be freed.
  virtual void unregister_memory(std::span<std::byte> region) = 0;

  /// Takes the pieces one after the other. Their memory must stay as it is while the ticket is
  /// pending; what a device writes to it must have been written.
  [[nodiscard]] virtual Ticket send(int to, std::uint64_t key,
                                    std::span<const std::span<const std::byte>> pieces) = 0;
  /// Fills the pieces one after the other. Their memory must not be used while the ticket is
  /// pending; when it has failed, what they hold is undefined.
  [[nodiscard]] virtual Ticket receive(int from, std::uint64_t key,
                                       std::span<const std::span<std::byte>> pieces) = 0;
  /// In place of send(): there is nothing to send under this key, and the other end's ticket fails.
  virtual void refuse(int to, std::uint64_t key) = 0;
  /// A ticket that is no longer pending stays what it is, and nothing touches its memory.
  [[nodiscard]] virtual TransferState state(Ticket ticket) const = 0;
  /// Why a ticket failed; empty for others.
  [[nodiscard]] virtual std::string failure(Ticket ticket) const = 0;
  /// From the call that gave the ticket until it ended; 0 while it is pending.
  [[nodiscard]] virtual double seconds(Ticket ticket) const = 0;
  /// Gives a transfer up. The ticket may stay pending for a while, until nothing touches its memory
  /// any more, and then has failed, or has been done before. The other end's ticket fails too.
  virtual void cancel(Ticket ticket) = 0;

  /// Counted since the transport was made.
  struct Traffic {
    std::uint64_t sent = 0;            ///< transfers done as sender
    std::uint64_t received = 0;        ///< and as receiver
    std::uint64_t bytes_sent = 0;      ///< by those
    std::uint64_t bytes_received = 0;  ///< by those
    std::uint64_t failed = 0;          ///< tickets, cancelled ones included
    std::uint64_t pending = 0;         ///< tickets now
  };
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace paceline
