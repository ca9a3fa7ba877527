// Parts of a pass. One thread takes a part through all operations.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cpu {

/// Cuts a batch between segments into at most `threads` parts of about the same work; one part
/// where the work is too little to wake a thread. `parts` is empty where threads should share the
/// pass operation by operation: where each thread would have to read many weights for fewer than
/// `many_rows` (KernelTable) rows, or where one part would have much more work than the others.
void cut_pass(const Batch& batch, std::size_t weight_bytes, int many_rows, int threads,
              std::vector<PassRows>& parts);

}  // namespace paceline::kernels::cpu
