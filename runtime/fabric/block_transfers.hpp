// Which end of a block transfer says what, and when it is over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/fabric/block_parts.hpp"

namespace paceline::fabric {

/// The receiver asks when it is ready and tells how its memory is cut; only then does the sender
/// hand data to UCX, in parts that are contiguous at both ends. So nothing is ever sent that nobody
/// waits for, and a transfer that has not begun can be given up by a word.
///
/// Used by one thread, but for the constructor and open(), which come before.
class BlockTransfers final : private PartEvents {
 public:
  /// Told of transfers that are over, with `failure` where they failed, and of the first thing that
  /// makes no sense.
  struct Outcome {
    std::function<void(const Transfer&)> over;
    std::function<void(std::string)> fault;
  };
  /// staging: null where there is no device that UCX does not reach. It must outlive this.
  BlockTransfers(const UcxContext& context, int rank, DeviceStaging* staging, Outcome outcome);
  void open(std::uint64_t run, std::vector<TransportPlace> places);

  [[nodiscard]] UcxWorker& worker() { return parts_.worker(); }
  [[nodiscard]] const std::vector<TransportPlace>& places() const { return parts_.places(); }

  /// Throws std::logic_error where the other rank and the key are those of another under way.
  void start(Transfer transfer);
  /// Nothing will be sent under this name: the receiver's end fails.
  void refuse(Transfer::Name name);
  /// Ends it unless data is on its way.
  void give_up(Ticket ticket);
  /// A rank has gone: what is under way with it has failed.
  void abandon(int rank, const std::string& why);
  /// What callbacks may not do themselves, for they run within progress(): gives UCX more data.
  void settle();

 private:
  using Name = Transfer::Name;
  using Transfers = std::map<Name, Transfer>;

  void heard(const TransferHeader& header, std::span<const std::byte> body) override;
  Transfer* expected(const TransferHeader& header) override;
  void part_ended(Transfer& transfer) override;
  void fault(std::string what) override { outcome_.fault(std::move(what)); }

  void ask(Transfer& transfer);
  void asked(Name name, std::span<const std::byte> body);
  void withdrawn(Name name);
  void say_no(Name name, std::string_view why);
  void refused(Name name, const std::string& why);
  void begin_sending(Transfer& transfer, std::span<const std::byte> body);
  void push(Transfer& transfer);
  void conclude_if_over(Transfer& transfer);

  int rank_;
  Outcome outcome_;
  Transfers outgoing_, incoming_;
  std::map<Name, std::vector<std::byte>> early_asks_;  ///< came before the sender's call
  /// Transfers that one end gave up before the other end had begun, and why. Few: one word each.
  std::map<Name, std::string> outgoing_over_, incoming_over_;
  std::set<Name> overtaken_;       ///< withdrawn before the question came, which is to be dropped
  std::set<Name> broken_;          ///< that came in and failed on the way: more may come
  std::vector<std::string> lost_;  ///< [ranks] why; empty: it is there
  BlockParts parts_;               ///< declared last, so destroyed first: its events use the rest
};

}  // namespace paceline::fabric
