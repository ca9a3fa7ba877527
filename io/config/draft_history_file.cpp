#include "io/config/draft_history_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "io/config/yaml_record.hpp"

namespace paceline::io {
namespace {

constexpr std::string_view kHead =
    "# How often drafts were accepted in earlier rollouts, by method: tokens whose path before\n"
    "# them was accepted, and how many of those were. Tokens of long ago count less.\n";

DraftRecord read_record(const YamlNode& node) {
  DraftRecord record;
  const YamlNode* accepted = nullptr;
  read_map(node, {field("method", record.method, Text{}),
                  field("tried", record.tried, not_negative()),
                  {"accepted", true, [&](const YamlNode& value) {
                     record.accepted = not_negative().read(value, "");
                     accepted = &value;
                   }}});
  if (record.accepted > record.tried) {
    BadValue bad(*accepted, fmt::format("at most what was tried ({})", record.tried));
    bad.part = "accepted";
    throw bad;
  }
  return record;
}

DraftHistory read_history(const YamlNode& root) {
  DraftHistory history;
  read_map(root, {{"drafts", true, [&](const YamlNode& node) {
                     if (node.kind == YamlNode::Kind::null) return;
                     if (node.kind != YamlNode::Kind::list)
                       throw BadValue(node, "a list of methods with what became of their tokens");
                     for (const YamlNode& item : node.items) {
                       const DraftRecord record = read_record(item);
                       history.update(record.method, record.tried, record.accepted);
                     }
                   }}});
  return history;
}

}  // namespace

std::string draft_history_path(const std::string& profile) {
  return std::filesystem::path(profile).replace_extension(".drafts.yaml").string();
}

DraftHistory parse_draft_history(const std::string& text, const std::string& name) {
  return explain(name, "a history of drafts", [&] { return read_history(parse_yaml(text, name)); });
}

DraftHistory read_draft_history(const std::string& path) {
  return parse_draft_history(read_yaml_file(path, "the history of drafts"), path);
}

std::string draft_history_text(const DraftHistory& history) {
  std::string text = std::string(kHead) + "drafts:\n";
  for (const DraftRecord& record : history.records()) {
    text += "  - method: " + quote_yaml(record.method) +
            fmt::format("\n    tried: {:.0f}\n    accepted: {:.0f}\n", std::round(record.tried),
                        std::round(record.accepted));
  }
  return text;
}

void write_draft_history(const std::string& path, const DraftHistory& history) {
  replace_file(path, draft_history_text(history), "the history of drafts");
}

}  // namespace paceline::io
