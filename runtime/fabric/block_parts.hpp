// Wire level of block transfers over UCX: control words between ranks, and parts of data.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/block_transport.hpp"
#include "runtime/fabric/device_staging.hpp"
#include "runtime/fabric/registered_memory.hpp"
#include "runtime/fabric/ucx_worker.hpp"

namespace paceline::fabric {

/// Address of a rank's block transport.
struct TransportPlace {
  std::string host;
  std::vector<std::byte> worker;  ///< UcxWorker::address()
};

/// One end of a transfer in progress.
struct Transfer {
  using Name = std::pair<int, std::uint64_t>;  ///< the other rank; the key
  Ticket ticket = 0;
  Name name;
  bool sends = false;
  std::vector<Piece> pieces;
  std::vector<std::size_t> ends;  ///< ends of the pieces, from the transfer's beginning
  std::size_t moved = 0;          ///< bytes that the sender gave to UCX, or the receiver took
  int under_way = 0;              ///< parts that UCX works on
  std::string failure;  ///< reason of failure; ends the transfer once nothing is in flight
  // Fields of the sender.
  bool begun = false;                   ///< the receiver has asked for the data
  std::vector<std::size_t> their_ends;  ///< ends of the receiver's pieces
  [[nodiscard]] std::size_t total() const { return ends.back(); }
  /// The memory of `size` bytes from `offset` on, which lie in one piece.
  [[nodiscard]] Piece stretch(std::size_t offset, std::size_t size) const;
};

/// Number of bytes from `offset` to the end of its piece, where pieces end at `ends`; 0: `offset`
/// is in no piece.
[[nodiscard]] std::size_t contiguous(const std::vector<std::size_t>& ends, std::size_t offset);

/// Messages from one end of a transfer to the other.
enum class Word : std::uint32_t {
  ask,       ///< receiver: ready; body: sizes of its pieces
  withdraw,  ///< receiver: gives up; `refuse` answers it unless data is on its way
  refuse,    ///< sender: no data will come; body: why
  data,
};

/// Header of words and data.
struct TransferHeader {
  std::uint32_t magic = 0;
  Word word{};
  std::uint64_t run = 0;
  std::uint64_t key = 0;
  std::uint64_t at = 0;    ///< data: offset in the transfer; ask: total bytes
  std::uint64_t size = 0;  ///< bytes of the data or of a word's body
  std::int32_t from = 0;
  std::uint32_t reserved = 0;
};

/// Receives words, data and ends of parts. Called within UcxWorker::progress() or a call of
/// BlockParts.
class PartEvents {
 public:
  virtual ~PartEvents() = default;
  /// A word of this run came. `body`: valid during the call.
  virtual void heard(const TransferHeader& header, std::span<const std::byte> body) = 0;
  /// Returns the transfer to which data that has come belongs; null: the data is dropped.
  virtual Transfer* expected(const TransferHeader& header) = 0;
  /// UCX is done with a part of the transfer, and under_way has been counted down. On failure
  /// transfer.failure is set.
  virtual void part_ended(Transfer& transfer) = 0;
  /// An invalid message came.
  virtual void fault(std::string what) = 0;
};

/// Sends and receives the words and data parts of a rank's transfers. Used by one thread; another
/// one may call the constructor and open() before.
class BlockParts {
 public:
  /// `staging`: null where UCX reaches every device. All arguments must outlive this object.
  BlockParts(const UcxContext& context, int rank, DeviceStaging* staging, PartEvents& events);
  BlockParts(const BlockParts&) = delete;
  BlockParts& operator=(const BlockParts&) = delete;
  void open(std::uint64_t run, std::vector<TransportPlace> places);

  [[nodiscard]] UcxWorker& worker() { return worker_; }
  [[nodiscard]] const std::vector<TransportPlace>& places() const { return places_; }  ///< [ranks]

  void say(int rank, Word word, std::uint64_t key, std::uint64_t at, std::vector<std::byte> body);
  /// Whether so much is in flight to the rank that further parts should wait.
  [[nodiscard]] bool busy(int rank) const;
  /// Gives UCX the transfer's next part: as many bytes as are contiguous at both ends.
  void send(Transfer& transfer);
  /// Ignores parts to and from the rank from now on, and sends it nothing. UCX keeps the parts that
  /// it has; since the rank has ended, it does not access their memory.
  void abandon(int rank);

 private:
  struct Part {
    BlockParts* parts;
    std::list<Part>::iterator self;
    Transfer* transfer = nullptr;  ///< null: a word, or data whose transfer was abandoned
    Piece stretch{};               ///< memory to send from or to receive into
    std::byte* stage = nullptr;    ///< pinned memory used in its place; null: none
    TransferHeader header;
    std::vector<std::byte> body;  ///< body of a word
  };
  static ucs_status_t on_message(void* parts, const void* sent_header, std::size_t header_size,
                                 void* data, std::size_t size, const ucp_am_recv_param_t* params);
  static void on_sent(void* request, ucs_status_t status, void* part);
  static void on_received(void* request, ucs_status_t status, std::size_t size, void* part);
  ucs_status_t read(const TransferHeader& header, void* data, std::size_t size, bool rendezvous);
  ucs_status_t take(const TransferHeader& header, void* data, bool rendezvous);
  void transmit(Part& part, int rank, const std::byte* data, std::size_t size, bool word);
  void ended(Part& part, ucs_status_t status);
  Part& new_part(Transfer* transfer);
  [[nodiscard]] TransferHeader make_header(Word word, std::uint64_t key, std::uint64_t at,
                                           std::uint64_t size) const;
  UcxEndpoint& endpoint(int rank);
  std::byte* stage();

  int rank_;
  DeviceStaging* staging_;
  PartEvents& events_;
  std::uint64_t run_ = 0;
  std::vector<TransportPlace> places_;   ///< [ranks]
  std::vector<UcxEndpoint*> endpoints_;  ///< [ranks]; made at first use
  std::vector<int> parts_to_;            ///< [ranks] data parts in flight
  std::vector<bool> abandoned_;          ///< [ranks]
  std::list<Part> parts_;
  std::vector<std::byte*> free_stages_;
  UcxWorker worker_;  ///< declared last, so destroyed first: its callbacks use the rest
};

}  // namespace paceline::fabric
