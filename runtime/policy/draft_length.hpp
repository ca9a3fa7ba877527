// How far to draft, and how much of a draft to verify.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/policy/step_cost.hpp"

namespace paceline::policy {

/// A step about to be made. Spans are indexed by request of the batch and used during the call
/// only.
struct DraftQuery {
  int requests = 0;                    ///< that decode: one row each without drafts
  int prefill_rows = 0;                ///< prompt rows that share the step
  int drafter = 0;                     ///< that will be asked
  std::span<const double> acceptance;  ///< [requests] P(next drafted token is accepted)
  std::span<const int> room;           ///< [requests] longest draft that makes sense
  /// [requests] committed tokens the drafter has yet to compute, past the one or two that every
  /// draft begins with; empty: none.
  std::span<const int> lag;
  int max_draft_rows = std::numeric_limits<int>::max();  ///< that fit into the step
};

/// What was drafted: for each request its tokens in tree order, parents before children.
struct DraftedTokens {
  /// Calibrated probability that the path through the token is accepted; falls along a path.
  std::span<const double> values;  ///< [tokens]
  std::span<const int> offsets;    ///< [requests + 1] where a request's tokens begin
};

/// A step that was made.
struct StepOutcome {
  int draft_rows = 0;        ///< drafted tokens that were verified
  int committed = 0;         ///< tokens the decoding requests got
  double draft_seconds = 0;  ///< in the drafter, 0 where none was asked
  double step_seconds = 0;   ///< in the engine
};

/// Decides speculation step by step: choose(), then, if any length is not 0, select(), then
/// observe(), in turn. A state machine without clock or randomness: equal calls, equal answers. No
/// answer can change a trajectory. Not thread-safe.
class DraftLengthPolicy {
 public:
  virtual ~DraftLengthPolicy() = default;

