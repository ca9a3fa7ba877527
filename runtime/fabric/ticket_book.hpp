// States of transfers: the transport's thread writes them, and the participant reads them.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/core/block_transport.hpp"

namespace paceline::fabric {

/// The tickets of a transport. Thread-safe.
class TicketBook {
 public:
  /// Opens a ticket: 1, 2, ...
  [[nodiscard]] Ticket open();
  /// Closes a ticket. `failure`: the reason; empty where all bytes were moved.
  void close(Ticket ticket, bool sends, std::size_t bytes, const std::string& failure);
  /// Records a fault, after which the transport cannot be used. The first fault is kept.
  void fail(std::string fault);

  /// Throws Error (internal) after a fault.
  void check() const;
  /// Throws as check() does.
  [[nodiscard]] TransferState state(Ticket ticket) const;
  [[nodiscard]] std::string failure(Ticket ticket) const;  ///< empty: none
  [[nodiscard]] double seconds(Ticket ticket) const;       ///< from open() to close(); 0: pending
  [[nodiscard]] BlockTransport::Traffic traffic() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<Ticket, double> pending_;  ///< time at which each was opened
  std::vector<float> seconds_;                  ///< [tickets] by ticket - 1
  std::unordered_map<Ticket, std::string> failures_;
  std::string fault_;
  BlockTransport::Traffic traffic_;
};

}  // namespace paceline::fabric
