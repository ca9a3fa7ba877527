#include "app/assembly/dynamic_sampling.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/terminal/terminal.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

policy::DynamicSampling undecided(const Inputs& inputs) {
  std::vector<std::uint32_t> samples;
  for (const Prompt& prompt : inputs.prompts.prompts) samples.push_back(inputs.samples_of(prompt));
  return {prompt_order(inputs), samples, static_cast<std::size_t>(*inputs.config.prompts.enough)};
}

}  // namespace

std::vector<std::uint32_t> prompt_order(const Inputs& inputs) {
  std::vector<std::uint32_t> order(inputs.prompts.prompts.size());
  std::iota(order.begin(), order.end(), 0U);
  if (!inputs.config.prompts.shuffle) return order;
  std::mt19937_64 random(inputs.config.sampling.seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  return order;
}

std::unique_ptr<policy::DynamicSampling> make_sampling(const Inputs& inputs,
                                                       const io::ResumeState& earlier) {
  if (!inputs.config.prompts.enough) return nullptr;
  auto sampling = std::make_unique<policy::DynamicSampling>(undecided(inputs));
  for (const Reward& reward : earlier.rewards) sampling->scored(reward);
  // Without a reward method, only environments give rewards, and only to unfinished responses. So a
  // finished response without a reward will never get one.
  if (inputs.config.reward.method == io::RewardMethod::none) {
    for (const io::StoredResponse& entry : earlier.unscored.entries)
      sampling->scored({entry.id(), std::numeric_limits<float>::quiet_NaN()});
  }
  return sampling;
}

io::ChoosePrompts choose_prompts(const Inputs& inputs) {
  if (!inputs.config.prompts.enough) return nullptr;
  return [&inputs](std::span<const io::StoredResponse> finished) {
    policy::DynamicSampling sampling = undecided(inputs);
    for (const io::StoredResponse& entry : finished) sampling.scored({entry.id(), entry.reward});
    policy::DynamicSampling::Outcome outcome = sampling.outcome();
    if (outcome.lacking > 0) {
      const std::string what =
          fmt::format("{} with a response that got no reward", counted(outcome.lacking, "prompt"));
      const io::RewardSection& reward = inputs.config.reward;
      // `all` forbids dropping these prompts, because others would take their places. `some`
      // forbids it if too few prompts are kept and --resume can still score the responses.
      const bool wanted = reward.required == io::RewardsRequired::all ||
                          (reward.required == io::RewardsRequired::some && !sampling.enough());
      if (reward.method == io::RewardMethod::none && reward.required == io::RewardsRequired::all) {
        throw DataError(what +
                        " from its environment (reward.required: all). Nothing is lost; to drop "
                        "such prompts, resume with reward.required: some");
      }
      if (reward.method != io::RewardMethod::none && wanted) {
        throw DataError(
            fmt::format("{} (reward.required), and {} of the {} wanted have rewards that differ "
                        "(prompts.enough). Nothing is lost; --resume scores these responses",
                        what, sampling.kept(), *inputs.config.prompts.enough));
      }
      say("warning: dropped: {}", what);
    }
    io::KeptPrompts choice;
    choice.enough = static_cast<std::uint64_t>(*inputs.config.prompts.enough);
    choice.shuffled = inputs.config.prompts.shuffle;
    choice.prompts = inputs.prompts.prompts.size();
    choice.dropped = outcome.dropped;
    choice.kept = std::move(outcome.kept);
    return choice;
  };
}

io::BegunResponses begun_responses(const Inputs& inputs, io::RunManifest& manifest) {
  const std::optional<std::string>& directory = inputs.config.prompts.begun;
  if (!directory) return {};
  io::BegunResponses begun = io::read_left_over(*directory, manifest, inputs.prompts.prompts);
  manifest.begun = begun.fingerprint();
  say("continues {} of {} (prompts.begun)", counted(begun.responses.size(), "unfinished response"),
      *directory);
  return begun;
}

void go_on_with(const io::BegunResponses& begun, io::ResumeState& earlier) {
  std::map<RequestId, const Trajectory*> longest;
  for (const Trajectory& t : earlier.partial) longest[t.id] = &t;
  std::vector<Trajectory> taken;
  for (const Trajectory& t : begun.responses) {
    const auto at = longest.find(t.id);
    const bool further = at != longest.end() && at->second->tokens.size() >= t.tokens.size();
    const bool finished = std::ranges::binary_search(earlier.finished, t.id);
    if (further || finished) continue;
    taken.push_back(t);
  }
  for (Trajectory& t : taken) {
    std::erase_if(earlier.partial, [&](const Trajectory& other) { return other.id == t.id; });
    earlier.partial.push_back(std::move(t));
  }
  std::ranges::sort(earlier.partial, {}, &Trajectory::id);
}

std::string sampling_text(const Inputs& inputs) {
  if (!inputs.config.prompts.enough) return "";
  const auto enough = static_cast<std::size_t>(*inputs.config.prompts.enough);
  const std::size_t prompts = inputs.prompts.prompts.size();
  return fmt::format(
      "  the run ends when {} {} rewards that differ (prompts.enough); there are {}{}\n",
      counted(enough, "prompt"), enough == 1 ? "has" : "have", counted(prompts, "prompt"),
      enough > prompts ? "\n  warning: there are fewer prompts than prompts.enough wants" : "");
}

void print_choice(const io::KeptPrompts& choice) {
  const std::uint64_t kept = choice.kept.size();
  say("kept {} of {} (only prompts whose responses got different rewards); {} dropped, {} left "
      "over",
      kept, counted(choice.prompts, "prompt"), choice.dropped,
      choice.prompts - kept - choice.dropped);
  if (kept < choice.enough) {
    say("warning: no prompts are left, and {} of the {} wanted have rewards that differ "
        "(prompts.enough)",
        kept, choice.enough);
  }
}

}  // namespace paceline::app
