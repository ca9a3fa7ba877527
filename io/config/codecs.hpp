// Codecs, which read, check and write the values of a configuration. A codec has type(), a text
// about the values that it takes; read(node, directory), which throws BadValue (relative paths are
// relative to `directory`); and write(value), YAML on one line that reads back to the same value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/config/path_text.hpp"
#include "io/config/quantity.hpp"
#include "io/config/run_config.hpp"
#include "io/config/utf8.hpp"
#include "io/config/yaml_tree.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

/// Thrown by a codec: the value that was expected, the one that was found, and its place.
struct BadValue {
  BadValue(const YamlNode& node, std::string expected_text, std::string hint_text = {})
      : line(node.kind == YamlNode::Kind::null ? 0 : node.line),
        column(node.column),
        expected(std::move(expected_text)),
        found(describe(node)),
        hint(std::move(hint_text)) {}

  int line;  ///< 0: the value is absent, and has no place
  int column;
  std::string part;  ///< part of the key's value, as "[1].path"; empty: the whole value
  std::string expected;
  std::string found;
  std::string hint;  ///< appended to the message; may be empty
};

inline bool is_plain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar && !node.quoted;
}
inline bool is_scalar(const YamlNode& node) { return node.kind == YamlNode::Kind::scalar; }
inline bool is_word(const YamlNode& node, std::string_view word) {
  return is_scalar(node) && node.scalar == word;
}

/// A whole number of type T in [low, high] that is a multiple of `multiple`.
template <typename T>
struct Whole {
  T low;
  T high;
  T multiple = 1;

  [[nodiscard]] std::string type() const {
    const std::string number =
        multiple == 1 ? "a whole number" : "a multiple of " + std::to_string(multiple);
    return number + (bounded() ? " from " + std::to_string(low) + " to " + std::to_string(high)
                               : ", at least " + std::to_string(low));
  }
  [[nodiscard]] T read(const YamlNode& node, const std::string&) const {
    if (is_plain(node)) {
      if constexpr (std::is_unsigned_v<T>) {
        const auto value = parse_unsigned(node.scalar);
        if (value && *value >= low && *value <= high) return *value;
      } else {
        const auto value = parse_integer(node.scalar);
        if (value && *value >= low && *value <= high && *value % multiple == 0) {
          return static_cast<T>(*value);
        }
      }
    }
    // A value of digits only, which type() seems to allow, is too large.
    const bool large = is_plain(node) && !bounded() &&
                       node.scalar.find_first_not_of("0123456789") == std::string::npos;
    throw BadValue(node, type(), large ? "the largest is " + std::to_string(high) : "");
  }
  [[nodiscard]] static std::string write(T value) { return std::to_string(value); }

  /// Whether type() names an upper limit.
  [[nodiscard]] bool bounded() const { return high != std::numeric_limits<T>::max(); }
};
using Count = Whole<std::int32_t>;

/// A power of two in [1, high].
struct PowerOfTwo {
  std::int32_t high;
  [[nodiscard]] std::string type() const {
    return "a power of two from 1 to " + std::to_string(high);
  }
  [[nodiscard]] std::int32_t read(const YamlNode& node, const std::string&) const {
    const auto value = is_plain(node) ? parse_integer(node.scalar) : std::nullopt;
    if (!value || *value < 1 || *value > high || (*value & (*value - 1)) != 0) {
      throw BadValue(node, type());
    }
    return static_cast<std::int32_t>(*value);
  }
  [[nodiscard]] static std::string write(std::int32_t value) { return std::to_string(value); }
};

