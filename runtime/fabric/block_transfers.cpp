#include "runtime/fabric/block_transfers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace paceline::fabric {
namespace {

/// Sizes of pieces, run-length coded: most transfers have pieces of one size.
struct Cut {
  std::uint64_t size, count;
};

}  // namespace

BlockTransfers::BlockTransfers(const UcxContext& context, int rank, DeviceStaging* staging,
                               Outcome outcome)
    : rank_(rank), outcome_(std::move(outcome)), parts_(context, rank, staging, *this) {}

void BlockTransfers::open(std::uint64_t run, std::vector<TransportPlace> places) {
  lost_.resize(places.size());
  parts_.open(run, std::move(places));
}

void BlockTransfers::start(Transfer transfer) {
  const Name name = transfer.name;
  auto& over = transfer.sends ? outgoing_over_ : incoming_over_;
  const auto [entry, is_new] =
      (transfer.sends ? outgoing_ : incoming_).emplace(name, std::move(transfer));
  if (!is_new)
    throw std::logic_error(fmt::format("key {} of rank {} is in use", name.second, name.first));
  Transfer& t = entry->second;
  if (const auto end = over.extract(name)) {
    t.failure = end.mapped();
  } else if (!lost_[name.first].empty()) {
    t.failure = lost_[name.first];
  } else if (!t.sends) {
    ask(t);
  } else if (const auto early = early_asks_.extract(name)) {
    begin_sending(t, early.mapped());
  }
  conclude_if_over(t);
}

void BlockTransfers::ask(Transfer& transfer) {
  std::vector<Cut> cuts;
  for (const Piece& piece : transfer.pieces) {
    if (cuts.empty() || cuts.back().size != piece.size) cuts.push_back({piece.size, 0});
    ++cuts.back().count;
  }
  std::vector<std::byte> body(cuts.size() * sizeof(Cut));
  std::memcpy(body.data(), cuts.data(), body.size());
  const auto [rank, key] = transfer.name;
  parts_.say(rank, Word::ask, key, transfer.total(), std::move(body));
}

void BlockTransfers::refuse(Name name) {
  const std::string why = "the sender has nothing to send";
  if (outgoing_over_.erase(name) != 0) return;  // the receiver withdrew it, and was answered
  if (early_asks_.erase(name) == 0) outgoing_over_[name] = why;
  say_no(name, why);
}

void BlockTransfers::give_up(Ticket ticket) {
  const auto has_ticket = [&](const auto& entry) { return entry.second.ticket == ticket; };
  if (const auto t = std::ranges::find_if(incoming_, has_ticket); t != incoming_.end()) {
    parts_.say(t->first.first, Word::withdraw, t->first.second, 0, {});
    return;
  }
  const auto t = std::ranges::find_if(outgoing_, has_ticket);
  if (t == outgoing_.end() || t->second.begun) return;  // over, or will be soon
  say_no(t->first, "the sender gave it up");
  outgoing_over_[t->first] = "cancelled";
  t->second.failure = "cancelled";
  conclude_if_over(t->second);
}

void BlockTransfers::abandon(int rank, const std::string& why) {
  lost_[rank] = why;
  parts_.abandon(rank);
  for (Transfers* side : {&outgoing_, &incoming_}) {
    for (auto t = side->begin(); t != side->end();) {
      Transfer& transfer = (t++)->second;
      if (transfer.name.first != rank) continue;
      transfer.failure = why;
      conclude_if_over(transfer);
    }
  }
}

void BlockTransfers::settle() {
  for (auto t = outgoing_.begin(); t != outgoing_.end();) push((t++)->second);
}

void BlockTransfers::push(Transfer& transfer) {
  while (transfer.begun && transfer.failure.empty() && transfer.moved < transfer.total() &&
         !parts_.busy(transfer.name.first)) {
    parts_.send(transfer);
  }
  conclude_if_over(transfer);
}

void BlockTransfers::heard(const TransferHeader& header, std::span<const std::byte> body) {
  const Name name{header.from, header.key};
  if (header.word == Word::ask) {
    asked(name, body);
  } else if (header.word == Word::withdraw) {
    withdrawn(name);
  } else if (header.word == Word::refuse) {
    refused(name, {reinterpret_cast<const char*>(body.data()), body.size()});
  } else {
    fault(fmt::format("an unknown word {} from rank {}", static_cast<unsigned>(header.word),
                      header.from));
  }
}

