// Philox4x32-10 (Salmon et al., SC'11), and the token noise drawn from it: the plain definition
// that every backend's vector code must reproduce word for word.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/core/sampling.hpp"

namespace paceline {

using PhiloxBlock = std::array<std::uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// The 32 random bits of token `token` at response index `step`. Tokens are laid out so that 16
/// neighbouring counters give 64 neighbouring tokens in four vectors: token 64 b + 16 j + lane has
/// word j of counter 16 b + lane.
constexpr std::uint32_t noise_bits(const NoiseKey& noise, std::uint32_t step, std::uint32_t token) {
  const std::uint32_t counter = (token / 64) * 16 + token % 16;
  const std::uint32_t word = token % 64 / 16;
  return philox4x32(
      {counter, step, static_cast<std::uint32_t>(noise.stream),
       static_cast<std::uint32_t>(noise.stream >> 32)},
      {static_cast<std::uint32_t>(noise.key), static_cast<std::uint32_t>(noise.key >> 32)})[word];
}

}  // namespace paceline
