// A rank's part of the KV pool (Seer 4.2): KV of requests that wait for their next chunk, in two
// tiers. What is put comes into host memory. Where that is short, what is needed last goes down to
// a local disk, and comes up again before it is needed. Bookkeeping and decisions only: a
// TierDevice moves the bytes.
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

/// In blocks: the rank's shares of them.
struct StoreSize {
  std::int32_t memory = 0;
  std::int32_t disk = 0;     ///< 0: no disk
  std::int32_t at_once = 1;  ///< moved by one job
};

/// In blocks, since the store was made, but for the first two, which are now.
struct StoreCounts {
  std::uint64_t in_memory = 0;
  std::uint64_t on_disk = 0;  ///< those that are in memory too included
  std::uint64_t most_in_memory = 0;
  std::uint64_t most_on_disk = 0;
  std::uint64_t put = 0;          ///< stored
  std::uint64_t from_memory = 0;  ///< taken out of memory, to this rank or others
  std::uint64_t from_disk = 0;    ///< and out of the disk
  std::uint64_t foreseen = 0;     ///< of those from memory, that had come up before
  std::uint64_t went_down = 0;
  std::uint64_t came_up = 0;  ///< before they were wanted
  std::uint64_t damaged = 0;  ///< that did not hold what they must
  std::uint64_t lost = 0;     ///< keys, not blocks: there was no room in either tier
};

/// The blocks of a key are those of a request's table, from its first on. Each has a checksum,
/// which is made when the block is put and looked at when it is taken: a block that is torn, or
/// holds something else, ends the entry before it. Whatever goes wrong with a disk costs entries
/// and one warning, no more. Not thread-safe.
class Store {
 public:
  using Key = std::uint64_t;
  /// Something under way. Never used twice.
  using Ticket = std::uint64_t;

  /// `warn`: for the user. `device` outlives this.
  Store(TierDevice& device, const StoreSize& size, std::function<void(const std::string&)> warn);

  /// Stores blocks, `first` of the request's table and those that follow it. What was stored from
  /// there on is replaced. What lacks room waits for it: what is needed later goes first, down and,
  /// where the disk is full too, for good. Where it is itself needed last of all, or where blocks
  /// before `first` are not there, it fails, and nothing is stored under the key. The blocks stay
  /// as they are until it has ended.
  [[nodiscard]] Ticket put(Key key, std::int32_t first, std::vector<std::byte*> blocks);
  /// Copies stored blocks to elsewhere. Fails where they are not there, or are damaged: what the
  /// places hold is undefined then.
  [[nodiscard]] Ticket get(Key key, std::int32_t first, std::vector<std::byte*> blocks);
  /// Brings all that was put from `first` on into memory, and keeps it there until let_go(). Fails
  /// as get() does.
  [[nodiscard]] Ticket hold(Key key, std::int32_t first);

  /// Whether it has ended, and has not failed. The ticket is forgotten then, but that of a hold()
  /// that has not failed.
  [[nodiscard]] std::optional<bool> ended(Ticket ticket);
  /// The blocks, in their order.
  [[nodiscard]] std::vector<std::span<std::byte>> held(Ticket hold) const;
  void let_go(Ticket hold);

  /// Nothing is stored under the key any more. What is under way with it fails; what is held stays
  /// until it is let go.
  void drop(Key key);
  /// Keys are needed in this order, and all others later, those put last the latest. The first come
  /// up as far as there is room.
  void need(std::span<const Key> keys);

  /// Learns what has ended, and starts what follows: to be called whenever the device wakes.
  void settle();
  [[nodiscard]] bool has(Key key) const { return by_key_.contains(key); }
  [[nodiscard]] const StoreCounts& counts() const { return counts_; }
  [[nodiscard]] TierDevice& device() { return device_; }

 private:
  struct Block {
    std::int32_t unit = -1;
    std::int32_t slot = -1;
    std::uint64_t sum = 0;
    std::int32_t readers = 0;  ///< jobs
    bool filling = false;      ///< a job writes the unit
    bool came_up = false;      ///< and nobody has taken it since
    [[nodiscard]] bool idle() const { return readers == 0 && !filling; }
  };
  struct Entry {
    Key key = 0;
    std::uint64_t serial = 0;
    std::uint64_t order = 0;    ///< place in by_order_: the smaller, the sooner it is needed
    std::vector<Block> blocks;  ///< of the request's table
    std::int32_t size = 0;      ///< blocks there are, or were before some were damaged
    std::int32_t valid = 0;     ///< those from there on go as soon as nothing uses them
    int users = 0;              ///< gets, and holds that have not been let go
    int holds = 0;              ///< of them, complete holds
    bool putting = false;
    bool listed = true;  ///< false: dropped or lost
  };
  using EntryRef = std::shared_ptr<Entry>;
  enum class Kind : std::uint8_t { put, get, hold };
  struct Operation {
    Kind kind{};
    EntryRef entry;
    std::int32_t first = 0;
    std::int32_t count = 0;
    std::int32_t next = 0;            ///< blocks that a job has, or that need none
    std::vector<std::byte*> outside;  ///< [count] but of a hold
    int jobs = 0;                     ///< under way
    bool begun = false;               ///< a hold: one begins after the other
    bool failed = false;
    bool over = false;
  };
  struct Job {
    EntryRef entry;
    std::vector<std::int32_t> index;  ///< of the blocks in the entry
    Ticket ticket = 0;                ///< 0: of no operation
  };

  Ticket begin(Operation operation);
  void advance();
  [[nodiscard]] std::int32_t start(Ticket ticket, Operation& operation);
  [[nodiscard]] std::int32_t start_put(Ticket ticket, Operation& operation);
  void start_get(Ticket ticket, Operation& operation);
  [[nodiscard]] std::int32_t start_hold(Ticket ticket, Operation& operation);
  void conclude(Operation& operation);
  void fail(Operation& operation);

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
  std::int32_t reserve_;  ///< units that are to be free
  std::function<void(const std::string&)> warn_;
  FreeRanges units_, slots_;
  std::unordered_map<Key, EntryRef> by_key_;
  std::map<std::uint64_t, EntryRef> by_order_;
  std::unordered_map<Key, std::uint64_t> needed_;  ///< by place in need()'s list
  std::map<Ticket, Operation> operations_;
  std::map<std::uint64_t, Job> jobs_;  ///< by id
  Ticket next_ticket_ = 1;
  std::uint64_t next_job_ = 1, next_serial_ = 0;
  std::int32_t going_down_ = 0;  ///< units
  int down_jobs_ = 0, up_jobs_ = 0;
  StoreCounts counts_;
  bool told_damage_ = false, told_write_ = false, told_read_ = false, told_lost_ = false;
};

}  // namespace paceline::kv
