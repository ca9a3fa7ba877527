// A store's operations, jobs and entries. store_tiers.cpp moves KV between memory and disk.
#include "runtime/kv/store.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace paceline::kv {
namespace {

/// If there is a disk, 1 / kReserveShare of memory is kept free, so that a put finds room at once
/// while other KV is being written to disk.
constexpr std::int32_t kReserveShare = 8;

}  // namespace

Store::Store(TierDevice& device, const StoreSize& size,
             std::function<void(const std::string&)> warn)
    : device_(device),
      size_(size),
      reserve_(size.disk > 0 ? size.memory / kReserveShare : 0),
      warn_(std::move(warn)),
      units_(size.memory),
      slots_(size.disk) {}

// ---- Requests of the caller.

Store::Ticket Store::put(Key key, std::int32_t first, std::vector<std::byte*> blocks) {
  EntryRef entry = listed(key);
  const bool fits = entry != nullptr ? first <= entry->valid : first == 0;
  if (entry == nullptr) {
    entry = std::make_shared<Entry>();
    entry->key = key;
    list(entry);
  }
  if (entry->putting) throw std::logic_error("KV is put twice at a time under one key");
  entry->putting = true;
  if (fits) cut(*entry, first);
  const auto count = static_cast<std::int32_t>(blocks.size());
  entry->size = first + count;
  return begin({.kind = Kind::put,
                .entry = std::move(entry),
                .first = first,
                .count = count,
                .outside = std::move(blocks),
                .failed = !fits});
}

Store::Ticket Store::get(Key key, std::int32_t first, std::vector<std::byte*> blocks) {
  const auto count = static_cast<std::int32_t>(blocks.size());
  return begin({.kind = Kind::get,
                .entry = listed(key),
                .first = first,
                .count = count,
                .outside = std::move(blocks)});
}

Store::Ticket Store::hold(Key key, std::int32_t first) {
  EntryRef entry = listed(key);
  const std::int32_t count = entry != nullptr ? entry->size - first : 0;
  return begin({.kind = Kind::hold,
                .entry = std::move(entry),
                .first = first,
                .count = count,
                .outside = {}});
}

Store::Ticket Store::begin(Operation operation) {
  if (operation.entry == nullptr) {
    operation.failed = true;
  } else if (operation.kind != Kind::put) {
    if (operation.kind == Kind::get) ++operation.entry->users;
    if (operation.first < 0 || operation.first + operation.count > operation.entry->valid ||
        operation.count < 0 || operation.entry->putting)
      operation.failed = true;
  }
  const Ticket ticket = next_ticket_++;
  operations_.emplace(ticket, std::move(operation));
  advance();
  return ticket;
}

std::optional<bool> Store::ended(Ticket ticket) {
  const auto at = operations_.find(ticket);
  if (at == operations_.end()) throw std::logic_error("a store's ticket that there is not");
  const Operation& operation = at->second;
  if (!operation.over) return std::nullopt;
  const bool done = !operation.failed;
  if (!done || operation.kind != Kind::hold) operations_.erase(at);
  return done;
}

std::vector<std::span<std::byte>> Store::held(Ticket hold) const {
  const Operation& operation = operations_.at(hold);
  std::vector<std::span<std::byte>> blocks;
  for (std::int32_t i = 0; i < operation.count; ++i)
    blocks.push_back(device_.unit(operation.entry->blocks[operation.first + i].unit));
  return blocks;
}

void Store::let_go(Ticket hold) {
  const auto at = operations_.find(hold);
  if (at == operations_.end() || !at->second.over || at->second.failed)
    throw std::logic_error("stored KV is let go that is not held");
  Entry& entry = *at->second.entry;
  --entry.users;
  --entry.holds;
  trim(entry);
  operations_.erase(at);
  advance();
}

void Store::drop(Key key) {
  const EntryRef entry = listed(key);
  if (entry == nullptr) return;
  unlist(entry);
  advance();
}

void Store::need(std::span<const Key> keys) {
  needed_.clear();
  for (const Key key : keys) needed_.try_emplace(key, needed_.size());
  by_order_.clear();
  for (const auto& [key, entry] : by_key_) {
    entry->order = order_of(*entry);
    by_order_.emplace(entry->order, entry);
  }
  advance();
}

