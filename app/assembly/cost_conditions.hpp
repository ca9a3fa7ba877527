// What measured costs hold for, and whether that is what they are to be used for.
#pragma once

#include <span>
#include <string>

#include "app/assembly/drafters.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/model_shape.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::app {

/// What of a model its costs depend on: CostConditions::model. Both descriptions of a model give
/// the same text.
[[nodiscard]] std::string shape_text(const ModelConfig& model, DType compute);
[[nodiscard]] std::string shape_text(const ModelShape& model, DType compute);

/// What `profile` was measured with and `now` has not, or a drafter that it does not know; empty:
/// it holds. `degrees`: of the groups, rising. `whose`: "this run".
[[nodiscard]] std::string difference(const CostTable& profile, const CostConditions& now,
                                     std::span<const int> degrees,
                                     std::span<const ConfiguredDrafter> drafters,
                                     const char* whose);

}  // namespace paceline::app
