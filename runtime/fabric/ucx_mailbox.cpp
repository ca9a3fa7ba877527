#include "runtime/fabric/ucx_mailbox.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/core/stopwatch.hpp"

namespace paceline::fabric {
namespace {

constexpr unsigned kBatchId = 1;
/// Bytes at which a batch is sent without waiting for flush(). It fits one fragment of the shared
/// memory and TCP transports, so that neither end has to assemble it. Small windows lower it.
constexpr std::size_t kBatchBytes = 7 << 10;

std::size_t index_of(Address at) {
  return static_cast<std::size_t>(at.rank) * Address::kPorts + static_cast<std::size_t>(at.port) -
         1;
}

}  // namespace

UcxMailbox::UcxMailbox(const UcxContext& context, Address me, MailboxSettings settings)
    : me_(me), settings_(settings), worker_(context, context.detects_failures()) {
  worker_.set_handler(kBatchId, &UcxMailbox::on_batch, this);
  worker_.on_failure([this](const UcxEndpoint& endpoint) {
    if (lost_) lost_(endpoint.rank, endpoint.failure);
    fail(fmt::format("lost rank {} on {}: {}", endpoint.rank, endpoint.host, endpoint.failure));
  });
}

void UcxMailbox::open(std::uint64_t run, std::vector<MailboxPlace> places) {
  run_ = run;
  peers_.resize(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t index = index_of(places[i].at);
    if (index >= peer_of_.size()) peer_of_.resize(index + 1, -1);
    peer_of_[index] = static_cast<std::int32_t>(i);
    peers_[i].place = std::move(places[i]);
  }
}

std::optional<std::size_t> UcxMailbox::find(Address at) const {
  if (at.rank < 0 || index_of(at) >= peer_of_.size()) return std::nullopt;
  const std::int32_t found = peer_of_[index_of(at)];
  return found < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(found));
}

std::size_t UcxMailbox::at(Address to) const {
  const std::optional<std::size_t> found = find(to);
  if (!found) {
    throw std::logic_error(
        fmt::format("no mailbox at rank {}, port {}", to.rank, static_cast<int>(to.port)));
  }
  return *found;
}

void UcxMailbox::send(Address to, std::span<const std::byte> bytes) {
  Peer& p = peers_[at(to)];
  ++traffic_.messages;
  traffic_.bytes += bytes.size();
  if (to == me_) {
    inbox_.push_back({nullptr, {bytes.begin(), bytes.end()}});
    return;
  }
  p.open.add(bytes);
  p.held += cost_of(bytes.size());
  ++p.held_messages;
  traffic_.most_queued = std::max(traffic_.most_queued, ++traffic_.queued);
  mark(p);
  if (p.open.cost() >= std::min(kBatchBytes, settings_.window / 4)) {
    p.waiting.push_back(std::exchange(p.open, {}));
    transmit(p);
  }
}

void UcxMailbox::mark(Peer& peer) {
  if (std::exchange(peer.dirty, true)) return;
  dirty_.push_back(&peer);
}

bool UcxMailbox::full(Address to) const {
  const std::optional<std::size_t> found = find(to);
  if (!found || to == me_) return false;
  const Peer& p = peers_[*found];
  return p.sent - p.acknowledged + p.held >= settings_.window;
}

// A batch may be sent while less than the window is unacknowledged. So a message larger than the
// window can be sent too, and a receiver that has read everything has acknowledged enough for the
// next batch.
void UcxMailbox::transmit(Peer& peer) {
  while (peer.held_messages > 0) {
    if (peer.sent - peer.acknowledged >= settings_.window) {
      if (!std::exchange(peer.stalled, true)) ++traffic_.stalls;
      return;
    }
    peer.stalled = false;
    if (peer.waiting.empty()) {
      dispatch(peer, peer.open);
    } else {
      dispatch(peer, peer.waiting.front());
      peer.waiting.pop_front();
    }
  }
}

void UcxMailbox::dispatch(Peer& peer, BatchWriter& batch) {
  if (peer.endpoint == nullptr)
    peer.endpoint = &worker_.connect(peer.place.worker, peer.place.at.rank, peer.place.host);
  const std::size_t cost = batch.cost();
  peer.sent += cost;
  peer.held -= cost;
  peer.held_messages -= batch.messages();
  traffic_.queued -= batch.messages();
  ++traffic_.batches;
  peer.reported = peer.consumed;
  flights_.emplace_front();
  Flight& flight = flights_.front();
  flight.mailbox = this;
  flight.to = &peer;
  ++peer.flights;
  flight.self = flights_.begin();
  flight.bytes = batch.take({.run = run_,
                             .sequence = peer.next_sequence++,
                             .consumed = peer.consumed,
                             .from = me_,
                             .to = peer.place.at});
  if (!peer.endpoint->failure.empty()) return;  // the next check() throws the fault

  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  // Eager sends only: a rendezvous would need the sender's progress, and the sender may be busy
  // with a step.
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = &UcxMailbox::on_sent;
  params.user_data = &flight;
  void* const request = ucp_am_send_nbx(peer.endpoint->handle, kBatchId, nullptr, 0,
                                        flight.bytes.data(), flight.bytes.size(), &params);
  if (request == nullptr) {
    land(flight);
  } else if (UCS_PTR_IS_ERR(request)) {
    fail(fmt::format("sending to rank {} on {}: {}", peer.place.at.rank, peer.place.host,
                     ucs_status_string(UCS_PTR_STATUS(request))));
  }
}

// A failed send is reported by its connection's failure.
void UcxMailbox::on_sent(void* request, ucs_status_t, void* flight) {
  auto& sent = *static_cast<Flight*>(flight);
  sent.mailbox->land(sent);
  ucp_request_free(request);
}

