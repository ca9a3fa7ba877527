// Reader of responses in any order, with bounded memory. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/hdf5/file.hpp"
#include "io/run/shard_format.hpp"
#include "io/run/stored_response.hpp"

namespace paceline::io {

/// Kept ids of tokens, one after the other (Trajectory::kept). Empty: they are not recorded.
struct Kept {
  std::vector<std::int32_t> counts;  ///< [tokens]
  std::vector<TokenId> ids;          ///< [sum of counts]
  std::vector<std::size_t> start;    ///< [tokens + 1] index of each token's first id

  /// The kept ids of tokens [first, first + count).
  [[nodiscard]] KeptSpans of(std::size_t first, std::size_t count) const;
  void clear() { *this = {}; }
  /// Sets start from counts.
  void set_start();
};

/// Turns of a file's responses, found by the offset of a response's first token.
struct StoredTurns {
  std::vector<std::uint64_t> offsets;  ///< [turns] of the response's first token; ascending
  std::vector<AnsweredTurn> turns;
  [[nodiscard]] std::span<const AnsweredTurn> of(std::uint64_t offset) const;
};

/// A file's token columns, open for reading.
class TokenColumns {
 public:
  /// `prefix`: "" in a shard, "trajectories/" in a final file. Throws IoError.
  TokenColumns(const std::string& path, const std::string& prefix);
  [[nodiscard]] const h5::File& file() const { return file_; }
  /// Number of tokens that all columns have.
  [[nodiscard]] std::uint64_t size() const;
  /// Whether the file has masks.
  [[nodiscard]] bool has_kept() const { return has_kept_; }
  /// The turns of the response whose first token is at `offset`; empty: turns are not recorded.
  /// Throws IoError, also if they are damaged: not in order, or not within `length` tokens.
  [[nodiscard]] std::span<const AnsweredTurn> turns(std::uint64_t offset,
                                                    std::uint64_t length) const;
  /// Number of most probable tokens recorded at each token's position; 0: none.
  [[nodiscard]] std::size_t top_width() const { return top_width_; }
  /// Reads the most probable tokens of tokens [first, first + count): [count, top_width()].
  void read_top(std::uint64_t first, std::uint64_t count, TokenId* ids, float* logprob) const;
  /// Bytes that a token takes in memory; an average if masks are kept.
  [[nodiscard]] std::size_t token_bytes() const;
  void read(std::uint64_t first, std::uint64_t count, TokenId* tokens, float* logprob,
            float* sampling_logprob) const;
  /// Appends the kept ids of these tokens, if recorded; does not set Kept::start. Throws IoError,
  /// also on invalid offsets in the file.
  void read_kept(std::uint64_t first, std::uint64_t count, Kept& kept) const;

 private:
  void read_turns() const;

  std::string prefix_;
  h5::File file_;
  h5::Dataset tokens_, logprob_, sampling_logprob_;
  bool has_kept_ = false;
  h5::Dataset kept_ids_, kept_offsets_;
  std::size_t top_width_ = 0;
  h5::Dataset top_ids_, top_logprob_;
  mutable std::optional<StoredTurns> turns_;  ///< nullopt: not read yet
};

/// Consecutive responses of an order. Response i has tokens [start[i], start[i + 1]) of the arrays.
struct Window {
  std::span<const StoredResponse> entries;
  std::vector<std::size_t> start;
  std::vector<TokenId> tokens;
  std::vector<float> logprob;
  std::vector<float> sampling_logprob;
  Kept kept;
  std::size_t top_width = 0;
  std::vector<TokenId> top_ids;                  ///< [tokens, top_width]
  std::vector<float> top_logprob;                ///< [tokens, top_width]
  std::vector<std::vector<AnsweredTurn>> turns;  ///< [entries]

  [[nodiscard]] KeptSpans kept_of(std::size_t i) const {
    return kept.of(start[i], start[i + 1] - start[i]);
  }
  [[nodiscard]] TopSpans top_of(std::size_t i) const {
    const std::size_t first = start[i] * top_width;
    const std::size_t count = (start[i + 1] - start[i]) * top_width;
    return {std::span(top_ids).subspan(first, count), std::span(top_logprob).subspan(first, count)};
  }
  [[nodiscard]] Trajectory trajectory(std::size_t i) const;
  /// The checksum that the response would have with this row.
  [[nodiscard]] std::uint64_t checksum(std::size_t i, const IndexRow& row) const;
  /// Whether the response's checksum matches.
  [[nodiscard]] bool intact(std::size_t i) const {
    return checksum(i, entries[i]) == entries[i].checksum;
  }
};

/// Reads the responses in the order of `entries`. Calls `use` with windows of at most
/// `window_bytes` of tokens and log-probabilities, and at least one response. For each window, each
/// file is opened once and read front to back, so that only one file is open at a time. Throws
/// IoError naming the file.
void read_in_order(std::span<const std::string> paths, const std::string& prefix,
                   std::span<const StoredResponse> entries, std::size_t window_bytes,
                   const std::function<void(const Window&)>& use);

}  // namespace paceline::io
