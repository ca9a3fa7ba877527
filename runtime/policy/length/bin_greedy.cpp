#include "runtime/policy/length/bin_greedy.hpp"

#include "runtime/core/philox.hpp"

namespace paceline::policy {

void BinSchedule::advance() {
  ++round_;
  if (!past_root(round_)) return;
  round_ = 1;
  ++bin_;
  if (!past_root(bin_)) return;
  bin_ = 1;
  ++block_;
}

std::uint32_t SeededDraws::word() {
  const std::uint64_t counter = drawn_++;
  return philox4x32(
      {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)})[0];
}

}  // namespace paceline::policy
