// Mailboxes over UCX active messages.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/fabric/message_batch.hpp"
#include "runtime/fabric/ucx_worker.hpp"

namespace paceline::fabric {

/// A mailbox of the run, as others reach it.
struct MailboxPlace {
  Address at;
  std::string host;
  std::vector<std::byte> worker;  ///< UcxWorker::address()
};

struct MailboxSettings {
  /// Bytes that a peer may be sent before it has read them; a message more may exceed it. What a
  /// verifier publishes of a large batch in a step is a tenth of it, and a receiver that a thousand
  /// ranks write to at once needs 256 MiB at the worst.
  std::size_t window = std::size_t{256} << 10;
  /// A batch that has not come although later ones did is given up after so long.
  double lost_after_seconds = 60;
};

/// Every pair of mailboxes has a window of its own. What a peer has no room for waits here, so that
/// send() never fails and never waits. Faults of peers and of the network are thrown as Error
/// (internal) by the next call that notices.
class UcxMailbox final : public Mailbox {
 public:
  UcxMailbox(const UcxContext& context, Address me, MailboxSettings settings);
  /// Once, before anything is sent: everybody's mailboxes.
  void open(std::uint64_t run, std::vector<MailboxPlace> places);

  void send(Address to, std::span<const std::byte> bytes) override;
  void flush() override;
  void deliver(std::span<const Address> to) override;
  [[nodiscard]] std::optional<Envelope> poll() override;
  bool wait(double seconds) override;
  void wake() override { worker_.wake(); }
  [[nodiscard]] bool full(Address to) const override;
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

  /// Called on this mailbox's thread with a rank that it finds lost, and why; must not throw.
  void on_lost(std::function<void(int, const std::string&)> handler) { lost_ = std::move(handler); }
  [[nodiscard]] UcxWorker& worker() { return worker_; }
  /// At the end of a run: sends what is left, drops what comes, and says whether all has been sent.
  bool drained();

 private:
  struct Peer {
    MailboxPlace place;
    UcxEndpoint* endpoint = nullptr;  ///< made when it is first needed
    // Sending. Costs are those of BatchWriter.
    BatchWriter open;
    std::deque<BatchWriter> waiting;  ///< filled up, but the window is used up
    std::uint64_t next_sequence = 0;
    std::uint64_t sent = 0;          ///< cost of all batches sent
    std::uint64_t acknowledged = 0;  ///< of it, read by the peer
    std::uint64_t held = 0;          ///< cost of what is in `open` and `waiting`
    std::uint64_t held_messages = 0;
    int flights = 0;  ///< batches that UCX still reads
    bool stalled = false;
    bool dirty = false;  ///< listed in dirty_
    // Receiving.
    BatchOrder order;
    double incomplete_since = 0;  ///< while order.incomplete()
    std::uint64_t consumed = 0;   ///< cost of its messages that were polled
    std::uint64_t reported = 0;   ///< of it, told to the peer
  };
  struct Received {
    Peer* from;
    std::vector<std::byte> bytes;
  };
  /// A batch that UCX still reads.
  struct Flight {
    UcxMailbox* mailbox;
    Peer* to;
    std::list<Flight>::iterator self;
    std::vector<std::byte> bytes;
  };

  static ucs_status_t on_batch(void* mailbox, const void* header, std::size_t header_size,
                               void* data, std::size_t size, const ucp_am_recv_param_t* params);
  static void on_sent(void* request, ucs_status_t status, void* flight);

  [[nodiscard]] std::optional<std::size_t> find(Address at) const;
  /// Throws std::logic_error where there is none.
  [[nodiscard]] std::size_t at(Address to) const;
  void mark(Peer& peer);
  void transmit(Peer& peer);
  void dispatch(Peer& peer, BatchWriter& batch);
  void land(Flight& flight);
  void receive(std::span<const std::byte> batch);
  void accept(Peer& peer, const ReadBatch& batch);
  void transmit_marked();
  void attend();
  void check();
  void fail(std::string fault);

  Address me_;
  MailboxSettings settings_;
  std::uint64_t run_ = 0;
  std::vector<Peer> peers_;
  std::vector<std::int32_t> peer_of_;  ///< [ports x ranks], by rank and port; -1: there is none
  std::vector<Peer*> dirty_;           ///< have something to send
  std::deque<Received> inbox_;
  std::list<Flight> flights_;
  int incomplete_ = 0;  ///< peers of whom a batch is missing
  std::string fault_;   ///< the first
  Traffic traffic_;
  std::function<void(int, const std::string&)> lost_;
  UcxWorker worker_;  ///< last: goes before what its callbacks use
};

}  // namespace paceline::fabric
