// What a job keeps from one step to the next (watch.hpp), where the next is alike. All ranks come
// to the same conclusion whether it is, by what is the same on each.
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

/// A rank's; empty in a job's first step. Used by one thread.
class Standing {
 public:
  /// `resident`: the job stays for many steps.
  explicit Standing(bool resident = false) : resident_(resident) {}
  [[nodiscard]] bool resident() const { return resident_; }

  /// The tokenizer that these files make: that of the step before where their texts are the same,
  /// as they are from step to step of a training. Throws as Tokenizer::load() does.
  [[nodiscard]] std::shared_ptr<const io::Tokenizer> tokenizer(io::TokenizerFiles files);

  /// The model's end tokens in the step before; none in the first. `now`: of this one.
  [[nodiscard]] std::optional<std::vector<TokenId>> eos(const std::vector<TokenId>& now) {
    return std::exchange(eos_, now);
  }

  /// As costs_of_run(), which is asked where ranks, roles or shapes are others than before:
  /// weights and prompts have no part in costs. Collective.
  [[nodiscard]] const CostsByDegree& costs(const MeasuringRank& rank, std::size_t responses);

  /// What of a step's banner and plan its user has not been told of the step before: all of the
  /// first, then the lines that differ.
  [[nodiscard]] std::string news(const std::string& text);

  /// Whether the command that scores is another than that of the step before.
  [[nodiscard]] bool new_scorer(const std::vector<std::string>& command) {
    return std::exchange(scorer_, command) != command;
  }

  /// Since the job began.
  [[nodiscard]] const Clock& clock() const { return clock_; }

 private:
  /// What costs depend on.
  struct Conditions {
    CostConditions of_rank;
    policy::Placement placement;
    std::vector<std::string> drafters;
    std::string settings;  ///< of engine, speculation and schedule
    bool operator==(const Conditions&) const = default;
  };

  bool resident_;
  std::string told_;  ///< of the step before
  SteadyClock clock_;
  std::shared_ptr<const io::Tokenizer> tokenizer_;
  io::TokenizerFiles tokenizer_files_;
  std::optional<std::vector<TokenId>> eos_;
  std::optional<Conditions> measured_under_;
  CostsByDegree costs_;
  std::vector<std::string> scorer_;
};

}  // namespace paceline::app
