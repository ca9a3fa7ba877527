// Parts of a pass, which a thread each takes through all operations.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cpu {

/// Cuts a batch between segments into at most `threads` parts of about the same work. One part
/// where the work is too little to wake a thread; empty where threads should share the pass
/// operation by operation: every one would have to read many weights for fewer than `many_rows`
/// (KernelTable) rows, or one part would have much more work than the others.
void cut_pass(const Batch& batch, std::size_t weight_bytes, int many_rows, int threads,
              std::vector<PassRows>& parts);

}  // namespace paceline::kernels::cpu
