// Memory that one thread works with.
#pragma once

#include <vector>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"

namespace paceline::kernels::cpu {

struct Workspace {
  Memory packed_input;                   ///< [rows][k] in the kernels' order
  Memory sums;                           ///< LinearArgs::scratch
  Memory products;                       ///< [rows][gate | up] of some columns
  Memory scratch;                        ///< of attention
  std::vector<AttentionRows> attending;  ///< rows of a unit of attention
  std::vector<std::int32_t> ranked;      ///< experts, those that a row uses first
  std::vector<float> scores;             ///< [experts] of a row, not divided by their sum
  std::vector<float> keys;               ///< [experts] that a row chooses by
  std::vector<float> groups;             ///< [groups] sums of two keys
};

}  // namespace paceline::kernels::cpu
