// Trust in texts of earlier steps, by their age, learned from how often they were right.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace paceline::draft {

/// Number of classes of ages in steps: class 0 has this step's own texts, the next ones ages 1, 2,
/// 3 to 4, 5 to 8, and so on; the last class has all older texts.
inline constexpr int kAgeClasses = 8;
[[nodiscard]] constexpr int age_class(std::uint32_t age) {
  return age == 0 ? 0 : std::min(kAgeClasses - 1, 1 + static_cast<int>(std::bit_width(age - 1)));
}
/// The ages of a class above 0, as text for users: "1", "2", "3-4", ..., "33+".
[[nodiscard]] inline std::string ages_of_class(int age_class) {
  const std::uint32_t last = 1U << (age_class - 1);
  const std::uint32_t first = last / 2 + 1;
  if (age_class == kAgeClasses - 1) return std::to_string(first) + "+";
  return first < last ? std::to_string(first) + "-" + std::to_string(last) : std::to_string(last);
}

/// Compares, class by class, how often trees' likeliest next tokens were right with how often they
/// should have been by the trees' own counts. Not thread-safe; trust() is, while nobody records.
class AgeTrust {
 public:
  /// Notes whether a tree's likeliest next token was right, and the tree's probability for it.
  void record(int age_class, double probability, bool right) {
    Evidence& e = evidence_[age_class];
    e.expected += probability;
    e.right += right ? 1 : 0;
    if (e.expected > kMemory) e = {e.expected / 2, e.right / 2};
  }
  /// The factor, at most 1, for the probabilities of this class's trees: how often these trees are
  /// right, relative to this step's own trees.
  [[nodiscard]] float trust(int age_class) const {
    return static_cast<float>(std::min(1.0, rate(age_class) / rate(0)));
  }

 private:
  struct Evidence {
    double expected = 0;
    double right = 0;
  };
  static constexpr double kPrior = 16;       ///< weight of the assumed rate, in predictions
  static constexpr double kMemory = 4096;    ///< predictions after which older ones count half
  static constexpr double kPerClass = 0.95;  ///< assumed factor from class to class

  [[nodiscard]] double rate(int age_class) const {
    double assumed = 1;
    for (int c = 0; c < age_class; ++c) assumed *= kPerClass;
    const Evidence& e = evidence_[age_class];
    return (e.right + kPrior * assumed) / (e.expected + kPrior);
  }

  std::array<Evidence, kAgeClasses> evidence_{};
};

}  // namespace paceline::draft
