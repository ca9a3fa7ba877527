#include "app/run_report/rewards.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace paceline::app {
namespace {

constexpr std::size_t kLengths = 10;

/// The scored responses to a prompt: their number, how many pass, least and greatest reward.
struct Group {
  std::uint32_t responses = 0;
  std::uint32_t pass = 0;
  float least = 0;
  float most = 0;
};

/// Returns 1 - C(n - c, k) / C(n, k) for c passes among n responses. `k`: at most n. Computes the
/// quotient as a product of factors between 0 and 1, because C(n, k) itself could overflow.
double chance(const Group& group, std::uint32_t k) {
  const std::uint32_t fail = group.responses - group.pass;
  if (fail < k) return 1;
  double none = 1;
  for (std::uint32_t i = fail + 1; i <= group.responses; ++i)
    none *= 1 - static_cast<double>(k) / i;
  return 1 - none;
}

void add_passes(const std::map<std::uint32_t, Group>& groups, RewardFigures& figures) {
  std::uint32_t most = 0;
  for (const auto& [prompt, group] : groups) most = std::max(most, group.responses);
  std::vector<std::uint32_t> all;
  for (std::uint32_t k = 1; k < most; k *= 2) all.push_back(k);
  if (most > 0) all.push_back(most);
  for (const std::uint32_t k : all) {
    RewardFigures::PassAt pass{k, 0, 0};
    for (const auto& [prompt, group] : groups) {
      if (group.responses < k) continue;
      ++pass.prompts;
      pass.rate += (chance(group, k) - pass.rate) / static_cast<double>(pass.prompts);
    }
    figures.pass.push_back(pass);
  }
}

/// Sets by_length. `scored`: scored responses, ascending by length.
void add_lengths(std::span<const RewardedResponse> scored, RewardFigures& figures) {
  const std::size_t share = std::max<std::size_t>(1, (scored.size() + kLengths - 1) / kLengths);
  for (const RewardedResponse& response : scored) {
    const bool full = !figures.by_length.empty() && figures.by_length.back().responses >= share;
    const bool longer = figures.by_length.empty() || response.tokens > figures.by_length.back().to;
    if (figures.by_length.empty() || (full && longer))
      figures.by_length.push_back({response.tokens, response.tokens, 0, 0, 0});
    RewardFigures::Length& length = figures.by_length.back();
    length.to = response.tokens;
    ++length.responses;
    length.tokens += response.tokens;
    length.mean += (response.reward - length.mean) / static_cast<double>(length.responses);
  }
}

double correlation_of(std::span<const RewardedResponse> scored, double mean_reward) {
  double mean_tokens = 0;
  for (const RewardedResponse& response : scored)
    mean_tokens += response.tokens / static_cast<double>(scored.size());
  double both = 0;
  double rewards = 0;
  double tokens = 0;
  for (const RewardedResponse& response : scored) {
    const double r = response.reward - mean_reward;
    const double t = response.tokens - mean_tokens;
    both += r * t;
    rewards += r * r;
    tokens += t * t;
  }
  if (!(rewards > 0 && tokens > 0)) return std::numeric_limits<double>::quiet_NaN();
  return both / std::sqrt(rewards * tokens);
}

}  // namespace

double RewardFigures::pass_at(std::uint32_t k) const {
  const auto found = std::ranges::find(pass, k, &PassAt::k);
  return found == pass.end() ? std::numeric_limits<double>::quiet_NaN() : found->rate;
}

RewardFigures reward_figures(std::span<const RewardedResponse> responses, double threshold) {
  RewardFigures figures;
  figures.responses = responses.size();
  figures.threshold = threshold;
  std::vector<RewardedResponse> scored;
  for (const RewardedResponse& response : responses)
    if (!std::isnan(response.reward)) scored.push_back(response);
  figures.scored = scored.size();
  if (scored.empty()) return figures;

  std::map<std::uint32_t, Group> groups;
  double sum = 0;
  double squares = 0;
  figures.least = figures.most = scored.front().reward;
  for (const auto& [id, tokens, reward] : scored) {
    sum += reward;
    figures.least = std::min<double>(figures.least, reward);
    figures.most = std::max<double>(figures.most, reward);
    Group& group = groups[id.prompt];
    group.least = group.responses == 0 ? reward : std::min(group.least, reward);
    group.most = group.responses == 0 ? reward : std::max(group.most, reward);
    ++group.responses;
    group.pass += reward >= threshold ? 1 : 0;
  }
  figures.mean = sum / static_cast<double>(scored.size());
  for (const RewardedResponse& response : scored)
    squares += (response.reward - figures.mean) * (response.reward - figures.mean);
  figures.deviation = std::sqrt(squares / static_cast<double>(scored.size()));
  for (const auto& [prompt, group] : groups) {
    if (group.responses < 2) continue;
    ++figures.groups;
    figures.equal += group.least == group.most ? 1 : 0;
    figures.all_pass += group.pass == group.responses ? 1 : 0;
    figures.none_pass += group.pass == 0 ? 1 : 0;
  }
  add_passes(groups, figures);
  std::ranges::stable_sort(scored, {}, &RewardedResponse::tokens);
  add_lengths(scored, figures);
  figures.correlation = correlation_of(scored, figures.mean);
  return figures;
}

}  // namespace paceline::app
