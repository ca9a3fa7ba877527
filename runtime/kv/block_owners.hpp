// Names of sequences and blocks, for groups in which each rank has the KV of its own requests.
//
// Each rank owns a pool of its own, in which blocks and sequences have numbers from 0 on. The
// group's leader does the bookkeeping of all pools. With n owners, block b of owner o has the name
// n * b + o. Sequences are named in the same way, so that a name tells the owner. With one owner,
// names and numbers are equal.
#pragma once

#include <cstdint>

#include "runtime/kv/sequences.hpp"

namespace paceline::kv {

struct BlockOwner {
  std::int32_t index = 0;
  std::int32_t owners = 1;

  [[nodiscard]] std::int32_t name(std::int32_t number) const { return number * owners + index; }
  [[nodiscard]] bool has(std::int32_t name) const { return name % owners == index; }
  /// Returns the number in this owner's pool. The name must be one that the owner has().
  [[nodiscard]] std::int32_t number(std::int32_t name) const { return name / owners; }

  /// Replaces all numbers in `work`, the work of this owner's pool, by names.
  void name_all(Work& work) const;
  /// Sets `own` to the work in `all` that is for this owner's pool, with numbers in place of names.
  void take(const Work& all, Work& own) const;
};

}  // namespace paceline::kv
