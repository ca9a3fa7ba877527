// Parts of a pass that a thread each takes through all operations.
#pragma once

#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cpu {

/// Cuts a batch between segments into at most `most` parts of about the same work. Empty where that
/// leaves nearly all of it in one part.
void cut_pass(const Batch& batch, int most, std::vector<PassRows>& parts);

}  // namespace paceline::kernels::cpu
