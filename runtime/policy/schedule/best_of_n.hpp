// Who helps the last requests (SpecActor, section 4.2, Algorithm 3).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace paceline::policy {

/// A request that is still active.
struct TailRequest {
  double acceptance = 0;     ///< of what drafts for it now, as measured
  std::vector<int> methods;  ///< that it has already, its first one among them
};

/// A rank, or a group that acts as one, that races for requests which others have.
struct Racer {
  int worker = 0;  ///< whatever the caller knows it by
  int method = 0;  ///< index of the drafting method
  int load = 0;    ///< requests
};

struct BestOfNFacts {
  std::span<const TailRequest> requests;
  int methods = 0;                ///< candidates, the best of the ladder first
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
  std::vector<RacerAssignment> added;  ///< to these, and to earlier racers that had room
};

/// Algorithm 3, coupled: a racer drafts and verifies. (Decoupled, freed ranks draft for the
/// verifiers that have the requests: tail_drafters.hpp.) Each freed worker takes the method that
/// has fewest racers; then the request of the lowest acceptance gets a racer for every method that
/// it has not, as far as there is room, before the next request is looked at ("depth first": it is
/// likely to be the last one). What one racer commits is a certain draft for the others of its
/// request, so that none falls behind.
///
/// Where this departs from the paper:
/// - Its pseudocode runs through methods outside and requests inside; its prose is depth first.
///   Rooms of different methods are apart, so that both assign the same; we follow the prose.
/// - A request is not given a method twice: there a second call would move it to another worker.
/// - A freed worker that finds no request keeps no role, and is there for the next call.
[[nodiscard]] BestOfN assign_best_of_n(const BestOfNFacts& facts);

}  // namespace paceline::policy
