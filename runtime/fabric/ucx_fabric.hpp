// This process's place on the network: its mailboxes and its block transport.
#pragma once

#include <memory>
#include <span>

#include "runtime/core/block_transport.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/ucx_mailbox.hpp"

namespace paceline::fabric {

struct FabricSettings {
  MailboxSettings mailbox;
  /// Mailboxes notice when their peer has gone, and name it; block transfers with it fail then.
  bool detect_failures = true;
};

/// MPI carries the addresses at the start and the agreement to end; all between is UCX's. Built by
/// one thread; then each mailbox may have its own.
///
/// Destroyed without close(), on the way out of a fault, it waits for nobody, and what UCX holds
/// stays until the process ends. So the others notice nothing before the job is ended for them, and
/// the first fault is the one that is told.
///
/// For tests: PACELINE_TEST_DELAYS=SEED:SECONDS in the environment holds every message back for a
/// random time up to so many seconds (DelayingMailbox).
class UcxFabric {
 public:
  /// A mailbox for each of `ports`, that of the role among them. Reaches nobody yet. Throws
  /// UsageError where the user's UCX_* variables leave no way to communicate.
  UcxFabric(const MpiEnvironment& mpi, std::span<const Address::Port> ports,
            FabricSettings settings = {});
  ~UcxFabric();
  UcxFabric(const UcxFabric&) = delete;
  UcxFabric& operator=(const UcxFabric&) = delete;

  /// Tells every rank of every other. Collective over all ranks.
  void connect();
  [[nodiscard]] Mailbox& mailbox(Address::Port port);
  [[nodiscard]] BlockTransport& blocks();
  /// Sends what is left, drops what comes, and parts once every rank is here. Nobody else may be
  /// using the mailboxes by then, and no ticket may be pending. Collective.
  void close();

 private:
  /// What UCX holds.
  struct Holdings;
  const MpiEnvironment& mpi_;
  std::unique_ptr<Holdings> ucx_;
  bool closed_ = false;
};

}  // namespace paceline::fabric
