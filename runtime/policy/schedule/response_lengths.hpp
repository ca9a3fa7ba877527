// How much of a response is still to come, by how long others have become.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Learns the lengths of responses that ended.
///
/// How often a response of t tokens ends with the next is taken to be how many ended past t, for
/// each token that any has past t. Responses that still run count in the latter: the mean of those
/// that have ended alone would be too small, for the short ones end first. Knowing which are
/// siblings did not help: in simulated runs with lengths that were much alike within a prompt,
/// rebalancing by it ended no sooner.
class ResponseLengths {
 public:
  /// `longest`: tokens that a response may have.
  explicit ResponseLengths(std::uint32_t longest);

  void ended(std::uint32_t tokens);
  /// Tokens that are expected yet of each response that runs, by how many it has: of all, since
  /// these count too. Where none became longer, half of what it may still have.
  [[nodiscard]] std::vector<double> remaining(std::span<const std::uint32_t> running) const;

 private:
  /// Of responses whose lengths lie in one of many equal ranges.
  struct Range {
    double count = 0;
    double tokens = 0;  ///< together
  };
  [[nodiscard]] std::size_t range_of(std::uint32_t tokens) const;

  std::uint32_t longest_;
  std::vector<Range> ended_;
};

}  // namespace paceline::policy
