// Decoding as a draft-length policy sees it, in simulated seconds: requests that accept drafts with
// known probability, an engine and a drafter with known cost curves, noise on what is measured.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "runtime/core/quantile.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/length/acceptance.hpp"
#include "runtime/policy/length/draft_length.hpp"

namespace paceline::policy {

using Curve = std::function<double(double)>;

/// Weights are read once for up to 64 rows, then compute bounds.
inline double gpu_step(double rows) { return 0.02 * std::max(1.0, rows / 64) + 1e-5 * rows; }
/// Flat to 4 rows, then linear.
inline double cpu_step(double rows) { return 0.03 * std::max(1.0, 0.3 + 0.7 * rows / 4); }
/// A model so small that what comes with every step outweighs most rows.
inline double tiny_step(double rows) { return 0.002 + 2e-5 * rows; }

struct WorldOptions {
  Curve step = gpu_step;
  Curve round = [](double) { return 0.0; };  ///< of drafting, by requests
  double catch_up = 0;                       ///< seconds a token; 0: the drafter never lags
  double noise = 0.05;                       ///< relative
  double outliers = 0.02;                    ///< share of measurements 3 to 10 times too long
  /// Every so many steps (0: never) this many in a row are measured twice too long: something else
  /// ran, and left its own data in the caches.
  int burst_every = 0;
  int burst_steps = 6;
  double drift = 1;  ///< costs grow to as much over the run
  /// Of the cost table, what it says of each number of rows by what it should: the machine was
  /// measured in another state.
  Curve table_error = [](double) { return 1.0; };
  /// Of each request of the batch; the batch only shrinks where `lengths` says so.
  std::vector<double> acceptance;
  /// Of all requests, comes to that much more by the end of the run, within 0 and 1.
  double acceptance_drift = 0;
  std::vector<int> lengths;  ///< tokens after which a request ends; empty: never
  int waves = 1;             ///< times that the batch is filled, each when the last has ended
  /// Seconds by which a step costs more for each request and token of its text; half of that for a
  /// drafted row, and a quarter for a request in a round of drafting.
  double per_position = 0;
  int steps = 4000;
  /// A drafter with scores knows something of each token: its probability is spread about the
  /// request's by as much, and the score tells.
  double spread = 0;
  double found = 1;  ///< probability that the drafter finds anything
  int prefill_every = 0;
  int prefill_rows = 0;
  std::uint64_t seed = 1;
};

struct WorldResult {
  double seconds = 0;  ///< without noise on measurements
  double tokens = 0;
  int asked = 0;     ///< steps that called the drafter
  int verified = 0;  ///< drafted tokens
  std::vector<int> asked_at;
  [[nodiscard]] double rate() const { return tokens / seconds; }
};

class World {
 public:
  explicit World(const WorldOptions& options) : options_(options), random_(options.seed) { fill(); }

  /// What a self-measurement finds: a grid of rows, at no context and at some, each the second
  /// least of a few noisy measurements.
  CostTable cost_table() {
    const double context =
        options_.lengths.empty() ? options_.steps : options_.lengths.back() / 2.0;
    const auto curve = [&](const Curve& cost, double first, double last, double per_position) {
      std::vector<CostCurve::Point> points;
      for (double rows = first; rows <= last; rows = std::ceil(rows * 1.4))
        points.push_back({rows, options_.table_error(rows) * settled(cost(rows))});
      const double base = cost(last);
      const double more = settled(base + per_position * last * context) - settled(base);
      return CostCurve(std::move(points), std::max(0.0, more) / (last * context));
    };
    const auto requests = static_cast<double>(options_.acceptance.size());
    CostTable table;
    table.decode =
        curve(options_.step, 1, 9 * requests + options_.prefill_rows, options_.per_position);
    table.prefill = table.decode;
    table.drafted_position = table.decode.per_position() / 2;
    if (options_.round(1) > 0) {
      DrafterCosts drafter;
      drafter.first = drafter.round = curve(options_.round, 1, requests, options_.per_position / 4);
      if (options_.catch_up > 0)
        drafter.catch_up = curve([&](double n) { return n * options_.catch_up; }, 16, 512, 0);
      table.drafters.push_back(drafter);
    }
    return table;
  }

  WorldResult run(DraftLengthPolicy& policy) {
    int waves = 1;
    for (int s = 0; s < options_.steps && !requests_.empty(); ++s) {
      step(policy, s);
      if (requests_.empty() && waves++ < options_.waves) fill();
    }
    return result_;
  }

 private:
  struct Request {
    double acceptance;
    int left;  ///< tokens; -1: endless
    int said;  ///< tokens
    int lag;
    RequestAcceptance running;
  };
  struct Token {
    double probability;
    double score;
  };

  void fill() {
    for (std::size_t i = 0; i < options_.acceptance.size(); ++i) {
      requests_.push_back(
          {options_.acceptance[i], options_.lengths.empty() ? -1 : options_.lengths[i], 1, 0, {}});
    }
  }

  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  double measured(double seconds, int step) {
    if (options_.burst_every > 0 &&
        step % options_.burst_every >= options_.burst_every - options_.burst_steps)
      seconds *= 2;
    if (uniform() < options_.outliers) return seconds * (3 + 7 * uniform());
    const double normal = uniform() + uniform() + uniform() + uniform() - 2;  // variance 1/3
    return seconds * (1 + options_.noise * normal * std::sqrt(3.0));
  }

