// Mailboxes over MPI point-to-point messages.
#pragma once

#include <mpi.h>

#include <atomic>
#include <list>
#include <vector>

#include "runtime/core/mailbox.hpp"

namespace paceline::fabric {

/// Needs MPI_THREAD_MULTIPLE where two mailboxes of a process are used by two threads.
class MpiMailbox final : public Mailbox {
 public:
  /// Receives what is sent to (this rank, port) on `comm`, which must outlive the mailbox.
  MpiMailbox(MPI_Comm comm, Address::Port port) : comm_(comm), port_(port) {}
  /// Waits for sends under way; their receivers must still be polling.
  ~MpiMailbox() override;
  void send(Address to, std::span<const std::byte> bytes) override;
  void flush() override {}
  [[nodiscard]] std::optional<Envelope> poll() override;
  bool wait(double seconds) override;
  void wake() override { woken_ = true; }
  [[nodiscard]] bool full(Address) const override { return false; }
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

 private:
  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::byte> bytes;
  };
  void reap();

  MPI_Comm comm_;
  Address::Port port_;
  std::list<Pending> pending_;
  std::atomic<bool> woken_{false};
  Traffic traffic_;
};

}  // namespace paceline::fabric
