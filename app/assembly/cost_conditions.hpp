// The conditions under which costs were measured, and whether a run has the same.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "app/assembly/configured_drafters.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::app {

/// The costs that are known before a run.
struct ProfiledCosts {
  CostConditions conditions;         ///< conditions of this run, with this rank's threads
  std::optional<CostTable> profile;  ///< engine.profile
  std::string fault;                 ///< why the profile does not hold here; empty: it holds

  [[nodiscard]] bool profile_holds() const { return profile && fault.empty(); }
};

/// Describes the shape of a model, or of a head's layer. Costs depend on it, and
/// CostConditions::model holds it. `compute`: the dtype that the model computes in.
[[nodiscard]] std::string shape_text(const ModelConfig& model, DType compute);

/// The shape of a drafter's model or head; empty: the drafter has neither. `target`: the dtype that
/// the target computes in.
[[nodiscard]] std::string shape_text(const ConfiguredDrafter& drafter, DType target);

/// Says for the user why a profile does not hold: its conditions differ from `now`, it lacks a
/// drafter, or a drafter has another shape. Empty: the profile holds. `degrees`: the groups'
/// degrees. `target`: the dtype that the target computes in. `whose`: a name for `now`, as "this
/// run".
[[nodiscard]] std::string difference(const CostTable& profile, const CostConditions& now,
                                     std::span<const int> degrees,
                                     std::span<const ConfiguredDrafter> drafters, DType target,
                                     const char* whose);

}  // namespace paceline::app
