#include "runtime/policy/schedule/dynamic_sampling.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace paceline::policy {

DynamicSampling::DynamicSampling(std::vector<std::uint32_t> order,
                                 std::span<const std::uint32_t> samples, std::size_t enough)
    : order_(std::move(order)), prompts_(samples.size()), enough_(enough), end_(order_.size()) {
  if (enough < 1 || order_.size() != samples.size())
    throw std::logic_error("an order of other prompts, or nothing to keep");
  for (std::size_t place = 0; place < order_.size(); ++place)
    prompts_.at(order_[place]).place = static_cast<std::uint32_t>(place);
  for (std::size_t p = 0; p < samples.size(); ++p) prompts_[p].samples = samples[p];
  begin();
}

void DynamicSampling::scored(const Reward& reward) {
  if (reward.id.prompt >= prompts_.size()) return;
  Prompt& prompt = prompts_[reward.id.prompt];
  if (prompt.verdict != Verdict::open || reward.id.sample >= prompt.samples) return;
  prompt.rewards.try_emplace(reward.id.sample, reward.value);
  if (prompt.rewards.size() < prompt.samples) return;
  judge(prompt);
  decide();
  begin();
}

void DynamicSampling::judge(Prompt& prompt) {
  const float first = prompt.rewards.begin()->second;
  prompt.verdict = Verdict::alike;
  for (const auto& [sample, value] : prompt.rewards) {
    if (std::isnan(value)) {
      prompt.verdict = Verdict::lacking;
      break;
    }
    if (value != first) prompt.verdict = Verdict::mixed;
  }
  prompt.rewards.clear();
  ++judged_;
  if (prompt.place < begun_) --open_;
  if (prompt.verdict != Verdict::mixed || ++mixed_ < enough_) return;
  // Prompts behind the `enough`-th mixed one are not needed.
  std::size_t found = 0;
  for (std::size_t place = 0; place < end_ && found < enough_; ++place) {
    found += prompts_[order_[place]].verdict == Verdict::mixed ? 1 : 0;
    if (found == enough_) end_ = place + 1;
  }
}

void DynamicSampling::decide() {
  for (; decided_ < order_.size() && !enough(); ++decided_) {
    const Verdict verdict = prompts_[order_[decided_]].verdict;
    if (verdict == Verdict::open) return;
    kept_ += verdict == Verdict::mixed ? 1 : 0;
  }
}

void DynamicSampling::begin() {
  const std::size_t wanted = enough_ - std::min(enough_, mixed_);
  const std::size_t most = (wanted * (judged_ + 2) + mixed_) / (mixed_ + 1);
  // Once enough prompts are mixed, all prompts up to the last of them must be decided.
  const bool known = wanted == 0;
  while (begun_ < end_ && (known || open_ < most)) {
    open_ += prompts_[order_[begun_]].verdict == Verdict::open ? 1 : 0;
    ++begun_;
  }
}

bool DynamicSampling::may_begin(std::uint32_t prompt) const {
  return prompts_.at(prompt).place < begun_;
}

bool DynamicSampling::may_count(std::uint32_t prompt) const {
  return prompts_.at(prompt).place < end_;
}

DynamicSampling::Outcome DynamicSampling::outcome() const {
  Outcome outcome;
  for (std::size_t place = 0; place < decided_; ++place) {
    const Verdict verdict = prompts_[order_[place]].verdict;
    if (verdict == Verdict::mixed) {
      outcome.kept.push_back(order_[place]);
    } else {
      ++outcome.dropped;
      outcome.lacking += verdict == Verdict::lacking ? 1 : 0;
    }
  }
  std::sort(outcome.kept.begin(), outcome.kept.end());
  return outcome;
}

}  // namespace paceline::policy
