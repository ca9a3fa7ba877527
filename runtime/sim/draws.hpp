// Random numbers of the simulated world. Each is a function of its owner, its purpose and an index,
// never of earlier draws.
#pragma once

#include <cstdint>

#include "runtime/core/philox.hpp"
#include "runtime/sim/special_functions.hpp"

namespace paceline::sim {

/// Purpose of a draw. A simulation's results depend on these values.
enum class Draw : std::uint32_t {
  prompt_length = 0,
  prompt_token = 1,
  group_length = 2,    ///< the siblings' common part
  length = 3,          ///< a response's own part
  request = 4,         ///< how easy a request is for all methods
  method = 5,          ///< how easy it is for one method
  token = 6,           ///< a token of the response
  drift = 7,           ///< drift of a response's difficulty
  common_token = 8,    ///< whether a token is drafted by all methods alike
  method_token = 9,    ///< whether a token is drafted by one method
  message = 10,        ///< faults of a message on its way
  transfer = 11,       ///< whether a transfer fails
  fault = 12,          ///< victim and time of a fault
  damage = 13,         ///< whether a stored block is damaged
  stop_request = 14,   ///< request whose recorded trees another one has (stop_points.hpp)
  stop_point = 15,     ///< recorded tree of a draft
  tree_path = 16,      ///< the target's tokens in a recorded tree
  second_choice = 17,  ///< whether a method's second choice is right where its first is wrong
  turn = 18,           ///< a turn of a conversation
};

/// Four random words. The first word of the Philox counter is larger than all that token noise uses
/// (at most a quarter of the largest token id, core/philox.hpp), so draws and token noise are
/// independent. `method`: < 65536.
[[nodiscard]] constexpr PhiloxBlock draw_block(const NoiseKey& whose, Draw what,
                                               std::uint32_t number, std::uint32_t method = 0) {
  return philox4x32(
      {0x80000000U | static_cast<std::uint32_t>(what) << 16 | method, number,
       static_cast<std::uint32_t>(whose.stream), static_cast<std::uint32_t>(whose.stream >> 32)},
      {static_cast<std::uint32_t>(whose.key), static_cast<std::uint32_t>(whose.key >> 32)});
}

/// A number in the open interval (0, 1).
[[nodiscard]] constexpr double uniform(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }
[[nodiscard]] constexpr double uniform(const NoiseKey& whose, Draw what, std::uint32_t number,
                                       std::uint32_t method = 0) {
  return uniform(draw_block(whose, what, number, method)[0]);
}
/// A number in [0, below).
[[nodiscard]] constexpr std::uint32_t below(std::uint32_t below, std::uint32_t word) {
  return static_cast<std::uint32_t>(std::uint64_t{word} * below >> 32);
}
[[nodiscard]] inline double normal(const NoiseKey& whose, Draw what, std::uint32_t number = 0,
                                   std::uint32_t method = 0) {
  return normal_quantile(uniform(whose, what, number, method));
}

}  // namespace paceline::sim
