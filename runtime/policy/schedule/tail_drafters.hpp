// Freed ranks that draft for the last requests (SpecActor, section 4.2: best-of-N whose drafters
// are apart from the verifier).
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
  DrafterCosts costs;     ///< on a rank of its own, or on a verifier's
  double acceptance = 0;  ///< known beforehand
};

struct TailOptions {
  Placement home;  ///< the layout's: groups that ranks come from, and go back to
  /// Mode of the drafter that drafts for all requests from the start: on the verifiers' ranks
  /// (coupled) or on drafter ranks (decoupled).
  SpeculationMode mode = SpeculationMode::plain;
  std::optional<TailMethod> first;  ///< drafter of `mode`; absent: plain decoding
  int window = 8;                   ///< tokens that the layout's drafter ranks send at a time
  std::vector<TailMethod> methods;  ///< of freed ranks; empty: none ever drafts
  std::vector<TailMethod> raced;    ///< [methods of races] drafters of racing groups
  int longest_draft = 8;
  int max_batch = 64;  ///< requests of one call of a drafter
};

/// A group that has requests while others have none left.
struct TailGroup {
  int leader = 0;
  const CostTable* steps = nullptr;  ///< costs of its steps
  double requests = 1;
  double context = 0;        ///< positions that a request attends to, on average
  double acceptance = 0;     ///< measured mean of the current drafters
  std::vector<int> methods;  ///< drafters of ranks that draft for this group alone
};

/// Tokens a second of each request with these drafters ahead, on freed ranks, beside its usual
/// drafter. The model is the plan's (speculation_speed.hpp), but for two things.
///
/// First, several drafts are verified at once, as branches of one tree, and the longest that agrees
/// counts:
///
///   committed = 1 + sum over k of (1 - product over drafters of (1 - P(its first k agree))).
///
/// The product takes drafters to agree independently. They share the easy tokens, so it is too
/// much: by 3 to 5 % where half of the tokens are as easy for both.
///
/// Second, a freed rank drafts and sends token by token, d of them within a step, from the last
/// refutation on (roles/drafter_rank.hpp). It is ahead again once it agrees with the m tokens that
/// the step commits without it, then by L = d - m tokens. So it is ahead for the share p^m / (p^m +
/// 1 - p^(L + 1)) of the steps, which for m = 1 is decoupled_pace() of a window of L + 1 that is
/// drafted in no time.
[[nodiscard]] double tail_speed(const TailGroup& group, std::span<const TailMethod* const> beside,
                                const TailOptions& options);

/// Tokens a second of each request of the group in a racer that verifies by this drafter alone, of
/// TailOptions::raced.
[[nodiscard]] double raced_speed(const TailGroup& group, std::size_t method,
                                 const TailOptions& options);

/// Whether a race pays for requests of the group. Of two racers the faster counts: the other seldom
/// learns in time of tokens that luck gave one of them first (2 % in simulation). Where ranks draft
/// ahead a race costs more: they lag behind tokens that a racer says first, and have drafted for
/// nothing. There the racer must be the faster one. Elsewhere a race costs nothing.
[[nodiscard]] bool race_pays(const TailGroup& group, std::size_t method,
                             const TailOptions& options);

/// Order to a rank to draft for a group.
struct TailDraft {
  int rank = 0;
  int method = 0;  ///< index among the run's drafters
  int group = 0;   ///< leader
  bool operator==(const TailDraft&) const = default;
};

/// Assigns greedily, as Algorithm 3: the group of lowest acceptance gets a rank for every drafter
/// that it lacks, the best first, as long as each makes it faster than it is and than any race
/// would, before the next group is looked at ("depth first"). `freed`: ranks, in the order in which
/// they are taken.
[[nodiscard]] std::vector<TailDraft> assign_tail_drafts(std::span<const TailGroup> groups,
                                                        std::span<const int> freed,
                                                        const TailOptions& options);

/// Groups that hold requests, or are to get some.
[[nodiscard]] std::vector<TailGroup> tail_groups(const RunState& run, const TailOptions& options);

/// The placement in which freed ranks draft for the last requests; nothing where ranks stay what
/// they are, while requests wait, or while a change of roles is under way.
///
/// Freed ranks are spare ones, drafters of groups whose requests have ended, and groups that hold
/// nothing, racing ones last; but never the group of rank 0, which cannot draft. A group is taken
/// apart where one of its ranks has something to draft; its other ranks are then spare. It is
/// formed again when more requests wait than groups have room for, or when its ranks have nobody to
/// draft for and `wanted` says that it would get requests of others: "a freed rank goes back to
/// verification".
[[nodiscard]] std::optional<Placement> tail_placement(
    const RunState& run, const TailOptions& options,
    const std::function<bool(const GroupRanks&)>& wanted);

}  // namespace paceline::policy
