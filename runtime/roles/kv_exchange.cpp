#include "runtime/roles/kv_exchange.hpp"

#include <algorithm>
#include <utility>

namespace paceline::roles {

using Kind = KvMove::Kind;
using State = KvMove::State;

// ---- KV that leaves.

policy::KeptKv KvExchange::keep(std::uint64_t key, kv::Parcel parcel, const policy::GroupRanks& to,
                                Kind kind) {
  const policy::KeptKv kept{key, ranks_, parcel.positions, batcher_.owner(parcel)};
  if (kept.positions > 0) {
    moves_[key] = {.kind = kind, .parcel = std::move(parcel), .to = to, .owner = kept.owner};
  } else {
    batcher_.release(parcel);
  }
  return kept;
}

/// Stores the prompt's KV as well, because the group of the next lease may not have this KV.
policy::KeptKv KvExchange::store(std::uint64_t key, kv::Parcel parcel) {
  const policy::KeptKv kept = keep(key, std::move(parcel), {}, Kind::stored);
  if (kept.positions == 0) return kept;
  KvMove& move = moves_.at(key);
  move.post(ranks_);
  group_.command(protocol::StoreKv{key, 0, move.parcel.blocks});
  return kept;
}

void KvExchange::forget(std::uint64_t key) {
  const auto at = moves_.find(key);
  if (at == moves_.end() || at->second.kind == Kind::fetched) return;
  at->second.declined = true;
  go_on(at);
}

bool KvExchange::kept_for(std::uint64_t key, int leader) const {
  const auto at = moves_.find(key);
  if (at == moves_.end() || at->second.kind == Kind::fetched) return false;
  return at->second.kind == Kind::stored || at->second.to.leader == leader;
}

void KvExchange::on(const protocol::Pull& pull) {
  const auto at = moves_.find(pull.key);
  if (at == moves_.end() || at->second.kind == Kind::fetched)
    throw std::logic_error("a group wants KV that is not kept here");
  at->second.wanted = pull;
  go_on(at);
}

/// Continues a prepared move whose KV is wanted or declined. Sends or restores wanted KV. Releases
/// KV that was declined, or whose request has left the batch.
void KvExchange::go_on(Moves::iterator at) {
  auto& [key, move] = *at;
  if (move.state != State::prepared || !(move.wanted || move.declined)) return;
  const bool stopped = move.request && !batcher_.runs(*move.request);
  if (move.declined || stopped) return release(at);
  move.post(ranks_);
  const std::int32_t first = move.wanted->first_block;
  if (move.request)
    return group_.command(protocol::RestoreKv{key, first, wanted_blocks(move), move.owner});
  protocol::MoveKv sent{.key = key, .peer = move.wanted->peer, .send = 1, .owner = move.owner};
  if (move.kind == Kind::stored) {
    sent.stored = 1;
    sent.first_block = first;
  } else {
    sent.blocks = {move.parcel.blocks.begin() + first, move.parcel.blocks.end()};
  }
  group_.command(sent);
}

void KvExchange::part_from(const policy::Placement& placement, bool ended) {
  for (auto at = moves_.begin(); at != moves_.end();) {
    const auto now = at++;
    const KvMove& move = now->second;
    const bool pulls_no_more = move.kind == Kind::given || (move.kind == Kind::copied && ended);
    const bool there = std::ranges::find(placement.groups, move.to) != placement.groups.end();
    if (move.state == State::prepared && pulls_no_more && !there) release(now);
  }
}

// ---- KV that arrives.

void KvExchange::decline(policy::KeptKv& kv) {
  if (kv.positions == 0) return;
  kv.positions = 0;
  if (kv.group == ranks_) {
    forget(kv.key);
  } else {
    mailbox_.send({kv.group.leader, Address::Port::role},
                  protocol::encode(protocol::DropKv{{kv.key}}));
  }
}

void KvExchange::fetch(RequestId id, policy::KeptKv kv) {
  if (kv.positions == 0) return;
  const bool own = kv.group == ranks_;
  const std::int32_t own_from = batcher_.own_from(id);
  // Reading this group's own store is assumed to be faster than computing the KV again.
  const std::int32_t first =
      own ? own_from : policy::split_move(costs_, kv.positions, own_from, kv_block_).first;
  if (first >= kv.positions) {
    decline(kv);
    return;
  }
  const OptionalIndex owner = batcher_.owner(id);
  const protocol::Pull pull{kv.key, first / kv_block_, policy::holders(ranks_, owner)};
  batcher_.expect(id, {first, kv.positions});
  const auto at = moves_.try_emplace(kv.key).first;
  KvMove& move = at->second;
  move.request = id;
  move.positions = kv.positions;
  move.wanted = pull;
  if (own) return go_on(at);
  mailbox_.send({kv.group.leader, Address::Port::role}, protocol::encode(pull));
  move.post(ranks_);
  group_.command(protocol::MoveKv{.key = kv.key,
                                  .peer = policy::holders(kv.group, kv.owner),
                                  .send = 0,
                                  .blocks = wanted_blocks(move),
                                  .owner = owner});
}

/// Returns those blocks of the request into which the wanted part of its KV goes.
std::vector<std::int32_t> KvExchange::wanted_blocks(const KvMove& move) const {
  const std::int32_t first = move.wanted->first_block;
  const std::vector<std::int32_t> table = batcher_.table(*move.request);
  return {table.begin() + first, table.begin() + kv::blocks_for(move.positions, kv_block_)};
}

bool KvExchange::arriving(RequestId id) const {
  return std::ranges::any_of(moves_, [&](const auto& move) {
    return move.second.state == State::posted && move.second.request == id;
  });
}

// ---- Progress.

bool KvExchange::settle() {
  bool any = false;
  for (const protocol::KvMoved& moved : group_.take_ended())
    any = share_ended(ranks_.leader, moved) || any;
  return any;
}

/// After the last share, a move that put KV into the store is prepared again, to take the KV out of
/// the store later. Any other move is released.
bool KvExchange::share_ended(int rank, const protocol::KvMoved& moved) {
  const auto at = moves_.find(moved.key);
  if (at == moves_.end() || !at->second.share_ended(rank, moved.complete != 0)) return false;
  KvMove& move = at->second;
  const bool was_put = move.kind == Kind::stored && move.parcel.positions > 0;
  batcher_.release(std::exchange(move.parcel, {}));
  if (was_put) {
    move.prepare_again();
    go_on(at);
  } else {
    release(at);
  }
  return true;
}

/// Erases a move that is not in flight, and its stored KV. If a request in the batch awaited the
/// KV, tells the batcher whether the KV has arrived or must be computed.
void KvExchange::release(Moves::iterator at) {
  auto& [key, move] = *at;
  const bool done = move.state == State::done;
  move.release();
  batcher_.release(move.parcel);
  if (move.request) {
    const bool has = done && move.complete;
    if (has) fetched_ += move.positions - move.wanted->first_block * kv_block_;
    if (batcher_.runs(*move.request)) batcher_.arrived(*move.request, has);
  }
  if (move.kind == Kind::stored) group_.command(protocol::DropKv{{key}});
  moves_.erase(at);
}

}  // namespace paceline::roles
