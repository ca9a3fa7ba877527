#include "runtime/sim/blocks.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/sim/draws.hpp"

namespace paceline::sim {

/// Payload of a transfer of which both ends are there. It is copied when one end first learns that
/// the transfer has ended: until then the sender may not change its memory, nor the receiver read
/// its own.
struct BlockWire::Load {
  std::vector<std::span<std::byte>> from, to;

  void move() {
    std::vector<std::byte> sent;
    for (const auto& piece : from) sent.insert(sent.end(), piece.begin(), piece.end());
    std::size_t at = 0;
    for (const auto& piece : to) {
      std::memcpy(piece.data(), sent.data() + at, piece.size());
      at += piece.size();
    }
    from.clear();
    to.clear();
  }
};

/// Transport of one rank. The time at which a transfer ends is known once both ends are there.
class BlockWire::Transport final : public BlockTransport {
 public:
  Transport(BlockWire& wire, int rank, ActorId actor) : wire_(wire), rank_(rank), actor_(actor) {}

  void register_memory(std::span<std::byte>) override {}
  void unregister_memory(std::span<std::byte>) override {}

  Ticket send(int to, std::uint64_t key,
              std::span<const std::span<const std::byte>> pieces) override {
    std::vector<std::span<std::byte>> taken;
    taken.reserve(pieces.size());
    for (const std::span<const std::byte> p : pieces)  // the sender's pieces are never written
      taken.push_back({const_cast<std::byte*>(p.data()), p.size()});
    return start({rank_, to, key}, true, std::move(taken));
  }
  Ticket receive(int from, std::uint64_t key,
                 std::span<const std::span<std::byte>> pieces) override {
    return start({from, rank_, key}, false, {pieces.begin(), pieces.end()});
  }
  void refuse(int to, std::uint64_t key) override {
    wire_.join({rank_, to, key}, true,
               {.transport = this, .at = now(), .pieces = {}, .refuses = true});
  }
  TransferState state(Ticket ticket) const override {
    const Under& under = tickets_.at(ticket);
    if (under.ends < 0 || under.ends > now()) return TransferState::pending;
    if (under.failed) return TransferState::failed;
    if (under.load != nullptr) under.load->move();
    return TransferState::done;
  }
  std::string failure(Ticket ticket) const override {
    return tickets_.at(ticket).failed ? "lost in simulation" : "";
  }
  double seconds(Ticket ticket) const override {
    const Under& under = tickets_.at(ticket);
    return under.ends < 0 ? 0 : under.ends - under.began;
  }
  void cancel(Ticket ticket) override {
    Under& under = tickets_.at(ticket);
    if (state(ticket) != TransferState::pending) return;
    if (under.peer == nullptr && under.ends >= 0) {  // the sender has refused, at a later time
      fail(ticket, now());
      return;
    }
    if (under.peer == nullptr) {  // the other end may still come; it then fails too
      Transfer& waiting = wire_.waiting_.at(under.name);
      (under.sends ? waiting.sender : waiting.receiver).at = -1;
    } else if (under.peer->state(under.peer_ticket) == TransferState::done) {
      under.ends = now();  // the peer's clock is ahead, and it has the payload
      return;
    } else {
      under.peer->fail(under.peer_ticket, now());
    }
    fail(ticket, now());
  }
  Traffic traffic() const override {
    Traffic t;
    for (const auto& [ticket, under] : tickets_) {
      const TransferState is = state(ticket);
      if (is == TransferState::pending) ++t.pending;
      if (is == TransferState::failed) ++t.failed;
      if (is != TransferState::done) continue;
      ++(under.sends ? t.sent : t.received);
      (under.sends ? t.bytes_sent : t.bytes_received) += under.bytes;
    }
    return t;
  }

  void end(Ticket ticket, double at, bool failed, const End& peer, std::shared_ptr<Load> load) {
    Under& under = tickets_.at(ticket);
    under.ends = at;
    under.failed = failed;
    under.peer = peer.refuses ? nullptr : peer.transport;
    under.peer_ticket = peer.ticket;
    under.load = std::move(load);
    wire_.world_.wake(actor_, at);
  }
  void fail(Ticket ticket, double at) {
    Under& under = tickets_.at(ticket);
    under.ends = at;
    under.failed = true;
    wire_.world_.wake(actor_, at);
  }

