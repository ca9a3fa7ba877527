// The sequences of a verifier group. The group has either one pool for all its ranks, or a pool for
// each rank, which then has the KV of its own requests (block_owners.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/kv/block_owners.hpp"
#include "runtime/kv/sequences.hpp"

namespace paceline::kv {

/// Sequences in pools of equal size, one pool for each owner. All blocks of a sequence, even shared
/// ones, are in one pool. Handles and block numbers, also in Work, Place and Parcel, are names that
/// tell the owner (BlockOwner). An uncommented function that Sequences has too acts on the pool of
/// its sequence or parcel, or on all pools if it takes neither. Not thread-safe.
class OwnedSequences {
 public:
  /// `blocks`: number of blocks in each pool. `block`: positions per block.
  OwnedSequences(std::int32_t owners, std::int32_t blocks, std::int32_t block);

  [[nodiscard]] std::int32_t owners() const { return static_cast<std::int32_t>(pools_.size()); }
  [[nodiscard]] std::int32_t owner_of(std::int32_t name) const {
    return owners() == 1 ? 0 : name % owners();
  }

  /// Opens a sequence in the pool of `owner`.
  [[nodiscard]] std::optional<Handle> open(std::int32_t owner, std::uint32_t prompt,
                                           std::int32_t prompt_length, std::int32_t positions,
                                           std::span<const TokenId> tokens);
  /// Whether the pool of `owner` has an open sequence of this prompt, or the prompt's KV.
  [[nodiscard]] bool knows(std::int32_t owner, std::uint32_t prompt) const {
    return pools_[owner].knows(prompt);
  }
  [[nodiscard]] bool reserve(Handle sequence, std::int32_t positions) {
    return of(sequence).reserve(number(sequence), positions);
  }
  [[nodiscard]] std::int32_t reserved(Handle sequence) const {
    return of(sequence).reserved(number(sequence));
  }
  void close(Handle sequence) { of(sequence).close(number(sequence)); }

  [[nodiscard]] bool ready(Handle sequence) { return of(sequence).ready(number(sequence)); }
  void pause(Handle sequence, bool paused) { of(sequence).pause(number(sequence), paused); }
  [[nodiscard]] std::int32_t length(Handle sequence) const {
    return of(sequence).length(number(sequence));
  }
  [[nodiscard]] std::vector<std::int32_t> table(Handle sequence) const;
  [[nodiscard]] std::vector<Place> places(Handle sequence, std::int32_t first) const;
  [[nodiscard]] std::int32_t own_from(Handle sequence) const {
    return of(sequence).own_from(number(sequence));
  }
  void advance(Handle sequence, std::int32_t rows) { of(sequence).advance(number(sequence), rows); }
  void keep(Handle sequence, std::int32_t position) {
    of(sequence).keep(number(sequence), position);
  }

  void take_work(Work& work);
  [[nodiscard]] Parcel detach(Handle sequence);
  [[nodiscard]] Parcel share(Handle sequence);
  void release(const Parcel& parcel);

  /// Resizes each pool to `blocks` blocks. If one pool cannot, returns false and changes nothing.
  [[nodiscard]] bool resize(std::int32_t blocks);

  [[nodiscard]] std::int32_t blocks() const;  ///< blocks of all pools together
  [[nodiscard]] std::int32_t blocks_used() const;
  [[nodiscard]] std::int32_t blocks_idle() const;
  /// Number of blocks of the owner's pool that are free, or are freed when room is needed.
  [[nodiscard]] std::int32_t blocks_free(std::int32_t owner) const;
  [[nodiscard]] std::uint64_t positions_shared() const;

 private:
  [[nodiscard]] Sequences& of(std::int32_t name) { return pools_[owner_of(name)]; }
  [[nodiscard]] const Sequences& of(std::int32_t name) const { return pools_[owner_of(name)]; }
  [[nodiscard]] std::int32_t number(std::int32_t name) const {
    return owners() == 1 ? name : name / owners();
  }
  [[nodiscard]] BlockOwner owner(std::int32_t name) const { return {owner_of(name), owners()}; }
  [[nodiscard]] Parcel named(Parcel parcel, const BlockOwner& owner) const;

  std::vector<Sequences> pools_;  ///< [owners]
  Work work_;                     ///< take_work()'s buffer for one pool
};

}  // namespace paceline::kv
