// Parts of a pass that a thread each takes through all operations.
#pragma once

#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cpu {

/// Cuts a batch between segments into at most `most` parts of about the same work. One part where
/// there is so little work that waking a thread is not worth it; empty where one part would have
/// three quarters of it, which threads had better share operation by operation.
void cut_pass(const Batch& batch, int most, std::vector<PassRows>& parts);

}  // namespace paceline::kernels::cpu