  /// Before drafting: the longest path to draft for each request, at most its room. All 0 is plain
  /// decoding: no drafter is called.
  virtual void choose(const DraftQuery& query, std::span<int> lengths) = 0;
  /// After drafting: keep[i] = 1 for each token to verify. With a token its parents are kept.
  virtual void select(const DraftQuery& query, const DraftedTokens& drafted,
                      std::span<std::uint8_t> keep) = 0;
  virtual void observe(const StepOutcome& outcome) = 0;
};

/// The tokens by falling value, a request's parents before its children: every prefix is closed
/// under parents, and the prefix of k tokens is the selection of the highest expected number of
/// accepted tokens under a budget of k rows over the whole batch (TETRIS).
void order_by_value(const DraftedTokens& drafted, std::vector<int>& order);

/// Always the same length; everything that fits is verified.
class FixedLength final : public DraftLengthPolicy {
 public:
  explicit FixedLength(int length) : length_(length) {}

  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void select(const DraftQuery& query, const DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override;
  void observe(const StepOutcome&) override {}

 private:
  int length_;
  std::vector<int> order_;
};

struct GoodputOptions {
  int max_length = 8;
  int drafters = 1;
  /// What trying things out may lose against plain decoding: a share of the time elapsed, and so
  /// many plain steps at the start.
  double exploration = 0.01;
  double allowance = 8;
  int probe_requests = 4;      ///< that draft while the others do not, to see whether it would pay
  int catch_up_horizon = 128;  ///< steps over which a drafter's catching up must pay off
};

/// Maximises goodput, expected committed tokens a second:
///
///   (requests + sum of P(accepted) of the draft tokens) / (draft seconds + step seconds(rows)),
///
/// with acceptance as it runs and costs as measured (DSD, in Nightjar's words; its cost of
/// switching on is here the drafter's catching up, spread over catch_up_horizon steps). Lengths
/// differ by request: the tokens of highest value are drafted first, across the batch, and the best
/// prefix of that order is taken; select() does the same with what the drafter says of each token.
///
/// A goodput that is merely estimated deadlocks: what is not tried is not known. Untried row counts
/// are therefore tried where they would pay if they cost no more than the fewer rows known (costs
/// never fall in rows, so that is an honest upper bound, and each trial lowers it), growing at most
/// twofold; and while speculation does not pay, a few requests draft now and then. All time lost
/// against plain decoding of the same tokens goes to an account, gains pay it back, and when it is
/// overdrawn decoding is plain. So a step that prefills too: its drafts are judged by what they add
/// to such a step, learned apart from pure decoding, but nothing is tried out in one.
class Goodput final : public DraftLengthPolicy {
 public:
  explicit Goodput(const GoodputOptions& options);

  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void select(const DraftQuery& query, const DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override;
  void observe(const StepOutcome& outcome) override;

  /// Seconds lost against plain decoding so far, gains deducted; what the account holds.
  [[nodiscard]] double lost() const { return lost_; }
  std::string trace() const { std::string t = std::to_string((int)step_.mode) + " cost"; for (double r : {1.0, 1.1, 1.3, 1.5, 2.0, 3.0, 5.0, 9.0}) t += " " + std::to_string(decode_.seconds(r * step_.requests) / plain_seconds()).substr(0,5); return t; }

 private:
  enum class Mode {
    plain,
    speculate,  ///< what is estimated best
    scout,      ///< a number of rows not tried yet
    probe,      ///< a few requests, for acceptance and draft cost
  };
  struct Candidate {
    double value;  ///< expected gain, tokens
    int depth;     ///< 1 for a request's first token
    int request;
  };
  /// A prefix of the candidates no deeper than `depth`.
  struct Plan {
    int tokens = 0;
    int depth = 0;
    double gain = 0;
    double seconds = 0;
    double rate = 0;  ///< tokens a second
  };
  /// Seconds by rows, looked up often in one choose().
  struct Tables {
    std::vector<double> step;   ///< [tokens + 1] of a step with so many drafted tokens
    std::vector<double> round;  ///< [requests + 1] of a round of drafting
  };
  struct Drafter {
    DraftCost cost;
    double asked = 0, found = 0;  ///< tokens asked for and drafted, fading
    /// Share of what is asked for that comes: n-grams and trees often find nothing.
    [[nodiscard]] double yield() const;
    bool on = false;  ///< speculation pays, as far as is known
    double next_probe = 0;
    double probe_interval = 0;
    int probe_left = 0;  ///< steps of a probe that are still to come
    double next_scout = 0;
    double scout_interval = 1;
    int scaled_to = 0;  ///< requests the intervals were last reset at
  };
  /// What was decided for the step under way.
  struct Step {
    Mode mode = Mode::plain;
    int requests = 0;
    int prefill_rows = 0;
    int drafter = 0;
    int rounds = 0;
    int asked = 0;
    int catch_up = 0;
    int found = 0;  ///< of those asked for
  };

  [[nodiscard]] double step_seconds(int draft_rows, bool least) const;
  [[nodiscard]] double plain_seconds() const { return decode_.seconds(step_.requests); }
  [[nodiscard]] double balance() const;
  [[nodiscard]] double loss(double seconds, double committed) const;
  void list_candidates(const DraftQuery& query, double spare);
  void tabulate(bool least, Tables& tables) const;
  [[nodiscard]] Plan best(const DraftQuery& query, const Tables& tables) const;
  /// The plan of `tokens` candidates no deeper than `depth`.
  [[nodiscard]] Plan prefix(const DraftQuery& query, const Tables& tables, int tokens,
                            int depth) const;
  [[nodiscard]] int scout_tokens(const Plan& wish) const;
  bool scout(const DraftQuery& query, const Plan& known, std::span<int> lengths);
  bool probe(const DraftQuery& query, std::span<int> lengths);
  bool ask_all(const DraftQuery& query, std::span<int> lengths);
  void take(const DraftQuery& query, const Plan& plan, Mode mode, std::span<int> lengths);
  void ask(const DraftQuery& query, Mode mode, std::span<const int> lengths);

  GoodputOptions options_;
  StepCost decode_;  ///< steps that only decode
  StepCost mixed_;   ///< steps that prefill too: other attention, fewer rows that are sampled
  std::vector<Drafter> drafters_;
  double elapsed_ = 0;  ///< seconds of all steps
  double lost_ = 0;
  double steps_ = 0;
  double last_plain_ = 0;  ///< step that last had no drafts
  Step step_;
  std::vector<Candidate> candidates_;  ///< by falling value
  std::vector<bool> barred_;           ///< [requests] whose drafter would catch up too long
  Tables likely_;
  Tables least_;
  std::vector<int> lengths_;
  std::vector<int> order_;
};

}  // namespace paceline::policy
