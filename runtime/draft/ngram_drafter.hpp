// Drafts by n-gram lookup in the request's own prompt and response (prompt lookup decoding).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/draft/drafter.hpp"

namespace paceline::draft {

struct NgramOptions {
  int min_n = 2;  ///< tokens, 1 <= min_n <= max_n
  int max_n = 5;
};

/// The tokens of one request, with an index from n-grams to their places. The index takes appended
/// tokens in at the next lookup(), at most O(max_n^2) per token, whatever the length: requests that
/// are never drafted for cost nothing.
class NgramIndex {
 public:
  /// Throws std::invalid_argument on bad options.
  explicit NgramIndex(const NgramOptions& options);

  /// The most bytes of a text of `tokens` tokens, but for a few kilobytes: memory grows by
  /// doubling, and tables are at least a quarter full.
  [[nodiscard]] static constexpr std::uint64_t most_bytes(const NgramOptions& options,
                                                          std::uint64_t tokens) {
    const int tables = options.max_n - options.min_n + 1;
    return tokens * (2 * sizeof(TokenId) + 4 * sizeof(std::uint32_t) * tables);
  }

  void append(std::span<const TokenId> tokens);
  /// The tokens, at most `length`, that followed the longest n-gram that ends the text and occurred
  /// before; empty when there is none. With assumed tokens, a longer answer to the text alone is
  /// found first. If it begins with the assumed tokens, returns its tokens after them. Otherwise,
  /// or if it ends with them, returns the answer to the text and the assumed tokens together.
  /// Assumed tokens do not enter the index. Valid until the next call.
  [[nodiscard]] std::span<const TokenId> lookup(int length, std::span<const TokenId> assumed = {});

 private:
  /// Open addressing over the n-grams of one n. A slot has the position after an n-gram; 0: empty.
  struct Table {
    std::vector<std::uint32_t> slots;  ///< a power of two, at most half full
    std::size_t used = 0;
  };

  void enter_appended();
  [[nodiscard]] std::span<const TokenId> follow(std::size_t length) const;
  [[nodiscard]] std::uint32_t place(int n) const;
  void insert(int n, std::uint32_t next);
  void grow(int n);
  /// The slot of the n-gram that ends before position `end`, or the empty slot for it.
  [[nodiscard]] std::size_t find(int n, std::uint32_t end) const;

  NgramOptions options_;
  std::vector<TokenId> tokens_;  ///< appended tokens, then the last call's assumed tokens
  std::size_t appended_ = 0;
  std::size_t indexed_ = 0;    ///< appended tokens whose n-grams are in the tables
  std::vector<Table> tables_;  ///< [max_n - min_n + 1]
};

/// A chain for each request; scores are 1, for lookup gives no estimate.
class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramOptions& options) : options_(options) {
    static_cast<void>(NgramIndex(options));  // throws on bad options now instead of later
  }

  void start(const DraftStart& request, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void propose(std::span<DraftSlot> batch, double now, Levels* levels) override;
  void finish(RequestId id, double now) override;

 private:
  NgramIndex& index(RequestId id);

  NgramOptions options_;
  std::map<RequestId, NgramIndex> indices_;
};

}  // namespace paceline::draft
