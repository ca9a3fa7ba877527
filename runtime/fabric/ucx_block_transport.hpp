// Block transfers over UCX active messages.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core/block_transport.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/fabric/device_staging.hpp"
#include "runtime/fabric/ucx_worker.hpp"

namespace paceline::fabric {

/// The block transport of a rank, as others reach it.
struct TransportPlace {
  std::string host;
  std::vector<std::byte> worker;  ///< UcxWorker::address()
};

/// The receiver asks when it is ready and tells how its memory is cut; only then does the sender
/// hand data to UCX, in parts that are contiguous at both ends. So nothing is ever sent that nobody
/// waits for, and a transfer that has not begun can be given up by a word. Large parts go by UCX's
/// rendezvous: one copy between processes of a node, RDMA where there is any.
///
/// Its connections do not notice that a peer has gone: such connections would not use the system's
/// copy between processes, which is several times as fast as any other way between ranks of a node.
/// The mailboxes notice, and lose() is told.
///
/// One thread owns the worker and all transfers. The participant's calls leave commands for it and
/// read what it has published.
class UcxBlockTransport final : public BlockTransport {
 public:
  /// `participant` is woken when a ticket ends; it must outlive the transport.
  UcxBlockTransport(const UcxContext& context, int rank, Mailbox& participant);
  ~UcxBlockTransport() override;
  /// Once, before any transfer: every rank's transport.
  void open(std::uint64_t run, std::vector<TransportPlace> places);

  void register_memory(std::span<std::byte> region) override;
  void unregister_memory(std::span<std::byte> region) override;
  [[nodiscard]] Ticket send(int to, std::uint64_t key,
                            std::span<const std::span<const std::byte>> pieces) override;
  [[nodiscard]] Ticket receive(int from, std::uint64_t key,
                               std::span<const std::span<std::byte>> pieces) override;
  [[nodiscard]] TransferState state(Ticket ticket) const override;
  [[nodiscard]] std::string failure(Ticket ticket) const override;
  [[nodiscard]] double seconds(Ticket ticket) const override;
  void cancel(Ticket ticket) override;
  [[nodiscard]] Traffic traffic() const override;

  /// A rank has gone: what is under way with it has failed. For any thread.
  void lose(int rank, const std::string& why);
  /// Ends the thread; the worker is the caller's then. Pending tickets stay so.
  void stop();
  [[nodiscard]] UcxWorker& worker() { return worker_; }

 private:
  struct Piece {
    std::byte* memory;
    std::size_t size;
    ucp_mem_h registration;  ///< null: of no registered region
    bool staged;             ///< of a device that UCX does not reach
  };
  using Name = std::pair<int, std::uint64_t>;  ///< the other rank, and the key
  struct Transfer {
    Ticket ticket = 0;
    Name name;
    bool sends = false;
    std::vector<Piece> pieces;
    std::vector<std::size_t> ends;  ///< of the pieces, from the transfer's beginning
    std::size_t moved = 0;          ///< bytes given to UCX or, by the receiver, taken from it
    int under_way = 0;              ///< parts that UCX works on
    std::string failure;            ///< it is to end so, once nothing is under way
    // The sender's.
    bool begun = false;                   ///< the receiver has asked
    std::vector<std::size_t> their_ends;  ///< of the receiver's pieces
    [[nodiscard]] std::size_t total() const { return ends.back(); }
  };
  using Transfers = std::map<Name, Transfer>;
  struct Command {
    enum class What : std::uint8_t { begin, cancel, lose } what;
    Transfer transfer;  ///< for `cancel`, the ticket alone; for `lose`, rank and failure
  };
  struct Region {
    std::size_t size;
    ucp_mem_h registration;
    bool staged;
  };
  enum class Word : std::uint32_t;
  /// At the head of whatever travels.
  struct Wire {
    std::uint32_t magic = 0;
    Word word{};
    std::uint64_t run = 0;
    std::uint64_t key = 0;
    std::uint64_t at = 0;    ///< data: offset in the transfer; ask: total bytes
    std::uint64_t size = 0;  ///< of the data or the words' body
    std::int32_t from = 0;
    std::uint32_t reserved = 0;
  };
  /// What UCX works on.
  struct Part {
    UcxBlockTransport* transport;
    std::list<Part>::iterator self;
    Transfer* transfer = nullptr;  ///< null: a word
    Piece at{};                    ///< what is sent or received
    std::byte* stage = nullptr;    ///< in its place
    Wire header;
    std::vector<std::byte> body;  ///< a word's
  };

