// Sampling in float64, by the plain definition: sorting all tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/philox.hpp"

namespace paceline::kernels::test {

/// Tokens by falling logit, lowest id first on ties, with float64 probabilities, filtered one
/// filter after the other.
struct Reference {
  std::vector<TokenId> kept;        // in order
  std::vector<double> probability;  // of kept, renormalised
  bool near_boundary = false;       // rounding could move the top-p or min-p cut
};

inline Reference reference(const float* logits, int vocab, const SampleRow& row) {
  std::vector<TokenId> order;
  for (TokenId id = 0; id < vocab; ++id) {
    if (std::find(row.banned.begin(), row.banned.end(), id) == row.banned.end())
      order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  std::vector<double> p;
  for (const TokenId id : order) {
    p.push_back(std::exp((static_cast<double>(logits[id]) - logits[order[0]]) / row.temperature));
  }
  Reference out;
  const auto keep = [&](std::size_t n) {
    order.resize(n);
    p.resize(n);
  };
  if (row.top_k > 0) keep(std::min<std::size_t>(order.size(), row.top_k));
  if (row.top_p < 1) {
    const double target = row.top_p * std::accumulate(p.begin(), p.end(), 0.0);
    double mass = 0;
    std::size_t n = 0;
    while (n < p.size() && (n == 0 || mass < target)) mass += p[n++];
    out.near_boundary |= std::abs(mass - target) < 1e-5 * target ||
                         std::abs(mass - p[n - 1] - target) < 1e-5 * target;
    keep(n);
  }
  if (row.min_p > 0) {
    std::size_t n = 0;
    while (n < p.size() && p[n] >= row.min_p) ++n;
    for (const double x : p) out.near_boundary |= std::abs(x - row.min_p) < 1e-5 * row.min_p;
    keep(n);
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= total;
  out.kept = order;
  out.probability = p;
  return out;
}

/// The best token, the first, some in the midst and the end of the vocabulary: ascending, each
/// once, and never all. `below(n)`: random, below n.
template <class Below>
std::vector<TokenId> random_bans(const float* logits, int vocab, const Below& below) {
  std::vector<TokenId> banned;
  if (vocab <= 3) return banned;
  banned = {0, static_cast<TokenId>(std::max_element(logits, logits + vocab) - logits)};
  for (int holes = below(3) * below(40); holes > 0; --holes) banned.push_back(below(vocab));
  if (below(2) == 0) {
    for (int id = vocab - 1 - below(vocab / 2); id < vocab; ++id) banned.push_back(id);
  }
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  if (std::ssize(banned) == vocab) banned.erase(banned.begin() + below(vocab));
  return banned;
}

inline double gumbel_of(const SampleRow& row, TokenId id) {
  const std::uint32_t bits = noise_bits(row.noise, row.step, id);
  const double c = (4294967295.0 - bits + 0.5) / 4294967296.0;
  return -std::log(-std::log1p(-c));
}

inline double score_of(float logit, const SampleRow& row, TokenId id) {
  if (row.temperature == 0) return logit;
  return static_cast<double>(logit) / row.temperature + gumbel_of(row, id);
}

/// Kept tokens by falling score. At temperature 0 filters have no part.
struct RankedReference {
  std::vector<TokenId> order;
  std::vector<double> scores;
  bool near_boundary = false;
};

inline RankedReference ranked_reference(const float* logits, int vocab, const SampleRow& row) {
  SampleRow filters = row;
  if (row.temperature == 0) {
    filters = {};
    filters.banned = row.banned;
  }
  const Reference kept = reference(logits, vocab, filters);
  RankedReference out{kept.kept, {}, kept.near_boundary};
  std::vector<double> all(static_cast<std::size_t>(vocab));
  for (const TokenId id : out.order) all[id] = score_of(logits[id], row, id);
  std::sort(out.order.begin(), out.order.end(),
            [&](TokenId a, TokenId b) { return all[a] > all[b] || (all[a] == all[b] && a < b); });
  for (const TokenId id : out.order) out.scores.push_back(all[id]);
  return out;
}

/// The chi-square statistic of tokens drawn `draws` times against the reference, in standard
/// deviations from its mean. Cells of small expectation are pooled. Infinite where a token was
/// drawn that is not kept.
inline double chi_square_deviation(const Reference& expected, const std::vector<int>& counts,
                                   int draws) {
  double statistic = 0;
  int cells = 0;
  double pool_expected = 0;
  double pool_count = 0;
  int seen = 0;
  for (std::size_t i = 0; i < expected.kept.size(); ++i) {
    pool_expected += expected.probability[i] * draws;
    pool_count += counts[expected.kept[i]];
    seen += counts[expected.kept[i]];
    if (pool_expected < 10 && i + 1 < expected.kept.size()) continue;
    statistic += (pool_count - pool_expected) * (pool_count - pool_expected) / pool_expected;
    ++cells;
    pool_expected = pool_count = 0;
  }
  if (seen != draws) return HUGE_VAL;
  return cells < 2 ? 0 : (statistic - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

}  // namespace paceline::kernels::test
