// What collectives are given in tests, and what they must give.
#pragma once

#include <cmath>
#include <random>
#include <vector>

namespace paceline::fabric::test {

/// The same numbers on every rank: part p of a sum, of round `round`.
inline std::vector<float> part(int p, int round, int count) {
  std::mt19937 random(1000 * round + p);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 20));
  return values;
}

/// Of `parts` parts from `first` on, neighbours first.
inline std::vector<float> tree_sum(int first, int parts, int round, int count) {
  if (parts == 1) return part(first, round, count);
  std::vector<float> left = tree_sum(first, parts / 2, round, count);
  const std::vector<float> right = tree_sum(first + parts / 2, parts / 2, round, count);
  for (int i = 0; i < count; ++i) left[i] += right[i];
  return left;
}

/// A matrix whose columns lie on the ranks, 64 and more on each, and whose rows they exchange for
/// them: rank r gets the rows from first[r] to first[r + 1].
class ExchangedRows {
 public:
  ExchangedRows(int rank, int ranks, int rows) : rank_(rank), rows_(rows) {
    for (int r = 0; r < ranks; ++r) {
      if (r < rank) before_ += 64 + r;
      columns.push_back(64 + r);
      width_ += columns.back();
      first.push_back(rows * (r + 1) / ranks);
    }
  }
  /// [rows, columns[rank]]
  [[nodiscard]] std::vector<float> sent() const {
    return values(0, rows_, before_, columns[rank_]);
  }
  /// [first[rank + 1] - first[rank], all columns]
  [[nodiscard]] std::vector<float> expected() const {
    return values(first[rank_], first[rank_ + 1], 0, width_);
  }

  std::vector<int> columns;   ///< [ranks]
  std::vector<int> first{0};  ///< [ranks + 1]

 private:
  [[nodiscard]] static std::vector<float> values(int begin, int end, int column, int columns) {
    std::vector<float> of;
    for (int row = begin; row < end; ++row) {
      for (int c = 0; c < columns; ++c) of.push_back(static_cast<float>(row * 1000 + column + c));
    }
    return of;
  }

  int rank_;
  int rows_;
  int before_ = 0;
  int width_ = 0;
};

}  // namespace paceline::fabric::test