  static ucs_status_t on_message(void* transport, const void* header, std::size_t header_size,
                                 void* data, std::size_t size, const ucp_am_recv_param_t* params);
  static void on_sent(void* request, ucs_status_t status, void* part);
  static void on_received(void* request, ucs_status_t status, std::size_t size, void* part);

  // On the participant's thread.
  Ticket begin(bool sends, int rank, std::uint64_t key, std::vector<Piece> pieces);
  [[nodiscard]] Piece piece_of(const std::byte* memory, std::size_t size) const;
  void command(Command command);
  void check() const;

  // On the transport's thread.
  void run();
  bool obey();
  void start(Transfer transfer);
  void give_up(Ticket ticket);
  void abandon(int rank, const std::string& why);
  void settle();
  ucs_status_t read(const Wire& wire, void* data, std::size_t size, bool rendezvous);
  void asked(Name name, std::span<const std::byte> body);
  void withdrawn(Name name);
  void refused(Name name, const std::string& why);
  ucs_status_t take(const Wire& wire, void* data, bool rendezvous);
  void begin_sending(Transfer& transfer, std::span<const std::byte> body);
  void push(Transfer& transfer);
  void push_part(Transfer& transfer);
  void ended(Part& part, ucs_status_t status);
  void conclude_if_over(Transfer& transfer);
  void say(int rank, Word word, std::uint64_t key, std::uint64_t at, std::vector<std::byte> body);
  void transmit(Part& part, int rank, const std::byte* data, std::size_t size, bool word);
  Part& new_part(Transfer* transfer);
  UcxEndpoint& endpoint(int rank);
  std::byte* stage();
  void fail(std::string fault);

  const UcxContext& context_;
  int rank_;
  Mailbox& participant_;
  std::unique_ptr<DeviceStaging> staging_;  ///< where there are devices that UCX does not reach

  // The participant's.
  Ticket last_ticket_ = 0;
  std::map<const std::byte*, Region> regions_;

  // Shared.
  mutable std::mutex mutex_;
  std::deque<Command> commands_;
  std::unordered_map<Ticket, double> pending_;  ///< and when it was given
  std::vector<float> seconds_;                  ///< [tickets], from the first
  std::unordered_map<Ticket, std::string> failures_;
  std::string fault_;  ///< the first: nothing can be relied on any more
  Traffic traffic_;
  bool stop_ = false;

  // The thread's.
  std::uint64_t run_ = 0;
  std::vector<TransportPlace> places_;   ///< [ranks]
  std::vector<UcxEndpoint*> endpoints_;  ///< [ranks]; made when first needed
  std::vector<int> parts_to_;            ///< [ranks]; of data, under way
  Transfers outgoing_, incoming_;
  std::map<Name, std::vector<std::byte>> early_asks_;  ///< came before the sender's call
  /// Transfers that one end gave up before the other end had begun, and why. Few: one word each.
  std::map<Name, std::string> outgoing_over_, incoming_over_;
  std::set<Name> overtaken_;       ///< withdrawn before the question came, which is to be dropped
  std::set<Name> broken_;          ///< that came in and failed on the way: more may come
  std::vector<std::string> lost_;  ///< [ranks] why; empty: it is there
  std::list<Part> parts_;
  std::vector<std::byte*> free_stages_;
  UcxWorker worker_;  ///< goes before what its callbacks use
  std::thread thread_;
};

}  // namespace paceline::fabric
