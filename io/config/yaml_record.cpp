#include "io/config/yaml_record.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::io {

const Real<double>& positive() {
  static const Real<double> codec{"a number above 0", [](double v) { return v > 0; }};
  return codec;
}
const Real<double>& not_negative() {
  static const Real<double> codec{"a number of at least 0", [](double v) { return v >= 0; }};
  return codec;
}

BadValue unknown_key(const YamlNode& map, const YamlEntry& entry,
                     std::span<const std::string_view> known, std::string expected) {
  BadValue bad(map, std::move(expected), did_you_mean(entry.key, known));
  bad.line = entry.line;
  bad.column = entry.column;
  bad.found = show(entry.key);
  return bad;
}

void read_map(const YamlNode& node, const std::vector<Field>& fields) {
  std::vector<std::string_view> names;
  names.reserve(fields.size());
  for (const Field& field : fields) names.push_back(field.name);
  if (node.kind != YamlNode::Kind::map) throw BadValue(node, "a map with " + list_names(names));
  for (const YamlEntry& entry : node.entries) {
    const auto field = std::ranges::find(fields, entry.key, &Field::name);
    if (field == fields.end()) throw unknown_key(node, entry, names, list_names(names));
    try {
      field->read(entry.value);
    } catch (BadValue& bad) {
      bad.part = entry.key + (bad.part.empty() || bad.part[0] == '[' ? "" : ".") + bad.part;
      if (bad.line == 0) {
        bad.line = entry.line;
        bad.column = entry.column;
      }
      throw;
    }
  }
  for (const Field& field : fields) {
    const bool there =
        std::ranges::any_of(node.entries, [&](const YamlEntry& e) { return e.key == field.name; });
    if (field.required && !there) throw BadValue(node, "the key " + std::string(field.name));
  }
}

void fail(const std::string& name, const std::string& what, const BadValue& bad) {
  const std::string place =
      bad.line == 0 ? name
                    : name + ":" + std::to_string(bad.line) + ":" + std::to_string(bad.column);
  throw UsageError(place + ": " + (bad.part.empty() ? what : bad.part) + ": expected " +
                   bad.expected + ", found " + bad.found +
                   (bad.hint.empty() ? "" : "; " + bad.hint));
}

std::string figure(double value) { return fmt::format("{:.4g}", value); }

void require_replaceable(const std::string& path, const std::string& what) {
  std::error_code ignored;
  const auto there = std::filesystem::status(path, ignored);
  std::string why;
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    why = "it is there and is no regular file";
  } else {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) why = std::strerror(errno);
  }
  if (!why.empty()) throw IoError(path + ": cannot write " + what + ": " + why);
}

void replace_file(const std::string& path, const std::string& text, const std::string& what) {
  require_replaceable(path, what);
  // The name is random, because several processes may replace one file at once.
  const std::string part = fmt::format("{}.{:08x}.part", path, std::random_device{}());
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file || std::rename(part.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(part.c_str());
    throw IoError(path + ": cannot write " + what + ": " + why);
  }
}

}  // namespace paceline::io
