// `paceline show`: prints prompts and responses as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/commands/commands.hpp"
#include "app/commands/run_text.hpp"
#include "app/terminal/terminal.hpp"
#include "io/config/quantity.hpp"
#include "io/run/stored_run.hpp"
#include "io/text/printable.hpp"
#include "io/text/question.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

constexpr std::size_t kPrompts = 30;           ///< largest number of prompts in the overview
constexpr std::size_t kPromptCharacters = 40;  ///< characters of a prompt in the overview

class Show {
 public:
  explicit Show(const std::string& path) : run_(io::open_stored_run(path)), text_(run_) {
    for (const std::string& warning : run_.warnings) say("warning: {}", warning);
    responses_ = run_.finished;
    responses_.insert(responses_.end(), run_.partial.begin(), run_.partial.end());
    std::ranges::sort(responses_, {}, &io::StoredResponse::id);
    if (!run_.complete)
      say("paceline: {} of {} responses are finished", run_.finished.size(),
          io::ResponseOrder(run_.manifest).size());
  }

  /// Prints a prompt and responses. `which`: "4:1" for sample 1 of prompt 4, "4" for all samples.
  void print(const std::string& which) const {
    const std::size_t colon = which.find(':');
    const auto prompt = io::parse_unsigned(std::string_view(which).substr(0, colon));
    std::optional<std::uint64_t> sample;
    if (colon != std::string::npos) sample = io::parse_unsigned(which.substr(colon + 1));
    if (!prompt || (colon != std::string::npos && !sample)) {
      throw UsageError("'" + io::printable_start(which, 64) +
                       "': expected PROMPT:SAMPLE, such as 4:1, or PROMPT alone");
    }
    if (run_.prompts.empty()) throw UsageError(which + ": the run has no prompts");
    if (*prompt >= run_.prompts.size()) {
      throw UsageError(
          fmt::format("{}: there is no prompt {}: the run has {}, numbered from 0 to {}", which,
                      *prompt, counted(run_.prompts.size(), "prompt"), run_.prompts.size() - 1));
    }
    const std::vector<std::uint32_t>& own = run_.manifest.own_samples;
    const std::uint32_t samples = own.empty() ? run_.manifest.samples : own.at(*prompt);
    if (sample && *sample >= samples) {
      throw UsageError(
          fmt::format("{}: there is no sample {}: {} prompt has {}, numbered from 0 to {}", which,
                      *sample, own.empty() ? "a" : "the", counted(samples, "sample"), samples - 1));
    }
    std::span<const io::StoredResponse> shown = responses_to(*prompt);
    if (sample) {
      const auto found = std::ranges::find(shown, *sample, &io::StoredResponse::sample);
      shown = found == shown.end() ? shown.subspan(shown.size())
                                   : shown.subspan(found - shown.begin(), 1);
    }
    print_prompt(*prompt);
    for (const io::StoredResponse& response : shown) print_response(response);
    if (shown.empty()) fmt::print("\n{}: no response yet\n", which);
  }

