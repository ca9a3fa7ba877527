// Block transfers over UCX active messages.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/core/block_transport.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/fabric/block_transfers.hpp"
#include "runtime/fabric/device_staging.hpp"
#include "runtime/fabric/registered_memory.hpp"
#include "runtime/fabric/ticket_book.hpp"

namespace paceline::fabric {

/// Moves blocks with UCX. Large parts of a transfer use its rendezvous protocol: one copy between
/// processes of a node, or RDMA where the network has it.
///
/// Connections do not detect that a peer has gone: with detection UCX would not use the system's
/// copy between processes, which is several times as fast as any other way between ranks of a node.
/// The mailboxes detect it, and their owner calls lose().
///
/// One thread of its own owns the worker and all transfers. The participant's calls leave commands
/// for this thread, and read the states that it publishes.
class UcxBlockTransport final : public BlockTransport {
 public:
  /// `participant` is woken when a ticket ends; it must outlive the transport.
  UcxBlockTransport(const UcxContext& context, int rank, Mailbox& participant);
  ~UcxBlockTransport() override;
  /// Opens the transport with every rank's address, once, before any transfer.
  void open(std::uint64_t run, std::vector<TransportPlace> places);

  void register_memory(std::span<std::byte> region) override { memory_.add(region); }
  void unregister_memory(std::span<std::byte> region) override { memory_.remove(region); }
  [[nodiscard]] Ticket send(int to, std::uint64_t key,
                            std::span<const std::span<const std::byte>> pieces) override;
  [[nodiscard]] Ticket receive(int from, std::uint64_t key,
                               std::span<const std::span<std::byte>> pieces) override;
  void refuse(int to, std::uint64_t key) override;
  [[nodiscard]] TransferState state(Ticket ticket) const override { return tickets_.state(ticket); }
  [[nodiscard]] std::string failure(Ticket ticket) const override {
    return tickets_.failure(ticket);
  }
  [[nodiscard]] double seconds(Ticket ticket) const override { return tickets_.seconds(ticket); }
  void cancel(Ticket ticket) override;
  [[nodiscard]] Traffic traffic() const override { return tickets_.traffic(); }

  /// Fails all transfers with a rank that has gone. Callable on any thread.
  void lose(int rank, const std::string& why);
  /// Ends the thread; the caller may then use the worker. Pending tickets stay pending.
  void stop();
  [[nodiscard]] UcxWorker& worker() { return transfers_.worker(); }

 private:
  // Functions of the participant's thread.
  void check_rank(int rank) const;
  template <typename Byte>
  Ticket begin(bool sends, int rank, std::uint64_t key, std::span<const std::span<Byte>> pieces);
  void command(std::function<void()> command);

  // Functions of the transport's thread.
  void run();
  bool run_commands();  ///< false: the transport is to stop
  void fail(std::string fault);

  Mailbox& participant_;
  std::unique_ptr<DeviceStaging> staging_;  ///< null where UCX reaches every device
  TicketBook tickets_;

  // Fields that both threads share.
  std::mutex mutex_;
  std::deque<std::function<void()>> commands_;
  bool stop_ = false;

  BlockTransfers transfers_;  ///< used by the transport's thread
  RegisteredMemory memory_;   ///< used by the participant's thread
  std::thread thread_;
};

}  // namespace paceline::fabric
