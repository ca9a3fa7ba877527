#include "app/terminal/standing.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "app/assembly/drafters.hpp"

namespace paceline::app {
namespace {

/// The sections of a configuration's text that costs depend on.
std::string cost_settings(const std::string& text) {
  std::string settings;
  for (const char* section : {"layout", "engine", "speculation", "schedule", "test"}) {
    const std::size_t begin = text.find(std::string(section) + ":\n");
    std::size_t end = text.find('\n', begin) + 1;
    while (end < text.size() && text[end] == ' ') end = text.find('\n', end) + 1;
    settings += text.substr(begin, end - begin);
  }
  return settings;
}

}  // namespace

std::shared_ptr<const io::Tokenizer> Standing::tokenizer(io::TokenizerFiles files) {
  if (tokenizer_ == nullptr || !files.same_texts(tokenizer_files_)) {
    tokenizer_ = std::make_shared<const io::Tokenizer>(io::Tokenizer::load(files));
    tokenizer_files_ = std::move(files);
  }
  return tokenizer_;
}

std::string Standing::news(const std::string& text) {
  const auto lines_of = [](const std::string& all) {
    std::vector<std::string> lines;
    std::istringstream stream(all);
    for (std::string line; std::getline(stream, line);) lines.push_back(line + "\n");
    return lines;
  };
  const std::vector<std::string> before = lines_of(told_);
  std::string news;
  for (const std::string& line : lines_of(text)) {
    if (std::find(before.begin(), before.end(), line) == before.end()) news += line;
  }
  told_ = text;
  return news;
}

const CostsByDegree& Standing::costs(const MeasuringRank& rank, std::size_t responses) {
  const Inputs& inputs = rank.inputs;
  const Plan& plan = rank.plan;
  Conditions now{plan.costs.conditions, plan.layout.placement, drafter_names(plan),
                 cost_settings(inputs.config.text)};
  if (measured_under_ != now) {
    costs_ = costs_of_run(rank, responses);
    measured_under_ = std::move(now);
  }
  return costs_;
}

}  // namespace paceline::app
