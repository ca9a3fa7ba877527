#include "runtime/sim/acceptance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/core/error.hpp"
#include "runtime/sim/draws.hpp"

namespace paceline::sim {
namespace {

/// Number of quantiles in the table of a Beta distribution. This many keep mean and spread within
/// 1 %, even where the density has a pole.
constexpr int kQuantiles = 1024;

double factor_at(std::span<const CurvePoint> curve, double at) {
  if (curve.empty()) return 1;
  const auto next = std::find_if(curve.begin(), curve.end(),
                                 [at](const CurvePoint& point) { return point.at > at; });
  if (next == curve.begin()) return next->factor;
  const CurvePoint& last = *(next - 1);
  if (next == curve.end()) return last.factor;
  const double share = (at - last.at) / (next->at - last.at);
  return last.factor + share * (next->factor - last.factor);
}

/// Rates of a Beta distribution at the middles of equal steps of probability.
std::vector<double> beta_quantiles(double mean, double spread) {
  if (spread == 0) return std::vector(kQuantiles, mean);
  const double both = mean * (1 - mean) / (spread * spread) - 1;  // a + b
  const double a = mean * both;
  const double b = (1 - mean) * both;
  std::vector<double> quantiles;
  double low = 0;
  for (int i = 0; i < kQuantiles; ++i) {
    double high = 1;
    for (int halving = 0; halving < 50; ++halving) {
      const double middle = (low + high) / 2;
      (beta_cdf(middle, a, b) * kQuantiles < i + 0.5 ? low : high) = middle;
    }
    quantiles.push_back(low);
  }
  return quantiles;
}

/// Rate at a rank in [0, 1]: linear between quantiles, constant beyond the outermost ones.
double rate_at(std::span<const double> quantiles, double rank) {
  const auto last = static_cast<double>(quantiles.size() - 1);
  const double at = std::clamp(rank * static_cast<double>(quantiles.size()) - 0.5, 0.0, last);
  const auto step = std::min(static_cast<std::size_t>(at), quantiles.size() - 2);
  const double share = at - static_cast<double>(step);
  return quantiles[step] + share * (quantiles[step + 1] - quantiles[step]);
}

void check_range(const std::string& whose, const char* setting, double value, double least,
                 double most) {
  if (value >= least && value <= most) return;
  throw UsageError(
      fmt::format("{}: {} is {}, expected {} to {}", whose, setting, value, least, most));
}

void check_curve(const std::string& whose, const char* setting, std::span<const CurvePoint> curve) {
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const bool rises = std::isfinite(curve[i].at) && (i == 0 || curve[i].at > curve[i - 1].at);
    if (rises && std::isfinite(curve[i].factor) && curve[i].factor >= 0) continue;
    throw UsageError(
        fmt::format("{}: point {} of {} is {}: {}, expected points further and further on, with "
                    "factors from 0 on",
                    whose, i, setting, curve[i].at, curve[i].factor));
  }
}

}  // namespace

MethodAcceptance draft_model_acceptance(const std::string& name) { return {.name = name}; }

MethodAcceptance ngram_acceptance() {
  return {
      .name = "ngram", .mean = 0.15, .spread = 0.12, .length_correlation = -0.8, .scores = false};
}

MethodAcceptance suffix_acceptance() {
  // These rates give mean accepted lengths of 1.70, 2.04, 2.32 and 2.53 tokens, the target's token
  // included.
  constexpr double kAlone = 0.4120;
  return {
      .name = "suffix",
      .mean = kAlone,
      .spread = 0.1,
      .by_references = {{0, 1}, {1, 0.5110 / kAlone}, {5, 0.5718 / kAlone}, {15, 0.6093 / kAlone}}};
}

void check(const AcceptanceSettings& settings) {
  const std::string all = "acceptance";
  check_range(all, "request_agreement", settings.request_agreement, 0, 1);
  check_range(all, "token_agreement", settings.token_agreement, 0, 1);
  check_range(all, "drift", settings.drift, 0, 1);
  check_range(all, "drift_tokens", settings.drift_tokens, 1, 1e9);
  for (const MethodAcceptance& method : settings.methods) {
    const std::string whose = "acceptance of " + method.name;
    check_range(whose, "mean", method.mean, 0, 1);
    check_range(whose, "length_correlation", method.length_correlation, -1, 1);
    check_range(whose, "score_spread", method.score_spread, 0, 1);
    check_range(whose, "second_choice", method.second_choice, 0, 1);
    check_range(whose, "history", method.history, 0, 1);
    const double most = std::sqrt(method.mean * (1 - method.mean));
    if (method.spread != 0 && !(method.spread > 0 && method.spread < most)) {
      throw UsageError(fmt::format("{}: spread is {}, expected less than {:.4g}, as the mean is {}",
                                   whose, method.spread, most, method.mean));
    }
    check_curve(whose, "by_references", method.by_references);
    check_curve(whose, "by_progress", method.by_progress);
  }
}

