// Expected further tokens of responses, by how long others have become.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Learns the lengths of responses that ended.
///
/// The hazard of a response of t tokens, censored: the number of responses that ended past t over
/// the tokens that any has past t. Running responses are censored and count in the tokens alone:
/// the mean of ended ones would be too small, for short ones end first. Knowing siblings did not
/// help: in simulated runs with lengths much alike within a prompt, rebalancing by it ended no
/// sooner.
class ResponseLengths {
 public:
  /// `longest`: tokens that a response may have.
  explicit ResponseLengths(std::uint32_t longest);

  void ended(std::uint32_t tokens);
  /// Expected further tokens of each running response, by its tokens so far. Needs all running
  /// ones, for they count in the hazard. Where none became longer, half of the tokens still
  /// allowed.
  [[nodiscard]] std::vector<double> remaining(std::span<const std::uint32_t> running) const;

 private:
  /// Responses whose lengths lie in one of many equal ranges.
  struct Range {
    double count = 0;
    double tokens = 0;  ///< together
  };
  [[nodiscard]] std::size_t range_of(std::uint32_t tokens) const;

  std::uint32_t longest_;
  std::vector<Range> ended_;
};

}  // namespace paceline::policy
