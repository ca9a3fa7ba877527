#include "runtime/policy/schedule/tail_drafters.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "runtime/policy/plan/speculation_speed.hpp"
#include "runtime/policy/schedule/racing.hpp"

namespace paceline::policy {
namespace {

/// Least gain that is worth a change of roles: a smaller one is within the noise of an estimate.
/// The value is a judgement. Where drafters agree on the easy tokens, the predicted gain is too
/// large (9 % for 4 % in one simulation).
constexpr double kLeastGain = 1.02;

/// The drafts of one drafter in a step: with probability `chance` there is a chain of `length`
/// tokens. Each agrees with probability `agrees`, if the tokens before it do.
struct Chain {
  double chance = 0;
  double length = 0;
  double agrees = 0;
};

double committed(std::span<const Chain> chains) {
  double longest = 0;
  for (const Chain& chain : chains) longest = std::max(longest, chain.length);
  double sum = 1;
  for (int k = 1; k < longest + 1; ++k) {
    double none = 1;
    for (const Chain& chain : chains) {
      const double there = std::clamp(chain.length - (k - 1), 0.0, 1.0);  // a fraction at the end
      none *= 1 - chain.chance * there * std::pow(chain.agrees, k);
    }
    sum += 1 - none;
  }
  return sum;
}

double rows(std::span<const Chain> chains) {
  double sum = 0;
  for (const Chain& chain : chains) sum += chain.chance * chain.length;
  return sum;
}

class Foresight {
 public:
  Foresight(const TailGroup& group, const TailOptions& options)
      : group_(group), options_(options) {}

  /// Speed with the best length of coupled drafts.
  [[nodiscard]] double speed(std::span<const TailMethod* const> helpers) const {
    double best = speed(helpers, Chain{}, 0);
    if (!options_.first || options_.mode != SpeculationMode::coupled) return best;
    for (int w = 1; w <= options_.longest_draft; ++w) {
      const double drafting = costs(*options_.first).window_seconds(w, group_.requests);
      best =
          std::max(best, speed(helpers, {1, static_cast<double>(w), group_.acceptance}, drafting));
    }
    return best;
  }
  [[nodiscard]] double alone(const TailMethod& method, SpeculationMode mode) const {
    const double b = group_.requests;
    if (mode == SpeculationMode::decoupled)
      return decoupled_speed(costs(method), method.acceptance, options_.window, b, b)
          .tokens_per_second;
    double best = 0;
    for (int w = 1; w <= options_.longest_draft; ++w)
      best =
          std::max(best, coupled_speed(costs(method), method.acceptance, w, b).tokens_per_second);
    return best;
  }

 private:
  [[nodiscard]] SpeculationCosts costs(const TailMethod& method) const {
    return {*group_.steps, method.costs, group_.context, options_.max_batch};
  }
  [[nodiscard]] double step_seconds(double drafted) const {
    const double b = group_.requests;
    return group_.steps->step_seconds(
        {.requests = b, .drafted = b * drafted, .prefill_rows = 0, .context = group_.context});
  }
  /// Chain of the layout's drafter ranks, which are taken to send whole windows. With the chains of
  /// eager ranks fewer freed ranks would draft: eight simulated rollouts of
  /// specactor-lognormal.yaml on 32 GPUs became 1.6 % longer, on average.
  [[nodiscard]] Chain of_layout(double step) const {
    const double seconds = costs(*options_.first).window_seconds(options_.window, group_.requests);
    const Pace pace = decoupled_pace(group_.acceptance, options_.window, seconds / step);
    if (pace.ahead == 0) return {};
    return {pace.ahead, pace.drafted / pace.ahead, group_.acceptance};
  }
  /// Chain of a freed rank. `others`: tokens committed in a step without it.
  [[nodiscard]] Chain of_freed(const TailMethod& method, double others, double step) const {
    const double p = method.acceptance;
    const double drafted = step / costs(method).window_seconds(1, group_.requests);
    const double length = std::min<double>(options_.longest_draft, drafted - others);
    if (length <= 0 || p == 0) return {};
    const double catches_up = std::pow(p, others);
    return {catches_up / (catches_up + 1 - std::pow(p, length + 1)), length, p};
  }
  [[nodiscard]] double speed(std::span<const TailMethod* const> helpers, const Chain& own,
                             double drafting) const {
    const double shortest = drafting + step_seconds(own.length);
    std::vector<Chain> chains;
    if (own.chance > 0) chains.push_back(own);
    if (options_.first && options_.mode == SpeculationMode::decoupled)
      chains.push_back(of_layout(shortest));
    const double others = committed(chains);
    for (const TailMethod* method : helpers) chains.push_back(of_freed(*method, others, shortest));
    return committed(chains) / (drafting + step_seconds(rows(chains)));
  }

