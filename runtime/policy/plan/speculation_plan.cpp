#include "runtime/policy/plan/speculation_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "runtime/core/counted.hpp"
#include "runtime/policy/length/outcomes.hpp"
#include "runtime/policy/plan/speculation_speed.hpp"

namespace paceline::policy {
namespace {

/// Share of second choices that are right if the first ones are wrong: kSecondChoice, lowered since
/// tokens after second choices are accepted in 0.87 of the cases, and other tokens in 0.95.
constexpr double kForeseen = kSecondChoice * 0.87 / 0.95;
/// Number of halvings of an interval, to find the share of the requests that larger groups get:
/// enough to find one request among 4,096.
constexpr int kHalvings = 12;

const DrafterCosts* costs_of(const CostTable& table, const std::string& method) {
  const auto found = std::find_if(table.drafters.begin(), table.drafters.end(),
                                  [&](const DrafterCosts& d) { return d.name == method; });
  return found == table.drafters.end() ? nullptr : &*found;
}

std::string milliseconds(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }

class Search {
 public:
  Search(const PlanFacts& facts, const PlanSettings& settings)
      : facts_(facts), settings_(settings), parts_(facts.drain) {
    if (parts_.empty()) parts_ = {{facts.requests, 1}};
  }

  std::vector<SpeculationPlan> run() {
    for (const VerifierConfiguration& verifier : facts_.verifiers) {
      if (wanted(SpeculationMode::plain)) plain(verifier);
    }
    for (const VerifierConfiguration& verifier : facts_.verifiers) {
      if (wanted(SpeculationMode::coupled)) coupled(verifier);
    }
    for (const VerifierConfiguration& verifier : facts_.verifiers) {
      if (wanted(SpeculationMode::decoupled)) decoupled(verifier);
    }
    std::stable_sort(plans_.begin(), plans_.end(),
                     [](const SpeculationPlan& a, const SpeculationPlan& b) {
                       return a.tokens_per_second > b.tokens_per_second;
                     });
    return std::move(plans_);
  }

 private:
  /// Groups of one degree, on the ranks that do not draft, and their load.
  struct Shape {
    int groups = 0;     ///< 0: the groups do not fit
    double active = 0;  ///< requests that all groups decode at a time, at the start
    double batch = 0;   ///< requests of the fullest group, at the start
  };

  [[nodiscard]] bool wanted(SpeculationMode mode) const {
    if (settings_.mode && *settings_.mode != mode) return false;
    const int drafters = settings_.drafters.value_or(mode == SpeculationMode::decoupled ? 1 : 0);
    return (drafters > 0) == (mode == SpeculationMode::decoupled);
  }

  [[nodiscard]] Shape shape(int tp, int drafters) const {
    const int most = (facts_.ranks - drafters) / tp;
    Shape s;
    s.groups = settings_.groups ? (*settings_.groups <= most ? *settings_.groups : 0) : most;
    if (s.groups == 0) return s;
    s.active = std::min(facts_.requests, static_cast<double>(s.groups) * facts_.max_batch);
    s.batch = std::max(1.0, std::ceil(s.active / s.groups));
    return s;
  }

  /// Load of a group in a part of the run.
  struct Load {
    double b = 1;        ///< its requests
    double active = 1;   ///< requests that all groups decode at a time
    double context = 0;  ///< positions that a request attends to, on average
  };
  /// Tokens per second of one request in a group with these costs and this load.
  using Rate = std::function<double(const CostTable& table, const Load& load)>;

  /// Tokens per second of all groups, over the whole run or at its start. In each part of the run
  /// requests are decoded by the layout's groups, or by larger groups together with those that have
  /// no neighbour to join, whichever is faster.
  [[nodiscard]] double tokens_per_second(const VerifierConfiguration& verifier, int groups,
                                         const Rate& rate) const {
    double seconds = 0;  // for each token
    for (const DrainPart& part : parts_) {
      const double context = facts_.drain.empty()
                                 ? facts_.context
                                 : facts_.prompt + part.reached * facts_.longest_text;
      const auto pace = [&](const CostTable& table, double active, double all, int of) {
        return rate(table, {std::max(1.0, std::ceil(active / of)), all, context});
      };
      const auto active = [&](int of) {
        return std::min(part.requests, static_cast<double>(of) * facts_.max_batch);
      };
      double best = active(groups) * pace(verifier.table, active(groups), active(groups), groups);
      for (const VerifierConfiguration& larger : facts_.joined) {
        const int joined = groups * verifier.tp / larger.tp;
        if (larger.tp <= verifier.tp || joined == 0) continue;
        const int others = groups - joined * larger.tp / verifier.tp;
        const double all = active(joined + others);
        double share = 1;  // share of requests that larger groups get, so that all advance alike
        double less = 0;
        for (int halving = 0; others > 0 && halving < kHalvings; ++halving) {
          const double middle = (less + share) / 2;
          const bool faster = pace(larger.table, middle * all, all, joined) >
                              pace(verifier.table, (1 - middle) * all, all, others);
          (faster ? less : share) = middle;
        }
        const double large = std::min(share * all, static_cast<double>(joined) * facts_.max_batch);
        double slower = pace(larger.table, large, all, joined);
        if (large < share * all)  // the larger groups are full
          slower = std::min(slower, pace(verifier.table, all - large, all, others));
        best = std::max(best, all * slower);
      }
      seconds += part.share / best;
    }
    return 1 / seconds;
  }