/// A number for which `valid` holds; `words` describe this condition.
template <typename T>
struct Real {
  std::string_view words;
  bool (*valid)(T);
  [[nodiscard]] std::string type() const { return std::string(words); }
  [[nodiscard]] T read(const YamlNode& node, const std::string&) const {
    const auto value = is_plain(node) ? parse(node.scalar) : std::nullopt;
    if (!value || !valid(*value)) throw BadValue(node, type());
    return *value == 0 ? T{0} : *value;  // -0 is 0
  }
  [[nodiscard]] static std::optional<T> parse(std::string_view text) {
    if constexpr (std::is_same_v<T, float>) {
      return parse_float(text);
    } else {
      return parse_double(text);
    }
  }
  [[nodiscard]] static std::string write(T value) { return format_number(value); }
};

struct Flag {
  [[nodiscard]] static std::string type() { return "true or false"; }
  [[nodiscard]] static bool read(const YamlNode& node, const std::string&) {
    if (is_plain(node) && (node.scalar == "true" || node.scalar == "false")) {
      return node.scalar == "true";
    }
    throw BadValue(node, type());
  }
  [[nodiscard]] static std::string write(bool value) { return value ? "true" : "false"; }
};

struct Duration {
  double low;   // seconds
  double high;  // seconds
  [[nodiscard]] std::string type() const {
    return "a duration (90, 30s, 15m, 2h, 1d, HH:MM:SS, D-HH:MM:SS) from " + format_number(low) +
           " to " + format_number(high) + " seconds";
  }
  [[nodiscard]] double read(const YamlNode& node, const std::string&) const {
    const auto value = is_scalar(node) ? parse_duration(node.scalar) : std::nullopt;
    if (!value || *value < low || *value > high) throw BadValue(node, type());
    return *value;
  }
  [[nodiscard]] static std::string write(double value) { return format_number(value); }
};

struct Size {
  [[nodiscard]] static std::string type() {
    return "a size (2GiB, 512MiB, 8G, 1.5e9) of at least 1MiB";
  }
  [[nodiscard]] static std::uint64_t read(const YamlNode& node, const std::string&) {
    const auto value = is_scalar(node) ? parse_size(node.scalar) : std::nullopt;
    if (!value || *value < (1U << 20)) throw BadValue(node, type());
    return *value;
  }
  [[nodiscard]] static std::string write(std::uint64_t value) { return std::to_string(value); }
};

/// A Size, or the word "none", which is 0.
struct SizeOrNone {
  [[nodiscard]] static std::string type() { return "none, or " + Size::type(); }
  [[nodiscard]] static std::uint64_t read(const YamlNode& node, const std::string& directory) {
    if (is_word(node, "none")) return 0;
    try {
      return Size::read(node, directory);
    } catch (const BadValue&) {
      throw BadValue(node, type());
    }
  }
  [[nodiscard]] static std::string write(std::uint64_t value) {
    return value == 0 ? "none" : Size::write(value);
  }
};

/// A path, made absolute, so that the effective configuration means the same from any directory. It
/// is written as expand_path() reads it.
struct Path {
  std::string_view words;
  [[nodiscard]] std::string type() const { return std::string(words); }
  [[nodiscard]] std::string read(const YamlNode& node, const std::string& directory) const {
    if (!is_scalar(node) || node.scalar.empty()) throw BadValue(node, type());
    if (node.scalar.find('\0') != std::string::npos) {
      throw BadValue(node, type() + " without a NUL character");
    }
    const ExpandedPath expanded = expand_path(node.scalar);
    if (!expanded.fault.empty()) throw BadValue(node, type(), expanded.fault);
    std::error_code error;
    const std::filesystem::path whole =
        std::filesystem::absolute(std::filesystem::path(directory) / expanded.path, error);
    // "." is removed; ".." stays, because it means something else after a symbolic link.
    std::filesystem::path path;
    for (const std::filesystem::path& part : whole) {
      if (part != ".") path /= part;
    }
    if (error || find_invalid_utf8(path.string()) != std::string_view::npos) {
      throw BadValue(node, type() + " whose full name is UTF-8 text");
    }
    return path.string();
  }
  [[nodiscard]] static std::string write(const std::string& value) {
    return quote_yaml(path_text(value));
  }
};

