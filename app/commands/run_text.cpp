#include "app/commands/run_text.hpp"

#include <fmt/format.h>

#include "app/terminal/terminal.hpp"
#include "io/config/yaml_tree.hpp"
#include "io/text/json_line.hpp"
#include "io/text/picture_fields.hpp"
#include "io/text/printable.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

constexpr std::size_t kIdsInLine = 16;

/// The tokenizer's directory, from a run's recorded configuration; empty: no model is configured.
std::string tokenizer_path(const std::string& config) {
  std::string path;
  for (const io::YamlEntry& section : io::parse_yaml(config, "the run's configuration").entries) {
    if (section.key != "model") continue;
    for (const io::YamlEntry& key : section.value.entries) {
      if (key.key == "tokenizer" && key.value.scalar != "auto") return key.value.scalar;
      if (key.key == "path") path = key.value.scalar;
    }
  }
  return path;
}

}  // namespace

std::vector<TokenId> without_rows(const Prompt& prompt) {
  std::vector<TokenId> tokens;
  const std::vector<TokenId>& all = prompt.tokens;
  std::size_t at = 0;
  for (const PromptPicture& picture : prompt.pictures) {
    const auto first = static_cast<std::size_t>(picture.first);
    if (first < at || first >= all.size()) break;
    tokens.insert(tokens.end(), all.begin() + at, all.begin() + first + 1);
    at = first + 1;
    while (at < all.size() && all[at] == all[first]) ++at;
  }
  tokens.insert(tokens.end(), all.begin() + at, all.end());
  return tokens;
}

std::vector<std::string> picture_names(const Prompt& prompt) {
  std::vector<std::string> names;
  try {
    for (const io::PictureFile& file : io::text::stored_pictures(prompt.extra_json))
      names.push_back(file.path.empty() ? "in the prompt, " + counted(file.bytes.size(), "byte")
                                        : io::printable(file.path));
  } catch (const io::text::LineError&) {
    names.clear();
  }
  names.resize(prompt.pictures.size());
  return names;
}

RunText::RunText(const io::StoredRun& run) {
  try {
    tokenizer_ = io::Tokenizer::load(tokenizer_path(run.manifest.config_text));
  } catch (const Error& error) {
    say("paceline: token ids are shown, because no tokenizer can be loaded: {}", error.what());
  }
}

std::string RunText::of(std::span<const TokenId> tokens) const {
  if (tokenizer_) return io::printable(tokenizer_->decode(tokens, false), true);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i % kIdsInLine == 0 ? "\n" : " ", tokens[i]);
  return text;
}

}  // namespace paceline::app
