// Bookkeeping of the sequences in the KV pool of the target or of a draft model. A sequence's block
// table lists the blocks that hold its KV. The bytes are in the backend. Moves and copies of bytes
// are handed over as work to be done before the next forward pass.
//
// The n responses to a prompt are siblings and share the prompt's blocks. The sibling that is
// opened first is the owner: it computes these blocks. The other siblings wait for the blocks and
// then fork. A forked sibling shares all prompt blocks except the last one, the original. It writes
// into a copy of the original, because it computes the prompt's last position again to sample the
// next token. The owner also goes on in a copy of the original. So nobody writes a shared block.
//
// Prompts with a common beginning, for instance the same system prompt, share the full blocks of
// this beginning, which is found by comparing tokens. The owner of the prompt opened first computes
// these blocks, and the owners of later prompts wait for them. If the first owner is paused, a
// later owner takes over the blocks computed so far, and computes the others itself.
//
// A sequence can also begin as a branch of another sequence, at some point of the other's response.
// The branch shares the full blocks before this point, and copies the partly filled block there.
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

/// The number of an open sequence, small enough to index the caller's own tables. After close() or
/// detach(), another sequence can get the same number.
using Handle = std::int32_t;

/// A change to a sequence's block table: entry `index` is `block` from now on. A copy of the tables
/// stays up to date if all edits are applied to it in their order.
struct TableEdit {
  Handle sequence = 0;
  std::int32_t index = 0;
  std::int32_t block = 0;
};

/// Work to be done before the next forward pass: edits to tables, then moves, then copies. A
/// growing pool is resized before this work, a shrinking pool after it.
struct Work {
  std::vector<TableEdit> edits;
  std::vector<kernels::Backend::SlotMove> moves;
  std::vector<kernels::Backend::BlockCopy> copies;
  std::int32_t blocks = 0;  ///< new size of the pool; 0: unchanged

  void clear() {
    edits.clear();
    moves.clear();
    copies.clear();
    blocks = 0;
  }
};

/// The place of a position in the pool.
struct Place {
  std::int32_t block = 0;
  std::int32_t slot = 0;  ///< position within the block
};

/// KV blocks that stay in use independently of sequences, to be sent or stored.
struct Parcel {
  std::vector<std::int32_t> blocks;  ///< [blocks_for(positions)]
  std::int32_t positions = 0;        ///< number of positions whose KV is in the blocks
};

/// The sequences in one pool. Not thread-safe. Functions that take a handle throw std::logic_error
/// if the sequence is not in the state that they need.
class Sequences {
 public:
  /// `blocks`: number of blocks in the pool. `block`: positions per block.
  Sequences(std::int32_t blocks, std::int32_t block);

  /// Number of blocks, of `block` positions each, that a sequence of `positions` positions takes
  /// when it is alone in the pool. This includes both the prompt's last block, which is kept for
  /// siblings, and the copy of it in which the sequence goes on.
  [[nodiscard]] static constexpr std::int32_t blocks_needed(std::int64_t positions,
                                                            std::int32_t block) {
    return blocks_for(positions, block) + 1;
  }

  /// Opens a sequence with room for `positions` positions, including its prompt. Siblings have the
  /// same `prompt` and `prompt_length` (>= 1). Drops the KV of prompts without open sequences if
  /// room is needed. If even this makes too little room, returns nothing and changes nothing.
  /// `tokens`: the prompt's tokens; empty: the prompt shares no blocks with other prompts.
  [[nodiscard]] std::optional<Handle> open(std::uint32_t prompt, std::int32_t prompt_length,
                                           std::int32_t positions,
                                           std::span<const TokenId> tokens = {});
  /// Opens a sequence with room for `positions` positions, as a branch that begins with the first
  /// `length` positions of `of`. These must be computed, no move by keep() may be pending, and `of`
  /// must stay open until the next work is done. Returns nothing and changes nothing if the pool is
  /// too full, if the prompt's KV is incomplete, or if `length` is less than the prompt's length.
  [[nodiscard]] std::optional<Handle> branch(Handle of, std::int32_t length,
                                             std::int32_t positions);
  /// Gives an open sequence room for `positions` positions in all. If the pool is too full, returns
  /// false and changes nothing.
  [[nodiscard]] bool reserve(Handle sequence, std::int32_t positions);
  /// Positions that the sequence has room for.
  [[nodiscard]] std::int32_t reserved(Handle sequence) const;
  /// Gives the sequence's blocks back and drops its pending moves. An incomplete prompt that it
  /// owns goes to a waiting sibling, if any. A complete prompt's KV stays until room is needed.
  void close(Handle sequence);

