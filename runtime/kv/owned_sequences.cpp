#include "runtime/kv/owned_sequences.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::kv {

OwnedSequences::OwnedSequences(std::int32_t owners, std::int32_t blocks, std::int32_t block) {
  for (std::int32_t o = 0; o < owners; ++o) pools_.emplace_back(blocks, block);
}

std::optional<Handle> OwnedSequences::open(std::int32_t owner, std::uint32_t prompt,
                                           std::int32_t prompt_length, std::int32_t positions,
                                           std::span<const TokenId> tokens) {
  const std::optional<Handle> handle = pools_[owner].open(prompt, prompt_length, positions, tokens);
  if (!handle) return std::nullopt;
  return BlockOwner{owner, owners()}.name(*handle);
}

std::vector<std::int32_t> OwnedSequences::table(Handle sequence) const {
  const std::span<const std::int32_t> numbers = of(sequence).table(number(sequence));
  std::vector<std::int32_t> names;
  for (const std::int32_t block : numbers)
    names.push_back(block < 0 ? block : owner(sequence).name(block));
  return names;
}

std::vector<Place> OwnedSequences::places(Handle sequence, std::int32_t first) const {
  std::vector<Place> places = of(sequence).places(number(sequence), first);
  for (Place& place : places) place.block = owner(sequence).name(place.block);
  return places;
}

void OwnedSequences::take_work(Work& work) {
  pools_[0].take_work(work);
  if (owners() == 1) return;
  BlockOwner{0, owners()}.name_all(work);
  for (std::int32_t o = 1; o < owners(); ++o) {
    pools_[o].take_work(work_);
    BlockOwner{o, owners()}.name_all(work_);
    work.edits.insert(work.edits.end(), work_.edits.begin(), work_.edits.end());
    work.moves.insert(work.moves.end(), work_.moves.begin(), work_.moves.end());
    work.copies.insert(work.copies.end(), work_.copies.begin(), work_.copies.end());
  }
}

Parcel OwnedSequences::named(Parcel parcel, const BlockOwner& owner) const {
  for (std::int32_t& block : parcel.blocks) block = owner.name(block);
  return parcel;
}

Parcel OwnedSequences::detach(Handle sequence) {
  return named(of(sequence).detach(number(sequence)), owner(sequence));
}

Parcel OwnedSequences::share(Handle sequence) {
  return named(of(sequence).share(number(sequence)), owner(sequence));
}

void OwnedSequences::release(const Parcel& parcel) {
  if (parcel.blocks.empty()) return;
  Parcel numbers = parcel;
  for (std::int32_t& block : numbers.blocks) block = number(block);
  of(parcel.blocks.front()).release(numbers);
}

bool OwnedSequences::resize(std::int32_t blocks) {
  const auto can = [blocks](const Sequences& pool) { return pool.can_resize(blocks); };
  if (!std::all_of(pools_.begin(), pools_.end(), can)) return false;
  for (Sequences& pool : pools_) {
    if (!pool.resize(blocks)) throw std::logic_error("a KV pool that cannot be resized after all");
  }
  return true;
}

std::int32_t OwnedSequences::blocks() const { return owners() * pools_[0].blocks(); }

std::int32_t OwnedSequences::blocks_used() const {
  std::int32_t used = 0;
  for (const Sequences& pool : pools_) used += pool.blocks_used();
  return used;
}

std::int32_t OwnedSequences::blocks_idle() const {
  std::int32_t idle = 0;
  for (const Sequences& pool : pools_) idle += pool.blocks_idle();
  return idle;
}

std::int32_t OwnedSequences::blocks_free(std::int32_t owner) const {
  const Sequences& pool = pools_[owner];
  return pool.blocks() - pool.blocks_used() + pool.blocks_idle();
}

std::uint64_t OwnedSequences::positions_shared() const {
  std::uint64_t shared = 0;
  for (const Sequences& pool : pools_) shared += pool.positions_shared();
  return shared;
}

}  // namespace paceline::kv