  /// The faster of drafting and, if verifiers adapt, plain decoding.
  [[nodiscard]] double adapted(const CostTable& table, const Load& load, double drafting) const {
    if (!facts_.adapts) return drafting;
    return std::max(drafting, plain_speed(table, load.context, load.b).tokens_per_second);
  }

  /// Coupled drafts of w tokens. Verifiers that adapt choose a length for each request.
  [[nodiscard]] Speed drafts_of(int w, const SpeculationCosts& costs, const DraftMethod& method,
                                double b) const {
    if (!facts_.adapts) return coupled_speed(costs, method.acceptance, w, b);
    return uneven_coupled_speed(costs, method.acceptance, w, facts_.longest_draft, b);
  }

  [[nodiscard]] double coupled_rate(const CostTable& table, const DraftMethod& method,
                                    const Load& load, int* length = nullptr) const {
    const DrafterCosts* drafter = costs_of(table, method.name);
    if (drafter == nullptr) return plain_speed(table, load.context, load.b).tokens_per_second;
    const SpeculationCosts costs{table, *drafter, load.context, facts_.max_batch};
    double best = 0;
    for (int w = facts_.shortest_draft; w <= facts_.longest_draft; ++w) {
      const double now = drafts_of(w, costs, method, load.b).tokens_per_second;
      if (now <= best) continue;
      best = now;
      if (length != nullptr) *length = w;
    }
    return adapted(table, load, best);
  }

  /// Speed of a group of b requests. Its drafter rank has `drafted_for` requests, and sends tokens
  /// one by one.
  [[nodiscard]] Speed one_by_one(const SpeculationCosts& costs, const DraftMethod& method, double b,
                                 double drafted_for) const {
    const bool branches = facts_.outcomes && !costs.drafter.catch_up.empty();  // lookups have none
    return eager_speed(costs, method.acceptance, facts_.longest_draft, b, drafted_for,
                       branches ? kForeseen : 0);
  }

  /// `w`: the window of drafter ranks that are not eager.
  [[nodiscard]] double decoupled_rate(const CostTable& table, const DraftMethod& method, int w,
                                      const Load& load, int drafters) const {
    const double drafted_for = std::max(1.0, std::ceil(load.active / drafters));
    const DrafterCosts* drafter = costs_of(table, method.name);
    if (drafter == nullptr) return plain_speed(table, load.context, load.b).tokens_per_second;
    const SpeculationCosts costs{table, *drafter, load.context, facts_.max_batch};
    if (facts_.one_by_one && drafted_for <= facts_.max_batch) {
      const auto [rate, first] =
          one_by_one_.try_emplace({&table, &method, load.b, load.context, drafted_for}, 0.0);
      if (first) rate->second = one_by_one(costs, method, load.b, drafted_for).tokens_per_second;
      return rate->second;
    }
    return adapted(
        table, load,
        decoupled_speed(costs, method.acceptance, w, load.b, drafted_for).tokens_per_second);
  }

  void plain(const VerifierConfiguration& verifier) {
    const Shape s = shape(verifier.tp, 0);
    if (s.groups == 0) return;
    const Speed speed = plain_speed(verifier.table, facts_.context, s.batch);
    SpeculationPlan plan;
    plan.mode = SpeculationMode::plain;
    plan.tp = verifier.tp;
    plan.explanation =
        fmt::format("a step of {:.0f} requests takes {}", s.batch, milliseconds(speed.step));
    plan.settings = "speculation.mode=plain";
    plan.groups = s.groups;
    plan.tokens_per_second =
        tokens_per_second(verifier, s.groups, [&](const CostTable& table, const Load& load) {
          return plain_speed(table, load.context, load.b).tokens_per_second;
        });
    plans_.push_back(std::move(plan));
  }