// ---- Progress of operations.

void Store::settle() {
  bool any = false;
  while (std::optional<TierJob> job = device_.ended()) {
    job_ended(std::move(*job));
    any = true;
  }
  if (any) advance();
}

void Store::advance() {
  for (;;) {
    // Holds begin one at a time. Two holds that each had a part of the room could block each other.
    bool holding = false;
    std::int32_t lacking = 0;
    std::uint64_t soonest = UINT64_MAX;  // least order of entries that lack room; 0 for a hold
    for (auto& [ticket, operation] : operations_) {
      const bool hold = operation.kind == Kind::hold;
      if (operation.over || (hold && holding)) continue;
      const std::int32_t units = start(ticket, operation);
      lacking += units;
      if (units > 0) soonest = std::min(soonest, hold ? 0 : operation.entry->order);
      holding = holding || (hold && !operation.over);
    }
    if (lacking == 0) break;
    if (make_room(lacking - going_down_, soonest) > 0) continue;
    if (going_down_ > 0) break;                // jobs under way will make room
    if (goes_down() && !jobs_.empty()) break;  // blocks that are being put can go down later
    if (make_room(lacking, 0) > 0) continue;
    if (going_down_ > 0) break;
    if (!goes_down()) {
      if (free_copies()) continue;
      const EntryRef lost = lose_last();
      if (lost != nullptr && lost->blocks.empty()) continue;
      if (lost != nullptr) break;  // its units become free when its jobs end
    }
    if (!fail_stuck()) break;
  }
  keep_reserve();
  bring_up();
  device_.trim(units_.end());
  counts_.in_memory = units_.used();
  counts_.on_disk = slots_.used();
  counts_.most_in_memory = std::max(counts_.most_in_memory, counts_.in_memory);
  counts_.most_on_disk = std::max(counts_.most_on_disk, counts_.on_disk);
}

/// Starts an operation's jobs as far as there is room. Returns the number of units still lacking.
std::int32_t Store::start(Ticket ticket, Operation& operation) {
  std::int32_t lacking = 0;
  if (operation.entry != nullptr && !operation.entry->listed) operation.failed = true;
  if (!operation.failed) {
    if (operation.kind == Kind::put) {
      lacking = start_put(ticket, operation);
    } else if (operation.first + operation.count > operation.entry->valid) {
      operation.failed = true;  // some of the blocks were damaged or replaced
    } else if (operation.kind == Kind::get) {
      start_get(ticket, operation);
    } else {
      lacking = start_hold(ticket, operation);
    }
  }
  conclude(operation);
  return lacking;
}

std::int32_t Store::start_put(Ticket ticket, Operation& operation) {
  Entry& entry = *operation.entry;
  if (entry.valid < operation.first + operation.next) {  // one of the entry's blocks was damaged
    operation.failed = true;
    return 0;
  }
  if (static_cast<std::int32_t>(entry.blocks.size()) > entry.valid)
    return 0;  // the blocks to be replaced are still in use
  while (operation.next < operation.count) {
    const FreeRanges::Range range =
        units_.take(std::min(size_.at_once, operation.count - operation.next));
    if (range.count == 0) break;
    std::vector<std::int32_t> index;
    for (std::int32_t i = 0; i < range.count; ++i) {
      index.push_back(static_cast<std::int32_t>(entry.blocks.size()));
      entry.blocks.push_back({.unit = range.first + i, .filling = true});
    }
    entry.valid = static_cast<std::int32_t>(entry.blocks.size());
    run(TierJob::Kind::take_in, operation.entry, std::move(index), ticket,
        std::span(operation.outside).subspan(operation.next, range.count));
    operation.next += range.count;
  }
  return operation.count - operation.next;
}

void Store::start_get(Ticket ticket, Operation& operation) {
  const std::vector<Block>& blocks = operation.entry->blocks;
  while (operation.next < operation.count) {
    const std::int32_t first = operation.first + operation.next;
    const Block& begin = blocks[first];
    if (begin.filling) return;  // the block is coming up
    const bool from_memory = begin.unit >= 0;
    std::vector<std::int32_t> index;
    for (std::int32_t i = first; i < operation.first + operation.count; ++i) {
      const Block& block = blocks[i];
      const bool same =
          from_memory ? block.unit >= 0 : block.unit < 0 && block.slot == begin.slot + (i - first);
      if (block.filling || !same || i - first == size_.at_once) break;
      index.push_back(i);
    }
    const auto count = static_cast<std::int32_t>(index.size());
    run(from_memory ? TierJob::Kind::give_out : TierJob::Kind::give_out_disk, operation.entry,
        std::move(index), ticket, std::span(operation.outside).subspan(operation.next, count));
    operation.next += count;
  }
}

