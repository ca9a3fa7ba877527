#include "runtime/policy/acceptance.hpp"

#include <algorithm>

namespace paceline::policy {
namespace {

constexpr double kPrior = 0.6;        ///< acceptance of a drafter nothing is known of
constexpr double kPriorWeight = 8;    ///< in tokens, as the weights below
constexpr double kMeanWeight = 16;    ///< of the drafter's mean in a bucket
constexpr double kMemory = 2000;      ///< tokens after which a record counts 1/e
constexpr double kLargest = 1e100;    ///< weight at which the counts are scaled back
constexpr double kRequestWeight = 8;  ///< of the drafter's mean in a request
constexpr double kRequestMemory = 64;

}  // namespace

AcceptanceModel::AcceptanceModel(int drafters) : drafters_(static_cast<std::size_t>(drafters)) {}

int AcceptanceModel::bucket(double score) {
  return static_cast<int>(std::clamp(score, 0.0, 1.0) * (kBuckets - 1) + 0.5);
}

double AcceptanceModel::mean(int drafter) const {
  const Drafter& d = drafters_.at(drafter);
  return (d.all.accepted / d.weight + kPriorWeight * kPrior) /
         (d.all.tried / d.weight + kPriorWeight);
}

double AcceptanceModel::estimate(int drafter, double conditional_score) const {
  const Drafter& d = drafters_.at(drafter);
  const Count& count = d.buckets[bucket(conditional_score)];
  return (count.accepted / d.weight + kMeanWeight * mean(drafter)) /
         (count.tried / d.weight + kMeanWeight);
}

void AcceptanceModel::record(int drafter, double conditional_score, bool accepted) {
  Drafter& d = drafters_.at(drafter);
  d.weight *= 1 + 1 / kMemory;
  for (Count* count : {&d.buckets[bucket(conditional_score)], &d.all}) {
    count->tried += d.weight;
    if (accepted) count->accepted += d.weight;
  }
  if (d.weight < kLargest) return;
  const auto scale = [&](Count& count) {
    count.accepted /= d.weight;
    count.tried /= d.weight;
  };
  std::for_each(d.buckets.begin(), d.buckets.end(), scale);
  scale(d.all);
  d.weight = 1;
}

void RequestAcceptance::record(int count, bool refuted) {
  const double fresh = count + (refuted ? 1 : 0);
  const double keep = std::max(0.0, 1 - fresh / kRequestMemory);
  accepted = accepted * keep + count;
  tried = tried * keep + fresh;
}

double RequestAcceptance::estimate(double mean) const {
  return (accepted + kRequestWeight * mean) / (tried + kRequestWeight);
}

}  // namespace paceline::policy
