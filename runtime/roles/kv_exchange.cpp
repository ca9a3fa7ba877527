#include "runtime/roles/kv_exchange.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::roles {

void KvExchange::keep(std::uint64_t key, kv::Parcel parcel, const GroupRanks& to, Kind kind) {
  if (parcel.positions > 0) {
    parcels_[key] = {std::move(parcel), to, kind};
  } else {
    batcher_.release(parcel);
  }
}

/// The prompt's KV is stored too: where the request goes on, no sibling may hold it any more.
std::int32_t KvExchange::store(std::uint64_t key, kv::Parcel parcel) {
  const std::int32_t positions = parcel.positions;
  if (positions == 0) {
    batcher_.release(parcel);
    return 0;
  }
  link_.store({key, 0, parcel.blocks});
  stored_[key] = {.parcel = std::move(parcel), .positions = positions};
  due_.insert(key);
  return positions;
}

void KvExchange::forget(std::uint64_t key) {
  const auto at = stored_.find(key);
  if (at == stored_.end()) return;
  at->second.forgotten = true;
  due_.insert(key);
}

bool KvExchange::kept_for(std::uint64_t key, int leader) const {
  if (stored_.contains(key)) return true;
  const auto at = parcels_.find(key);
  return at != parcels_.end() && at->second.to.leader == leader;
}

void KvExchange::on(const Pull& pull) {
  if (const auto stored = stored_.find(pull.key); stored != stored_.end()) {
    if (pull.first_block == Pull::kNone) {
      stored->second.forgotten = true;
    } else {
      stored->second.wanted = pull;
    }
    due_.insert(pull.key);
    return;
  }
  const auto at = parcels_.find(pull.key);
  const bool none = pull.first_block == Pull::kNone;
  if (at == parcels_.end()) {
    if (none) return;  // the group has ended, and the KV was given up
    throw std::logic_error("KV is wanted of a request that did not leave");
  }
  if (none) {
    batcher_.release(at->second.kv);
    parcels_.erase(at);
    return;
  }
  std::vector<std::int32_t> blocks = at->second.kv.blocks;
  blocks.erase(blocks.begin(), blocks.begin() + pull.first_block);
  at->second.pulled = true;
  due_.insert(pull.key);
  link_.move({.key = pull.key, .peer = at->second.to, .send = 1, .blocks = std::move(blocks)});
}

void KvExchange::decline(KvOrigin& origin) {
  if (origin.positions == 0) return;
  origin.positions = 0;
  if (origin.from == ranks_) {
    forget(origin.key);
  } else {
    mailbox_.send({origin.from.leader, Address::Port::role},
                  encode(Pull{origin.key, Pull::kNone, ranks_}));
  }
}

std::vector<std::int32_t> KvExchange::blocks_of(RequestId id, std::int32_t first_block,
                                                std::int32_t positions) const {
  const auto end = kv::blocks_for(positions, kv_block_);
  const auto table = batcher_.table(id).subspan(first_block, end - first_block);
  return {table.begin(), table.end()};
}

void KvExchange::fetch(RequestId id, KvOrigin origin) {
  if (origin.positions == 0) return;
  const bool own = origin.from == ranks_;
  const std::int32_t own_from = batcher_.own_from(id);
  // This group's own store is always faster than computing the KV again.
  const std::int32_t first =
      own ? own_from : policy::split_move(costs_, origin.positions, own_from, kv_block_).first;
  if (first >= origin.positions) {
    decline(origin);
    return;
  }
  const Pull pull{origin.key, first / kv_block_, ranks_};
  batcher_.expect(id, {first, origin.positions});
  arriving_[origin.key] = {id, origin.positions - first};
  due_.insert(origin.key);
  if (own) {
    on(pull);
  } else {
    mailbox_.send({origin.from.leader, Address::Port::role}, encode(pull));
    link_.move({.key = origin.key,
                .peer = origin.from,
                .send = 0,
                .blocks = blocks_of(id, pull.first_block, origin.positions)});
  }
}

