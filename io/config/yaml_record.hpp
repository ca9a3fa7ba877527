// Files of records that the program writes and reads back: maps of known keys. Errors name the key,
// what was expected and what was found.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/config/codecs.hpp"
#include "io/config/yaml_tree.hpp"

namespace paceline::io {

[[nodiscard]] const Real<double>& positive();
[[nodiscard]] const Real<double>& not_negative();

/// A key of a map, with a function that reads its value.
struct Field {
  std::string_view name;
  bool required;
  std::function<void(const YamlNode&)> read;
};

template <typename T, typename Codec>
Field field(std::string_view name, T& to, Codec codec) {
  return {name, true, [&to, codec](const YamlNode& node) { to = codec.read(node, ""); }};
}

/// The fault of a map's entry whose key is none of the `known` ones.
[[nodiscard]] BadValue unknown_key(const YamlNode& map, const YamlEntry& entry,
                                   std::span<const std::string_view> known, std::string expected);

/// Reads a map with these keys. Adds the key to a BadValue that `read` throws.
void read_map(const YamlNode& node, const std::vector<Field>& fields);

/// Throws UsageError about a bad value in `what`, the file `name`.
[[noreturn]] void fail(const std::string& name, const std::string& what, const BadValue& bad);

/// Calls read() and turns its BadValue into a UsageError.
template <typename Read>
auto explain(const std::string& name, const std::string& what, const Read& read) {
  try {
    return read();
  } catch (const BadValue& bad) {
    fail(name, what, bad);
  }
}

/// A number with four digits, more than any measurement is exact to.
[[nodiscard]] std::string figure(double value);

/// Throws as replace_file() would, as far as can be known before its text has been made.
void require_replaceable(const std::string& path, const std::string& what);
/// Replaces the whole file, or leaves it. Throws IoError("path: cannot write `what`: why").
void replace_file(const std::string& path, const std::string& text, const std::string& what);

}  // namespace paceline::io
