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

/// Address of a mailbox of the run.
struct MailboxPlace {
  Address at;
  std::string host;
  std::vector<std::byte> worker;  ///< UcxWorker::address()
};

struct MailboxSettings {
  /// Most unacknowledged bytes to a peer; only the last batch may exceed it. A verifier publishes a
  /// tenth of this in a step of a large batch. A receiver to which a thousand ranks write at once
  /// needs 256 MiB at worst.
  std::size_t window = std::size_t{256} << 10;
  /// Seconds after which a missing batch is given up, counted from the arrival of a later one.
  double lost_after_seconds = 60;
};

/// A mailbox with a window to each peer. Messages beyond the window wait here, so that send() never
/// fails and never waits: backpressure shows in Traffic::stalls and full(). Faults of peers and of
/// the network are thrown as Error (internal) by the next call that notices them.
class UcxMailbox final : public Mailbox {
 public:
  UcxMailbox(const UcxContext& context, Address me, MailboxSettings settings);
  /// Opens the mailbox with the addresses of all mailboxes, once, before anything is sent.
  void open(std::uint64_t run, std::vector<MailboxPlace> places);

  void send(Address to, std::span<const std::byte> bytes) override;
  void flush() override;
  void deliver(std::span<const Address> to) override;
  [[nodiscard]] std::optional<Envelope> poll() override;
  bool wait(double seconds) override;
  void wake() override { worker_.wake(); }
  [[nodiscard]] bool full(Address to) const override;
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

  /// Sets a handler for lost ranks: called on this mailbox's thread with the rank and the reason.
  /// It must not throw.
  void on_lost(std::function<void(int, const std::string&)> handler) { lost_ = std::move(handler); }
  [[nodiscard]] UcxWorker& worker() { return worker_; }
  /// At the end of a run: sends what is left, as far as possible, drops incoming messages, and
  /// returns whether everything has been sent.
  bool drained();

 private:
  struct Peer {
    MailboxPlace place;
    UcxEndpoint* endpoint = nullptr;  ///< made at first use
    // Sending. Costs are as in BatchWriter::cost().
    BatchWriter open;
    std::deque<BatchWriter> waiting;  ///< full batches beyond the window
    std::uint64_t next_sequence = 0;
    std::uint64_t sent = 0;          ///< cost of all batches sent
    std::uint64_t acknowledged = 0;  ///< part of `sent` that the peer has read
    std::uint64_t held = 0;          ///< cost of the messages in `open` and `waiting`
    std::uint64_t held_messages = 0;
    int flights = 0;  ///< batches that UCX still reads
    bool stalled = false;
    bool dirty = false;  ///< listed in dirty_
    // Receiving.
    BatchOrder order;
    double incomplete_since = 0;  ///< time; valid while order.incomplete()
    std::uint64_t consumed = 0;   ///< cost of the peer's messages that were polled
    std::uint64_t reported = 0;   ///< part of `consumed` that was acknowledged to the peer
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
  /// Throws std::logic_error where there is no such mailbox.
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
  std::vector<std::int32_t> peer_of_;  ///< [ports x ranks], by rank and port; -1: none
  std::vector<Peer*> dirty_;           ///< peers with something to send
  std::deque<Received> inbox_;
  std::list<Flight> flights_;
  int incomplete_ = 0;  ///< peers with a missing batch
  std::string fault_;   ///< the first fault
  Traffic traffic_;
  std::function<void(int, const std::string&)> lost_;
  UcxWorker worker_;  ///< declared last, so destroyed first: its callbacks use the rest
};

}  // namespace paceline::fabric
