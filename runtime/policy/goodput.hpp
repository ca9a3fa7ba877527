// Draft lengths that maximise goodput.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/policy/draft_length.hpp"
#include "runtime/policy/draft_plan.hpp"
#include "runtime/policy/loss_account.hpp"
#include "runtime/policy/plain_pace.hpp"
#include "runtime/policy/step_cost.hpp"

namespace paceline::policy {

struct GoodputOptions {
  int max_length = 8;
  int drafters = 1;
  /// What trying things out may lose against plain decoding: a share of the time elapsed, and so
  /// many plain steps at the start, or seconds where steps are very short: what a first draft costs
  /// in threads to wake and memory to touch does not shrink with the model.
  double exploration = 0.005;
  double allowance = 12;
  double least_allowance = 0.02;
  int probe_requests = 4;  ///< that draft while the others do not, to see whether it would pay
  /// Tokens over which a drafter's catching up must pay off; or as many as it lacks, where those
  /// are more: of a response that has gone on for long, much is still to come.
  int catch_up_horizon = 128;
};

/// Maximises goodput (draft_plan.hpp), expected committed tokens a second, with acceptance as it
/// runs and costs as measured (DSD, in Nightjar's words; its cost of switching on is here the
/// drafter's catching up, which must pay off within catch_up_horizon tokens). Lengths differ by
/// request: the tokens of highest value are drafted first, across the batch, and the best prefix of
/// that order is taken; select() does the same with what the drafter says of each token.
///
/// A goodput that is merely estimated deadlocks: what is not tried is not known. Untried row counts
/// are therefore tried where they would pay if they cost no more than the fewer rows known (costs
/// never fall in rows, so that is an honest upper bound, and each trial lowers it), growing at most
/// twofold; and while speculation does not pay, a few requests draft now and then. All time lost
/// against plain decoding of the same tokens goes to an account as it was measured, gains pay it
/// back, and when it is overdrawn decoding is plain. Nor is anything drafted while it is too
/// uncertain what the plain step would cost (plain_pace.hpp) for the gain foreseen to be sure: then
/// plain steps are made, which tell. The time foreseen for speculation as a whole is corrected by
/// how such steps came out at about this batch size: they are few and spread over many row counts,
/// so their costs are always known less well than those of plain ones. Steps that prefill too have
/// drafts judged by what they add to such a step, learned apart from pure decoding; nothing is
/// tried out in one.
class Goodput final : public DraftLengthPolicy {
 public:
  explicit Goodput(const GoodputOptions& options);

  bool considers(const DraftQuery& query) override;
  void choose(const DraftQuery& query, std::span<int> lengths) override;
  void select(const DraftQuery& query, const DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override;
  void observe(const StepOutcome& measured) override;

 private:
  enum class Mode {
    plain,
    speculate,  ///< what is estimated best
    scout,      ///< a number of rows not tried yet
    probe,      ///< a few requests, for acceptance and draft cost
  };
  struct Drafter {
    DraftCost cost;
    double asked = 0, found = 0;  ///< tokens asked for and drafted, fading
    /// Share of what is asked for that comes: n-grams and trees often find nothing.
    [[nodiscard]] double yield() const;
    bool on = false;       ///< speculation pays, as far as is known
    double next_look = 0;  ///< step at which drafting is thought of again
    double look_interval = 1;
    double next_probe = 0;
    double last_probe = 0;
    double probe_interval = 0;
    int probe_left = 0;  ///< steps of a probe that are still to come
    double next_scout = 0;
    double scout_interval = 1;
    int scaled_to = 0;  ///< requests the intervals were last reset at
  };
  /// A sum of measurements and of what was foreseen of them, fading.
  struct Ratio {
    double measured = 0, foreseen = 0;
    void add(double m, double f, double memory) {
      measured = memory * measured + m;
      foreseen = memory * foreseen + f;
    }
  };
  /// What was decided for the step under way.
  struct Step {
    Mode mode = Mode::plain;
    int requests = 0;
    int prefill_rows = 0;
    double context = 0;
    int drafter = 0;
    int rounds = 0;
    int asked = 0;
    int catch_up = 0;
    int found = 0;  ///< of those asked for
  };

  [[nodiscard]] double step_seconds(int draft_rows, bool least) const;
  [[nodiscard]] double plain_seconds() const {
    return decode_.seconds(step_.requests) * pace_.local(step_.requests);
  }
  [[nodiscard]] StepPlace place() const;
  [[nodiscard]] bool settled() const;
  [[nodiscard]] double loss(double seconds, double committed) const;
  [[nodiscard]] std::size_t octave() const;
  [[nodiscard]] double calibration() const;
  [[nodiscard]] bool in_doubt(double speedup) const;
  void by_lag(const DraftQuery& query);
  bool decide(const DraftQuery& query, std::span<int> lengths);
  void list_candidates(const DraftQuery& query, double spare, double saving);
  void tabulate(bool least, DraftPrices& prices) const;
  [[nodiscard]] int scout_tokens(const DraftPlan& wish) const;
  bool scout(const DraftQuery& query, const DraftPlan& known, std::span<int> lengths);
  [[nodiscard]] bool hopeless() const;
  bool probe(const DraftQuery& query, std::span<int> lengths);
  bool ask_all(const DraftQuery& query, std::span<int> lengths);
  void take(const DraftQuery& query, const DraftPlan& plan, Mode mode, std::span<int> lengths);
  void ask(const DraftQuery& query, Mode mode, std::span<const int> lengths);

  GoodputOptions options_;
  StepCost decode_;  ///< steps that only decode
  StepCost mixed_;   ///< steps that prefill too: other attention, fewer rows that are sampled
  std::vector<Drafter> drafters_;
  /// All seconds here but those of StepOutcome are divided by what all steps have in common.
  PlainPace pace_;
  std::array<Ratio, 32> speculating_;  ///< steps that speculate, drafting included, by octave of
                                       ///< requests
  LossAccount account_;                ///< against plain decoding, at the usual pace
  int regime_ = 0;                     ///< requests when the account was last relieved
  double steps_ = 0;
  double last_drafts_ = 0;  ///< step that last had drafts
  Step step_;
  DraftPlanner planner_;
  std::vector<double> worth_;  ///< [requests] what a token counts, 0: not drafted
  DraftPrices likely_;
  DraftPrices least_;
  std::vector<int> order_;
};

}  // namespace paceline::policy
