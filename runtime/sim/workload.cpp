#include "runtime/sim/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "runtime/core/error.hpp"
#include "runtime/sim/draws.hpp"

namespace paceline::sim {
namespace {

/// Sample index of draws that are common to all responses to a prompt.
constexpr std::uint32_t kGroup = 0xFFFFFFFFU;

/// Correlation of two normal variables whose ranks have correlation `rank` (Spearman's): 2 sin(pi
/// rank / 6).
double normal_correlation(double rank) {
  if (rank == 1) return 1;  // without rounding
  const double angle = std::numbers::pi / 6 * rank;
  double sine = 0;  // by its series: up to 0.53 nine terms err by 1e-20
  for (int n = 17; n >= 1; n -= 2) sine = 1 - sine * angle * angle / ((n + 1) * (n + 2));
  return 2 * angle * sine;
}

std::int32_t whole(double tokens, std::int32_t most) {
  return static_cast<std::int32_t>(std::clamp(std::floor(tokens + 0.5), 1.0, double(most)));
}

void check_count(const char* setting, std::int32_t value, std::int32_t least) {
  if (value >= least) return;
  throw UsageError(fmt::format("workload: {} is {}, expected at least {}", setting, value, least));
}

void check(const WorkloadSettings& settings) {
  check_count("prompts", settings.prompts, 1);
  check_count("samples", settings.samples, 1);
  check_count("max_tokens", settings.max_tokens, 1);
  if (settings.prompt_tokens.empty())
    check_count("max_prompt_tokens", settings.max_prompt_tokens, 1);
  check_count("vocabulary", settings.vocabulary, 3);
  if (!(settings.length_correlation >= 0 && settings.length_correlation <= 1)) {
    throw UsageError(fmt::format("workload: length_correlation is {}, expected 0 to 1",
                                 settings.length_correlation));
  }
}

}  // namespace

LengthDistribution LengthDistribution::of(std::span<const LengthBin> bins) {
  LengthDistribution lengths;
  double sum = 0;
  for (const LengthBin& bin : bins) {
    if (bin.tokens <= lengths.limit_ || !(bin.weight > 0) || !std::isfinite(bin.weight))
      throw std::invalid_argument("lengths must rise from 1 on, with positive weights");
    sum += bin.weight;
    lengths.cumulative_.push_back({bin.tokens, sum});
    lengths.limit_ = bin.tokens;
  }
  if (bins.empty()) throw std::invalid_argument("no lengths");
  return lengths;
}

LengthDistribution LengthDistribution::lognormal(double median, double p99) {
  if (!(median >= 1 && p99 >= median && std::isfinite(p99)))
    throw std::invalid_argument("a median from 1 on, and p99 from it on");
  LengthDistribution lengths;
  lengths.log_median_ = log_of(median);
  lengths.log_spread_ = (log_of(p99) - lengths.log_median_) / normal_quantile(0.99);
  return lengths;
}

LengthDistribution LengthDistribution::fixed(std::int32_t tokens) {
  const LengthBin bin{tokens, 1};
  LengthDistribution lengths = of({&bin, 1});
  lengths.limit_ = 0;
  return lengths;
}

double LengthDistribution::quantile(double share) const {
  if (cumulative_.empty()) return exp_of(log_median_ + log_spread_ * normal_quantile(share));
  const double weight = share * cumulative_.back().weight;
  const auto bin = std::lower_bound(
      cumulative_.begin(), cumulative_.end() - 1, weight,
      [](const LengthBin& candidate, double sought) { return candidate.weight < sought; });
  return bin->tokens;
}

std::int32_t ModelledRequest::sampled() const {
  std::int32_t tokens = length;
  for (const ModelledTurn& turn : turns) tokens -= turn.given;
  return tokens;
}

double ModelledRequest::waits() const {
  double seconds = 0;
  for (const ModelledTurn& turn : turns) seconds += turn.seconds;
  return seconds;
}

Workload make_workload(const WorkloadSettings& settings, const LengthDistribution& responses,
                       const LengthDistribution& prompts) {
  check(settings);
  const AcceptanceDistribution acceptance(settings.acceptance);
  const double scale =
      responses.limit() > 0 ? static_cast<double>(settings.max_tokens) / responses.limit() : 1;
  const double correlation = normal_correlation(settings.length_correlation);
  Workload workload;
  workload.vocabulary = settings.vocabulary;
  workload.acceptance = settings.acceptance;
  for (std::int32_t p = 0; p < settings.prompts; ++p) {
    Prompt prompt;
    prompt.uid = fmt::format("prompt-{}", p);
    const NoiseKey group = noise_key(settings.seed, 0, prompt.uid, kGroup);
    const double tokens = prompts.quantile(uniform(group, Draw::prompt_length, 0));
    const std::vector<std::int32_t>& given = settings.prompt_tokens;
    const std::int32_t count = given.empty() ? whole(tokens, settings.max_prompt_tokens)
                                             : given[static_cast<std::size_t>(p) % given.size()];
    const std::int32_t room = settings.context > 0 ? settings.context - count : INT32_MAX;
    const std::int32_t most = std::min(settings.max_tokens, room);
    for (std::int32_t t = 0; t < count; ++t) {
      const std::uint32_t word =
          draw_block(group, Draw::prompt_token, static_cast<std::uint32_t>(t))[0];
      prompt.tokens.push_back(1 + static_cast<TokenId>(below(
                                      static_cast<std::uint32_t>(settings.vocabulary - 1), word)));
    }
    // A Gaussian copula: one normal variable common to siblings, and one of each response's own.
    const double common = std::sqrt(correlation) * normal(group, Draw::group_length);
    std::vector<ModelledRequest>& siblings = workload.requests.emplace_back();
    for (std::int32_t s = 0; s < settings.samples; ++s) {
      const NoiseKey own = noise_key(settings.seed, 0, prompt.uid, static_cast<std::uint32_t>(s));
      const double rank = common + std::sqrt(1 - correlation) * normal(own, Draw::length);
      // Beyond eight standard deviations the share would round to 0 or 1.
      const double share = std::clamp(normal_cdf(rank), 1e-15, 1 - 1e-15);
      ModelledRequest& request = siblings.emplace_back(ModelledRequest{
          whole(scale * responses.quantile(share), most), acceptance.draw(own, rank)});
      if (settings.turns.most == 1) continue;
      request.turns = make_turns(settings.turns, own, request.length, most);
      request.length = request.turns.back().end;
    }
    workload.prompts.push_back(std::move(prompt));
  }
  return workload;
}

}  // namespace paceline::sim
