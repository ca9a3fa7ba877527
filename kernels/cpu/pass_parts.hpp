// Parts of a pass that a thread each takes through all operations.
#pragma once

#include <vector>

#include "kernels/row_plan.hpp"

namespace paceline::kernels::cpu {

/// Whole segments of a batch, next to one another.
struct PassPart {
  int first_row = 0, rows = 0;
  int first_chain = 0, chains = 0;          ///< of the row plan
  int first_logit_row = 0, logit_rows = 0;  ///< index into Batch::logit_rows
};

/// Cuts a batch between segments into at most `most` parts of about the same work. Empty where that
/// leaves nearly all of it in one part.
void cut_pass(const Batch& batch, const RowPlan& plan, int most, std::vector<PassPart>& parts);

}  // namespace paceline::kernels::cpu
