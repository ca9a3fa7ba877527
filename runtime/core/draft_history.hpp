// Acceptance of drafts in earlier rollouts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

/// Counts of drafted tokens.
struct DraftTally {
  std::uint64_t tried = 0;     ///< judged by the target: the path before them was accepted
  std::uint64_t accepted = 0;  ///< accepted tokens among those tried
};

/// Acceptance record of one drafting method.
struct DraftRecord {
  std::string method;   ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  double tried = 0;     ///< tokens whose path before them was accepted; old ones count less
  double accepted = 0;  ///< accepted tokens among those tried
};

/// Acceptance by method, a value type. Rates change little from one RL step to the next, or over a
/// hundred steps (SpecActor, sections 4.1 and 6), so the next rollout begins with the rates of the
/// last ones.
class DraftHistory {
 public:
  DraftHistory() = default;
  /// Records of one method are added up. Throws std::invalid_argument on values out of range.
  explicit DraftHistory(const std::vector<DraftRecord>& records);

  /// Adds numbers of tried tokens of a method, and of accepted ones among them.
  void update(std::string_view method, double tried, double accepted);
  /// Adds another history's counts.
  void merge(const DraftHistory& other);
  /// Multiplies all counts by `keep`, from 0 to 1. To be called once for each rollout.
  void decay(double keep);

  /// P(a token of the method is accepted | the tokens before it are), by the counts and by `prior`,
  /// which counts as much as kPriorTokens tokens.
  [[nodiscard]] double rate(std::string_view method, double prior) const;
  [[nodiscard]] bool knows(std::string_view method) const { return find(method) != nullptr; }
  [[nodiscard]] const std::vector<DraftRecord>& records() const { return records_; }  ///< by name

  static constexpr double kPriorTokens = 64;

 private:
  [[nodiscard]] const DraftRecord* find(std::string_view method) const;

  std::vector<DraftRecord> records_;
};

}  // namespace paceline
