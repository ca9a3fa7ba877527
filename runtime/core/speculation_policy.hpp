// Policies that decide draft lengths.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/core/types.hpp"

namespace paceline {

/// Draft-length policies, made by runtime/policy/length/make_draft_length.hpp.
enum class SpeculationPolicy : std::uint8_t {
  goodput,     ///< as far as drafts are expected to pay, by costs and each request's acceptance
  nightjar,    ///< a bandit that learns the best length of each batch size
  dsd,         ///< goodput without its trials, with one length for the batch
  banditspec,  ///< a bandit that does not know the batch
  tetris,      ///< a fixed length; the batch's likeliest tokens are verified
  fixed,       ///< always the same length
};
inline constexpr std::array kSpeculationPolicies{
    SpeculationPolicy::goodput,    SpeculationPolicy::nightjar, SpeculationPolicy::dsd,
    SpeculationPolicy::banditspec, SpeculationPolicy::tetris,   SpeculationPolicy::fixed};

[[nodiscard]] constexpr const char* name_of(SpeculationPolicy policy) {
  return name_in(std::array{"goodput", "nightjar", "dsd", "banditspec", "tetris", "fixed"}, policy);
}

/// Whether the policy reads the cost table.
[[nodiscard]] constexpr bool reads_costs(SpeculationPolicy policy) {
  return policy == SpeculationPolicy::goodput || policy == SpeculationPolicy::nightjar ||
         policy == SpeculationPolicy::dsd;
}
/// Whether every step drafts, whatever the cost.
[[nodiscard]] constexpr bool drafts_always(SpeculationPolicy policy) {
  return policy == SpeculationPolicy::fixed || policy == SpeculationPolicy::tetris;
}

}  // namespace paceline