std::int32_t Store::start_hold(Ticket ticket, Operation& operation) {
  if (!std::exchange(operation.begun, true)) ++operation.entry->users;
  std::vector<Block>& blocks = operation.entry->blocks;
  while (operation.next < operation.count) {
    const std::int32_t first = operation.first + operation.next;
    const std::int32_t end = operation.first + operation.count;
    if (blocks[first].filling) return 0;  // the block is coming up
    std::vector<std::int32_t> index;
    if (blocks[first].unit >= 0) {
      for (std::int32_t i = first; i < std::min(end, first + size_.at_once); ++i) {
        if (blocks[i].unit < 0 || blocks[i].filling) break;
        index.push_back(i);
      }
      operation.next += static_cast<std::int32_t>(index.size());
      run(TierJob::Kind::check, operation.entry, std::move(index), ticket);
      continue;
    }
    for (std::int32_t i = first; i < std::min(end, first + size_.at_once); ++i) {
      if (blocks[i].unit >= 0 || blocks[i].slot != blocks[first].slot + (i - first)) break;
      const FreeRanges::Range range = units_.take(1);
      if (range.count == 0) break;
      blocks[i].unit = range.first;
      blocks[i].filling = true;
      index.push_back(i);
    }
    if (index.empty()) {
      return static_cast<std::int32_t>(
          std::count_if(blocks.begin() + first, blocks.begin() + end,
                        [](const Block& block) { return block.unit < 0; }));
    }
    operation.next += static_cast<std::int32_t>(index.size());
    run(TierJob::Kind::come_up, operation.entry, std::move(index), ticket);
  }
  return 0;
}

void Store::conclude(Operation& operation) {
  if (operation.over || operation.jobs > 0) return;
  if (!operation.failed && operation.next < operation.count) return;
  operation.over = true;
  if (operation.entry == nullptr) return;
  Entry& entry = *operation.entry;
  if (operation.first + operation.count > entry.valid)
    operation.failed = true;  // some of the blocks were damaged or dropped meanwhile
  if (operation.kind == Kind::put) {
    entry.putting = false;
    if (operation.failed) {
      unlist(operation.entry);
    } else {
      counts_.put += operation.count;
    }
  } else if (operation.kind == Kind::hold && !operation.failed) {
    ++entry.holds;
  } else if (operation.kind == Kind::get || operation.begun) {
    --entry.users;
  }
  trim(entry);
}

// ---- Jobs.

void Store::run(TierJob::Kind kind, const EntryRef& entry, std::vector<std::int32_t> index,
                Ticket ticket, std::span<std::byte* const> outside,
                std::optional<std::int32_t> slot) {
  TierJob job;
  job.id = next_job_++;
  job.kind = kind;
  for (std::size_t i = 0; i < index.size(); ++i) {
    Block& block = entry->blocks[index[i]];
    if (!block.filling) ++block.readers;
    job.blocks.push_back({.unit = block.unit,
                          .slot = slot ? *slot + static_cast<std::int32_t>(i) : block.slot,
                          .outside = outside.empty() ? nullptr : outside[i],
                          .sum = block.sum});
  }
  if (ticket != 0) ++operations_.at(ticket).jobs;
  jobs_.emplace(job.id, Job{entry, std::move(index), ticket});
  device_.start(std::move(job));
}