void BlockTransfers::asked(Name name, std::span<const std::byte> body) {
  if (overtaken_.erase(name) != 0) return;
  if (outgoing_over_.erase(name) != 0) return;  // our refusal crossed the ask
  if (const auto t = outgoing_.find(name); t != outgoing_.end()) {
    begin_sending(t->second, body);
    conclude_if_over(t->second);
  } else {
    early_asks_.emplace(name, std::vector(body.begin(), body.end()));
  }
}

void BlockTransfers::begin_sending(Transfer& transfer, std::span<const std::byte> body) {
  std::vector<Cut> cuts(body.size() / sizeof(Cut));
  if (!cuts.empty()) std::memcpy(cuts.data(), body.data(), cuts.size() * sizeof(Cut));
  std::size_t end = 0;
  for (const Cut& cut : cuts) {
    if (cut.size == 0 || cut.size > transfer.total()) break;
    for (std::uint64_t i = 0; i < cut.count && end <= transfer.total(); ++i)
      transfer.their_ends.push_back(end += cut.size);
  }
  if (end == transfer.total()) {
    transfer.begun = true;  // settle() sends
    return;
  }
  transfer.failure = fmt::format("rank {} has {} bytes to send, rank {} room for another number",
                                 rank_, transfer.total(), transfer.name.first);
  say_no(transfer.name, transfer.failure);
}

// UCX guarantees no order, and a long ask may use several paths: a withdrawal may overtake it.
void BlockTransfers::withdrawn(Name name) {
  const std::string why = "the receiver gave it up";
  if (const auto t = outgoing_.find(name); t != outgoing_.end()) {
    if (t->second.begun) return;  // all data will arrive and end the receiver's ticket
    overtaken_.insert(name);
    t->second.failure = why;
    conclude_if_over(t->second);
  } else if (early_asks_.erase(name) != 0) {
    outgoing_over_[name] = why;
  } else if (outgoing_over_.emplace(name, why).second) {  // else the transfer is over already
    overtaken_.insert(name);
  }
  say_no(name, "");
}

void BlockTransfers::say_no(Name name, std::string_view why) {
  const auto* text = reinterpret_cast<const std::byte*>(why.data());
  parts_.say(name.first, Word::refuse, name.second, 0, {text, text + why.size()});
}

void BlockTransfers::refused(Name name, const std::string& why) {
  const auto t = incoming_.find(name);
  if (t == incoming_.end()) {
    // An empty answer is for the withdrawal of a transfer that has ended in the meantime.
    if (!why.empty()) incoming_over_[name] = why;
    return;
  }
  if (t->second.moved > 0) return;  // answers a withdrawal that came too late
  t->second.failure = why.empty() ? "cancelled" : why;
  conclude_if_over(t->second);
}

Transfer* BlockTransfers::expected(const TransferHeader& header) {
  const auto found = incoming_.find({header.from, header.key});
  if (found == incoming_.end()) {
    if (!broken_.contains({header.from, header.key})) {
      fault(fmt::format("rank {} sent data of key {}, for which nobody has asked", header.from,
                        header.key));
    }
    return nullptr;
  }
  Transfer& t = found->second;
  if (header.size == 0 || header.size > contiguous(t.ends, header.at) ||
      header.size > t.total() - t.moved) {
    fault(fmt::format("rank {} sent {} bytes at {} of key {}, where they do not fit", header.from,
                      header.size, header.at, header.key));
    return nullptr;
  }
  return &t;
}

void BlockTransfers::part_ended(Transfer& transfer) {
  if (!transfer.sends) conclude_if_over(transfer);  // settle() does this for senders
}

void BlockTransfers::conclude_if_over(Transfer& transfer) {
  const bool whole = transfer.moved == transfer.total();
  if (transfer.under_way > 0 || (transfer.failure.empty() && !whole)) return;
  const Name name = transfer.name;
  const bool more_may_come = transfer.moved > 0 || !lost_[name.first].empty();
  if (!transfer.sends && !transfer.failure.empty() && more_may_come) broken_.insert(name);
  const auto ended = (transfer.sends ? outgoing_ : incoming_).extract(name);
  outcome_.over(ended.mapped());
}

}  // namespace paceline::fabric