 private:
  struct Under {
    Name name;
    bool sends = false;
    std::uint64_t bytes = 0;
    double began = 0;
    double ends = -1;  ///< seconds; -1: not known yet
    bool failed = false;
    Transport* peer = nullptr;  ///< null: the other end is not there yet
    Ticket peer_ticket = 0;
    std::shared_ptr<Load> load = nullptr;  ///< shared by both ends; null: nothing moves
  };
  double now() const { return wire_.world_.clock(actor_).now(); }
  Ticket start(const Name& name, bool sends, std::vector<std::span<std::byte>> pieces) {
    const Ticket ticket = next_++;
    Under& under = tickets_[ticket];
    under = {.name = name, .sends = sends, .began = now()};
    for (const auto& piece : pieces) under.bytes += piece.size();
    wire_.join(name, sends, {this, ticket, now(), std::move(pieces)});
    return ticket;
  }

  BlockWire& wire_;
  int rank_;
  ActorId actor_;
  Ticket next_ = 1;
  std::map<Ticket, Under> tickets_;
};

BlockWire::BlockWire(World& world, Network& network, const BlockOptions& options)
    : world_(world), network_(network), options_(options) {}

BlockWire::~BlockWire() = default;

BlockTransport& BlockWire::open(int rank, ActorId actor) {
  std::unique_ptr<Transport>& transport = transports_[rank];
  if (transport == nullptr) transport = std::make_unique<Transport>(*this, rank, actor);
  return *transport;
}

void BlockWire::join(const Name& name, bool sends, End end) {
  Transfer& transfer = waiting_[name];
  End& mine = sends ? transfer.sender : transfer.receiver;
  if (mine.transport != nullptr) throw std::logic_error("a transfer is named twice");
  mine = std::move(end);
  if (transfer.sender.transport == nullptr || transfer.receiver.transport == nullptr) return;
  const Transfer both = std::move(transfer);
  waiting_.erase(name);
  begin(name, both);
}

/// Sets the end time of a transfer of which both ends are there. The receiver's memory is
/// overwritten first, so that a read before the end of the transfer is noticed.
void BlockWire::begin(const Name& name, const Transfer& transfer) {
  const auto& [from, to, key] = name;
  const auto size = [](const End& end) {
    std::size_t bytes = 0;
    for (const auto& piece : end.pieces) bytes += piece.size();
    return bytes;
  };
  const std::size_t bytes = size(transfer.receiver);
  const bool refused = transfer.sender.refuses;
  if (!refused && bytes != size(transfer.sender))
    throw std::logic_error("the ends of a transfer name different numbers of bytes");
  const bool given_up = refused || transfer.sender.at < 0 || transfer.receiver.at < 0;
  const NoiseKey whose{options_.seed, key};
  const bool failed =
      given_up ||
      (options_.failing > 0 && uniform(whose, Draw::transfer, static_cast<std::uint32_t>(from),
                                       static_cast<std::uint32_t>(to) & 0xffff) < options_.failing);
  const double now = std::max(transfer.sender.at, transfer.receiver.at);
  const double end =
      given_up ? now
               : network_.arrival(from, to, static_cast<double>(bytes) * options_.bytes_per_byte,
                                  now, Network::Kind::blocks);
  const End& s = transfer.sender;
  const End& r = transfer.receiver;
  std::shared_ptr<Load> load;
  if (options_.copies && r.at >= 0) {
    for (const auto& piece : r.pieces) std::memset(piece.data(), kNotArrived, piece.size());
    if (!failed) load = std::make_shared<Load>(Load{s.pieces, r.pieces});
  }
  if (s.at >= 0 && !refused) s.transport->end(s.ticket, end, failed, r, load);
  if (r.at >= 0) r.transport->end(r.ticket, end, failed, s, load);
}

}  // namespace paceline::sim