void Store::job_ended(TierJob job) {
  const Job known = std::move(jobs_.extract(job.id).mapped());
  Entry& entry = *known.entry;
  const auto count = static_cast<std::int32_t>(job.blocks.size());
  const bool down = job.kind == TierJob::Kind::go_down;
  if (down) {
    going_down_ -= count;
    --down_jobs_;
  } else if (job.kind == TierJob::Kind::come_up && known.ticket == 0) {
    --up_jobs_;
  }
  std::int32_t good = entry.valid;
  for (std::int32_t i = 0; i < count; ++i) {
    Block& block = entry.blocks[known.index[i]];
    block_ended(job, job.blocks[i], entry, block);
    if (job.kind == TierJob::Kind::come_up && known.ticket != 0 && job.blocks[i].good) {
      block.came_up = false;  // it came up because the hold asked for it, not ahead of need
      --counts_.came_up;
      ++counts_.from_disk;
    }
    if (!job.blocks[i].good) good = std::min(good, known.index[i]);
  }
  if (!job.failure.empty()) {
    if (down) slots_.drop_free();  // slots that are free now are given up, slots in use are kept
    warn_once(down ? told_write_ : told_read_,
              job.failure + (down ? "; the file grows no more, and KV that fits neither in it nor "
                                    "in kv_pool.memory is dropped and computed again"
                                  : "; the KV is computed again"));
  }
  if (known.ticket != 0) {
    Operation& operation = operations_.at(known.ticket);
    --operation.jobs;
    if (good < entry.valid) operation.failed = true;
  }
  if (good < entry.valid) cut(entry, good);
  trim(entry);
  if (known.ticket != 0) conclude(operations_.at(known.ticket));
}

void Store::block_ended(const TierJob& job, const TierJob::Block& done, Entry& entry,
                        Block& block) {
  using enum TierJob::Kind;
  switch (job.kind) {
    case take_in:
      block.filling = false;
      block.sum = done.sum;
      return;
    case come_up:
      block.filling = false;
      block.came_up = done.good;
      if (done.good) ++counts_.came_up;
      break;
    case go_down:
      --block.readers;
      block.slot = done.slot;
      if (!job.failure.empty()) {
        free_slot(block);
      } else {
        ++counts_.went_down;
        if (block.idle() && entry.users == 0) free_unit(block);
      }
      return;
    case give_out:
    case check:
      --block.readers;
      if (done.good) ++counts_.from_memory;
      if (std::exchange(block.came_up, false) && done.good) ++counts_.foreseen;
      break;
    case give_out_disk:
      --block.readers;
      if (done.good) ++counts_.from_disk;
      break;
  }
  if (done.good) return;
  if (job.kind == come_up) free_unit(block);
  if (!job.failure.empty()) return;
  ++counts_.damaged;
  warn_once(told_damage_, "stored KV is damaged (its checksum differs); it is computed again");
}

// ---- Entries.

Store::EntryRef Store::listed(Key key) const {
  const auto at = by_key_.find(key);
  return at != by_key_.end() ? at->second : nullptr;
}

std::uint64_t Store::order_of(const Entry& entry) const {
  const auto at = needed_.find(entry.key);
  return at != needed_.end() ? at->second : kUnforeseen + entry.serial;
}

void Store::list(const EntryRef& entry) {
  entry->serial = next_serial_++;
  entry->order = order_of(*entry);
  by_key_.emplace(entry->key, entry);
  by_order_.emplace(entry->order, entry);
}

/// Drops an entry. Its blocks are freed as soon as nothing uses them. Operations that are under way
/// on the entry fail.
void Store::unlist(const EntryRef& entry) {
  if (!std::exchange(entry->listed, false)) return;
  by_key_.erase(entry->key);
  by_order_.erase(entry->order);
  cut(*entry, 0);
}

void Store::cut(Entry& entry, std::int32_t blocks) {
  entry.valid = std::min(entry.valid, blocks);
  trim(entry);
}

void Store::trim(Entry& entry) {
  if (entry.holds > 0) return;
  while (static_cast<std::int32_t>(entry.blocks.size()) > entry.valid &&
         entry.blocks.back().idle()) {
    free_unit(entry.blocks.back());
    free_slot(entry.blocks.back());
    entry.blocks.pop_back();
  }
}

void Store::free_unit(Block& block) {
  if (block.unit >= 0) units_.give(block.unit);
  block.unit = -1;
  block.came_up = false;
}

void Store::free_slot(Block& block) {
  if (block.slot >= 0) slots_.give(block.slot);
  block.slot = -1;
}

void Store::warn_once(bool& told, const std::string& text) {
  if (!std::exchange(told, true)) warn_(text);
}

}  // namespace paceline::kv
