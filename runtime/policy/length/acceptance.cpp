#include "runtime/policy/length/acceptance.hpp"

#include <algorithm>

namespace paceline::policy {
namespace {

constexpr double kWeight = 8;  ///< tokens that a prior counts as

}  // namespace

void FadingShare::record(double hit, double of, double memory) {
  const double keep = std::max(0.0, 1 - of / memory);
  hits = hits * keep + hit;
  tries = tries * keep + of;
}

DraftHope DraftOutcomes::hope(const DraftHope& prior) const {
  return {found_.estimate(prior.found, kWeight), reach_.estimate(prior.next, kWeight)};
}

DraftHope AcceptanceModel::hope(int drafter) const {
  return drafters_.at(drafter).outcomes.hope({1, priors_[drafter]});
}

int AcceptanceModel::bucket(double score) {
  return static_cast<int>(std::clamp(score, 0.0, 1.0) * (kBuckets - 1) + 0.5);
}

double AcceptanceModel::mean(int drafter) const {
  return drafters_.at(drafter).all.estimate(priors_[drafter], kWeight);
}

double AcceptanceModel::estimate(int drafter, double conditional_score) const {
  return drafters_.at(drafter).buckets[bucket(conditional_score)].estimate(mean(drafter), kWeight);
}

void AcceptanceModel::record(int drafter, double conditional_score, bool accepted) {
  Drafter& d = drafters_.at(drafter);
  for (FadingShare* share : {&d.buckets[bucket(conditional_score)], &d.all})
    share->record(accepted ? 1 : 0, 1, kMemory);
}

void RequestAcceptance::record(int count, bool refuted) {
  tokens.record(count, count + (refuted ? 1 : 0), kMemory);
}

double RequestAcceptance::estimate(double mean) const { return tokens.estimate(mean, kWeight); }

}  // namespace paceline::policy
