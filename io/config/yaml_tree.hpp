// YAML text as a small tree that remembers where everything stood. Only what a configuration needs:
// one document; no anchors, aliases or tags (an alias bomb is an error at its first anchor), no
// duplicate keys, no deep nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::io {

/// Longest text taken, in bytes: the parser's time is not linear in it.
inline constexpr std::size_t max_yaml_text = std::size_t{1} << 20;

struct YamlEntry;

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  bool quoted = false;  ///< a scalar in quotes, or a block scalar: text, never a number
  int line = 1;         ///< 1-based
  int column = 1;       ///< 1-based, in characters as yaml-cpp counts them
  std::string scalar;
  std::vector<YamlNode> items;     ///< of a list
  std::vector<YamlEntry> entries;  ///< of a map, in file order, keys distinct
};

struct YamlEntry {
  std::string key;
  int line = 1;
  int column = 1;
  YamlNode value;
};

/// An empty text is a null node. Throws UsageError("name:line:column: what"), or "name: what" with
/// `located` false (for text that is not a file's). Thread-safe.
[[nodiscard]] YamlNode parse_yaml(const std::string& text, const std::string& name,
                                  bool located = true);

/// A file's text for parse_yaml(), up to more than that takes; the path may name a pipe. Throws
/// IoError("path: cannot read `what`: why"), UsageError when there is no such file. Thread-safe.
[[nodiscard]] std::string read_yaml_file(const std::string& path, const std::string& what);

/// The offset of the first byte that is not well-formed UTF-8, or npos.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text);

/// `text` as a double-quoted YAML scalar that reads back to the same bytes (of UTF-8 text).
[[nodiscard]] std::string quote_yaml(std::string_view text);

/// `text` for an error message: cut to a readable length, on one line, control characters escaped.
[[nodiscard]] std::string clip(std::string_view text);
/// The same in '...'.
[[nodiscard]] std::string show(std::string_view text);

/// The node for an error message: its scalar as show() gives it, or "a list", "a map", "nothing".
[[nodiscard]] std::string describe(const YamlNode& node);

}  // namespace paceline::io
