// Compares the conditions under which costs were measured with the conditions of a run.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "app/assembly/configured_drafters.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::app {

/// Costs that are known before a run, from the cost profile in engine.profile.
struct ProfiledCosts {
  CostConditions conditions;  ///< conditions of this run; `threads` is this rank's own number
  std::optional<CostTable> profile;  ///< costs in engine.profile; nullopt: it is not set
  std::string fault;                 ///< reason not to use `profile`; empty: there is none

  [[nodiscard]] bool profile_holds() const { return profile && fault.empty(); }
};

/// Describes the shape of the target (for CostConditions::model), or of a draft model or a head's
/// layer (for DrafterCosts::model). Models with the same text count as equally costly. `compute`:
/// the dtype that the model computes in.
[[nodiscard]] std::string shape_text(const ModelConfig& model, DType compute);

/// The shape of a drafter's model or head; empty: the drafter has neither. `target`: the dtype that
/// the target computes in.
[[nodiscard]] std::string shape_text(const ConfiguredDrafter& drafter, DType target);

/// Returns a text for the user that says why `profile` does not apply to a run; empty: it applies.
/// A profile applies if it has the backend, instruction set, threads and model of `now`, if every
/// group has the tensor-parallel degree of the profile, and if the profile has costs of each of
/// `drafters`. If the profile records a drafter's shape, the drafter must have this shape.
/// `degrees`: each tensor-parallel degree of the run's groups once. `target`: the dtype that the
/// target computes in. `whose`: name of the run, e.g. "this run".
[[nodiscard]] std::string difference(const CostTable& profile, const CostConditions& now,
                                     std::span<const int> degrees,
                                     std::span<const ConfiguredDrafter> drafters, DType target,
                                     const char* whose);

}  // namespace paceline::app
