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
  int method = 0;         ///< index of all that the run has
  DrafterCosts costs;     ///< on a rank of its own, or on a verifier's
  double acceptance = 0;  ///< as known before
};

struct TailOptions {
  Placement home;  ///< of the layout: groups that ranks come from, and go back to
  /// What drafts for all requests from the start: on the verifiers' ranks (coupled) or on drafter
  /// ranks (decoupled).
  SpeculationMode mode = SpeculationMode::plain;
  std::optional<TailMethod> first;  ///< absent: plain
  int window = 8;                   ///< tokens that drafter ranks of the layout send at a time
  std::vector<TailMethod> methods;  ///< that freed ranks can draft by; empty: none ever does
  std::vector<TailMethod> raced;    ///< [methods of races] by which groups race
  int longest_draft = 8;
  int max_batch = 64;  ///< requests of one call of a drafter
};

/// A group that has requests while others have none left.
struct TailGroup {
  int leader = 0;
  const CostTable* steps = nullptr;  ///< what they cost it
  double requests = 1;
  double context = 0;        ///< positions that one attends to, on average
  double acceptance = 0;     ///< mean of what drafts for them now, as measured
  std::vector<int> methods;  ///< by which drafter ranks draft for this group alone
};

/// Tokens a second of each request with these drafters ahead, on freed ranks, beside what drafts
/// for it anyhow: the model of the plan (speculation_speed.hpp), but for two things.
///
/// Several drafts are verified at once, as branches of one tree, of which the longest that agrees
/// counts:
///
///   committed = 1 + sum over k of (1 - product over drafters of (1 - P(its first k agree))).
///
/// That takes drafters to agree independently. They share the easy tokens, so that it is too much:
/// by 3 to 5 % where half of the tokens are as easy for both.
///
/// And such a rank drafts and sends token by token, d of them within a step, from the last
/// refutation on (roles/drafter_rank.hpp). It is ahead again once it agrees with the m tokens that
/// the step commits without it, then by L = d - m tokens; so it is ahead for the share
/// p^m / (p^m + 1 - p^(L + 1)) of the steps, which for m = 1 is decoupled_pace() of a window of
/// L + 1 that is drafted in no time.
[[nodiscard]] double tail_speed(const TailGroup& group, std::span<const TailMethod* const> beside,
                                const TailOptions& options);

/// Tokens a second of each request of the group where its racers verify it by this drafter alone,
/// of TailOptions::raced.
[[nodiscard]] double raced_speed(const TailGroup& group, std::size_t method,
                                 const TailOptions& options);

/// Whether a race is worth while for requests of the group. Of two that race the faster counts:
/// what one is ahead by luck the other seldom learns of in time (2 % in simulation). Where ranks
/// draft ahead, more is lost than that: what a racer says first they are behind with, and have
/// drafted for nothing; so there it must be the faster one. Elsewhere it costs nothing.
[[nodiscard]] bool race_pays(const TailGroup& group, std::size_t method,
                             const TailOptions& options);

/// A rank is to draft for a group.
struct TailDraft {
  int rank = 0;
  int method = 0;  ///< of all that the run has
  int group = 0;   ///< leader
  bool operator==(const TailDraft&) const = default;
};

/// Greedy, as Algorithm 3: the group that accepts least gets a rank for every drafter that it has
/// not, the best first, as far as each makes it faster than it is and than any race would, before
/// the next group is looked at ("depth first"). `freed`: ranks, in the order in which they are
/// taken.
[[nodiscard]] std::vector<TailDraft> assign_tail_drafts(std::span<const TailGroup> groups,
                                                        std::span<const int> freed,
                                                        const TailOptions& options);

/// Groups that hold requests, or are to get some.
[[nodiscard]] std::vector<TailGroup> tail_groups(const RunState& run, const TailOptions& options);

/// The placement in which freed ranks draft for the last requests; nothing where ranks are to stay
/// what they are. Nothing while requests wait or a change of roles is under way.
///
/// Freed are spare ranks, those that drafted for groups whose requests have ended, and groups that
/// hold nothing, those that race last of all; but never that of rank 0, which cannot draft. A group
/// is taken apart where one of its ranks has something to draft; its other ranks are spare then. It
/// is put together again when more requests wait than groups have room for, or when its ranks have
/// nobody to draft for and `wanted` says that it would get requests of others: "a freed rank goes
/// back to verification".
[[nodiscard]] std::optional<Placement> tail_placement(
    const RunState& run, const TailOptions& options,
    const std::function<bool(const GroupRanks&)>& wanted);

}  // namespace paceline::policy
