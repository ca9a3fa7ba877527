// Results that a job keeps from one training step to the next (watch.hpp). A result is used again
// until a value on which the result depends changes. Such a value changes on all ranks or on none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/assembly/costs.hpp"
#include "app/assembly/wall_clock.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/policy/place/placement.hpp"

namespace paceline::app {

/// The kept results of one rank; empty in a job's first step. Used by one thread.
class Standing {
 public:
  /// `resident`: the job serves many training steps.
  explicit Standing(bool resident = false) : resident_(resident) {}
  [[nodiscard]] bool resident() const { return resident_; }

  /// The tokenizer of these files. Loads it in the first step, and again only if the files' texts
  /// have changed, which is rare in one training. Throws as Tokenizer::load() does.
  [[nodiscard]] std::shared_ptr<const io::Tokenizer> tokenizer(io::TokenizerFiles files);

  /// Stores `now`, the model's end tokens in this step. Returns the end tokens of the previous
  /// step, or nullopt in the first step.
  [[nodiscard]] std::optional<std::vector<TokenId>> eos(const std::vector<TokenId>& now) {
    return std::exchange(eos_, now);
  }

  /// Returns the result of costs_of_run(). Calls this function in the first step, and again only if
  /// ranks, roles, shapes or settings have changed. New weights alone change no costs. Collective.
  [[nodiscard]] const CostsByDegree& costs(const MeasuringRank& rank, std::size_t responses);

  /// The lines of `text` that the previous step's text lacks; all lines in the first step. `text`:
  /// a step's banner and plan.
  [[nodiscard]] std::string news(const std::string& text);

  /// Stores the scoring command. Returns whether the command stored before was a different one.
  [[nodiscard]] bool new_scorer(const std::vector<std::string>& command) {
    return std::exchange(scorer_, command) != command;
  }

  /// A clock of seconds since this object was made, at the start of the job.
  [[nodiscard]] const Clock& clock() const { return clock_; }

 private:
  /// Conditions on which costs depend.
  struct Conditions {
    CostConditions of_rank;
    policy::Placement placement;
    std::vector<std::string> drafters;  ///< names and shapes of drafters
    std::string settings;               ///< settings that affect costs
    bool operator==(const Conditions&) const = default;
  };

  bool resident_;
  std::string told_;  ///< banner and plan of the previous step
  SteadyClock clock_;
  std::shared_ptr<const io::Tokenizer> tokenizer_;
  io::TokenizerFiles tokenizer_files_;
  std::optional<std::vector<TokenId>> eos_;
  std::optional<Conditions> measured_under_;
  CostsByDegree costs_;
  std::vector<std::string> scorer_;
};

}  // namespace paceline::app
