#include "runtime/policy/length/stop_lengths.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::policy {

StoppedTrees::StoppedTrees(std::span<const std::int32_t> parents, std::span<const float> scores,
                           int most)
    : parents_(parents.begin(), parents.end()),
      depths_(parents.size()),
      first_(parents.size()),
      last_(parents.size()),
      inner_(parents.size()) {
  if (scores.size() != parents.size()) throw std::invalid_argument("a score for each token");
  for (std::int32_t token = 0; token < size(); ++token) {
    depths_[token] = parents_[token] < 0 ? 1 : depths_[parents_[token]] + 1;
    if (depths_[token] > StopPoint::kCalls)
      throw std::invalid_argument("a path of more tokens than there are calls");
  }
  std::vector<std::int32_t> chosen;
  for (int calls = 1; calls <= StopPoint::kCalls; ++calls) {
    chosen.clear();
    for (std::int32_t token = 0; token < size(); ++token) {
      if (depths_[token] <= calls) chosen.push_back(token);
    }
    std::stable_sort(chosen.begin(), chosen.end(),
                     [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
    chosen.resize(std::min(chosen.size(), static_cast<std::size_t>(std::max(most, 0))));
    for (const std::int32_t token : chosen) {
      if (first_[token] == 0) first_[token] = calls;
      last_[token] = calls;
      if (parents_[token] >= 0) inner_[parents_[token]] = 1;
    }
  }
}

bool StoppedTrees::stands(std::int32_t token, int calls) const {
  return first_[token] > 0 && first_[token] <= calls && calls <= last_[token];
}

StopPoint::Lengths StoppedTrees::lengths(std::span<const double> conditional) const {
  std::vector<double> path(parents_.size());  // probability that the path is accepted whole
  // Paths of one depth exclude one another: the sum of their probabilities is the probability that
  // at least so many tokens are accepted.
  double at_least[StopPoint::kCalls][StopPoint::kCalls + 2] = {};
  for (int calls = 1; calls <= StopPoint::kCalls; ++calls) at_least[calls - 1][0] = 1;
  for (std::int32_t token = 0; token < size(); ++token) {
    if (!verified(token)) continue;
    path[token] = (parents_[token] < 0 ? 1.0 : path[parents_[token]]) * conditional[token];
    for (int calls = first_[token]; calls <= last_[token]; ++calls)
      at_least[calls - 1][depths_[token]] += path[token];
  }
  StopPoint::Lengths lengths{};
  for (int c = 0; c < StopPoint::kCalls; ++c) {
    for (int n = 0; n <= StopPoint::kCalls; ++n) {
      lengths[c][n] = static_cast<float>(std::max(0.0, at_least[c][n] - at_least[c][n + 1]));
    }
  }
  return lengths;
}

StopPoint::Accepted StoppedTrees::accepted(std::span<const std::int32_t> path) const {
  StopPoint::Accepted accepted{};
  for (int calls = 1; calls <= StopPoint::kCalls; ++calls) {
    for (const std::int32_t token : path) {
      if (!stands(token, calls)) break;
      ++accepted[calls - 1];
    }
  }
  return accepted;
}

}  // namespace paceline::policy