  /// Prints a line for each of the kPrompts prompts with the longest responses, the longest first.
  void print_overview() const {
    std::vector<std::size_t> order(run_.prompts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<std::uint32_t> longest(order.size());
    for (const io::StoredResponse& response : responses_)
      longest[response.prompt] = std::max(longest[response.prompt], response.length);
    std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return longest[i]; });
    fmt::print("longest     tokens    mean  responses  mean reward  prompt\n");
    for (std::size_t i = 0; i < std::min(kPrompts, order.size()); ++i) print_line(order[i]);
    if (order.size() > kPrompts)
      fmt::print("... and {} more (shown are those with the longest responses)\n",
                 counted(order.size() - kPrompts, "prompt"));
  }

 private:
  [[nodiscard]] std::span<const io::StoredResponse> responses_to(std::uint64_t prompt) const {
    const auto of = std::ranges::equal_range(responses_, prompt, {}, &io::StoredResponse::prompt);
    return {of.begin(), of.end()};
  }

  void print_line(std::size_t prompt) const {
    const std::span<const io::StoredResponse> all = responses_to(prompt);
    std::string at = fmt::format("{}:-", prompt);
    std::string longest = "-";
    std::string mean = "-";
    std::string reward = "-";
    if (!all.empty()) {
      const io::StoredResponse& top =
          *std::ranges::max_element(all, {}, &io::StoredResponse::length);
      double sum = 0;
      double rewards = 0;
      std::size_t scored = 0;
      for (const io::StoredResponse& response : all) {
        sum += response.length;
        if (std::isnan(response.reward)) continue;
        rewards += response.reward;
        ++scored;
      }
      at = fmt::format("{}:{}", prompt, top.sample);
      longest = fmt::format("{}", top.length);
      mean = fmt::format("{:.1f}", sum / static_cast<double>(all.size()));
      if (scored > 0) reward = fmt::format("{:.3f}", rewards / static_cast<double>(scored));
    }
    // The line shows the user's question, because the prompt's start may be the same system prompt
    // in all prompts. Without a question, the line shows the prompt's start.
    std::optional<std::string> text = io::question_of(run_.prompts[prompt]);
    if (!text || io::printable_start(*text, 1).empty()) {
      const std::vector<TokenId>& tokens = run_.prompts[prompt].tokens;
      text = text_.tokenizer() ? text_.tokenizer()->decode(tokens) : text_.of(tokens);
    }
    fmt::print("{:<10}  {:>6}  {:>6}  {:>9}  {:>11}  {}\n", at, longest, mean, all.size(), reward,
               io::printable_start(*text, kPromptCharacters));
  }

  void print_prompt(std::uint64_t index) const {
    const Prompt& prompt = run_.prompts[index];
    const auto& choice = run_.manifest.choice;
    fmt::print("prompt {} ({}), {}{}", index, io::printable_start(prompt.uid, 64),
               run_.complete && choice
                   ? fmt::format("number {} among all prompts of the run, ", choice->kept.at(index))
                   : "",
               counted(prompt.tokens.size(), "token"));
    if (!prompt.ground_truth.empty())
      fmt::print(", ground truth {}", io::printable_start(prompt.ground_truth, 64));
    fmt::print("\n");
    print_pictures(prompt);
    fmt::print("{}\n", text_.of(without_rows(prompt)));
  }

  static void print_pictures(const Prompt& prompt) {
    const std::vector<std::string> names = picture_names(prompt);
    for (std::size_t i = 0; i < prompt.pictures.size(); ++i) {
      const PromptPicture& picture = prompt.pictures[i];
      fmt::print("picture {}, {} x {} patches, from token {} on: {}\n", i + 1, picture.grid.rows,
                 picture.grid.columns, picture.first + 1, names[i].empty() ? "unknown" : names[i]);
    }
  }

  void print_response(const io::StoredResponse& entry) const {
    Trajectory response;
    io::read_responses(run_, {&entry, 1}, [&](Trajectory&& read) { response = std::move(read); });
    const std::string end = response.finish_reason == FinishReason::partial
                                ? "not finished"
                                : fmt::format("ended by {}", name_of(response.finish_reason));
    fmt::print("\nresponse {}:{}, {}, {}, reward {}, weight version {}\n", entry.prompt,
               entry.sample, counted(response.tokens.size(), "token"), end,
               std::isnan(response.reward) ? "none" : io::format_number(response.reward),
               response.weight_version);
    print_log_probabilities(response);
    if (const auto extra = run_.extras.find(entry.id()); extra != run_.extras.end())
      fmt::print("given with the reward: {}\n", io::printable(extra->second));
    fmt::print("{}\n", text_.of(response.tokens));
  }

  void print_log_probabilities(const Trajectory& response) const {
    if (response.logprob.empty()) return;
    const auto least = std::ranges::min_element(response.logprob);
    const auto at = static_cast<std::size_t>(least - response.logprob.begin());
    std::size_t sampled = response.tokens.size();
    for (const AnsweredTurn& turn : response.turns) sampled -= turn.end - turn.given;
    const auto mean = [sampled](const std::vector<float>& values) {
      return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(sampled);
    };
    const std::span<const TokenId> token(&response.tokens[at], 1);
    fmt::print(
        "log-probability: mean {:.4f} per sampled token{}, {:.4f} after filters; least {:.4f}, of "
        "token {} ({})\n",
        mean(response.logprob),
        response.turns.empty() ? ""
                               : fmt::format(" ({}, {})", counted(sampled, "token"),
                                             counted(response.turns.size(), "answered turn")),
        mean(response.sampling_logprob), *least, at,
        text_.tokenizer() ? "'" + io::printable(text_.tokenizer()->decode(token, false)) + "'"
                          : text_.of(token));
  }

  io::StoredRun run_;
  RunText text_;
  std::vector<io::StoredResponse> responses_;  ///< finished and partial, ascending by id
};

}  // namespace

ExitCode show(const ShowArguments& arguments) {
  const Show run(arguments.run);
  if (arguments.which.empty()) run.print_overview();
  for (std::size_t i = 0; i < arguments.which.size(); ++i) {
    if (i > 0) fmt::print("\n");
    run.print(arguments.which[i]);
  }
  return ExitCode::done;
}

}  // namespace paceline::app