AcceptanceDistribution::AcceptanceDistribution(const AcceptanceSettings& settings)
    : settings_(settings) {
  check(settings);
  for (const MethodAcceptance& method : settings.methods)
    quantiles_.push_back(beta_quantiles(method.mean, method.spread));
}

// A Gaussian copula: length, request and method each have a normal variable. Their weighted sum is
// normal too; a method's rate is the quantile at the rank of this sum.
std::vector<float> AcceptanceDistribution::draw(const NoiseKey& request, double length) const {
  std::vector<float> rates;
  const double common = normal(request, Draw::request);
  for (std::size_t m = 0; m < quantiles_.size(); ++m) {
    const double own = normal(request, Draw::method, 0, static_cast<std::uint32_t>(m));
    const double agreement = settings_.request_agreement;
    const double by_length = settings_.methods[m].length_correlation;
    const double eased = std::sqrt(agreement) * common + std::sqrt(1 - agreement) * own;
    const double rank =
        normal_cdf(by_length * length + std::sqrt(1 - by_length * by_length) * eased);
    rates.push_back(static_cast<float>(rate_at(quantiles_[m], rank)));
  }
  return rates;
}

/// Drift at a position, in [-1, 1] with mean 0: uniform draws at turning points, linear between
/// them.
double RequestDrafts::drift(std::int32_t index, Drift& known) const {
  const std::int32_t turn = index / settings_->drift_tokens;
  const double share = static_cast<double>(index % settings_->drift_tokens) /
                       static_cast<double>(settings_->drift_tokens);
  if (turn != known.turn) {
    const auto number = static_cast<std::uint32_t>(turn);
    known = {turn, uniform(noise_, Draw::drift, number), uniform(noise_, Draw::drift, number + 1)};
  }
  return 2 * (known.from + share * (known.to - known.from)) - 1;
}

double RequestDrafts::rate(int method, std::int32_t index, int references, Drift& known) const {
  const MethodAcceptance& m = settings_->methods[method];
  const double mean = std::min(1.0, means_[method] * factor_at(m.by_references, references) *
                                        factor_at(m.by_progress, index));
  if (settings_->drift == 0) return m.with_history(mean);
  return m.with_history(mean + settings_->drift * std::min(mean, 1 - mean) * drift(index, known));
}

/// The token agrees with probability `chance`, which is its score if the method scores its tokens.
RequestDrafts::Drafted RequestDrafts::drafted(int method, std::int32_t index, double rate) const {
  const auto number = static_cast<std::uint32_t>(index);
  PhiloxBlock words = draw_block(noise_, Draw::common_token, number);
  if (uniform(words[0]) >= settings_->token_agreement)
    words = draw_block(noise_, Draw::method_token, number, static_cast<std::uint32_t>(method));
  const MethodAcceptance& m = settings_->methods[method];
  const double reach = m.score_spread * std::min(rate, 1 - rate);
  const double chance = rate + reach * (2 * uniform(words[1]) - 1);
  return {uniform(words[2]) < chance, m.scores ? chance : 1.0};
}

bool RequestDrafts::second_agrees(int method, std::int32_t index) const {
  return uniform(noise_, Draw::second_choice, static_cast<std::uint32_t>(index),
                 static_cast<std::uint32_t>(method)) < settings_->methods[method].second_choice;
}

TokenId modelled_token(const NoiseKey& noise, std::int32_t index, std::int32_t vocabulary) {
  const PhiloxBlock words = draw_block(noise, Draw::token, static_cast<std::uint32_t>(index));
  return 1 + static_cast<TokenId>(below(static_cast<std::uint32_t>(vocabulary - 1), words[0]));
}

TokenId wrong_token(TokenId token, std::int32_t vocabulary) {
  return token + 1 < vocabulary ? token + 1 : 1;
}

}  // namespace paceline::sim
