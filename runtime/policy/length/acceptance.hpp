// Probability that a drafted token is accepted: drafters' scores calibrated by the target's
// verdicts.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// Acceptance assumed of an unknown drafter: the middle of SpecActor's range for draft models
/// (section 5: 0.49 to 0.72).
inline constexpr double kUnknownAcceptance = 0.6;

/// Acceptance assumed of unknown n-grams and suffix trees where a rank drafts by one drafter above
/// all: with their drafts, steps of real chats have 1.65 to 1.82 tokens (tests/bench/README.md,
/// "What is accepted").
inline constexpr double kUnknownLookup = 0.4;

/// Share of tries that came true. Old tries fade exponentially.
struct FadingShare {
  double hits = 0;
  double tries = 0;

  /// Adds `of` tries; a try made `memory` tries ago then counts 1/e.
  void record(double hit, double of, double memory);
  /// The share, with `prior` counted as `weight` tries.
  [[nodiscard]] double estimate(double prior, double weight) const {
    return (hits + weight * prior) / (tries + weight);
  }
};

/// How often drafts are found, and how many of their levels are accepted. A draft ends where the
/// target says something else, or where the drafter had no more to say: both count alike.
class DraftOutcomes {
 public:
  /// `memory`: number of later drafts (or levels) after which one still counts 1/e.
  explicit DraftOutcomes(double memory) : memory_(memory) {}

  void record_found(bool found) { found_.record(found ? 1 : 0, 1, memory_); }
  /// Records that `levels` levels were accepted. `ended`: the next level was asked for and would
  /// have been verified, but was not accepted.
  void record_reach(int levels, bool ended) {
    reach_.record(levels, levels + (ended ? 1 : 0), memory_);
  }
  /// Hope of the next draft; leans on `prior` where little was seen.
  [[nodiscard]] DraftHope hope(const DraftHope& prior) const;

 private:
  double memory_;
  FadingShare found_;
  FadingShare reach_;
};

/// Turns drafters' scores of their tokens into probabilities. A token's conditional score, in [0,
/// 1], is its path's score over the score of the path before it: the drafter's estimate given the
/// text before. A drafter without an estimate says 1. Each drafter's scores are cut into equal
/// buckets, and a bucket counts how often the target agreed. A bucket that saw little leans on the
/// drafter's mean, and the mean on the drafter's prior acceptance. Not thread-safe.
class AcceptanceModel {
 public:
  /// priors: [drafters] acceptance known beforehand.
  explicit AcceptanceModel(std::vector<double> priors)
      : priors_(std::move(priors)), drafters_(priors_.size()) {}

  /// P(the token is the target's | the tokens before it on its path are).
  [[nodiscard]] double estimate(int drafter, double conditional_score) const;
  /// P of a token whose score is not known yet: the drafter's mean.
  [[nodiscard]] double mean(int drafter) const;
  /// Hope of a draft for a request of which nothing is known.
  [[nodiscard]] DraftHope hope(int drafter) const;
  /// Outcomes of the drafter's drafts, over all requests.
  DraftOutcomes& outcomes(int drafter) { return drafters_.at(drafter).outcomes; }
  /// Records the verdict on a verified token. Only tokens whose path before them was accepted are
  /// evidence.
  void record(int drafter, double conditional_score, bool accepted);

 private:
  static constexpr int kBuckets = 16;
  static constexpr double kMemory = 2000;  ///< later tokens after which one still counts 1/e
  struct Drafter {
    std::array<FadingShare, kBuckets> buckets;
    FadingShare all;
    DraftOutcomes outcomes{kMemory};
  };
  [[nodiscard]] static int bucket(double score);

  std::vector<double> priors_;  ///< [drafters]
  std::vector<Drafter> drafters_;
};

/// Acceptance of one request, so that easy and hard requests of a batch get drafts of different
/// length. It belongs to the request's holder.
struct RequestAcceptance {
  static constexpr double kMemory = 64;  ///< later tokens or drafts after which one counts 1/e

  FadingShare tokens;
  DraftOutcomes outcomes{kMemory};

  /// Records one step: `count` tokens of its draft were accepted. `refuted`: the target then said
  /// something else than the draft; otherwise the draft simply ended.
  void record(int count, bool refuted);
  /// P(the next drafted token is accepted); leans on the drafter's mean where little was tried.
  [[nodiscard]] double estimate(double mean) const;
};

}  // namespace paceline::policy
