// Mailboxes over MPI point-to-point messages.
#pragma once

#include <mpi.h>

#include <list>
#include <vector>

#include "runtime/fabric/mailbox.hpp"

namespace paceline::fabric {

/// Needs MPI_THREAD_MULTIPLE where two mailboxes of a process are used by two threads.
class MpiMailbox final : public Mailbox {
 public:
  /// Receives what is sent to (this rank, port) on `comm`, which must outlive the mailbox.
  MpiMailbox(MPI_Comm comm, Address::Port port) : comm_(comm), port_(port) {}
  /// Never waits: what has not been received by now, as when a fault ends the job, is abandoned.
  ~MpiMailbox() override;
  /// Waits until all that was sent has been received or is in MPI's keeping; the receivers must
  /// still be polling.
  void drain();
  void send(Address to, std::span<const std::byte> bytes) override;
  [[nodiscard]] std::optional<Envelope> poll() override;
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
  Traffic traffic_;
};

}  // namespace paceline::fabric