/// A path, or the word "auto", which is kept as it is.
struct PathOrAuto {
  Path path;
  [[nodiscard]] std::string type() const { return "auto, or " + path.type(); }
  [[nodiscard]] std::string read(const YamlNode& node, const std::string& directory) const {
    return is_word(node, "auto") ? "auto" : path.read(node, directory);
  }
  [[nodiscard]] static std::string write(const std::string& value) {
    return value == "auto" ? value : Path::write(value);
  }
};

inline std::string list_names(std::span<const std::string_view> names) {
  std::string text = names.size() > 1 ? "one of " : "";
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::string(names[i]);
  }
  return text;
}

/// The name nearest to `name`, as "did you mean 'x'?"; empty: none is near.
inline std::string did_you_mean(std::string_view name, std::span<const std::string_view> names) {
  const std::string_view near = nearest_name(name.substr(0, 64), names);
  return near.empty() ? "" : "did you mean '" + std::string(near) + "'?";
}

/// One of a few words; each stands for a value.
template <typename T, std::size_t N>
struct Choice {
  std::array<std::string_view, N> names;
  std::array<T, N> values;
  [[nodiscard]] std::string type() const { return list_names(names); }
  [[nodiscard]] T read(const YamlNode& node, const std::string&) const {
    for (std::size_t i = 0; i < N; ++i) {
      if (is_scalar(node) && node.scalar == names[i]) return values[i];
    }
    throw BadValue(node, type(), is_scalar(node) ? did_you_mean(node.scalar, names) : "");
  }
  [[nodiscard]] std::string write(const T& value) const {
    return std::string(names[std::ranges::find(values, value) - values.begin()]);
  }
};
template <typename... Names>
auto words(Names... names) {
  constexpr std::size_t n = sizeof...(names);
  return Choice<std::string, n>{{names...}, {std::string(names)...}};
}

/// A Choice of all values of an enumeration, in order of their values from 0. Nothing but the order
/// says which name is which value's.
template <typename Enum, typename... Names>
auto in_order(Names... names) {
  Choice<Enum, sizeof...(names)> choice{{names...}, {}};
  for (std::size_t i = 0; i < sizeof...(names); ++i) choice.values[i] = static_cast<Enum>(i);
  return choice;
}

/// A Choice of values that name_of() names.
template <typename T, std::size_t N>
Choice<T, N> named(const std::array<T, N>& values) {
  Choice<T, N> choice{{}, values};
  std::transform(values.begin(), values.end(), choice.names.begin(),
                 [](T value) { return name_of(value); });
  return choice;
}

/// A word, which is read as nullopt, or a value of the inner codec.
template <typename Inner>
struct OrWord {
  std::string_view word;
  Inner inner;
  using Value = decltype(inner.read(std::declval<const YamlNode&>(), std::string()));
  [[nodiscard]] std::string type() const { return std::string(word) + ", or " + inner.type(); }
  [[nodiscard]] std::optional<Value> read(const YamlNode& node,
                                          const std::string& directory) const {
    if (is_word(node, word)) return std::nullopt;
    try {
      return inner.read(node, directory);
    } catch (BadValue& bad) {
      bad.expected = type();
      throw;
    }
  }
  [[nodiscard]] std::string write(const std::optional<Value>& value) const {
    return value ? inner.write(*value) : std::string(word);
  }
};
template <typename Inner>
struct OrAuto : OrWord<Inner> {
  explicit OrAuto(Inner value) : OrWord<Inner>{"auto", std::move(value)} {}
};
template <typename Inner>
struct OrNone : OrWord<Inner> {
  explicit OrNone(Inner value) : OrWord<Inner>{"none", std::move(value)} {}
};

