// Working memory of one thread.
#pragma once

#include <vector>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"

namespace paceline::kernels::cpu {

struct Workspace {
  Memory packed_input;                   ///< [rows][k] in the kernels' order
  Memory sums;                           ///< LinearArgs::scratch
  Memory products;                       ///< [rows][gate | up] for some columns
  Memory scratch;                        ///< AttentionArgs::scratch
  std::vector<AttentionRows> attending;  ///< rows of a unit of attention
  std::vector<std::int32_t> ranked;      ///< experts of a row, the chosen ones first
  std::vector<float> scores;             ///< [experts] a row's scores, before division by their sum
  std::vector<float> keys;               ///< [experts] by which a row's experts are chosen
  std::vector<float> groups;             ///< [groups] sum of the group's two best keys
};

}  // namespace paceline::kernels::cpu
