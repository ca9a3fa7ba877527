// Expected further tokens of responses, estimated from the lengths of others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Learns the lengths of responses that ended.
///
/// The estimate is a hazard rate from censored data. For a response of t tokens it is the number of
/// responses that ended past t over the tokens that all responses have past t. Running responses,
/// which are censored, count in the tokens only. A mean over ended responses would be too small,
/// for short ones end first. Siblings are not treated apart: in simulated runs whose lengths were
/// much alike within a prompt, rebalancing with such an estimate ended no sooner.
class ResponseLengths {
 public:
  /// `longest`: most tokens that a response may have.
  explicit ResponseLengths(std::uint32_t longest);

  void ended(std::uint32_t tokens);
  /// Expected further tokens of each running response. `running`: tokens so far of all running
  /// responses, for all count in the hazard. Where no longer response has ended: as where the
  /// longest one ended, or half of the tokens that are still allowed, if these are fewer.
  [[nodiscard]] std::vector<double> remaining(std::span<const std::uint32_t> running) const;

 private:
  /// Responses whose lengths lie in one of kRanges equal ranges.
  struct Range {
    double count = 0;
    double tokens = 0;  ///< their sum
  };
  [[nodiscard]] std::size_t range_of(std::uint32_t tokens) const;

  std::uint32_t longest_;
  std::vector<Range> ended_;
};

}  // namespace paceline::policy
