// Bookkeeping of the sequences in a KV pool, of the target, a draft model or a draft head. A
// sequence's block table lists the blocks for its KV. The bytes are in the backend. take_work()
// returns the moves and copies of bytes to be done before the next forward pass.
//
// The n responses to a prompt are siblings and share the prompt's blocks. The sibling that is
// opened first is the owner: it computes these blocks. The other siblings wait for the blocks and
// then fork. A forked sibling shares all prompt blocks except the last one, the original. It writes
// into a copy of the original, because it computes the prompt's last position again to sample the
// next token. The owner also goes on in a copy of the original. So nobody writes a shared block.
//
// A prompt that begins like an earlier prompt, for instance with the same system prompt, shares the
// full blocks of this beginning, but not its own last block. Beginnings are found by comparing
// tokens. The earlier prompt's owner computes the blocks, and the later prompt's owner waits for
// them. If the earlier owner is paused, the later shares only the blocks computed so far.
//
// A sequence can also begin as a branch of another sequence, at some point of the other's response.
// The branch shares the full blocks before this point, and copies a partly filled block there.
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

/// A change to a sequence's block table: entry `index` is `block` from now on. If all edits are
/// applied to a copy of the tables in order, each entry that has a block is right in the copy.
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
  std::int32_t blocks = 0;  ///< new size of the pool in blocks; 0: unchanged

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
/// if no sequence with this handle is open. If room is needed, open(), branch(), reserve() and
/// resize() drop the KV of prompts without open sequences. If even this makes too little room, they
/// change nothing, and return nothing or false.
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
  /// same `prompt` and `prompt_length` (>= 1). `tokens`: the prompt's tokens; empty: the prompt
  /// shares no blocks with other prompts.
  [[nodiscard]] std::optional<Handle> open(std::uint32_t prompt, std::int32_t prompt_length,
                                           std::int32_t positions,
                                           std::span<const TokenId> tokens = {});
  /// Opens a sequence with room for `positions` positions, as a branch that begins with the first
  /// `length` positions of `of`. These must be computed, no move by keep() may be pending, and `of`
  /// must stay open until the next work is done. Returns nothing if there is too little
  /// room, if the prompt's KV is incomplete, or if `length` is less than the prompt's length.
  [[nodiscard]] std::optional<Handle> branch(Handle of, std::int32_t length,
                                             std::int32_t positions);
  /// Gives a sequence room for at least `positions` positions in all.
  [[nodiscard]] bool reserve(Handle sequence, std::int32_t positions);
  [[nodiscard]] std::int32_t reserved(Handle sequence) const;
  /// Gives the sequence's blocks back and drops its pending moves. If it owns an incomplete prompt,
  /// a waiting sibling (if any) becomes owner. A complete prompt's KV stays until room is needed.
  void close(Handle sequence);

  /// Whether some sequence of this prompt is open, or the prompt's KV is kept.
  [[nodiscard]] bool knows(std::uint32_t prompt) const {
    return prefix_of_prompt_.contains(prompt);
  }
  /// Whether the prompt's KV is complete, so that a sequence opened now forks from it.
  [[nodiscard]] bool holds_prompt(std::uint32_t prompt) const;
  /// Puts the shared blocks that `sequence` waits for into its table if they are computed. Returns
  /// whether it waits no longer. It never waits for blocks of another prompt's paused owner.
  [[nodiscard]] bool ready(Handle sequence);
  /// Pauses a ready sequence, for instance while its KV arrives, or lets it go on. Siblings of a
  /// paused owner wait. Other prompts do not, and share only the blocks that it has computed.
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
  /// overwrites the table's blocks. KV computed elsewhere can be written into these blocks, except
  /// into blocks shared with branches.
  [[nodiscard]] std::int32_t own_from(Handle sequence) const;

  /// Counts the next `rows` positions as computed. Their KV must be in their places already.
  void advance(Handle sequence, std::int32_t rows);
  /// Counts position length() as computed. The next work moves the row that was computed at
  /// `position` (>= length()) there. Call it for a draft's accepted rows, in order of `position`.
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
  /// been taken and done. To give a parcel's KV to another sequence: open() the sequence, compute
  /// its positions before own_from(), write the KV of later ones into its blocks, and advance() it.
  [[nodiscard]] Parcel detach(Handle sequence);
  /// Makes a parcel of the sequence's full blocks, which the sequence writes no more, to be sent
  /// while it goes on. As for detach(), work must be done first, and the parcel may be empty.
  [[nodiscard]] Parcel share(Handle sequence);
  void release(const Parcel& parcel);

  /// Resizes the pool to `blocks` blocks. The next work sets this size. If the pool shrinks, this
  /// work also copies the blocks in use past the new end to free places before it. Earlier work
  /// must have been taken and done. Returns false if more than `blocks` blocks would stay
  /// in use, or if a parcel has a block past the new end.
  [[nodiscard]] bool resize(std::int32_t blocks);
  /// Whether resize() would succeed now.
  [[nodiscard]] bool can_resize(std::int32_t blocks) const;

  [[nodiscard]] std::int32_t blocks() const { return pool_.size(); }
  [[nodiscard]] std::int32_t blocks_used() const { return pool_.used(); }
  /// Number of blocks held only by prompts without open sequences; freed when room is needed.
  [[nodiscard]] std::int32_t blocks_idle() const;
  [[nodiscard]] std::int32_t block() const { return block_; }
  /// Total number of positions whose blocks sequences have taken over from other prompts.
  [[nodiscard]] std::uint64_t positions_shared() const { return positions_shared_; }

 private:
  struct Prefix {
    std::uint32_t prompt = 0;
    std::vector<std::int32_t> blocks;  ///< blocks of the whole prompt; empty until `ready`
    bool ready = false;                ///< all prompt positions are computed
    std::int32_t users = 0;            ///< number of open sequences of this prompt
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
    std::int32_t common = 0;  ///< number of leading blocks that come from another prompt
    bool grafts = false;      ///< waits until `source` has computed these `common` blocks
    bool paused = false;      ///< computes nothing for now
    std::list<Prefix>::iterator source;  ///< the other prompt; valid while `grafts`
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