void UcxMailbox::land(Flight& flight) {
  --flight.to->flights;
  flights_.erase(flight.self);
}

void UcxMailbox::flush() {
  transmit_marked();
  worker_.progress();  // a connection under construction needs it too
  check();
}

// Also waits for connections: the first message to a peer needs one, which takes both ends. Later
// messages leave at once.
void UcxMailbox::deliver(std::span<const Address> to) {
  constexpr double kLook = 0.1;  // seconds between two checks for faults
  const auto delivered = [&] {
    return std::all_of(to.begin(), to.end(), [this](Address each) {
      const Peer& p = peers_[at(each)];
      return p.flights == 0 && p.held_messages == 0;
    });
  };
  flush();
  bool woken = false;
  while (!delivered()) {
    const bool called = worker_.wait(kLook, [&] {
      attend();
      return delivered();
    });
    woken = woken || (called && !delivered());
    check();
  }
  if (woken) wake();  // wake() was meant for the caller's next wait()
}

void UcxMailbox::transmit_marked() {
  for (Peer* peer : std::exchange(dirty_, {})) {
    peer->dirty = false;
    transmit(*peer);  // the rest waits for the peer's acknowledgement
  }
}

void UcxMailbox::fail(std::string fault) {
  if (fault_.empty()) fault_ = std::move(fault);
}

void UcxMailbox::check() {
  if (!fault_.empty()) throw Error(ExitCode::internal, "messages: " + fault_);
}

ucs_status_t UcxMailbox::on_batch(void* mailbox, const void*, std::size_t, void* data,
                                  std::size_t size, const ucp_am_recv_param_t* params) {
  auto& self = *static_cast<UcxMailbox*>(mailbox);
  try {
    if ((params->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      self.fail("a batch came in a way that no mailbox sends");
    } else {
      self.receive({static_cast<const std::byte*>(data), size});
    }
  } catch (const std::exception& error) {  // UCX is C
    self.fail(error.what());
  }
  return UCS_OK;
}

void UcxMailbox::receive(std::span<const std::byte> batch) {
  std::string fault;
  const std::optional<ReadBatch> read = read_batch(batch, run_, me_, fault);
  if (!read) return fail("a batch cannot be read: " + fault);
  const Address from = read->header.from;
  const std::optional<std::size_t> found = find(from);
  if (!found) {
    return fail(fmt::format("a batch says it is from rank {}, port {}, which there is not",
                            from.rank, static_cast<int>(from.port)));
  }
  Peer& p = peers_[*found];
  switch (p.order.place(read->header.sequence)) {
    case BatchOrder::Place::repeated:
      return fail(fmt::format("batch {} from rank {} on {} came twice", read->header.sequence,
                              from.rank, p.place.host));
    case BatchOrder::Place::early:
      if (!p.order.incomplete()) {
        ++incomplete_;
        p.incomplete_since = steady_seconds();
      }
      p.order.keep(read->header.sequence, {batch.begin(), batch.end()});
      return;
    case BatchOrder::Place::next:
      break;
  }
  const bool was_incomplete = p.order.incomplete();
  accept(p, *read);
  while (const std::optional<std::vector<std::byte>> kept = p.order.take_kept())
    accept(p, *read_batch(*kept, run_, me_, fault));
  if (was_incomplete) {
    p.incomplete_since = steady_seconds();
    if (!p.order.incomplete()) --incomplete_;
  }
}

void UcxMailbox::accept(Peer& peer, const ReadBatch& batch) {
  peer.order.accept_next();
  const std::uint64_t consumed = batch.header.consumed;
  if (consumed > peer.sent || consumed < peer.acknowledged) {
    return fail(fmt::format("rank {} on {} says it has read {} bytes of the {} it was sent",
                            peer.place.at.rank, peer.place.host, consumed, peer.sent));
  }
  peer.acknowledged = consumed;
  if (peer.held_messages > 0) mark(peer);
  for (const std::span<const std::byte> message : batch.messages)
    inbox_.push_back({&peer, {message.begin(), message.end()}});
}

void UcxMailbox::attend() {
  if (incomplete_ > 0) {
    const double now = steady_seconds();
    for (const Peer& p : peers_) {
      if (!p.order.incomplete() || now - p.incomplete_since < settings_.lost_after_seconds)
        continue;
      fail(fmt::format("batch {} from rank {} on {} is lost: later ones came {:.0f} s ago",
                       p.order.next(), p.place.at.rank, p.place.host, now - p.incomplete_since));
    }
  }
  transmit_marked();
  check();
}

std::optional<Envelope> UcxMailbox::poll() {
  if (inbox_.empty()) {
    attend();
    while (worker_.progress() && inbox_.empty()) {
    }
    attend();
    if (inbox_.empty()) return std::nullopt;
  }
  Received first = std::move(inbox_.front());
  inbox_.pop_front();
  if (first.from == nullptr) return Envelope{me_, std::move(first.bytes)};
  Peer& from = *first.from;
  from.consumed += cost_of(first.bytes.size());
  // An acknowledgement travels with the next batch to the peer, or in an empty batch before the
  // peer would have to wait.
  const auto due = [&] { return from.consumed - from.reported >= settings_.window / 2; };
  if (due()) transmit(from);
  if (due()) {
    BatchWriter nothing;
    dispatch(from, nothing);
  }
  return Envelope{from.place.at, std::move(first.bytes)};
}

bool UcxMailbox::wait(double seconds) {
  attend();
  return worker_.wait(seconds, [this] {
    attend();
    return !inbox_.empty();
  });
}

bool UcxMailbox::drained() {
  while (poll()) {
  }
  return traffic_.queued == 0 && flights_.empty();
}

}  // namespace paceline::fabric
