// Where the KV of sequences lies in one pool of blocks. One manager for the target's sequences and
// for a draft model's. Bookkeeping only: the bytes are the backend's, and what has to be done to
// them comes out as work, which is done before the next forward pass.
//
// The n responses to a prompt share its blocks. The first to be opened computes them, the others
// wait for it and then fork: they share every block but the one that holds the prompt's last
// position, which they copy, because each runs that position again to sample from it. So no block
// that is shared is ever written.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/kv/block_pool.hpp"

namespace paceline::kv {

/// Names an open sequence. Small, and used again after close(): an index for tables of the
/// caller's.
using Handle = std::int32_t;

/// Entry `index` of a sequence's block table is `block` from now on. Whoever keeps a copy of the
/// tables applies these in their order, and needs nothing else to keep it true.
struct TableEdit {
  Handle sequence = 0;
  std::int32_t index = 0;
  std::int32_t block = 0;
};

/// What must be done before the next forward pass: edits to tables, then moves, then copies. A pool
/// that grows does so before all else, one that shrinks after it.
struct Work {
  std::vector<TableEdit> edits;
  std::vector<kernels::Backend::SlotMove> moves;
  std::vector<kernels::Backend::BlockCopy> copies;
  std::int32_t blocks = 0;  ///< in the pool from now on; 0: as many as before

  void clear() {
    edits.clear();
    moves.clear();
    copies.clear();
    blocks = 0;
  }
};

/// Blocks that no sequence names any more but whose bytes are still wanted: a sequence that left.
struct Parcel {
  std::vector<std::int32_t> blocks;  ///< [blocks_for(positions)]
  std::int32_t positions = 0;        ///< stored in them
};

/// Not thread-safe. Functions that take a handle throw std::logic_error where the sequence is not
/// in the state they need: a fault of the caller's.
class Sequences {
 public:
  /// `block`: positions a block.
  Sequences(std::int32_t blocks, std::int32_t block);

  /// Blocks that a sequence of so many positions needs, alone in the pool of blocks of `block`: one
  /// more than hold it, for the prompt's last block is given to its siblings.
  [[nodiscard]] static constexpr std::int32_t blocks_needed(std::int64_t positions,
                                                            std::int32_t block) {
    return blocks_for(positions, block) + 1;
  }

  /// A sequence that has room for `positions` positions, its prompt's included. Siblings give the
  /// same `prompt` and `prompt_length` (>= 1). Prompts that nobody uses make room. Nothing, and
  /// nothing changed, where the pool is too full.
  [[nodiscard]] std::optional<Handle> open(std::uint32_t prompt, std::int32_t prompt_length,
                                           std::int32_t positions);
  /// Room for `positions` positions in all, in an open sequence. False, and nothing changed, where
  /// the pool is too full.
  [[nodiscard]] bool reserve(Handle sequence, std::int32_t positions);
  /// Positions there is room for.
  [[nodiscard]] std::int32_t reserved(Handle sequence) const;
  /// Gives its blocks back and drops its pending moves. A sibling that waits goes on with what was
  /// computed of the prompt. A prompt that is complete stays until its blocks are needed.
  void close(Handle sequence);

  /// Whether the prompt's KV is complete: a sequence that is opened now forks from it.
  [[nodiscard]] bool holds_prompt(std::uint32_t prompt) const;
  /// False while a sibling computes the prompt. The first true forks the sequence from it.
  [[nodiscard]] bool ready(Handle sequence);
  /// Positions whose KV is stored. Rows are computed for the positions from here on.
  [[nodiscard]] std::int32_t length(Handle sequence) const { return at(sequence).length; }
  /// The sequence's blocks in order of position. Valid until the next call that is not const.
  [[nodiscard]] std::span<const std::int32_t> table(Handle sequence) const {
    return at(sequence).table;
  }

  /// Positions from here on lie in blocks that are the sequence's alone and stay so: KV from
  /// elsewhere may be put there. A multiple of block().
  [[nodiscard]] std::int32_t own_from(Handle sequence) const;

