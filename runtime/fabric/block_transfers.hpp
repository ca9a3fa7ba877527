// The protocol of block transfers: the messages of each end, and the end of a transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/fabric/block_parts.hpp"

namespace paceline::fabric {

/// Pairs the ends of block transfers. When the receiver is ready, it asks and tells the sizes of
/// its pieces. Only then does the sender give data to UCX, in parts that are contiguous at both
/// ends. So data never reaches a receiver that is not waiting, and one word can withdraw a transfer
/// that has not begun.
///
/// Used by one thread; another one may call the constructor and open() before.
class BlockTransfers final : private PartEvents {
 public:
  /// Callbacks: `over` for each transfer that has ended, with its `failure` set if it failed;
  /// `fault` for invalid messages.
  struct Outcome {
    std::function<void(const Transfer&)> over;
    std::function<void(std::string)> fault;
  };
  /// `staging`: null where UCX reaches every device. It must outlive this object.
  BlockTransfers(const UcxContext& context, int rank, DeviceStaging* staging, Outcome outcome);
  void open(std::uint64_t run, std::vector<TransportPlace> places);

  [[nodiscard]] UcxWorker& worker() { return parts_.worker(); }
  [[nodiscard]] const std::vector<TransportPlace>& places() const { return parts_.places(); }

  /// Starts a transfer. Throws std::logic_error where another one with this rank and key is under
  /// way.
  void start(Transfer transfer);
  /// Refuses to send under this name: the receiver's end fails.
  void refuse(Transfer::Name name);
  /// Cancels a transfer, unless its data is on its way.
  void give_up(Ticket ticket);
  /// Fails all transfers with a rank that is gone.
  void abandon(int rank, const std::string& why);
  /// Gives UCX more data. Callbacks cannot do this, as they run within progress().
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
  std::map<Name, std::vector<std::byte>> early_asks_;  ///< asks that came before the sender's call
  /// Transfers that one end gave up before the other had begun, with the reason. They are few.
  std::map<Name, std::string> outgoing_over_, incoming_over_;
  std::set<Name> overtaken_;       ///< withdrawn before their ask came: drop the ask
  std::set<Name> broken_;          ///< incoming transfers that failed halfway: drop further data
  std::vector<std::string> lost_;  ///< [ranks] why the rank is lost; empty: it is not
  BlockParts parts_;               ///< declared last, so destroyed first: its events use the rest
};

}  // namespace paceline::fabric
