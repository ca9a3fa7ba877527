#include "runtime/roles/kv_share.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace paceline::roles {

KvShare::KvShare(BlockTransport& transport, const engine::KvMemory& memory, int index, int tp,
                 const Recorder& recorder, kv::Store* store, OptionalIndex leader)
    : transport_(transport),
      memory_(memory),
      index_(index),
      tp_(tp),
      recorder_(recorder),
      store_(store) {
  if (leader) {  // one rank has all heads of a request's KV
    group_ = {*leader, tp};
    owner_ = {index, tp};
    index_ = 0;
    tp_ = 1;
  }
  regions_.push_back(memory_.bytes);
  transport_.register_memory(memory_.bytes);
}

std::size_t KvShare::bytes_after(const kv::Work& work) const {
  return work.blocks == 0 ? memory_.bytes.size() : work.blocks * memory_.shape.block_bytes();
}

void KvShare::shrink_before(const kv::Work& work) {
  const std::size_t bytes = bytes_after(work);
  if (bytes < memory_.bytes.size()) forget_from(bytes);
}

void KvShare::grow_after(const kv::Work& work) {
  const std::size_t now = memory_.bytes.size();
  const std::size_t bytes = bytes_after(work);
  if (bytes <= now) return;
  memory_.bytes = {memory_.bytes.data(), bytes};
  regions_.push_back(memory_.bytes.subspan(now));
  transport_.register_memory(regions_.back());
}

/// Unregisters the memory after its first `bytes` bytes. The memory must have had this size before.
void KvShare::forget_from(std::size_t bytes) {
  memory_.bytes = memory_.bytes.first(bytes);
  const std::byte* end = memory_.bytes.data() + bytes;
  while (regions_.back().data() >= end) {
    transport_.unregister_memory(regions_.back());
    regions_.pop_back();
  }
  if (regions_.back().data() + regions_.back().size() != end)
    throw std::logic_error("KV memory shrinks to a size that it never had");
}

