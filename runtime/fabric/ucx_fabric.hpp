// A process's place on the network: its mailboxes and its block transport.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "runtime/core/block_transport.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/ucx_mailbox.hpp"

namespace paceline::fabric {

struct FabricSettings {
  MailboxSettings mailbox;
  /// Mailboxes detect that a peer has gone and name it; block transfers with it then fail.
  bool detect_failures = true;
  /// Makes a wrapper that stands in for a mailbox and is destroyed before it. For tests; null:
  /// none.
  std::function<std::unique_ptr<Mailbox>(Mailbox&)> wrap = nullptr;
};

/// Mailboxes and block transport of a rank. MPI carries the addresses at the start and the
/// agreement to end; everything in between goes over UCX. Built by one thread; then each mailbox
/// may have its own thread.
///
/// Destruction without close(), after a fault, waits for no other rank, and keeps UCX's objects
/// until the process ends. So other ranks notice nothing before the job is ended, and the fault
/// that is reported is the first one.
class UcxFabric {
 public:
  /// Makes a mailbox for each of `ports`, which must contain Port::role. They cannot be used before
  /// connect(). Throws UsageError where the user's UCX_* variables leave no way to communicate.
  UcxFabric(const MpiEnvironment& mpi, std::span<const Address::Port> ports,
            FabricSettings settings = {});
  ~UcxFabric();
  UcxFabric(const UcxFabric&) = delete;
  UcxFabric& operator=(const UcxFabric&) = delete;

  /// Exchanges the addresses of all ranks. Collective over all ranks.
  void connect();
  [[nodiscard]] Mailbox& mailbox(Address::Port port);
  [[nodiscard]] BlockTransport& blocks();
  /// Sends everything that is left, drops incoming messages, and disconnects once every rank has
  /// called it. No other thread may be using the mailboxes then, and no ticket may be pending.
  /// Collective.
  void close();

 private:
  /// Objects that use UCX.
  struct Holdings;
  const MpiEnvironment& mpi_;
  std::unique_ptr<Holdings> ucx_;
  bool closed_ = false;
};

}  // namespace paceline::fabric
