#include "app/terminal/standing.hpp"

#include <algorithm>
#include <sstream>

#include "app/assembly/drafters.hpp"

namespace paceline::app {
namespace {

/// Returns the sections of the configuration's text whose settings affect costs of steps and
/// drafts. Paths of drafters are removed, because weights of the same shape take the same time.
std::string cost_settings(const io::RunConfig& config) {
  const std::string& text = config.text;
  std::string settings;
  for (const char* section : {"layout", "engine", "speculation", "schedule", "test"}) {
    const std::size_t begin = text.find(std::string(section) + ":\n");
    std::size_t end = text.find('\n', begin) + 1;
    while (end < text.size() && text[end] == ' ') end = text.find('\n', end) + 1;
    settings += text.substr(begin, end - begin);
  }
  for (const io::DrafterSetting& drafter : config.speculation.drafters) {
    for (std::size_t at = 0; !drafter.path.empty();) {
      at = settings.find(drafter.path, at);
      if (at == std::string::npos) break;
      settings.erase(at, drafter.path.size());
    }
  }
  return settings;
}

/// Names and shapes of drafters.
std::vector<std::string> drafter_conditions(const Inputs& inputs, const Plan& plan) {
  std::vector<std::string> conditions = drafter_names(plan);
  for (const PlannedDrafter& drafter : plan.drafters) {
    if (drafter.model != nullptr)
      conditions.push_back(shape_text(drafter.model->config, drafter.model->compute));
    if (drafter.head != nullptr)
      conditions.push_back(shape_text(layer_of(drafter.head->config), inputs.target.compute));
  }
  return conditions;
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
  Conditions now{plan.costs.conditions, plan.layout.placement, drafter_conditions(inputs, plan),
                 cost_settings(inputs.config)};
  if (measured_under_ != now) {
    costs_ = costs_of_run(rank, responses);
    measured_under_ = std::move(now);
  }
  return costs_;
}

}  // namespace paceline::app
