// Files of records that the program writes and reads back: maps of known keys, with errors that
// say which key, what was expected and what was found.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/config/codecs.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {

[[nodiscard]] const Real<double>& positive();
[[nodiscard]] const Real<double>& not_negative();

/// A key of a map: reads its value.
struct Field {
  std::string_view name;
  bool required;
  std::function<void(const YamlNode&)> read;
};

template <typename T, typename Codec>
Field field(std::string_view name, T& to, Codec codec) {
  return {name, true, [&to, codec](const YamlNode& node) { to = codec.read(node, ""); }};
}

/// Reads a map whose keys these are. What `read` throws says which key.
void read_map(const YamlNode& node, const std::vector<Field>& fields);

/// UsageError of a bad value in `what`, a file of this name.
[[noreturn]] void fail(const std::string& name, const std::string& what, const BadValue& bad);

/// read(), whose BadValue becomes a UsageError.
template <typename Read>
auto explain(const std::string& name, const std::string& what, const Read& read) {
  try {
    return read();
  } catch (const BadValue& bad) {
    fail(name, what, bad);
  }
}

/// A number in four digits: more than any measurement tells.
[[nodiscard]] std::string figure(double value);

/// For what takes long to make: throws as replace_file() would where that can be told beforehand.
void require_replaceable(const std::string& path, const std::string& what);
/// Replaces the file as a whole or not at all. Throws IoError("path: cannot write `what`: why").
void replace_file(const std::string& path, const std::string& text, const std::string& what);

}  // namespace paceline::io
