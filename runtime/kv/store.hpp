// A rank's part of the KV pool (Seer, section 4.2): the KV of requests that wait for their next
// lease or turn. The store has two tiers: host memory and an optional local disk. KV is first put
// into memory. If memory is short, the KV that will be needed last goes down to disk. It comes up
// again before it is needed, if there is room. A TierDevice moves the bytes, in jobs that the store
// starts. A unit is a block's place in memory, a slot its place on disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/kv/free_ranges.hpp"
#include "runtime/kv/tier_device.hpp"

namespace paceline::kv {

/// Sizes of a rank's tiers, in KV blocks, or in the rank's parts of blocks that ranks split.
struct StoreSize {
  std::int32_t memory = 0;
  std::int32_t disk = 0;     ///< 0: no disk
  std::int32_t at_once = 1;  ///< greatest number of blocks in one job
};

/// Numbers of blocks: present numbers in `in_memory` and `on_disk`, maxima or totals so far in the
/// other fields.
struct StoreCounts {
  std::uint64_t in_memory = 0;
  std::uint64_t on_disk = 0;  ///< including blocks that are also in memory
  std::uint64_t most_in_memory = 0;
  std::uint64_t most_on_disk = 0;
  std::uint64_t put = 0;          ///< blocks of successful puts
  std::uint64_t from_memory = 0;  ///< blocks that gets and holds found in memory
  std::uint64_t from_disk = 0;    ///< blocks that gets and holds read from disk
  std::uint64_t foreseen = 0;     ///< blocks in from_memory that had come up ahead of need
  std::uint64_t went_down = 0;    ///< blocks written to disk
  std::uint64_t came_up = 0;      ///< blocks read from disk ahead of need
  std::uint64_t damaged = 0;      ///< blocks found damaged
  std::uint64_t lost = 0;         ///< number of keys, not blocks, that were dropped to make room
};

/// Stores KV by key. A key's entry has the blocks of one request, in the order of the request's
/// block table. A block's checksum is made by put, and compared by get, by hold and when the block
/// comes up from disk. If a block is damaged, its entry loses it and all blocks after it. If the
/// disk fails, only stored KV is lost, and the user is warned of the first failed write and read.
/// Not thread-safe.
class Store {
 public:
  using Key = std::uint64_t;
  /// Names an operation: a put, get or hold. No ticket is used twice.
  using Ticket = std::uint64_t;

  /// `warn`: shows a message to the user. `device` must outlive the store.
  Store(TierDevice& device, const StoreSize& size, std::function<void(const std::string&)> warn);

  /// Stores `blocks` as the blocks of the request's table from index `first` on. They replace all
  /// blocks stored from this index on. If there is no room, the put waits until the KV that is
  /// needed last has gone down to disk or, if the disk is full too, is dropped. The put fails if
  /// its own KV would have to be dropped, or if blocks before `first` are missing. Nothing is then
  /// stored under the key. The caller must not change the blocks until the put has ended.
  [[nodiscard]] Ticket put(Key key, std::int32_t first, std::vector<std::byte*> blocks);
  /// Copies stored blocks from index `first` on to `blocks`. Fails if some of them are missing or
  /// damaged, or if a put under the key has not ended. The contents of `blocks` are then undefined.
  [[nodiscard]] Ticket get(Key key, std::int32_t first, std::vector<std::byte*> blocks);
  /// Brings all stored blocks from `first` on into memory, and keeps them there until let_go().
  /// Fails as get() does, or if memory has no room for them.
  [[nodiscard]] Ticket hold(Key key, std::int32_t first);

  /// Returns whether an operation succeeded, or nothing while it is under way. A ticket is invalid
  /// after its result was returned, but a successful hold's ticket stays valid until let_go().
  [[nodiscard]] std::optional<bool> ended(Ticket ticket);
  /// The memory of the blocks of a successful hold(), in their order.
  [[nodiscard]] std::vector<std::span<std::byte>> held(Ticket hold) const;
  void let_go(Ticket hold);

  /// Drops the KV of a key. Operations under way on this KV fail. Held blocks stay until let_go().
  void drop(Key key);
  /// Sets the order in which keys will be needed. Keys that are not in the list come after it, in
  /// the order in which their entries were made. As far as there is room, KV of the first keys in
  /// the list is read from disk into memory.
  void need(std::span<const Key> keys);

  /// Handles the jobs that have ended, and starts the next ones. To be called whenever the device
  /// wakes the caller.
  void settle();
  [[nodiscard]] bool has(Key key) const { return by_key_.contains(key); }
  [[nodiscard]] const StoreCounts& counts() const { return counts_; }
  [[nodiscard]] TierDevice& device() { return device_; }

