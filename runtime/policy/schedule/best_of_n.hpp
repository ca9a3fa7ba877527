// Helpers for the last requests (SpecActor, section 4.2, Algorithm 3).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace paceline::policy {

/// A request that is still active.
struct TailRequest {
  double acceptance = 0;     ///< measured, of its current drafter
  std::vector<int> methods;  ///< methods that it has already, its first among them
};

/// A rank, or a group acting as one, that races for other groups' requests.
struct Racer {
  int worker = 0;  ///< the caller's key
  int method = 0;  ///< index of the drafting method
  int load = 0;    ///< requests
};

struct BestOfNFacts {
  std::span<const TailRequest> requests;
  int methods = 0;                ///< candidate methods, the best of the ladder first
  std::span<const Racer> racers;  ///< made earlier: the paper's W_d
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
  std::vector<Racer> racers;           ///< freed workers that got something to do, with their loads
  std::vector<RacerAssignment> added;  ///< for these racers, and for earlier ones with room
};

/// Algorithm 3, coupled: a racer drafts and verifies. (Decoupled, freed ranks draft for the
/// verifiers that have the requests: tail_drafters.hpp.) Each freed worker takes the method with
/// the fewest racers. Then the request of the lowest acceptance gets a racer for every method that
/// it lacks, as far as there is room, before the next request is looked at ("depth first": it is
/// likely the last to end). Tokens that one racer commits are a certain draft for the others of its
/// request, so that none falls behind.
///
/// Where this departs from the paper:
/// - Its pseudocode loops over methods outside and requests inside; its prose is depth first.
///   Racers of different methods have rooms apart, so that both assign the same; we follow the
///   prose.
/// - A request is not given a method twice: there a second call would move it to another worker.
/// - A freed worker that finds no request keeps no role, and is there for the next call.
[[nodiscard]] BestOfN assign_best_of_n(const BestOfNFacts& facts);

}  // namespace paceline::policy