  /// Whether some sequence of this prompt is open, or the prompt's KV is kept.
  [[nodiscard]] bool knows(std::uint32_t prompt) const {
    return prefix_of_prompt_.contains(prompt);
  }
  /// Whether the prompt's KV is complete, so that a sequence opened now forks from it.
  [[nodiscard]] bool holds_prompt(std::uint32_t prompt) const;
  /// Returns false while `sequence` waits for shared blocks that another sequence computes. When
  /// these blocks are computed, puts them into the table and returns true.
  [[nodiscard]] bool ready(Handle sequence);
  /// Pauses a ready sequence, for instance while its KV arrives, or lets it go on. Other prompts
  /// share the blocks that a paused sequence has computed, but do not wait for its later blocks.
  void pause(Handle sequence, bool paused) { at(sequence).paused = paused; }
  /// Number of positions whose KV is computed. The next row is for the position with this number.
  [[nodiscard]] std::int32_t length(Handle sequence) const { return at(sequence).length; }
  /// The blocks in order of position; -1: awaited. Valid until the next call that is not const.
  [[nodiscard]] std::span<const std::int32_t> table(Handle sequence) const {
    return at(sequence).table;
  }

  /// The places of positions [first, length()) of a sequence. Valid until the next work is done.
  [[nodiscard]] std::vector<Place> places(Handle sequence, std::int32_t first) const;

  /// The first position, a multiple of block(), from which on ready() neither replaces nor
  /// overwrites the table's blocks. So KV computed elsewhere can be written into these blocks.
  [[nodiscard]] std::int32_t own_from(Handle sequence) const;

  /// Counts the next `rows` positions as computed. Their KV must be in their places already.
  void advance(Handle sequence, std::int32_t rows);
  /// Moves the row computed at `position` (>= length()) to position length(), and counts this
  /// position as computed. Call it for the accepted rows of a draft tree, in order of `position`.
  void keep(Handle sequence, std::int32_t position);
  /// Forgets positions from `length` on. The block of position `length` must be the sequence's own:
  /// not shared with siblings, with branches or with other prompts.
  void roll_back(Handle sequence, std::int32_t length);

  /// Hands over the work to be done before the next forward pass. Overwrites `work`, whose memory
  /// is reused.
  void take_work(Work& work);
  [[nodiscard]] bool has_work() const;

  /// Closes the sequence but keeps the blocks that have its KV, to be sent or stored. The parcel is
  /// empty if the prompt's KV is incomplete, or the sequence still waits for it. All work must have
  /// been taken and done. To attach a parcel's KV to another sequence: open() the sequence, write
  /// the KV into the blocks of its table(), and advance() it.
  [[nodiscard]] Parcel detach(Handle sequence);
  /// Makes a parcel of the sequence's full blocks, which the sequence writes no more, to be sent
  /// while it goes on. As for detach(), work must be done first, and the parcel may be empty.
  [[nodiscard]] Parcel share(Handle sequence);
  void release(const Parcel& parcel);

  /// Resizes the pool to `blocks` blocks. The next work sets this size. If the pool shrinks, this
  /// work also copies the blocks in use past the new end to free places before it. Earlier work
  /// must have been taken and done. Drops the KV of prompts without open sequences if room is
  /// needed. Returns false and changes nothing if more than `blocks` blocks would stay in use, or
  /// if a parcel has a block past the new end.
  [[nodiscard]] bool resize(std::int32_t blocks);
  /// Whether resize() would succeed now.
  [[nodiscard]] bool can_resize(std::int32_t blocks) const;

