// How likely a drafted token is accepted: drafters' scores calibrated by what the target said.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

/// Acceptance of a drafter that nothing is known of: the middle of what SpecActor, section 5,
/// reports of draft models (0.49 to 0.72).
inline constexpr double kUnknownAcceptance = 0.6;

/// How often something came true, of late.
struct FadingShare {
  double hits = 0;
  double tries = 0;

  /// `of` more tries, after which what was counted `memory` tries ago counts 1/e.
  void record(double hit, double of, double memory);
  /// Leans on `prior` as on so many tries.
  [[nodiscard]] double estimate(double prior, double weight) const {
    return (hits + weight * prior) / (tries + weight);
  }
};

/// What became of drafts, whatever ended them: nothing was found, the target said something else,
/// or the drafter had no more to say. A tree counts by its levels.
class DraftOutcomes {
 public:
  /// `memory`: drafts and levels after which what was seen counts 1/e.
  explicit DraftOutcomes(double memory) : memory_(memory) {}

  void record_found(bool found) { found_.record(found ? 1 : 0, 1, memory_); }
  /// So many levels were accepted; `ended`: no further one, although one was asked for and would
  /// have been verified.
  void record_reach(int levels, bool ended) {
    reach_.record(levels, levels + (ended ? 1 : 0), memory_);
  }
  /// Leans on `prior` where little was seen.
  [[nodiscard]] DraftHope hope(const DraftHope& prior) const;

 private:
  double memory_;
  FadingShare found_;
  FadingShare reach_;
};

/// Turns the scores that drafters give their tokens into probabilities. A drafter's score of a
/// token is what it thinks of the token given the text before it on its path: the score of the path
/// through the token over that of the path before it, in [0, 1]; a drafter without an estimate says
/// 1. Per drafter the score is cut into equal buckets, each of which counts how often the target
/// agreed; a bucket that saw little leans on the drafter's mean, which in turn leans on what was
/// known of the drafter before.
/// Not thread-safe.
class AcceptanceModel {
 public:
  /// priors: [drafters] acceptance of each, as known before.
  explicit AcceptanceModel(std::vector<double> priors)
      : priors_(std::move(priors)), drafters_(priors_.size()) {}

  /// P(the token is the target's | the tokens before it on its path are).
  [[nodiscard]] double estimate(int drafter, double conditional_score) const;
  /// The same of a token of which no score is known yet.
  [[nodiscard]] double mean(int drafter) const;
  /// What its drafts come to for a request of which nothing is known.
  [[nodiscard]] DraftHope hope(int drafter) const;
  /// What became of drafts, of any request.
  DraftOutcomes& outcomes(int drafter) { return drafters_.at(drafter).outcomes; }
  /// What became of a verified token; only of one whose path before it was accepted, for nothing
  /// else is evidence.
  void record(int drafter, double conditional_score, bool accepted);

 private:
  static constexpr int kBuckets = 16;
  static constexpr double kMemory = 2000;  ///< tokens, of a drafter
  struct Drafter {
    std::array<FadingShare, kBuckets> buckets;
    FadingShare all;
    DraftOutcomes outcomes{kMemory};
  };
  [[nodiscard]] static int bucket(double score);

  std::vector<double> priors_;  ///< [drafters]
  std::vector<Drafter> drafters_;
};

/// The same of one request, so that easy and hard requests of a batch get drafts of different
/// length. Held by whoever holds the request.
struct RequestAcceptance {
  static constexpr double kMemory = 64;  ///< tokens, drafts

  FadingShare tokens;
  DraftOutcomes outcomes{kMemory};

  /// One step: `count` tokens of its draft were accepted; `refuted`: the target then said something
  /// else than the draft, which otherwise simply ended there.
  void record(int count, bool refuted);
  /// Nothing was tried for a while: what was seen before counts half, so that a drafter that is not
  /// asked is thought of as its mean in the end, and gets another chance.
  void fade();
  /// P(the next drafted token is accepted); leans on the drafter's mean where little was tried.
  [[nodiscard]] double estimate(double mean) const;
};

}  // namespace paceline::policy
