// YAML text as a small tree that remembers the place of everything. It takes only what a
// configuration needs: one document; no anchors, aliases or tags (an alias bomb is an error at its
// first anchor), no duplicate keys, no deep nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io {

/// Longest text taken, in bytes. The parser's time is not linear in it.
inline constexpr std::size_t max_yaml_text = std::size_t{1} << 20;

struct YamlEntry;

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  bool quoted = false;  ///< text in quotes, or a block scalar: never a number
  int line = 1;         ///< from 1
  int column = 1;       ///< from 1, in characters as yaml-cpp counts them
  std::string scalar;
  std::vector<YamlNode> items;     ///< items of a list
  std::vector<YamlEntry> entries;  ///< entries of a map, in file order; keys are distinct
};

struct YamlEntry {
  std::string key;
  int line = 1;
  int column = 1;
  YamlNode value;
};

/// Parses a text; an empty one is a null node. Throws UsageError("name:line:column: what"), or
/// "name: what" if `located` is false, for text that is not a file's. Thread-safe.
[[nodiscard]] YamlNode parse_yaml(const std::string& text, const std::string& name,
                                  bool located = true);

/// Reads a file's text for parse_yaml(), up to one byte more than that takes. `path` may be a pipe.
/// Throws IoError("path: cannot read `what`: why"), UsageError if it is absent. Thread-safe.
[[nodiscard]] std::string read_yaml_file(const std::string& path, const std::string& what);

/// `text` as a double-quoted YAML scalar that reads back to the same bytes, if it is UTF-8.
[[nodiscard]] std::string quote_yaml(std::string_view text);

/// `text` for an error message: cut to readable length, on one line, control characters escaped.
[[nodiscard]] std::string clip(std::string_view text);
/// The clipped text in single quotes.
[[nodiscard]] std::string show(std::string_view text);

/// Text about a node for an error message: show() of its scalar, or "a list", "a map", "nothing".
[[nodiscard]] std::string describe(const YamlNode& node);

}  // namespace paceline::io