  const TailGroup& group_;
  const TailOptions& options_;
};

/// Ranks of a placement that may change roles, and groups that could be formed again.
class FreedRanks {
 public:
  FreedRanks(const RunState& run, const std::set<int>& busy) : now_(run.placement) {
    for (int rank = 1; rank < now_.ranks; ++rank) {
      const DrafterPlace* drafter = now_.drafter(rank);
      const bool idle = drafter != nullptr && drafter->group && !busy.contains(*drafter->group);
      if (idle || now_.role(rank) == Role::spare) ranks_.push_back(rank);
    }
    std::set<int> racing;
    for (const auto& [key, race] : run.requests.races()) racing.insert(race.group);
    for (const bool races : {false, true}) {
      for (auto group = run.groups.rbegin(); group != run.groups.rend(); ++group) {
        const GroupRanks& ranks = group->ranks;
        if (ranks.leader == 0 || racing.contains(ranks.leader) != races || !is_freed(run, *group))
          continue;
        for (int rank = ranks.leader; rank < ranks.leader + ranks.tp; ++rank)
          ranks_.push_back(rank);
      }
    }
  }
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }
  [[nodiscard]] bool has(int rank) const {
    return std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end();
  }

 private:
  const Placement& now_;
  std::vector<int> ranks_;
};

/// Groups of the layout that were taken apart and are to be formed again.
std::vector<GroupRanks> wanted_back(const RunState& run, const TailOptions& options,
                                    const FreedRanks& freed,
                                    const std::function<bool(const GroupRanks&)>& wanted) {
  int room = 0;
  for (const GroupState& group : run.groups) room += std::max(0, group.room);
  const bool waits = run.requests.waiting().size() > static_cast<std::size_t>(room);
  std::vector<GroupRanks> back;
  for (const GroupRanks& home : options.home.groups) {
    if (run.placement.group(home.leader) >= 0) continue;
    bool idle = true;
    for (int rank = home.leader; rank < home.leader + home.tp; ++rank)
      idle = idle && freed.has(rank);
    if (waits || (idle && wanted(home))) back.push_back(home);
  }
  return back;
}

Placement next_placement(const Placement& now, std::span<const GroupRanks> back,
                         std::span<const TailDraft> drafts, const std::set<int>& busy) {
  Placement next;
  next.epoch = now.epoch + 1;
  next.ranks = now.ranks;
  const auto within = [](int rank, const GroupRanks& group) {
    return rank >= group.leader && rank < group.leader + group.tp;
  };
  for (const GroupRanks& group : now.groups) {
    if (std::none_of(drafts.begin(), drafts.end(),
                     [&](const TailDraft& draft) { return within(draft.rank, group); }))
      next.groups.push_back(group);
  }
  next.groups.insert(next.groups.end(), back.begin(), back.end());
  for (const DrafterPlace& drafter : now.drafters) {
    const bool goes_back = std::any_of(back.begin(), back.end(), [&](const GroupRanks& group) {
      return within(drafter.rank, group);
    });
    if (!goes_back && (!drafter.group || busy.contains(*drafter.group)))
      next.drafters.push_back(drafter);
  }
  for (const TailDraft& draft : drafts)
    next.drafters.push_back({draft.rank, next.epoch, draft.method, draft.group});
  std::sort(next.groups.begin(), next.groups.end(),
            [](const GroupRanks& a, const GroupRanks& b) { return a.leader < b.leader; });
  std::sort(next.drafters.begin(), next.drafters.end(),
            [](const DrafterPlace& a, const DrafterPlace& b) { return a.rank < b.rank; });
  return next;
}

}  // namespace

double tail_speed(const TailGroup& group, std::span<const TailMethod* const> helpers,
                  const TailOptions& options) {
  return Foresight(group, options).speed(helpers);
}

double raced_speed(const TailGroup& group, std::size_t method, const TailOptions& options) {
  const bool ahead = method == 0 && options.mode == SpeculationMode::decoupled;
  return Foresight(group, options)
      .alone(options.raced.at(method),
             ahead ? SpeculationMode::decoupled : SpeculationMode::coupled);
}

