// Transfers of bulk data between ranks, for instance of KV blocks, while the ranks go on working.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace paceline {

/// A transfer at one of its two ends. Never used twice.
using Ticket = std::uint64_t;

enum class TransferState : std::uint8_t { pending, done, failed };

/// Matched transfers: data moves once one rank has called send() and the other receive() with the
/// same key, in either order. A key names one transfer between two ranks in one direction and is
/// never used again, even if the transfer failed. Both ends name the same number of bytes in all;
/// their pieces may differ.
///
/// A thread of the transport moves data, and wakes the participant's mailbox whenever a ticket
/// ends. A transfer that waits for its other end holds up no other transfer. Used by one thread.
class BlockTransport {
 public:
  virtual ~BlockTransport() = default;

  /// Registers memory, the host's or a device's, that many transfers will use: it is prepared once.
  /// Memory that is not registered must be the host's, and is prepared by each transfer.
  virtual void register_memory(std::span<std::byte> region) = 0;
  /// Unregisters the same region, before it is freed. No ticket that uses it may be pending: as
  /// long as one is pending, the region stays registered, and its memory must not be freed.
  virtual void unregister_memory(std::span<std::byte> region) = 0;

  /// Sends the pieces one after the other. Their memory must stay unchanged while the ticket is
  /// pending. A device must have finished writing to it.
  [[nodiscard]] virtual Ticket send(int to, std::uint64_t key,
                                    std::span<const std::span<const std::byte>> pieces) = 0;
  /// Fills the pieces one after the other. Their memory must not be used while the ticket is
  /// pending; after a failure its contents are undefined.
  [[nodiscard]] virtual Ticket receive(int from, std::uint64_t key,
                                       std::span<const std::span<std::byte>> pieces) = 0;
  /// Called in place of send(): nothing is sent under this key, and the other end's ticket fails.
  virtual void refuse(int to, std::uint64_t key) = 0;
  /// State of a ticket. A ticket that is no longer pending keeps its state, and nothing touches its
  /// memory.
  [[nodiscard]] virtual TransferState state(Ticket ticket) const = 0;
  /// Why the ticket failed; empty: it has not failed.
  [[nodiscard]] virtual std::string failure(Ticket ticket) const = 0;
  /// Seconds from the call that gave the ticket until it ended; 0 while it is pending.
  [[nodiscard]] virtual double seconds(Ticket ticket) const = 0;
  /// Cancels a transfer. The ticket stays pending until nothing touches its memory any more. Then
  /// it has failed, unless the transfer was done before. The other end's ticket fails too.
  virtual void cancel(Ticket ticket) = 0;

  /// Totals since the transport was made.
  struct Traffic {
    std::uint64_t sent = 0;            ///< transfers done as sender
    std::uint64_t received = 0;        ///< transfers done as receiver
    std::uint64_t bytes_sent = 0;      ///< by transfers done as sender
    std::uint64_t bytes_received = 0;  ///< by transfers done as receiver
    std::uint64_t failed = 0;          ///< failed tickets, cancelled ones included
    std::uint64_t pending = 0;         ///< tickets pending now
  };
  [[nodiscard]] virtual Traffic traffic() const = 0;
};

}  // namespace paceline