  [[nodiscard]] std::int32_t blocks() const { return pool_.size(); }
  [[nodiscard]] std::int32_t blocks_used() const { return pool_.used(); }
  /// Number of blocks of prompts without open sequences, which are freed when room is needed.
  [[nodiscard]] std::int32_t blocks_idle() const;
  [[nodiscard]] std::int32_t block() const { return block_; }
  /// Total number of positions whose blocks sequences have taken over from other prompts.
  [[nodiscard]] std::uint64_t positions_shared() const { return positions_shared_; }

 private:
  struct Prefix {
    std::uint32_t prompt = 0;
    std::vector<std::int32_t> blocks;  ///< blocks of the whole prompt; empty until `ready`
    bool ready = false;                ///< all prompt positions are computed
    std::int32_t users = 0;            ///< open sequences of this prompt
    std::vector<TokenId> tokens;       ///< empty: the prompt shares no blocks with others
    Handle owner = 0;                  ///< sequence that computes the prompt; valid until `ready`
  };
  struct Sequence {
    bool open = false;
    std::int32_t prompt_length = 0;
    std::int32_t length = 0;
    /// Blocks by position. While the sequence waits, all its prompt blocks but the last are -1.
    std::vector<std::int32_t> table;
    bool waits = false;     ///< waits for a sibling that computes the prompt
    bool owner = false;     ///< computes, or has computed, the prompt for its siblings
    bool branched = false;  ///< is a branch, or has had branches
    /// Block to which an owner will copy the prompt's last block, to go on in the copy; -1: none.
    std::int32_t spare = -1;
    std::list<Prefix>::iterator prefix;
    std::int32_t common = 0;             ///< number of leading blocks shared with `source`
    bool grafts = false;                 ///< waits until `source` has computed these blocks
    bool paused = false;                 ///< computes nothing for now
    std::list<Prefix>::iterator source;  ///< another prompt; valid while `grafts`
  };
  struct PendingMove {
    Handle sequence;
    std::int32_t position;  ///< new position of the moved row
    kernels::Backend::SlotMove move;
  };

  [[nodiscard]] Sequence& at(Handle sequence);
  [[nodiscard]] const Sequence& at(Handle sequence) const;
  /// Index of the block that holds the prompt's last position.
  [[nodiscard]] std::int32_t last_block(const Sequence& s) const {
    return (s.prompt_length - 1) / block_;
  }
  [[nodiscard]] std::int32_t blocks_droppable() const;
  [[nodiscard]] bool make_room(std::int32_t blocks);
  [[nodiscard]] Handle take_handle();
  void put(Handle sequence, std::int32_t index, std::int32_t block);
  [[nodiscard]] std::int32_t written_block(const Sequence& s, std::int32_t position) const;
  void fork(Handle sequence);
  [[nodiscard]] std::int32_t blocks_there(const Prefix& prefix) const;
  void find_source(Handle sequence, std::int32_t most, bool waits);
  void graft(Handle sequence);
  void share_prompt(Handle sequence);
  void hand_over_prompt(Handle sequence);
  void forget(Handle sequence);
  void give_back(std::span<const std::int32_t> blocks);
  void use(Prefix& prefix);
  void leave(Prefix& prefix);
  void drop(std::list<Prefix>::iterator prefix);

  std::int32_t block_;
  BlockPool pool_;
  std::vector<Sequence> sequences_;
  std::vector<Handle> free_;
  std::list<Prefix> prefixes_;  ///< in the order of each prompt's last open(), oldest first
  std::unordered_map<std::uint32_t, std::list<Prefix>::iterator> prefix_of_prompt_;
  /// Number of blocks of prompts without open sequences. A block that several of these prompts
  /// share is counted for each of them.
  std::int32_t idle_ = 0;
  std::uint64_t positions_shared_ = 0;
  std::vector<TableEdit> edits_;
  std::vector<PendingMove> moves_;
  std::vector<kernels::Backend::BlockCopy> copies_;
  std::int32_t resized_ = 0;                                 ///< Work::blocks of the next work
  std::unordered_map<std::int32_t, std::int32_t> parceled_;  ///< by block: number of its parcels
};

}  // namespace paceline::kv
