// How often drafts were accepted in earlier rollouts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

/// What became of drafted tokens.
struct DraftTally {
  std::uint64_t tried = 0;     ///< that the target has judged: the path before them was accepted
  std::uint64_t accepted = 0;  ///< of them
};

/// What became of one method's tokens.
struct DraftRecord {
  std::string method;  ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  double tried = 0;    ///< tokens whose path before them was accepted; those of long ago count less
  double accepted = 0;  ///< of them; at most `tried`
};

/// A value. Rates change little from one RL step to the next, or from one to the hundredth after it
/// (SpecActor, sections 4.1 and 6), so that the next rollout begins with those of the last ones.
class DraftHistory {
 public:
  DraftHistory() = default;
  /// Of several records of a method the sum counts. Throws std::invalid_argument on values out of
  /// range.
  explicit DraftHistory(const std::vector<DraftRecord>& records);

  /// So many tokens of a method were tried, and so many of those accepted.
  void update(std::string_view method, double tried, double accepted);
  /// Adds what another history has seen.
  void merge(const DraftHistory& other);
  /// What was seen so far counts `keep` of what it did, from 0 to 1; once for each rollout.
  void decay(double keep);

  /// P(a token of the method is accepted | those before it are): what was seen, and `prior` as if
  /// it had been seen in kPriorTokens tokens.
  [[nodiscard]] double rate(std::string_view method, double prior) const;
  [[nodiscard]] bool knows(std::string_view method) const { return find(method) != nullptr; }
  [[nodiscard]] const std::vector<DraftRecord>& records() const { return records_; }  ///< by name

  static constexpr double kPriorTokens = 64;

 private:
  [[nodiscard]] const DraftRecord* find(std::string_view method) const;

  std::vector<DraftRecord> records_;
};

}  // namespace paceline