// The destructor can run after a fault, when other data has yet to be saved. So it throws nothing,
// and does not wait long for a peer that may be gone.
KvShare::~KvShare() {
  std::string why = "a transfer does not end";
  try {
    if (give_up()) {
      for (const std::span<std::byte> region : regions_) transport_.unregister_memory(region);
      return;
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::fprintf(stderr,
               "warning: %zu bytes of KV memory stay allocated until the process ends: %s\n",
               memory_.bytes.size(), why.c_str());
  static auto* const held = new std::vector<std::shared_ptr<void>>;  // until the process ends
  held->push_back(memory_.owner);
  if (store_ != nullptr) held->push_back(store_->device().memory());
}

// Also refuses sends that have yet to begin, so that their receivers do not wait.
bool KvShare::give_up() {
  constexpr auto kLongest = std::chrono::seconds(3);
  for (const auto& [key, under_way] : under_way_) {
    for (const Part& part : under_way.parts) transport_.cancel(part.ticket);
    if (under_way.waits && under_way.stored && !under_way.held) refuse(*under_way.waits);
  }
  const auto end = std::chrono::steady_clock::now() + kLongest;
  for (const auto& [key, under_way] : under_way_) {
    for (const Part& part : under_way.parts) {
      while (transport_.state(part.ticket) == TransferState::pending) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  return true;
}

// ---- Between groups.

void KvShare::obey(const protocol::MoveKv& command) {
  UnderWay& own = under_way_[command.key];  // an empty entry ends at once
  if (!has(command.owner)) return;
  if (command.stored == 0) {
    std::vector<std::span<std::byte>> blocks;
    for (const std::int32_t name : command.blocks) blocks.push_back(block(name));
    exchange(command, blocks, own);
    return;
  }
  UnderWay& under_way = begin(command.key, KvPoolUse::sent, 0);
  if (store_ == nullptr) return refuse(command);
  under_way.waits = command;
  under_way.stored = store_->hold(command.key, command.first_block);
  go_on(under_way);
}

/// Returns the number of KV heads on each rank of the other group.
int KvShare::heads_of(const policy::GroupRanks& peer) const {
  return memory_.shape.kv_heads * tp_ / peer.tp;
}

/// Calls each(rank, first, end) for every rank of the other group with which this rank exchanges
/// KV, where [first, end) are the heads in common. Latent vectors (MLA) are whole on every rank, so
/// each receiver gets them from only one sender.
template <typename Each>
void KvShare::for_each_peer(const protocol::MoveKv& command, Each each) const {
  const policy::GroupRanks& peer = command.peer;
  if (memory_.shape.latent()) {
    const bool sends = command.send != 0;
    for (int p = 0; p < peer.tp; ++p) {
      const bool mine = sends ? p * tp_ / peer.tp == index_ : p == index_ * peer.tp / tp_;
      if (mine) each(peer.leader + p, 0, 1);
    }
    return;
  }
  const int theirs = heads_of(peer);
  const int first = index_ * memory_.shape.kv_heads;
  const int end = first + memory_.shape.kv_heads;
  for (int p = first / theirs; p * theirs < end; ++p)
    each(peer.leader + p, std::max(first, p * theirs), std::min(end, (p + 1) * theirs));
}

// In a block, the heads in common are adjacent within each layer's K and within its V, so each K or
// V gives one piece. If both ranks have the same heads, or latent vectors, a block is one piece.
void KvShare::exchange(const protocol::MoveKv& command,
                       std::span<const std::span<std::byte>> blocks, UnderWay& under_way) {
  const kernels::KvShape& shape = memory_.shape;
  const std::size_t head_bytes = shape.vector_bytes();
  for_each_peer(command, [&](int rank, int from, int to) {
    const bool whole = shape.latent() || (to - from == shape.kv_heads && tp_ == command.peer.tp);
    const int skipped = from - index_ * shape.kv_heads;
    // A receiver gets the routing from only one sender, together with the receiver's first head.
    const int receives = command.send != 0 ? heads_of(command.peer) : shape.kv_heads;
    const bool routing = !whole && shape.routed > 0 && from % receives == 0;
    std::vector<std::span<std::byte>> pieces;
    for (const std::span<std::byte> bytes : blocks) {
      for (int run = 0; run < (whole ? 1 : 2 * shape.layers); ++run) {
        pieces.push_back(whole ? bytes
                               : bytes.subspan((run * shape.kv_heads + skipped) * head_bytes,
                                               (to - from) * head_bytes));
      }
      if (routing) pieces.push_back(bytes.subspan(shape.routing_offset(), shape.routing_bytes()));
    }
    TransferRecord record{.start = recorder_.now(),
                          .key = command.key,
                          .peer = static_cast<std::uint32_t>(rank),
                          .sends = static_cast<std::uint8_t>(command.send)};
    for (const std::span<std::byte> piece : pieces) record.bytes += piece.size();
    if (command.send != 0) {
      const std::vector<std::span<const std::byte>> sent(pieces.begin(), pieces.end());
      under_way.parts.push_back({transport_.send(rank, command.key, sent), record});
    } else {
      under_way.parts.push_back({transport_.receive(rank, command.key, pieces), record});
    }
  });
}

void KvShare::refuse(const protocol::MoveKv& command) {
  for_each_peer(command, [&](int rank, int, int) { transport_.refuse(rank, command.key); });
}

// ---- The store.

KvShare::UnderWay& KvShare::begin(std::uint64_t key, KvPoolUse use, std::size_t blocks) {
  UnderWay& under_way = under_way_[key];
  under_way.failed = store_ == nullptr;
  under_way.record = {.start = recorder_.now(),
                      .key = key,
                      .bytes = blocks * memory_.shape.block_bytes(),
                      .use = use};
  return under_way;
}

std::vector<std::byte*> KvShare::places(std::span<const std::int32_t> blocks) const {
  std::vector<std::byte*> at;
  for (const std::int32_t name : blocks) at.push_back(block(name).data());
  return at;
}

/// Returns the owner of the blocks. Absent: each rank has a part of them, or there are no blocks.
OptionalIndex KvShare::owner_of(std::span<const std::int32_t> blocks) const {
  if (owner_.owners == 1 || blocks.empty()) return {};
  return blocks.front() % owner_.owners;
}

void KvShare::obey(const protocol::StoreKv& command) {
  if (!has(owner_of(command.blocks))) {
    under_way_[command.key] = {};
    return;
  }
  UnderWay& under_way = begin(command.key, KvPoolUse::stored, command.blocks.size());
  if (store_ != nullptr)
    under_way.stored = store_->put(command.key, command.first_block, places(command.blocks));
}

void KvShare::obey(const protocol::RestoreKv& command) {
  const OptionalIndex to = owner_of(command.blocks);
  if (to != command.owner) {  // one rank stores the KV, but another owns the blocks
    if (has(command.owner)) {
      return obey(protocol::MoveKv{.key = command.key,
                                   .peer = policy::holders(group_, to),
                                   .send = 1,
                                   .stored = 1,
                                   .first_block = command.first_block,
                                   .owner = command.owner});
    }
    return obey(protocol::MoveKv{.key = command.key,
                                 .peer = policy::holders(group_, command.owner),
                                 .blocks = command.blocks,
                                 .owner = to});
  }
  if (!has(to)) {
    under_way_[command.key] = {};
    return;
  }
  UnderWay& under_way = begin(command.key, KvPoolUse::restored, command.blocks.size());
  if (store_ != nullptr)
    under_way.stored = store_->get(command.key, command.first_block, places(command.blocks));
}

void KvShare::obey(const protocol::DropKv& command) {
  if (store_ == nullptr) return;
  for (const std::uint64_t key : command.keys) store_->drop(key);
}

void KvShare::obey(const protocol::ForeseeKv& command) {
  if (store_ != nullptr) store_->need(command.keys);
}

// ---- Progress of transfers and store operations.

void KvShare::go_on(UnderWay& under_way) {
  if (!under_way.stored || under_way.held) return;
  const std::optional<bool> ended = store_->ended(*under_way.stored);
  if (!ended) return;
  under_way.failed = !*ended;
  if (*ended && under_way.waits) {
    under_way.held = true;
    const std::vector<std::span<std::byte>> blocks = store_->held(*under_way.stored);
    under_way.record.bytes = blocks.size() * memory_.shape.block_bytes();
    exchange(*under_way.waits, blocks, under_way);
    return;
  }
  if (under_way.waits) refuse(*under_way.waits);
  under_way.stored.reset();
  record(under_way, *ended);
}

void KvShare::record(UnderWay& under_way, bool complete) {
  KvPoolRecord& record = under_way.record;
  record.duration = recorder_.now() - record.start;
  if (record.use == KvPoolUse::stored) storing_seconds_ += record.duration;
  if (record.use == KvPoolUse::restored) restoring_seconds_ += record.duration;
  if (recorder_.telemetry == nullptr) return;
  const std::size_t block = memory_.shape.block_bytes();
  record.memory_bytes = store_->counts().in_memory * block;
  record.disk_bytes = store_->counts().on_disk * block;
  record.complete = complete ? 1 : 0;
  recorder_.telemetry->pool(record);
}

void KvShare::account(RankSummary& summary) const {
  if (store_ == nullptr) return;
  const kv::StoreCounts& counts = store_->counts();
  const std::size_t block = memory_.shape.block_bytes();
  summary.pool_stored_bytes += counts.put * block;
  summary.pool_memory_bytes += counts.from_memory * block;
  summary.pool_foreseen_bytes += counts.foreseen * block;
  summary.pool_disk_bytes += counts.from_disk * block;
  summary.pool_down_bytes += counts.went_down * block;
  summary.pool_up_bytes += counts.came_up * block;
  summary.pool_most_memory = std::max(summary.pool_most_memory, counts.most_in_memory * block);
  summary.pool_most_disk = std::max(summary.pool_most_disk, counts.most_on_disk * block);
  if (index_ == 0) summary.pool_lost += counts.lost;  // once for all parts of the same KV
  summary.pool_damaged += counts.damaged;
  summary.pool_storing_seconds += storing_seconds_;
  summary.pool_restoring_seconds += restoring_seconds_;
}

/// Returns nothing while the command is in flight, and afterwards whether it is complete.
std::optional<bool> KvShare::ended(UnderWay& under_way) {
  go_on(under_way);
  if (under_way.stored && !under_way.held) return std::nullopt;
  for (const Part& part : under_way.parts) {
    if (transport_.state(part.ticket) == TransferState::pending) return std::nullopt;
  }
  bool complete = !under_way.failed;
  for (Part& part : under_way.parts) {
    const bool done = transport_.state(part.ticket) == TransferState::done;
    part.record.duration = transport_.seconds(part.ticket);
    part.record.complete = done ? 1 : 0;
    if (recorder_.telemetry != nullptr) recorder_.telemetry->transfer(part.record);
    complete = complete && done;
  }
  if (under_way.held) {
    store_->let_go(*under_way.stored);
    record(under_way, complete);
  }
  return complete;
}

std::optional<bool> KvShare::ended(std::uint64_t key) {
  const auto at = under_way_.find(key);
  if (at == under_way_.end()) throw std::logic_error("no KV command with this key is in flight");
  const std::optional<bool> complete = ended(at->second);
  if (complete) under_way_.erase(at);
  return complete;
}

std::vector<protocol::KvMoved> KvShare::take_ended() {
  if (store_ != nullptr) store_->settle();
  std::vector<protocol::KvMoved> moved;
  for (auto at = under_way_.begin(); at != under_way_.end();) {
    const auto now = at++;
    const std::optional<bool> complete = ended(now->second);
    if (!complete) continue;
    moved.push_back({now->first, *complete ? 1 : 0});
    under_way_.erase(now);
  }
  return moved;
}

}  // namespace paceline::roles