bool race_pays(const TailGroup& group, std::size_t method, const TailOptions& options) {
  const bool ahead = options.mode == SpeculationMode::decoupled || !group.methods.empty();
  if (!ahead || group.steps == nullptr || method >= options.raced.size()) return true;
  std::vector<const TailMethod*> helpers;
  for (const TailMethod& m : options.methods) {
    if (std::find(group.methods.begin(), group.methods.end(), m.method) != group.methods.end())
      helpers.push_back(&m);
  }
  return raced_speed(group, method, options) > tail_speed(group, helpers, options);
}

std::vector<TailGroup> tail_groups(const RunState& run, const TailOptions& options) {
  std::map<int, TailGroup> by_leader;
  for (const GroupState& group : run.groups) {
    TailGroup& tail = by_leader[group.ranks.leader];
    tail = {
        group.ranks.leader, group.costs != nullptr ? &group.costs->table : nullptr, 0, 0, 0, {}};
    for (const DrafterPlace& drafter : run.placement.drafters) {
      if (drafter.group == group.ranks.leader) tail.methods.push_back(*drafter.method);
    }
  }
  for (const auto& [id, request] : run.requests.leased()) {
    if (request.ended) continue;
    const auto move = run.requests.moves().find(id);
    const bool moves = move != run.requests.moves().end();
    const auto tail = by_leader.find(moves ? move->second : request.group);
    if (tail == by_leader.end()) continue;
    ++tail->second.requests;
    const double known = options.first ? options.first->acceptance : 0;
    tail->second.acceptance += request.method ? request.acceptance : known;
    tail->second.context +=
        static_cast<double>(run.prompts[id.prompt].tokens.size()) + request.tokens;
  }
  std::vector<TailGroup> tails;
  for (auto& [leader, tail] : by_leader) {
    if (tail.requests == 0) continue;
    tail.acceptance /= tail.requests;
    tail.context /= tail.requests;
    tails.push_back(std::move(tail));
  }
  return tails;
}

std::vector<TailDraft> assign_tail_drafts(std::span<const TailGroup> groups,
                                          std::span<const int> freed, const TailOptions& options) {
  std::vector<const TailGroup*> order;
  for (const TailGroup& group : groups) order.push_back(&group);
  std::stable_sort(order.begin(), order.end(), [](const TailGroup* a, const TailGroup* b) {
    return a->acceptance < b->acceptance;
  });
  std::vector<TailDraft> drafts;
  auto rank = freed.begin();
  for (const TailGroup* group : order) {
    if (group->steps == nullptr) continue;
    std::vector<const TailMethod*> helpers;
    std::vector<const TailMethod*> missing;
    for (const TailMethod& method : options.methods) {
      const bool has = std::find(group->methods.begin(), group->methods.end(), method.method) !=
                       group->methods.end();
      (has ? helpers : missing).push_back(&method);
    }
    double speed = tail_speed(*group, helpers, options);
    for (std::size_t m = 0; m < options.raced.size(); ++m)
      speed = std::max(speed, raced_speed(*group, m, options));
    while (rank != freed.end() && !missing.empty()) {
      const auto with = [&](const TailMethod* method) {
        std::vector<const TailMethod*> more = helpers;
        more.push_back(method);
        return tail_speed(*group, more, options);
      };
      const auto best = std::max_element(
          missing.begin(), missing.end(),
          [&](const TailMethod* a, const TailMethod* b) { return with(a) < with(b); });
      const double faster = with(*best);
      if (faster < speed * kLeastGain) break;
      speed = faster;
      drafts.push_back({*rank++, (*best)->method, group->leader});
      helpers.push_back(*best);
      missing.erase(best);
    }
  }
  return drafts;
}

std::optional<Placement> tail_placement(const RunState& run, const TailOptions& options,
                                        const std::function<bool(const GroupRanks&)>& wanted) {
  if (options.methods.empty() || run.groups.size() != run.placement.groups.size())
    return std::nullopt;
  const std::vector<TailGroup> tails = tail_groups(run, options);
  std::set<int> busy;
  for (const TailGroup& tail : tails) busy.insert(tail.leader);
  const FreedRanks freed(run, busy);
  const std::vector<GroupRanks> back = wanted_back(run, options, freed, wanted);
  if (!back.empty()) return next_placement(run.placement, back, {}, busy);
  if (!run.requests.waiting().empty()) return std::nullopt;
  const std::vector<TailDraft> drafts = assign_tail_drafts(tails, freed.ranks(), options);
  if (drafts.empty()) return std::nullopt;
  return next_placement(run.placement, {}, drafts, busy);
}

}  // namespace paceline::policy