  void coupled(const VerifierConfiguration& verifier) {
    const Shape s = shape(verifier.tp, 0);
    if (s.groups == 0) return;
    for (const DraftMethod& method : facts_.methods) {
      const DrafterCosts* drafter = costs_of(verifier.table, method.name);
      if (drafter == nullptr) continue;
      const SpeculationCosts costs{verifier.table, *drafter, facts_.context, facts_.max_batch};
      SpeculationPlan plan;
      (void)coupled_rate(verifier.table, method, {s.batch, s.active, facts_.context},
                         &plan.draft_length);
      const Speed start = drafts_of(plan.draft_length, costs, method, s.batch);
      plan.mode = SpeculationMode::coupled;
      plan.tp = verifier.tp;
      plan.method = method.name;
      plan.explanation =
          fmt::format("{} by {} ({:.2f} accepted) in {}, a step of {} in {}: {:.2f} tokens a step",
                      counted(plan.draft_length, "token"), method.name, method.acceptance,
                      milliseconds(start.draft), counted(std::lround(s.batch), "request"),
                      milliseconds(start.step - start.draft), start.committed);
      plan.settings = "speculation.mode=coupled";
      plan.groups = s.groups;
      plan.tokens_per_second =
          tokens_per_second(verifier, s.groups, [&](const CostTable& table, const Load& load) {
            return coupled_rate(table, method, load);
          });
      plans_.push_back(std::move(plan));
    }
  }

  void decoupled(const VerifierConfiguration& verifier) {
    const int from = settings_.drafters.value_or(1);
    const int to = settings_.drafters.value_or(facts_.ranks - verifier.tp);
    for (int drafters = from; drafters <= to; ++drafters) {
      const Shape s = shape(verifier.tp, drafters);
      if (s.groups == 0) break;
      // Algorithm 1, line 3, over all groups together.
      if (!settings_.drafters && drafters > s.groups * verifier.tp) break;
      for (const DraftMethod& method : facts_.methods) {
        const DrafterCosts* drafter = costs_of(verifier.table, method.name);
        if (drafter != nullptr && method.apart) decoupled(verifier, s, drafters, method, *drafter);
      }
    }
  }

  void decoupled(const VerifierConfiguration& verifier, const Shape& s, int drafters,
                 const DraftMethod& method, const DrafterCosts& drafter) {
    const SpeculationCosts costs{verifier.table, drafter, facts_.context, facts_.max_batch};
    const double drafted_for = std::max(1.0, std::ceil(s.active / drafters));
    const bool eager = facts_.one_by_one && drafted_for <= facts_.max_batch;
    SpeculationPlan plan;
    double in_pieces = 0;  // tokens per second at the start, if drafts are sent in whole windows
    const auto consider = [&](int w) {
      const double speed =
          tokens_per_second(verifier, s.groups, [&](const CostTable& table, const Load& load) {
            return decoupled_rate(table, method, w, load, drafters);
          });
      // Eager ranks send tokens one by one, so the window matters only to other ranks.
      const double pieces =
          decoupled_speed(costs, method.acceptance, w, s.batch, drafted_for).tokens_per_second;
      if (std::tie(speed, pieces) <= std::tie(plan.tokens_per_second, in_pieces)) return;
      plan.tokens_per_second = speed;
      in_pieces = pieces;
      plan.draft_length = w;
    };
    if (settings_.window) consider(*settings_.window);
    // Windows begin at 2. A draft of one token comes after the target has said this token.
    for (int w = 2; !settings_.window && w <= facts_.longest_draft; ++w) {
      if (!eager && !useful_window(costs, w, s.batch, drafted_for)) break;  // line 5
      consider(w);
    }
    // A mode that the settings ask for gets a plan, even if the search finds no useful window.
    if (plan.draft_length == 0 && settings_.mode == SpeculationMode::decoupled)
      consider(std::min(2, facts_.longest_draft));
    if (plan.draft_length == 0) return;
    const Speed start =
        eager ? one_by_one(costs, method, s.batch, drafted_for)
              : decoupled_speed(costs, method.acceptance, plan.draft_length, s.batch, drafted_for);
    plan.mode = SpeculationMode::decoupled;
    plan.tp = verifier.tp;
    plan.groups = s.groups;
    plan.drafters = drafters;
    plan.method = method.name;
    plan.explanation = fmt::format(
        "{} by {} ({:.2f} accepted) for {} in {}, a step of {:.0f} in {}: {:.2f} tokens a step",
        eager ? "each token at once" : fmt::format("a window of {}", plan.draft_length),
        method.name, method.acceptance, counted(std::lround(drafted_for), "request"),
        milliseconds(start.draft), s.batch, milliseconds(start.step), start.committed);
    plan.settings = fmt::format("speculation.mode=decoupled layout.drafters={}", drafters);
    if (!eager) plan.settings += fmt::format(" speculation.window={}", plan.draft_length);
    plans_.push_back(std::move(plan));
  }

  const PlanFacts& facts_;
  const PlanSettings& settings_;
  std::vector<DrainPart> parts_;
  std::vector<SpeculationPlan> plans_;
  /// Results of decoupled_rate() for eager ranks, which do not depend on the window. Key: the
  /// costs, the method, a group's requests, their context and the number of requests drafted for.
  mutable std::map<std::tuple<const CostTable*, const DraftMethod*, double, double, double>, double>
      one_by_one_;
};

}  // namespace

std::vector<SpeculationPlan> plan_speculation(const PlanFacts& facts,
                                              const PlanSettings& settings) {
  return Search(facts, settings).run();
}

}  // namespace paceline::policy
