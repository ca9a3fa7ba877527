// Helpers for the last requests (SpecActor, section 4.2, Algorithm 3).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace paceline::policy {

/// A request that is still active.
struct TailRequest {
  double acceptance = 0;     ///< measured acceptance of its current drafter's tokens
  std::vector<int> methods;  ///< methods that draft for it already, its first one included
};

/// A worker (a rank, or a group that acts as one) that races for other groups' requests.
struct Racer {
  int worker = 0;  ///< the caller's key
  int method = 0;  ///< index of the drafting method
  int load = 0;    ///< requests that it races for
};

struct BestOfNFacts {
  std::span<const TailRequest> requests;
  int methods = 0;                ///< number of candidate methods, the best of the ladder first
  std::span<const Racer> racers;  ///< racers of earlier calls: the paper's W_d
  std::span<const int> freed;     ///< workers that have nothing to do
  int max_batch = 1;              ///< b_max: requests of one racer
};

/// M(r, d) = w.
struct RacerAssignment {
  std::size_t request = 0;  ///< index
  int method = 0;
  int worker = 0;
  bool operator==(const RacerAssignment&) const = default;
};

struct BestOfN {
  std::vector<Racer> racers;           ///< freed workers that got requests, with their loads
  std::vector<RacerAssignment> added;  ///< assignments to these racers and to earlier ones
};

/// Algorithm 3, coupled: a racer drafts and verifies. (For decoupled mode, where freed ranks draft
/// for the verifiers that have the requests, see tail_drafters.hpp.) Each freed worker takes the
/// method with the fewest racers. Then the request of the lowest acceptance, which is likely to end
/// last, gets a racer for every method that it lacks, as far as there is room, before the next
/// request is looked at ("depth first"). Tokens that one racer commits are a certain draft for the
/// other racers of the same request, so that none falls behind.
///
/// Where this departs from the paper:
/// - Its pseudocode loops over methods outside and requests inside; its prose is depth first. As
///   each racer has one method, its room is not shared between methods, and both orders assign the
///   same. We follow the prose.
/// - A request is never given a method twice. In the paper a second call would move it to another
///   worker.
/// - A freed worker that gets no request is no racer; the next call may use it.
[[nodiscard]] BestOfN assign_best_of_n(const BestOfNFacts& facts);

}  // namespace paceline::policy
