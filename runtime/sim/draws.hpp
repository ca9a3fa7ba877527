// Random numbers of the simulated world. Each is a function of whose it is, what it is for and a
// number, never of what was drawn before.
#pragma once

#include <cstdint>

#include "runtime/core/philox.hpp"
#include "runtime/sim/special_functions.hpp"

namespace paceline::sim {

/// What a draw is for. A simulation's numbers depend on these values.
enum class Draw : std::uint32_t {
  prompt_length = 0,
  prompt_token = 1,
  group_length = 2,   ///< the siblings' common part
  length = 3,         ///< a response's own part
  request = 4,        ///< how easy a request is for all methods
  method = 5,         ///< and for one
  token = 6,          ///< of the response
  drift = 7,          ///< of its difficulty
  common_token = 8,   ///< whether a token is drafted by all methods alike
  method_token = 9,   ///< or by one
  message = 10,       ///< what happens to it on its way
  transfer = 11,      ///< whether it fails
  fault = 12,         ///< whom it strikes, and when
  damage = 13,        ///< whether a stored block is damaged
  stop_request = 14,  ///< whose recorded trees a request has (stop_points.hpp)
  stop_point = 15,    ///< which of them a draft is
  tree_path = 16,     ///< which tokens of it are the target's
};

/// Four random words. The first word of the counter is above all that token noise uses, which ends
/// at a quarter of the largest token id (core/philox.hpp). `method` < 65536.
[[nodiscard]] constexpr PhiloxBlock draw_block(const NoiseKey& whose, Draw what,
                                               std::uint32_t number, std::uint32_t method = 0) {
  return philox4x32(
      {0x80000000U | static_cast<std::uint32_t>(what) << 16 | method, number,
       static_cast<std::uint32_t>(whose.stream), static_cast<std::uint32_t>(whose.stream >> 32)},
      {static_cast<std::uint32_t>(whose.key), static_cast<std::uint32_t>(whose.key >> 32)});
}

/// In (0, 1), never either.
[[nodiscard]] constexpr double uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }
[[nodiscard]] constexpr double uniform(const NoiseKey& whose, Draw what, std::uint32_t number,
                                       std::uint32_t method = 0) {
  return uniform(draw_block(whose, what, number, method)[0]);
}
/// In [0, below).
[[nodiscard]] constexpr std::uint32_t below(std::uint32_t below, std::uint32_t word) {
  return static_cast<std::uint32_t>(std::uint64_t{word} * below >> 32);
}
[[nodiscard]] inline double normal(const NoiseKey& whose, Draw what, std::uint32_t number = 0,
                                   std::uint32_t method = 0) {
  return normal_quantile(uniform(whose, what, number, method));
}

}  // namespace paceline::sim
