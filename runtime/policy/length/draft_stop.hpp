// RADAR's prediction model: whether to call the draft model again (RADAR, section 2.2).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/sampling.hpp"
#include "runtime/core/weight_source.hpp"

namespace paceline::policy {

/// An LSTM of one layer over the confidences of a draft's levels, and an MLP over its output and
/// the newest confidences: Linear, ReLU, Linear. Immutable; thread-safe.
class StopNetwork {
 public:
  static constexpr int kStates = 10;  ///< k, the branching factor of the tree it was trained on
  static constexpr int kHidden = 128;

  /// s_t (equation 1): cumulative log-probabilities of the level's tokens that are expanded, in
  /// falling order. A level with fewer tokens is filled up with values of impossible tokens.
  using Confidences = std::array<float, kStates>;

  /// State of the LSTM after the levels so far; zero before the first.
  struct Memory {
    std::array<float, kHidden> hidden{};
    std::array<float, kHidden> cell{};
  };

  /// Reads `lstm.{weight_ih,weight_hh,bias_ih,bias_hh}_l0`, `mlp.0.{weight,bias}` and
  /// `mlp.3.{weight,bias}` in fp32, as published. Throws DataError on a tensor that is missing, has
  /// another shape or dtype, or has a value that is not finite.
  explicit StopNetwork(const WeightSource& weights);

  /// Probability of stopping (action 0) at a level; updates the memory with this level. Costs about
  /// 90,000 multiply-adds.
  [[nodiscard]] float stop_probability(Memory& memory, const Confidences& level) const;

 private:
  // Matrices are transposed: a product is a sum of rows, and the order of its terms does not depend
  // on the width of the CPU's vectors.
  std::vector<float> gates_of_level_;   ///< [kStates, 4 * kHidden] gates i, f, g, o
  std::vector<float> gates_of_hidden_;  ///< [kHidden, 4 * kHidden]
  std::vector<float> gates_bias_;       ///< [4 * kHidden]
  std::vector<float> inner_;            ///< [kHidden + kStates, kHidden]
  std::vector<float> inner_bias_;       ///< [kHidden]
  std::vector<float> outer_;            ///< [kHidden, 2] actions stop, continue
  std::vector<float> outer_bias_;       ///< [2]
};

/// Most calls of the draft model after the first: t_max - 1 (section 3.1, "Implementation": 8 calls
/// at most).
inline constexpr int kMostExpansions = 7;

/// Draws whether to stop, with the network's probability. The draw is stochastic as in training,
/// but uses the request's own noise, so that a draft depends only on its request. `step`: index in
/// the response of the draft's first token. `expansion`: number of expansions made so far.
[[nodiscard]] bool stops(float probability, const NoiseKey& noise, std::uint32_t step,
                         int expansion);

}  // namespace paceline::policy
