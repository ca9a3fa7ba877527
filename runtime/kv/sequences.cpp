#include "runtime/kv/sequences.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::kv {

Sequences::Sequences(std::int32_t blocks, std::int32_t block) : block_(block), pool_(blocks) {}

Sequences::Sequence& Sequences::at(Handle sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

const Sequences::Sequence& Sequences::at(Handle sequence) const {
  const Sequence& s = sequences_.at(sequence);
  if (!s.open) throw std::logic_error("a KV sequence that is not open");
  return s;
}

void Sequences::use(Prefix& prefix) {
  if (prefix.users++ == 0) idle_ -= static_cast<std::int32_t>(prefix.blocks.size());
}

void Sequences::leave(Prefix& prefix) {
  if (--prefix.users == 0) idle_ += static_cast<std::int32_t>(prefix.blocks.size());
}

/// Drops the KV of a prompt without open sequences.
void Sequences::drop(std::list<Prefix>::iterator prefix) {
  idle_ -= static_cast<std::int32_t>(prefix->blocks.size());
  for (const std::int32_t block : prefix->blocks) pool_.release(block);
  std::vector<Handle> left;  // sequences that wait for the prompt's blocks
  for (Handle handle = 0; handle < static_cast<Handle>(sequences_.size()); ++handle) {
    const Sequence& s = sequences_[handle];
    if (s.open && s.grafts && s.source == prefix) left.push_back(handle);
  }
  prefix_of_prompt_.erase(prefix->prompt);
  prefixes_.erase(prefix);
  for (const Handle handle : left) find_source(handle, sequences_[handle].common, false);
}

/// idle_ is too large if prompts share blocks, or if parcels hold some: it counts a block once for
/// each prompt without open sequences, even if dropping these prompts does not free the block.
std::int32_t Sequences::blocks_idle() const {
  return positions_shared_ == 0 && parceled_.empty() ? idle_ : blocks_droppable();
}

/// Number of blocks that would become free if all prompts without open sequences were dropped.
std::int32_t Sequences::blocks_droppable() const {
  std::vector<std::int32_t> holders(pool_.size());
  std::int32_t idle = 0;
  for (const Prefix& prefix : prefixes_) {
    if (prefix.users > 0) continue;
    for (const std::int32_t block : prefix.blocks)
      idle += ++holders[block] == pool_.holders(block) ? 1 : 0;
  }
  return idle;
}

/// Drops prompts without open sequences until `blocks` blocks are free. Drops none if the
/// free blocks and blocks_idle() together are too few. Returns whether `blocks` blocks are free.
bool Sequences::make_room(std::int32_t blocks) {
  if (pool_.available() >= blocks) return true;
  if (pool_.available() + blocks_idle() < blocks) return false;
  for (auto it = prefixes_.begin(); pool_.available() < blocks && it != prefixes_.end();) {
    const auto prefix = it++;
    if (prefix->users == 0) drop(prefix);
  }
  return pool_.available() >= blocks;
}

void Sequences::put(Handle sequence, std::int32_t index, std::int32_t block) {
  std::vector<std::int32_t>& table = sequences_[sequence].table;
  if (index == static_cast<std::int32_t>(table.size())) table.push_back(-1);
  table[index] = block;
  if (block >= 0) edits_.push_back({sequence, index, block});
}

Handle Sequences::take_handle() {
  if (free_.empty()) {
    free_.push_back(static_cast<Handle>(sequences_.size()));
    sequences_.emplace_back();
  }
  const Handle handle = free_.back();
  free_.pop_back();
  sequences_[handle].open = true;
  return handle;
}

std::optional<Handle> Sequences::open(std::uint32_t prompt, std::int32_t prompt_length,
                                      std::int32_t positions, std::span<const TokenId> tokens) {
  if (prompt_length < 1 || positions < prompt_length)
    throw std::logic_error("a KV sequence without room for its prompt");
  const auto known = prefix_of_prompt_.find(prompt);
  const bool owner = known == prefix_of_prompt_.end();
  const std::int32_t last = (prompt_length - 1) / block_;
  const std::int32_t needed =
      owner ? blocks_needed(positions, block_) : blocks_for(positions, block_) - last;
  if (!owner) use(*known->second);  // so that make_room() does not drop this prompt
  if (!make_room(needed)) {
    if (!owner) leave(*known->second);
    return std::nullopt;
  }
  const Handle handle = take_handle();
  Sequence& s = sequences_[handle];
  s.prompt_length = prompt_length;
  s.length = 0;
  s.table.clear();
  s.owner = owner;
  s.waits = !owner;
  s.spare = -1;
  s.common = 0;
  s.grafts = false;
  s.branched = false;
  s.paused = false;
  if (owner) {
    prefixes_.push_back({.prompt = prompt,
                         .blocks = {},
                         .users = 1,
                         .tokens = {tokens.begin(), tokens.end()},
                         .owner = handle});
    s.prefix = std::prev(prefixes_.end());
    prefix_of_prompt_[prompt] = s.prefix;
    s.spare = pool_.acquire();
  } else {
    prefixes_.splice(prefixes_.end(), prefixes_, known->second);
    s.prefix = known->second;
  }
  for (std::int32_t index = 0; index < blocks_for(positions, block_); ++index)
    put(handle, index, s.waits && index < last ? -1 : pool_.acquire());
  if (owner) find_source(handle, last, true);
  return handle;
}

/// Number of a prompt's blocks that are computed.
std::int32_t Sequences::blocks_there(const Prefix& prefix) const {
  if (prefix.ready) return static_cast<std::int32_t>(prefix.blocks.size());
  return sequences_[prefix.owner].length / block_;
}

/// Chooses the source from which `sequence`, its prompt's owner, takes leading blocks: the other
/// prompt that can share most blocks, up to `most`. If `waits`, blocks that the source's owner has
/// yet to compute count too, unless that owner is paused. Only open() sets `waits`, so a prompt
/// waits only for prompts opened earlier, and no two wait for each other. Then calls graft().
void Sequences::find_source(Handle sequence, std::int32_t most, bool waits) {
  Sequence& s = sequences_[sequence];
  s.common = 0;
  const std::vector<TokenId>& tokens = s.prefix->tokens;
  for (auto other = prefixes_.begin(); other != prefixes_.end(); ++other) {
    if (other == s.prefix) continue;
    const auto differs =
        std::mismatch(tokens.begin(), tokens.end(), other->tokens.begin(), other->tokens.end());
    const auto common = static_cast<std::int32_t>(differs.first - tokens.begin());
    const std::int32_t there = blocks_there(*other);
    const bool comes = waits && !other->ready && !sequences_[other->owner].paused;
    const std::int32_t blocks = std::min({common / block_, most, comes ? most : there});
    // Of two prompts that can share equally many blocks, one that has computed them is preferred.
    const bool sooner =
        s.common > 0 && blocks == s.common && there >= blocks && blocks_there(*s.source) < blocks;
    if (blocks <= s.common && !sooner) continue;
    s.common = blocks;
    s.source = other;
  }
  s.grafts = s.common > 0;
  graft(sequence);
}

/// Puts the blocks that the sequence waits for into its table, if the source (another prompt) has
/// computed them all. If not, and if the source's owner is paused, the sequence takes only the
/// leading blocks that some prompt has computed already.
void Sequences::graft(Handle sequence) {
  Sequence& s = sequences_[sequence];
  if (!s.grafts) return;
  if (blocks_there(*s.source) < s.common) {
    if (sequences_[s.source->owner].paused) find_source(sequence, s.common, false);
    return;
  }
  const Prefix& source = *s.source;
  const std::vector<std::int32_t>& blocks =
      source.ready ? source.blocks : sequences_[source.owner].table;
  for (std::int32_t index = 0; index < s.common; ++index) {
    const std::int32_t own = s.table[index];
    pool_.share(blocks[index]);
    put(sequence, index, blocks[index]);
    give_back({&own, 1});
  }
  s.length = s.common * block_;
  s.grafts = false;
  positions_shared_ += static_cast<std::uint64_t>(s.length);
}

std::optional<Handle> Sequences::branch(Handle of, std::int32_t length, std::int32_t positions) {
  const Sequence& from = at(of);
  if (length > from.length || positions < length)
    throw std::logic_error("a KV branch of what is not there");
  if (from.waits || !from.prefix->ready || length < from.prompt_length) return std::nullopt;
  const std::int32_t whole = length / block_;
  if (!make_room(blocks_for(positions, block_) - whole)) return std::nullopt;
  const Handle handle = take_handle();
  sequences_[of].branched = true;
  Sequence& s = sequences_[handle];
  const Sequence& origin = sequences_[of];  // `from` is invalid if the vector has grown
  s.prompt_length = origin.prompt_length;
  s.length = length;
  s.table.clear();
  s.waits = false;
  s.owner = false;
  s.branched = true;
  s.common = 0;
  s.grafts = false;
  s.paused = false;
  s.spare = -1;
  s.prefix = origin.prefix;
  use(*s.prefix);
  for (std::int32_t index = 0; index < blocks_for(positions, block_); ++index) {
    if (index < whole) pool_.share(origin.table[index]);
    put(handle, index, index < whole ? origin.table[index] : pool_.acquire());
  }
  if (length % block_ != 0) copies_.push_back({written_block(origin, length - 1), s.table[whole]});
  return handle;
}

std::int32_t Sequences::reserved(Handle sequence) const {
  return static_cast<std::int32_t>(at(sequence).table.size()) * block_;
}

bool Sequences::reserve(Handle sequence, std::int32_t positions) {
  const auto held = static_cast<std::int32_t>(at(sequence).table.size());
  const std::int32_t wanted = blocks_for(positions, block_);
  if (wanted > held && !make_room(wanted - held)) return false;
  for (std::int32_t index = held; index < wanted; ++index) put(sequence, index, pool_.acquire());
  return true;
}

bool Sequences::holds_prompt(std::uint32_t prompt) const {
  const auto known = prefix_of_prompt_.find(prompt);
  return known != prefix_of_prompt_.end() && known->second->ready;
}

bool Sequences::ready(Handle sequence) {
  const Sequence& s = at(sequence);
  if (s.waits && s.prefix->ready) fork(sequence);
  graft(sequence);
  return !s.waits && !s.grafts;
}

// An owner whose prompt is incomplete shares its first `common` blocks. Any other sequence shares,
// or will share, the prompt's blocks before the last. A copy of the prompt's last block overwrites
// the block that the sequence has in its place. So KV can be written only into later blocks.
std::int32_t Sequences::own_from(Handle sequence) const {
  const Sequence& s = at(sequence);
  return (s.owner && !s.prefix->ready ? s.common : last_block(s) + 1) * block_;
}

void Sequences::fork(Handle sequence) {
  Sequence& s = sequences_[sequence];
  const std::int32_t last = last_block(s);
  for (std::int32_t index = 0; index < last; ++index) {
    pool_.share(s.prefix->blocks[index]);
    put(sequence, index, s.prefix->blocks[index]);
  }
  copies_.push_back({s.prefix->blocks[last], s.table[last]});
  s.length = s.prompt_length - 1;  // the last position runs again, because its logits were not kept
  s.waits = false;
}

// Called when the owner has computed the whole prompt. From then on siblings can fork. The owner
// goes on in a copy of the prompt's last block. Siblings copy the original too, not the owner's
// copy, because they can fork before the owner's copy is made.
void Sequences::share_prompt(Handle sequence) {
  Sequence& s = sequences_[sequence];
  Prefix& prefix = *s.prefix;
  const std::int32_t last = last_block(s);
  prefix.blocks.assign(s.table.begin(), s.table.begin() + last + 1);
  prefix.ready = true;
  for (std::int32_t index = 0; index < last; ++index) pool_.share(prefix.blocks[index]);
  copies_.push_back({prefix.blocks[last], s.spare});
  put(sequence, last, std::exchange(s.spare, -1));
}

void Sequences::advance(Handle sequence, std::int32_t rows) {
  Sequence& s = at(sequence);
  if (s.waits || s.grafts || s.length + rows > reserved(sequence))
    throw std::logic_error("KV rows without a place");
  s.length += rows;
  if (s.owner && !s.prefix->ready && s.length >= s.prompt_length) share_prompt(sequence);
}

/// Returns the block in which the last pass wrote the row of `position`. If a copy into the table's
/// block is pending, the row is in the source of the copy. Moves must read and write the source,
/// because moves are done before copies.
std::int32_t Sequences::written_block(const Sequence& s, std::int32_t position) const {
  const std::int32_t block = s.table.at(position / block_);
  const auto copy = std::ranges::find_if(copies_, [&](const auto& c) { return c.to == block; });
  return copy == copies_.end() ? block : copy->from;
}

void Sequences::keep(Handle sequence, std::int32_t position) {
  const Sequence& s = at(sequence);
  const std::int32_t to = s.length;
  if (position != to) {
    moves_.push_back(
        {sequence,
         to,
         {written_block(s, position), position % block_, written_block(s, to), to % block_}});
  }
  advance(sequence, 1);
}

// While a row's move is pending, the row is in the slot from which it will be moved.
std::vector<Place> Sequences::places(Handle sequence, std::int32_t first) const {
  const Sequence& s = at(sequence);
  std::vector<Place> places;
  for (std::int32_t position = first; position < s.length; ++position)
    places.push_back({written_block(s, position), position % block_});
  for (const PendingMove& pending : moves_) {
    if (pending.sequence == sequence && pending.position >= first)
      places.at(pending.position - first) = {pending.move.from_block, pending.move.from_slot};
  }
  return places;
}

void Sequences::roll_back(Handle sequence, std::int32_t length) {
  Sequence& s = at(sequence);
  if (length > s.length || s.waits || length < s.common * block_)
    throw std::logic_error("KV rolled back to what is not there");
  // The block that the sequence writes next must be its own.
  if (s.prefix->ready && length < last_block(s) * block_)
    throw std::logic_error("KV rolled back into a prompt that is shared");
  const auto next = static_cast<std::size_t>(length / block_);
  if (s.branched && next < s.table.size() && pool_.holders(s.table[next]) > 1)
    throw std::logic_error("KV rolled back into what branches share");
  s.length = length;
}

// If a sibling waits for the incomplete prompt, this sibling becomes the prompt's owner. It gets
// the prompt's blocks except the last one, in place of which it has a block of its own.
void Sequences::hand_over_prompt(Handle sequence) {
  Sequence& s = sequences_[sequence];
  for (Handle other = 0; other < static_cast<Handle>(sequences_.size()); ++other) {
    Sequence& heir = sequences_[other];
    if (other == sequence || !heir.open || !heir.waits || heir.prefix != s.prefix) continue;
    const std::int32_t last = last_block(s);
    for (std::int32_t index = 0; index < last; ++index)
      put(other, index, std::exchange(s.table[index], -1));
    heir.spare = std::exchange(s.spare, -1);
    heir.length = std::min(s.length, last * block_);
    heir.common = s.common;
    heir.grafts = s.grafts;
    heir.source = s.source;
    heir.prefix->owner = other;
    heir.waits = false;
    heir.owner = true;
    return;
  }
}

/// Closes the sequence except for its table's blocks, which the caller must give back or keep.
void Sequences::forget(Handle sequence) {
  Sequence& s = sequences_[sequence];
  std::erase_if(moves_, [&](const PendingMove& m) { return m.sequence == sequence; });
  if (s.owner && !s.prefix->ready) hand_over_prompt(sequence);
  if (s.spare >= 0) pool_.release(std::exchange(s.spare, -1));
  leave(*s.prefix);
  if (s.prefix->users == 0 && !s.prefix->ready) drop(s.prefix);
  s.open = false;
  free_.push_back(sequence);
}

// Releases blocks. Drops pending copies into freed blocks, because these may get new holders.
void Sequences::give_back(std::span<const std::int32_t> blocks) {
  for (const std::int32_t block : blocks) {
    if (block < 0) continue;
    pool_.release(block);
    if (pool_.held(block)) continue;
    std::erase_if(copies_, [&](const kernels::Backend::BlockCopy& c) { return c.to == block; });
  }
}

void Sequences::close(Handle sequence) {
  Sequence& s = at(sequence);
  forget(sequence);
  give_back(s.table);
}

Parcel Sequences::detach(Handle sequence) {
  Sequence& s = at(sequence);
  if (has_work()) throw std::logic_error("a KV sequence leaves before work on it is done");
  const bool half_done = s.owner && !s.prefix->ready;  // such KV goes to a waiting sibling, if any
  Parcel parcel{{}, s.waits || half_done ? 0 : s.length};
  forget(sequence);
  const std::int32_t kept = blocks_for(parcel.positions, block_);
  parcel.blocks.assign(s.table.begin(), s.table.begin() + kept);
  for (const std::int32_t block : parcel.blocks) ++parceled_[block];
  give_back(std::span(s.table).subspan(kept));
  return parcel;
}

Parcel Sequences::share(Handle sequence) {
  const Sequence& s = at(sequence);
  if (has_work()) throw std::logic_error("KV is shared before work on it is done");
  Parcel parcel;
  if (s.waits || (s.owner && !s.prefix->ready)) return parcel;
  const std::int32_t whole = s.length / block_;
  parcel.positions = whole * block_;
  parcel.blocks.assign(s.table.begin(), s.table.begin() + whole);
  for (const std::int32_t block : parcel.blocks) {
    pool_.share(block);
    ++parceled_[block];
  }
  return parcel;
}

void Sequences::release(const Parcel& parcel) {
  for (const std::int32_t block : parcel.blocks) {
    pool_.release(block);
    if (--parceled_.at(block) == 0) parceled_.erase(block);
  }
}

bool Sequences::can_resize(std::int32_t blocks) const {
  for (const auto& [block, parcels] : parceled_) {
    if (block >= blocks) return false;
  }
  return blocks >= pool_.size() || pool_.used() - blocks_droppable() <= blocks;
}

bool Sequences::resize(std::int32_t blocks) {
  if (has_work()) throw std::logic_error("a KV pool is resized before work on it is done");
  if (!can_resize(blocks)) return false;
  if (blocks < pool_.size() && !make_room(pool_.size() - blocks)) return false;
  const std::vector<std::int32_t> places = pool_.resize(blocks);
  resized_ = blocks;
  const auto follow = [&](std::int32_t& block) {
    const bool moves = block >= blocks;
    if (moves) block = places[block - blocks];
    return moves;
  };
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= 0) copies_.push_back({blocks + static_cast<std::int32_t>(i), places[i]});
  }
  for (Prefix& prefix : prefixes_) std::ranges::for_each(prefix.blocks, follow);
  for (Handle handle = 0; handle < static_cast<Handle>(sequences_.size()); ++handle) {
    Sequence& s = sequences_[handle];
    if (!s.open) continue;
    follow(s.spare);
    for (std::int32_t index = 0; index < static_cast<std::int32_t>(s.table.size()); ++index) {
      if (follow(s.table[index])) edits_.push_back({handle, index, s.table[index]});
    }
  }
  return true;
}

bool Sequences::has_work() const {
  return !edits_.empty() || !moves_.empty() || !copies_.empty() || resized_ > 0;
}

void Sequences::take_work(Work& work) {
  work.clear();
  work.edits.swap(edits_);
  work.copies.swap(copies_);
  for (const PendingMove& pending : moves_) work.moves.push_back(pending.move);
  moves_.clear();
  work.blocks = std::exchange(resized_, 0);
}

}  // namespace paceline::kv