  /// The next `rows` positions were computed, each in its place.
  void advance(Handle sequence, std::int32_t rows);
  /// The row computed at `position` (>= length) is that of the next position: of a draft tree, rows
  /// that were accepted move to where they belong. To be called in order of position.
  void keep(Handle sequence, std::int32_t position);
  /// Forgets positions from `length` on; of a prompt that is shared, at most the last position.
  void roll_back(Handle sequence, std::int32_t length);

  /// What must be done before the next forward pass; it is the caller's from then on. `work` is
  /// overwritten; its memory is used again.
  void take_work(Work& work);
  [[nodiscard]] bool has_work() const;

  /// Closes the sequence but keeps the blocks of what is stored, to be sent or parked. Its work
  /// must have been taken and done. Attaching it elsewhere is open(), filling table() and
  /// advance().
  [[nodiscard]] Parcel detach(Handle sequence);
  /// The whole blocks of what is stored, to be sent while the sequence goes on: it writes none of
  /// them again. Its work must have been taken and done.
  [[nodiscard]] Parcel share(Handle sequence);
  void release(const Parcel& parcel);

  /// Makes the pool so many blocks large: that is work, and so are the copies of blocks past its
  /// new end that are in use when it shrinks. Earlier work must have been taken and done. False,
  /// and nothing changed, where more are in use than would be left, or a parcel holds one past the
  /// end.
  [[nodiscard]] bool resize(std::int32_t blocks);

  [[nodiscard]] std::int32_t blocks() const { return pool_.size(); }
  [[nodiscard]] std::int32_t blocks_used() const { return pool_.used(); }
  /// Of the blocks in use, those of prompts that nobody uses: they go where room is needed.
  [[nodiscard]] std::int32_t blocks_idle() const;
  [[nodiscard]] std::int32_t block() const { return block_; }

 private:
  struct Prefix {
    std::uint32_t prompt = 0;
    std::vector<std::int32_t> blocks;  ///< of all prompt positions, once computed
    bool ready = false;
    std::int32_t users = 0;  ///< open sequences of this prompt
  };
  struct Sequence {
    bool open = false;
    std::int32_t prompt_length = 0;
    std::int32_t length = 0;
    /// Of a sequence that waits, blocks of the prompt before its last are -1.
    std::vector<std::int32_t> table;
    bool waits = false;  ///< for a sibling that computes the prompt
    bool owner = false;  ///< computes the prompt for its siblings
    std::int32_t spare =
        -1;  ///< owner: takes the place of the prompt's last block, which it shares
    std::list<Prefix>::iterator prefix;
  };
  struct PendingMove {
    Handle sequence;
    kernels::Backend::SlotMove move;
  };

  [[nodiscard]] Sequence& at(Handle sequence);
  [[nodiscard]] const Sequence& at(Handle sequence) const;
  /// Index of the block that holds the prompt's last position.
  [[nodiscard]] std::int32_t last_block(const Sequence& s) const {
    return (s.prompt_length - 1) / block_;
  }
  [[nodiscard]] bool make_room(std::int32_t blocks);
  void put(Handle sequence, std::int32_t index, std::int32_t block);
  [[nodiscard]] std::int32_t written_block(const Sequence& s, std::int32_t position) const;
  void fork(Handle sequence);
  void share_prompt(Handle sequence);
  void hand_over_prompt(Handle sequence);
  void forget(Handle sequence);
  void give_back(std::span<const std::int32_t> blocks);
  void drop(std::list<Prefix>::iterator prefix);

  std::int32_t block_;
  BlockPool pool_;
  std::vector<Sequence> sequences_;
  std::vector<Handle> free_;
  std::list<Prefix> prefixes_;  ///< least recently opened first
  std::unordered_map<std::uint32_t, std::list<Prefix>::iterator> prefix_of_prompt_;
  std::vector<TableEdit> edits_;
  std::vector<PendingMove> moves_;
  std::vector<kernels::Backend::BlockCopy> copies_;
  std::int32_t resized_ = 0;                                 ///< Work::blocks of the work to come
  std::unordered_map<std::int32_t, std::int32_t> parceled_;  ///< parcels that hold a block
};

}  // namespace paceline::kv
