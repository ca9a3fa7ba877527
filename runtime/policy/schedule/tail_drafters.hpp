// Freed ranks that draft for the last requests (SpecActor, section 4.2: best-of-N with drafters on
// ranks other than the verifier's).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/speculation_mode.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/scheduler.hpp"

namespace paceline::policy {

/// A drafter of the run.
struct TailMethod {
  int method = 0;         ///< index among the run's drafters
  DrafterCosts costs;     ///< costs on a rank of its own, or on a verifier's
  double acceptance = 0;  ///< acceptance known beforehand
};

struct TailOptions {
  Placement home;  ///< the layout's placement: ranks go back to its groups
  /// Mode of the drafter that drafts for all requests from the start: on the verifiers' ranks
  /// (coupled) or on drafter ranks (decoupled).
  SpeculationMode mode = SpeculationMode::plain;
  std::optional<TailMethod> first;  ///< drafter of `mode`; absent: plain decoding
  int window = 8;                   ///< tokens that the layout's drafter ranks send at a time
  std::vector<TailMethod> methods;  ///< methods of freed ranks; empty: no freed rank drafts
  std::vector<TailMethod> raced;    ///< [methods of races] drafters of racing groups
  int longest_draft = 8;
  int max_batch = 64;  ///< requests of one call of a drafter
};

/// A group that still has requests, while others have none.
struct TailGroup {
  int leader = 0;
  const CostTable* steps = nullptr;  ///< costs of its steps
  double requests = 1;
  double context = 0;        ///< positions that a request attends to, on average
  double acceptance = 0;     ///< mean measured acceptance of its requests' current drafters
  std::vector<int> methods;  ///< drafters of ranks that draft only for this group
};

/// Tokens a second of each request of the group if the drafters `helpers`, on freed ranks, draft
/// ahead in addition to the usual drafter. The model is the speculation plan's
/// (speculation_speed.hpp), with two additions.
///
/// First, several drafts are verified at once, as branches of one tree. The longest one that agrees
/// counts:
///
///   committed = 1 + sum over k of (1 - product over drafters of (1 - P(its first k agree))).
///
/// The product assumes that drafters agree with the target independently. As all drafters agree on
/// easy tokens, the result is too large: by 3 to 5 % where half of the tokens are easy for both of
/// two drafters.
///
/// Second, a freed rank drafts and sends token by token, d tokens within a step, beginning where
/// its draft was last refuted (roles/drafter_rank.hpp). It is ahead again once it agrees with the m
/// tokens that the step commits without it; it is then ahead by L = d - m tokens. So it is ahead
/// for the share p^m / (p^m + 1 - p^(L + 1)) of the steps. For m = 1 this is decoupled_pace() of a
/// window of L + 1 tokens that is drafted in no time.
[[nodiscard]] double tail_speed(const TailGroup& group, std::span<const TailMethod* const> helpers,
                                const TailOptions& options);

/// Tokens a second of each request of the group in a racer that uses only one drafter. `method`:
/// its index in TailOptions::raced.
[[nodiscard]] double raced_speed(const TailGroup& group, std::size_t method,
                                 const TailOptions& options);

/// Whether a race pays for requests of the group. A race is as fast as its faster group: sharing
/// tokens with the other gains little (2 % in simulation). Where ranks draft ahead, a race has a
/// cost: tokens that the racer says first refute or overtake their drafts. There the racer must be
/// the faster one. Elsewhere a race costs nothing.
[[nodiscard]] bool race_pays(const TailGroup& group, std::size_t method,
                             const TailOptions& options);

/// Order to a rank to draft for a group.
struct TailDraft {
  int rank = 0;
  int method = 0;  ///< index among the run's drafters
  int group = 0;   ///< leader of the group
  bool operator==(const TailDraft&) const = default;
};

/// Assigns freed ranks greedily, as Algorithm 3 does. The group of lowest acceptance gets a rank
/// for every drafter that it lacks, the best drafter first, as long as each makes the group faster
/// than it is, and faster than any race would. Then the next group is looked at ("depth first").
/// `freed`: ranks, in the order in which they are taken.
[[nodiscard]] std::vector<TailDraft> assign_tail_drafts(std::span<const TailGroup> groups,
                                                        std::span<const int> freed,
                                                        const TailOptions& options);

/// Groups that hold requests, or are to get some.
[[nodiscard]] std::vector<TailGroup> tail_groups(const RunState& run, const TailOptions& options);

/// The placement in which freed ranks draft for the last requests, or in which groups that were
/// taken apart are formed again. Absent if all ranks keep their roles, and during a change of
/// roles. No rank begins to draft while requests wait.
///
/// Freed ranks are taken in this order: spare ranks and drafters of groups whose requests have
/// ended; ranks of groups that hold no request; ranks of racing groups. The group of rank 0, which
/// cannot draft, is never taken. A group is taken apart if one of its ranks gets something to
/// draft; its other ranks are then spare. It is formed again when more requests wait than groups
/// have room for, or when its ranks have no group to draft for and `wanted` says that it would get
/// requests of others: "a freed rank goes back to verification".
[[nodiscard]] std::optional<Placement> tail_placement(
    const RunState& run, const TailOptions& options,
    const std::function<bool(const GroupRanks&)>& wanted);

}  // namespace paceline::policy