struct Text {
  [[nodiscard]] static std::string type() { return "non-empty text"; }
  [[nodiscard]] static std::string read(const YamlNode& node, const std::string&) {
    if (!is_scalar(node) || node.scalar.empty()) throw BadValue(node, type());
    return node.scalar;
  }
  [[nodiscard]] static std::string write(const std::string& value) { return quote_yaml(value); }
};

template <typename Inner>
struct List {
  Inner inner;
  std::string_view items;  // plural noun for the items, as "token ids"
  using Value = decltype(inner.read(std::declval<const YamlNode&>(), std::string()));
  [[nodiscard]] std::string type() const { return "a list of " + std::string(items); }
  [[nodiscard]] std::vector<Value> read(const YamlNode& node, const std::string& directory) const {
    if (node.kind != YamlNode::Kind::list) throw BadValue(node, type());
    std::vector<Value> values;
    for (const YamlNode& item : node.items) values.push_back(inner.read(item, directory));
    return values;
  }
  [[nodiscard]] std::string write(const std::vector<Value>& values) const {
    std::string text = "[";
    for (const Value& value : values) text += (text.size() > 1 ? ", " : "") + inner.write(value);
    return text + "]";
  }
};

/// A program and its arguments. A word that begins with ./, ../ or ~/ is a path; any other program
/// is looked up in PATH. In other words, an environment variable at the front is expanded.
struct Command {
  [[nodiscard]] static std::string type() { return "a list of texts: a program and its arguments"; }
  [[nodiscard]] static std::vector<std::string> read(const YamlNode& node,
                                                     const std::string& directory) {
    if (node.kind != YamlNode::Kind::list) throw BadValue(node, type());
    std::vector<std::string> words;
    for (const YamlNode& item : node.items) {
      if (!is_scalar(item) || (item.scalar.empty() && words.empty()) ||
          item.scalar.find('\0') != std::string::npos)
        throw BadValue(item, type());
      words.push_back(read_word(item, directory));
    }
    return words;
  }
  [[nodiscard]] static std::string write(const std::vector<std::string>& words) {
    std::string text = "[";
    for (const std::string& word : words)
      text += (text.size() > 1 ? ", " : "") +
              quote_yaml(word.starts_with('$') ? path_text(word) : word);
    return text + "]";
  }

 private:
  static std::string read_word(YamlNode word, const std::string& directory) {
    const auto is_path = [&word] {
      return word.scalar.starts_with("./") || word.scalar.starts_with("../") ||
             word.scalar.starts_with("~/");
    };
    if (word.scalar.starts_with('$')) {
      ExpandedPath expanded = expand_path(word.scalar);
      if (!expanded.fault.empty()) throw BadValue(word, type(), expanded.fault);
      word.scalar = std::move(expanded.path);
      if (is_path()) word.scalar = path_text(word.scalar);
    }
    return is_path() ? Path{"the path of a file"}.read(word, directory) : word.scalar;
  }
};

/// A value, or a list of at least one value. A list of one is written as the value.
template <typename Inner>
struct OneOrMore {
  Inner inner;
  using Value = decltype(inner.read(std::declval<const YamlNode&>(), std::string()));
  [[nodiscard]] std::string type() const { return inner.type() + ", or a list of such"; }
  [[nodiscard]] std::vector<Value> read(const YamlNode& node, const std::string& directory) const {
    if (node.kind == YamlNode::Kind::list && node.items.empty()) throw BadValue(node, type());
    if (node.kind == YamlNode::Kind::list) return List<Inner>{inner, ""}.read(node, directory);
    try {
      return {inner.read(node, directory)};
    } catch (BadValue& bad) {
      bad.expected = type();
      throw;
    }
  }
  [[nodiscard]] std::string write(const std::vector<Value>& values) const {
    return values.size() == 1 ? inner.write(values[0]) : List<Inner>{inner, ""}.write(values);
  }
};
template <typename Inner>
OneOrMore(Inner) -> OneOrMore<Inner>;

}  // namespace paceline::io
