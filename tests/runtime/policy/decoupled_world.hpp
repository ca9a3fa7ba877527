// Decoupled speculation as the roles do it, in simulated seconds: a verifier that never waits, and
// a drafter that drafts up to a window in a call, sends windows that are complete, or whatever
// there is to a request that has nothing left, and has at most 2w - 1 tokens beyond what was
// committed.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace paceline::policy {

struct DecoupledWorld {
  double p = 0.5;  ///< that a drafted token is the target's, where those before it are
  int window = 4;
  int requests = 1;
  double draft_first = 0;  ///< seconds of a call, for its first token
  double draft_round = 0;  ///< and for each further one
  /// Seconds of a step by rows, those of drafts included.
  std::function<double(double)> step = [](double) { return 1.0; };
  int steps = 100000;
  std::uint64_t seed = 1;
};

struct DecoupledOutcome {
  double seconds = 0;
  double committed = 0;  ///< tokens, likewise the others
  double verified = 0;   ///< drafted ones
  double wasted = 0;     ///< drafted ones
  int most_wasted = 0;   ///< by one refutation
  int steps = 0;
};

class DecoupledSimulation {
 public:
  explicit DecoupledSimulation(const DecoupledWorld& world)
      : world_(world), requests_(static_cast<std::size_t>(world.requests)), random_(world.seed) {}

  DecoupledOutcome run() {
    begin_step(0);
    begin_call(0);
    while (outcome_.steps < world_.steps) {
      if (call_ends_ <= step_ends_) {
        const double now = call_ends_;
        end_call();
        begin_call(now);
      } else {
        const double now = step_ends_;
        end_step();
        begin_step(now);
        if (call_ends_ == kNever) begin_call(now);
        outcome_.seconds = now;
      }
    }
    return outcome_;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// A token is known by whether the target says the same.
  struct Request {
    // The drafter knows of `response` committed tokens and has drafted `ahead` after them, of which
    // it has sent the first `sent`. Commits wait for the end of its call.
    int response = 0;
    std::deque<bool> ahead;
    int sent = 0;
    std::vector<int> commits;
    int asked = 0;
    // The verifier has committed so many, the last refutation among them, and has drafts after.
    int committed = 0;
    int refuted = 0;
    std::deque<bool> there;
    int verifying = 0;
  };

  void begin_step(double now) {
    double rows = 0;
    for (Request& r : requests_) {
      r.verifying = static_cast<int>(r.there.size());
      rows += 1 + r.verifying;
      outcome_.verified += r.verifying;
    }
    step_ends_ = now + world_.step(rows);
  }

  void end_step() {
    ++outcome_.steps;
    for (Request& r : requests_) {
      int accepted = 0;
      while (accepted < r.verifying && r.there[accepted]) ++accepted;
      commit(r, accepted + 1);
    }
  }

  void commit(Request& r, int count) {
    r.commits.push_back(count);
    outcome_.committed += count;
    for (int i = 0; i < count; ++i) {
      ++r.committed;
      if (r.there.empty()) continue;
      if (r.there.front()) {
        r.there.pop_front();
      } else {
        r.refuted = r.committed;
        r.there.clear();
      }
    }
  }

  void hear(Request& r) {
    for (const int count : r.commits) {
      const int known = std::min<int>(count, static_cast<int>(r.ahead.size()));
      int agreed = 0;
      while (agreed < known && r.ahead[agreed]) ++agreed;
      r.response += count;
      // With fewer drafted than committed, all that was drafted is over with.
      const int gone = agreed < count ? static_cast<int>(r.ahead.size()) : agreed;
      outcome_.wasted += gone - agreed;
      outcome_.most_wasted = std::max(outcome_.most_wasted, gone - agreed);
      r.ahead.erase(r.ahead.begin(), r.ahead.begin() + gone);
      r.sent -= std::min(r.sent, gone);
    }
    r.commits.clear();
  }

  void begin_call(double now) {
    const int w = world_.window;
    int rounds = 0;
    for (Request& r : requests_) {
      hear(r);
      const int size = static_cast<int>(r.ahead.size());
      r.asked = size < 2 * w - 1 ? std::min(w - (size - r.sent), 2 * w - 1 - size) : 0;
      rounds = std::max(rounds, r.asked);
    }
    call_ends_ =
        rounds == 0 ? kNever : now + world_.draft_first + (rounds - 1) * world_.draft_round;
  }

  void end_call() {
    std::bernoulli_distribution right(world_.p);
    for (Request& r : requests_) {
      for (; r.asked > 0; --r.asked) r.ahead.push_back(right(random_));
      const int unsent = static_cast<int>(r.ahead.size()) - r.sent;
      if (unsent == 0 || (unsent < world_.window && r.sent > 0)) continue;
      take(r, r.response + r.sent, {r.ahead.begin() + r.sent, r.ahead.end()});
      r.sent = static_cast<int>(r.ahead.size());
    }
  }

  /// The verifier gets a piece that begins at response token `base`.
  void take(Request& r, int base, const std::vector<bool>& piece) {
    const int count = static_cast<int>(piece.size());
    const int said = std::clamp(r.committed - base, 0, count);
    const bool agrees =
        std::all_of(piece.begin(), piece.begin() + said, [](bool right) { return right; });
    if (!agrees) r.refuted = std::max(r.refuted, base + said);
    if (!agrees || r.response < r.refuted) return;
    // During a step what is verified is still there, and what arrives goes behind it.
    if (base + said != r.committed + static_cast<int>(r.there.size())) return;
    r.there.insert(r.there.end(), piece.begin() + said, piece.end());
  }

  const DecoupledWorld& world_;
  std::vector<Request> requests_;
  std::mt19937_64 random_;
  double step_ends_ = 0;
  double call_ends_ = 0;
  DecoupledOutcome outcome_;
};

inline DecoupledOutcome run_decoupled(const DecoupledWorld& world) {
  return DecoupledSimulation(world).run();
}

}  // namespace paceline::policy