  double settled(double seconds) {
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(measured(seconds, 0));
    return quantile(times, 0.25);
  }

  void step(DraftLengthPolicy& policy, int s) {
    const int n = static_cast<int>(requests_.size());
    std::vector<double> acceptance(n);
    std::vector<DraftHope> hopes(n);
    std::vector<int> longest(n);
    std::vector<int> lag(n);
    std::vector<int> lengths(n, -1);
    for (int r = 0; r < n; ++r) {
      acceptance[r] = requests_[r].running.estimate(model_.mean(0));
      hopes[r] = requests_[r].running.outcomes.hope(model_.hope(0));
      longest[r] = requests_[r].left < 0 ? 64 : requests_[r].left - 1;
      lag[r] = requests_[r].lag;
    }
    DraftQuery query;
    query.requests = n;
    for (const Request& request : requests_) query.context += static_cast<double>(request.said) / n;
    query.acceptance = acceptance;
    query.hopes = hopes;
    query.longest_draft = longest;
    if (options_.catch_up > 0) query.lag = lag;
    const bool prefills = options_.prefill_every > 0 && s % options_.prefill_every == 0;
    query.prefill_rows = prefills ? options_.prefill_rows : 0;
    if (policy.considers(query)) {
      policy.choose(query, lengths);
    } else {
      std::fill(lengths.begin(), lengths.end(), 0);
    }

    const double drift = 1 + (options_.drift - 1) * s / options_.steps;
    const double attention = options_.per_position * query.context;
    double draft_seconds = 0;
    int rounds = 0;
    for (int r = 0; r < n; ++r) {
      rounds = std::max(rounds, lengths[r]);
      if (lengths[r] > 0) draft_seconds += options_.catch_up * lag[r];
    }
    for (int k = 1; k <= rounds; ++k) {
      const auto active =
          std::count_if(lengths.begin(), lengths.end(), [k](int length) { return length >= k; });
      draft_seconds +=
          options_.round(static_cast<double>(active)) + attention / 4 * static_cast<double>(active);
    }

    std::vector<Token> tokens;
    std::vector<double> values;
    std::vector<int> offsets{0};
    for (int r = 0; r < n; ++r) {
      double value = 1;
      const bool found = lengths[r] > 0 && uniform() < options_.found;
      for (int k = 0; found && k < lengths[r]; ++k) {
        const double a = std::clamp(
            requests_[r].acceptance + options_.acceptance_drift * s / options_.steps, 0.0, 1.0);
        const double reach = options_.spread * std::min(a, 1 - a);
        const double p = a + (uniform() < 0.5 ? reach : -reach);
        tokens.push_back({p, options_.spread > 0 ? p : 1.0});
        const double known = options_.spread > 0 ? model_.estimate(0, p) : acceptance[r];
        value *= known;
        values.push_back(value);
      }
      offsets.push_back(static_cast<int>(values.size()));
    }
    std::vector<std::uint8_t> keep(values.size(), 0);
    if (rounds > 0) {
      policy.select(query, {values, offsets}, keep);
      ++result_.asked;
      result_.asked_at.push_back(s);
    }

    StepOutcome outcome;
    std::vector<Request> next;
    for (int r = 0; r < n; ++r) {
      Request& request = requests_[r];
      int accepted = 0;
      bool refuted = false;
      for (int i = offsets[r]; i < offsets[r + 1]; ++i) {
        if (keep[i] == 0) continue;
        ++outcome.draft_rows;
        if (refuted) continue;
        const bool agrees = uniform() < tokens[i].probability;
        model_.record(0, tokens[i].score, agrees);
        accepted += agrees ? 1 : 0;
        refuted = !agrees;
      }
      request.running.record(accepted, refuted);
      const bool found = offsets[r + 1] > offsets[r];
      for (DraftOutcomes* outcomes : {&request.running.outcomes, &model_.outcomes(0)}) {
        if (lengths[r] > 0) outcomes->record_found(found);
        if (found) outcomes->record_reach(accepted, refuted);
      }
      outcome.accepted += accepted;
      outcome.committed += accepted + 1;
      request.lag = lengths[r] > 0 ? 0 : request.lag + 1;
      request.said += accepted + 1;
      if (request.left > 0) request.left -= accepted + 1;
      if (request.left != 0) next.push_back(request);
    }
    requests_ = std::move(next);
    const double step_seconds = (options_.step(n + query.prefill_rows + outcome.draft_rows) +
                                 attention * (n + 0.5 * outcome.draft_rows)) *
                                drift;
    outcome.step_seconds = measured(step_seconds, s);
    outcome.draft_seconds = rounds > 0 ? measured(draft_seconds * drift, s) : 0;
    policy.observe(outcome);
    result_.seconds += step_seconds + draft_seconds * drift;
    result_.tokens += outcome.committed;
    result_.verified += outcome.draft_rows;
  }

  WorldOptions options_;
  std::mt19937_64 random_;
  AcceptanceModel model_{std::vector{kUnknownAcceptance}};
  std::vector<Request> requests_;
  WorldResult result_;
};

/// Of lengths 0 to 8, tokens a second.
inline double best_fixed_rate(const WorldOptions& options) {
  double best = 0;
  for (int length = 0; length <= 8; ++length) {
    FixedLength policy(length);
    best = std::max(best, World(options).run(policy).rate());
  }
  return best;
}

}  // namespace paceline::policy