/// The request has its KV now, or computes it if incomplete. A request that has left does neither.
void KvExchange::arrived(const Arriving& arriving, bool complete) {
  if (complete) fetched_ += arriving.positions;
  if (batcher_.runs(arriving.id)) batcher_.arrived(arriving.id, complete);
}

bool KvExchange::arriving(RequestId id) const {
  return std::any_of(arriving_.begin(), arriving_.end(),
                     [id](const auto& arriving) { return arriving.second.id == id; });
}

bool KvExchange::settle() {
  bool any = false;
  link_.settle();
  for (auto it = due_.begin(); it != due_.end();) {
    const std::uint64_t key = *it;
    if (const auto stored = stored_.find(key); stored != stored_.end()) {
      any = settle_stored(key, stored->second) || any;
      const bool in_flight = stored_.contains(key) && stored->second.state != Stored::State::stored;
      it = in_flight ? std::next(it) : due_.erase(it);
      continue;
    }
    const std::optional<bool> complete = link_.ended(key);
    if (!complete) {
      ++it;
      continue;
    }
    if (const auto arriving = arriving_.extract(key)) {
      arrived(arriving.mapped(), *complete);
    } else {
      batcher_.release(parcels_.extract(key).mapped().kv);
    }
    any = true;
    it = due_.erase(it);
  }
  return any;
}

/// Sends stored KV to the group that wants it, or restores it for a request that runs here again.
void KvExchange::begin_to_leave(std::uint64_t key, Stored& stored) {
  const Pull& pull = *stored.wanted;
  if (pull.to != ranks_) {
    link_.move({.key = key,
                .peer = pull.to,
                .send = 1,
                .stored = 1,
                .origin = key,
                .first_block = pull.first_block});
    stored.state = Stored::State::leaving;
    return;
  }
  const RequestId id = arriving_.at(key).id;
  if (!batcher_.runs(id)) {  // the run was stopped
    arriving_.erase(key);
    stored.forgotten = true;
    return;
  }
  stored.state = Stored::State::leaving;
  link_.restore({key, pull.first_block, blocks_of(id, pull.first_block, stored.positions)});
}

/// KV that has reached the store gives its blocks back. Stored KV that is wanted leaves; KV that
/// has left, or that nobody will want, is dropped. Returns whether an operation ended.
bool KvExchange::settle_stored(std::uint64_t key, Stored& stored) {
  bool any = false;
  for (;;) {
    if (stored.state != Stored::State::stored) {
      const std::optional<bool> complete = link_.ended(key);
      if (!complete) return any;
      any = true;
      if (stored.state == Stored::State::leaving) {
        left(key, *complete);
        stored.forgotten = true;
      } else {
        batcher_.release(std::exchange(stored.parcel, {}));
        stored.state = Stored::State::stored;
      }
    }
    if (stored.wanted && !stored.forgotten) begin_to_leave(key, stored);
    if (stored.forgotten) break;
    if (stored.state == Stored::State::stored) return any;
  }
  link_.drop(key);
  stored_.erase(key);
  return any;
}

/// Stored KV has left. A request of this group that it was restored for has it, or computes it.
void KvExchange::left(std::uint64_t key, bool complete) {
  const auto at = arriving_.find(key);
  if (at == arriving_.end()) return;
  arrived(at->second, complete);
  arriving_.erase(at);
}

void KvExchange::part_from(const policy::Placement& placement, bool ended) {
  std::erase_if(parcels_, [&](auto& entry) {
    const Parcel& parcel = entry.second;
    const bool there = std::find(placement.groups.begin(), placement.groups.end(), parcel.to) !=
                       placement.groups.end();
    if (parcel.pulled || there || (parcel.kind == Kind::copied && !ended)) return false;
    batcher_.release(parcel.kv);
    return true;
  });
}

}  // namespace paceline::roles
