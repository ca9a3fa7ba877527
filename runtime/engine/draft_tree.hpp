// A draft as the engine verifies it, and the order in which its tokens become rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::engine {

/// Draft tokens that may follow a request's last token. parents[i] < i is the token that token i
/// follows; -1: the last committed token. No two tokens with the same parent are equal.
struct DraftTree {
  std::span<const TokenId> tokens;        ///< [tokens]
  std::span<const std::int32_t> parents;  ///< [tokens]
};

/// Rows of a draft in depth-first order, under the last committed token as row 0: a branch is a run
/// of rows, and the first child's branch comes first. lay_out() uses the memory again.
class TreeRows {
 public:
  void lay_out(const DraftTree& draft);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(draft_.size()); }
  /// Whether every row's parent is the row before.
  [[nodiscard]] bool chain() const { return chain_; }
  [[nodiscard]] std::span<const std::int32_t> draft() const { return draft_; }    ///< token, or -1
  [[nodiscard]] std::span<const std::int32_t> parent() const { return parent_; }  ///< row, or -1
  [[nodiscard]] std::span<const std::int32_t> depth() const { return depth_; }

 private:
  void add(std::int32_t token, std::int32_t parent_row);

  bool chain_ = true;
  std::vector<std::int32_t> draft_, parent_, depth_;  ///< [rows]
  std::vector<std::int32_t> first_child_, sibling_;   ///< [tokens + 1], entry 0 for the root
  struct Pending {
    std::int32_t token, parent_row;
  };
  std::vector<Pending> stack_;
};

}  // namespace paceline::engine
