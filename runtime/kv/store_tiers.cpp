// How a store chooses the KV that goes down to disk, comes up again, or is lost for lack of room.
#include <algorithm>
#include <utility>

#include "runtime/kv/store.hpp"

namespace paceline::kv {
namespace {

/// Limit on the number of jobs under way that write to disk, and also on the number that read from
/// it ahead of need. A get from disk has to wait for these jobs, so they should be few. But the
/// store queues no job during a step of this rank, so the queued jobs must keep the disk busy until
/// the step ends. On a loaded machine, 2 jobs used 60 % of the disk's bandwidth, and 4 all of it.
constexpr int kMostAhead = 4;

}  // namespace

/// Frees up to `units` units of entries without users, from the greatest order down to `after`: at
/// once if the block is on disk too, else after a write to disk. Returns the number freed at once.
std::int32_t Store::make_room(std::int32_t units, std::uint64_t after) {
  const std::int32_t before = units_.free();
  for (auto at = by_order_.rbegin(); at != by_order_.rend() && units > 0; ++at) {
    if (at->first < after) break;
    const EntryRef& entry = at->second;
    if (entry->users == 0) units -= make_room_of(entry, units);
  }
  return units_.free() - before;
}

/// Frees up to `units` units of one entry, from its last block backwards. Returns the number of
/// units that were freed, are being freed, or can be freed soon.
std::int32_t Store::make_room_of(const EntryRef& entry, std::int32_t units) {
  std::vector<Block>& blocks = entry->blocks;
  std::int32_t made = 0;
  auto end = static_cast<std::int32_t>(blocks.size());
  while (end > 0 && made < units) {
    Block& last = blocks[end - 1];
    if (last.unit < 0 || !last.idle()) {
      if (last.filling && entry->putting) ++made;  // the block can go down when it has been put
      --end;
    } else if (last.slot >= 0) {
      free_unit(last);
      ++made;
      --end;
    } else {
      if (down_jobs_ == kMostAhead || !goes_down()) break;
      std::int32_t first = end - 1;
      const std::int32_t most = std::min(size_.at_once, units - made);
      while (first > 0 && end - first < most && blocks[first - 1].unit >= 0 &&
             blocks[first - 1].idle() && blocks[first - 1].slot < 0)
        --first;
      const FreeRanges::Range slots = slots_.take(end - first);
      std::vector<std::int32_t> index;
      for (std::int32_t i = end - slots.count; i < end; ++i) index.push_back(i);
      end -= slots.count;
      made += slots.count;
      going_down_ += slots.count;
      ++down_jobs_;
      run(TierJob::Kind::go_down, entry, std::move(index), 0, {}, slots.first);
    }
  }
  return made;
}

/// Frees the slots of blocks that are also in memory. Returns whether any slot was freed.
bool Store::free_copies() {
  bool any = false;
  for (const auto& [order, entry] : by_order_) {
    for (Block& block : entry->blocks) {
      if (block.unit < 0 || block.slot < 0 || !block.idle()) continue;
      free_slot(block);
      any = true;
    }
  }
  return any;
}

/// Drops the entry without users that is needed last. Returns it; null: all entries have users.
Store::EntryRef Store::lose_last() {
  for (auto at = by_order_.rbegin(); at != by_order_.rend(); ++at) {
    const EntryRef entry = at->second;
    if (entry->users > 0) continue;
    ++counts_.lost;
    // If writing to disk failed, the user has been warned already.
    if (!told_write_)
      warn_once(
          told_lost_,
          "the KV pool is too small for the KV of all waiting requests; KV that does not fit is "
          "computed again (raise kv_pool.memory or kv_pool.disk_size, or set kv_pool.disk)");
    unlist(entry);
    return entry;
  }
  return nullptr;
}

/// If no job is under way and no block is held, no more room can become free. Then the unfinished
/// operation that was asked for last fails. Returns whether an operation failed.
bool Store::fail_stuck() {
  if (!jobs_.empty()) return false;
  for (const auto& [ticket, operation] : operations_) {
    if (operation.over && operation.kind == Kind::hold && !operation.failed) return false;
  }
  for (auto at = operations_.rbegin(); at != operations_.rend(); ++at) {
    if (at->second.over || at->second.failed) continue;
    at->second.failed = true;
    conclude(at->second);
    return true;
  }
  return false;
}

void Store::keep_reserve() {
  if (goes_down()) make_room(reserve_ - units_.free() - going_down_, 0);
}

/// Brings up the first entries of need()'s list, as many as fit in memory outside the reserve.
void Store::bring_up() {
  std::int32_t room = size_.memory - reserve_;
  std::uint64_t last = 0;
  std::vector<EntryRef> wanted;
  for (const auto& [order, entry] : by_order_) {
    room -= static_cast<std::int32_t>(entry->blocks.size());
    if (order >= kUnforeseen || room < 0) break;
    last = order;
    wanted.push_back(entry);
  }
  for (const EntryRef& entry : wanted) {
    std::vector<Block>& blocks = entry->blocks;
    for (std::int32_t i = 0; i < entry->valid;) {
      if (blocks[i].unit >= 0 || !blocks[i].idle()) {
        ++i;
        continue;
      }
      if (up_jobs_ == kMostAhead) return;
      const std::int32_t free = units_.free() - reserve_;
      if (free <= 0) {
        make_room(size_.at_once - going_down_, last + 1);
        return;
      }
      std::vector<std::int32_t> index;
      const std::int32_t slot = blocks[i].slot - i;
      while (i < entry->valid && blocks[i].unit < 0 && blocks[i].idle() &&
             blocks[i].slot == slot + i &&
             static_cast<std::int32_t>(index.size()) < std::min(free, size_.at_once)) {
        blocks[i].unit = units_.take(1).first;
        blocks[i].filling = true;
        index.push_back(i++);
      }
      ++up_jobs_;
      run(TierJob::Kind::come_up, entry, std::move(index), 0);
    }
  }
}

}  // namespace paceline::kv
