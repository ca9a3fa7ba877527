// The target's features at positions of a text (engine::StepRunner::read_features()), on their way
// to a head that reads them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paceline::draft {

/// Positions of a response whose features are kept while nothing is drafted for it. If more than
/// twice as many are held, the earlier ones are dropped and rows begin anew: heads are trained on
/// texts of a few thousand tokens, read the last hundreds most, and one pass computes these rows.
inline constexpr std::int64_t kMostKeptFeatures = 256;

/// Features of positions [first, end) of a text, in order. `row_bytes`: bytes of a position, the
/// same in all calls.
struct Features {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::vector<std::byte> bytes;  ///< [end - first, row_bytes]

  /// Appends features of positions from `from` on. Features held already stay unchanged. After a
  /// gap only the new features are held.
  void add(std::int64_t from, std::span<const std::byte> features, std::size_t row_bytes) {
    if (from > end) {
      bytes.clear();
      first = end = from;
    }
    const auto to = from + static_cast<std::int64_t>(features.size() / row_bytes);
    if (to <= end) return;
    const auto more = features.subspan(static_cast<std::size_t>(end - from) * row_bytes);
    bytes.insert(bytes.end(), more.begin(), more.end());
    end = to;
  }
  void drop_before(std::int64_t position, std::size_t row_bytes) {
    if (position <= first) return;
    const auto gone = (position - first) * static_cast<std::ptrdiff_t>(row_bytes);
    bytes.erase(bytes.begin(), bytes.begin() + gone);
    first = position;
  }
  /// Drops the earlier features if too many are held. Returns whether there were too many.
  bool drop_old(std::size_t row_bytes) {
    if (end - first <= 2 * kMostKeptFeatures) return false;
    drop_before(end - kMostKeptFeatures, row_bytes);
    return true;
  }
};

}  // namespace paceline::draft
