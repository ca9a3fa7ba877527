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

bool KvExchange::kept_for(std::uint64_t key, int leader) const {
  const auto at = parcels_.find(key);
  return at != parcels_.end() && at->second.to.leader == leader;
}

void KvExchange::on(const Pull& pull) {
  const auto at = parcels_.find(pull.key);
  const bool none = pull.first_block == Pull::kNone;
  if (at == parcels_.end()) {
    if (none) return;  // its group has ended meanwhile, and the KV was given up
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
  link_.move({pull.key, at->second.to, 1, std::move(blocks)});
}

void KvExchange::decline(KvOrigin& origin) {
  if (origin.positions == 0) return;
  mailbox_.send({origin.from.leader, Address::Port::role}, encode(Pull{origin.key, Pull::kNone}));
  origin.positions = 0;
}

std::int32_t KvExchange::fetch(RequestId id, const KvOrigin& origin) {
  if (origin.positions == 0) return 0;
  const std::int32_t first =
      policy::split_move(costs_, origin.positions, batcher_.own_from(id), kv_block_).first;
  const bool none = first >= origin.positions;
  mailbox_.send({origin.from.leader, Address::Port::role},
                encode(Pull{origin.key, none ? Pull::kNone : first / kv_block_}));
  if (none) return 0;
  batcher_.expect(id, {first, origin.positions});
  const auto end = kv::blocks_for(origin.positions, kv_block_);
  const auto table = batcher_.table(id).subspan(first / kv_block_, end - first / kv_block_);
  link_.move({origin.key, origin.from, 0, {table.begin(), table.end()}});
  arriving_[origin.key] = id;
  return origin.positions - first;
}

bool KvExchange::arriving(RequestId id) const {
  return std::any_of(arriving_.begin(), arriving_.end(),
                     [id](const auto& arriving) { return arriving.second == id; });
}

void KvExchange::settle() {
  for (auto it = parcels_.begin(); it != parcels_.end();) {
    if (it->second.pulled && link_.ended(it->first)) {
      batcher_.release(it->second.kv);
      it = parcels_.erase(it);
    } else {
      ++it;
    }
  }
  for (auto it = arriving_.begin(); it != arriving_.end();) {
    const std::optional<bool> complete = link_.ended(it->first);
    if (complete && batcher_.runs(it->second)) batcher_.arrived(it->second, *complete);
    it = complete ? arriving_.erase(it) : std::next(it);
  }
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
