// Names of sequences and blocks, for groups in which each rank has the KV of its own requests.
//
// Each rank owns a pool of KV blocks. Each pool numbers its blocks and its sequences from 0. The
// group's leader does the bookkeeping of all pools, so it needs names that are unique in the group.
// With n owners, block b of owner o has the name n * b + o. Sequences are named in the same way. So
// a name tells the owner. With one owner, names and numbers are equal.
#pragma once

#include <cstdint>

#include "runtime/kv/sequences.hpp"

namespace paceline::kv {

struct BlockOwner {
  std::int32_t index = 0;
  std::int32_t owners = 1;

  [[nodiscard]] std::int32_t name(std::int32_t number) const { return number * owners + index; }
  [[nodiscard]] bool has(std::int32_t name) const { return name % owners == index; }
  /// Returns the number that `name` stands for in this owner's pool. has(name) must be true.
  [[nodiscard]] std::int32_t number(std::int32_t name) const { return name / owners; }

  /// Replaces numbers by names in `work`, which is for this owner's pool.
  void name_all(Work& work) const;
  /// Sets `own` to the work in `all` that is for this owner's pool, with numbers in place of names.
  void take(const Work& all, Work& own) const;
};

}  // namespace paceline::kv