 private:
  /// Least Entry::order of keys that are not in need()'s list: they come after all keys in it.
  static constexpr std::uint64_t kUnforeseen = std::uint64_t{1} << 63;

  struct Block {
    std::int32_t unit = -1;    ///< -1: not in memory
    std::int32_t slot = -1;    ///< -1: not on disk
    std::uint64_t sum = 0;     ///< checksum
    std::int32_t readers = 0;  ///< number of jobs under way that read the block
    bool filling = false;      ///< a job under way writes the unit
    bool came_up = false;      ///< brought up ahead of need, and not read since
    [[nodiscard]] bool idle() const { return readers == 0 && !filling; }
  };
  struct Entry {
    Key key = 0;
    std::uint64_t serial = 0;
    std::uint64_t order = 0;    ///< key in by_order_; entries of lower order are needed earlier
    std::vector<Block> blocks;  ///< blocks of the request's table
    std::int32_t size = 0;      ///< number of blocks put or being put, damaged ones included
    std::int32_t valid = 0;     ///< number of leading valid blocks; others are freed when unused
    int users = 0;              ///< number of gets under way and of holds begun but not let go
    int holds = 0;              ///< number of successful holds among the users
    bool putting = false;
    bool listed = true;  ///< false: no longer found by its key
  };
  using EntryRef = std::shared_ptr<Entry>;
  enum class Kind : std::uint8_t { put, get, hold };
  struct Operation {
    Kind kind{};
    EntryRef entry;
    std::int32_t first = 0;
    std::int32_t count = 0;
    std::int32_t next = 0;            ///< number of the operation's blocks that were given to jobs
    std::vector<std::byte*> outside;  ///< [count] the caller's blocks; empty for a hold
    int jobs = 0;                     ///< number of the operation's jobs under way
    bool begun = false;               ///< a hold has begun, and its entry counts it as a user
    bool failed = false;
    bool over = false;
  };
  struct Job {
    EntryRef entry;
    std::vector<std::int32_t> index;  ///< indices of the job's blocks in the entry
    Ticket ticket = 0;                ///< ticket of the job's operation; 0: none
  };

  Ticket begin(Operation operation);
  void advance();
  [[nodiscard]] std::int32_t start(Ticket ticket, Operation& operation);
  [[nodiscard]] std::int32_t start_put(Ticket ticket, Operation& operation);
  void start_get(Ticket ticket, Operation& operation);
  [[nodiscard]] std::int32_t start_hold(Ticket ticket, Operation& operation);
  void conclude(Operation& operation);

  void run(TierJob::Kind kind, const EntryRef& entry, std::vector<std::int32_t> index,
           Ticket ticket, std::span<std::byte* const> outside = {},
           std::optional<std::int32_t> slot = {});
  void job_ended(TierJob job);
  void block_ended(const TierJob& job, const TierJob::Block& done, Entry& entry, Block& block);

  [[nodiscard]] bool goes_down() const { return slots_.free() > 0; }
  std::int32_t make_room(std::int32_t units, std::uint64_t after);
  std::int32_t make_room_of(const EntryRef& entry, std::int32_t units);
  [[nodiscard]] bool free_copies();
  EntryRef lose_last();
  [[nodiscard]] bool fail_stuck();
  void keep_reserve();
  void bring_up();

  EntryRef listed(Key key) const;
  void list(const EntryRef& entry);
  [[nodiscard]] std::uint64_t order_of(const Entry& entry) const;
  void unlist(const EntryRef& entry);
  void cut(Entry& entry, std::int32_t blocks);
  void trim(Entry& entry);
  void free_unit(Block& block);
  void free_slot(Block& block);
  void warn_once(bool& told, const std::string& text);

  TierDevice& device_;
  StoreSize size_;
  std::int32_t reserve_;  ///< number of units to be kept free
  std::function<void(const std::string&)> warn_;
  FreeRanges units_, slots_;
  std::unordered_map<Key, EntryRef> by_key_;
  std::map<std::uint64_t, EntryRef> by_order_;
  std::unordered_map<Key, std::uint64_t> needed_;  ///< each key's index in need()'s list
  std::map<Ticket, Operation> operations_;
  std::map<std::uint64_t, Job> jobs_;  ///< by id
  Ticket next_ticket_ = 1;
  std::uint64_t next_job_ = 1, next_serial_ = 0;
  std::int32_t going_down_ = 0;  ///< number of blocks that jobs under way write to disk
  int down_jobs_ = 0, up_jobs_ = 0;
  StoreCounts counts_;
  bool told_damage_ = false, told_write_ = false, told_read_ = false, told_lost_ = false;
};

}  // namespace paceline::kv
