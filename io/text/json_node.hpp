// A JSON document with places. Every error names the file and the path within it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::io::text {

using Json = nlohmann::json;

/// Deeper nesting is refused before parsing. Files in use need about six levels.
constexpr int deepest_json = 64;

/// The offset at which the nesting of brackets in a JSON text first exceeds `deepest`, or npos.
[[nodiscard]] std::size_t find_too_deep(std::string_view json, int deepest);

/// The reason of a parse error, without the place and the text that was read.
[[nodiscard]] std::string reason_of(const Json::parse_error& error);

/// Parses a whole file. Throws DataError naming the file and the byte.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& name);

/// A value within a document. It refers to the document and the file's name; both must outlive it.
class JsonNode {
 public:
  JsonNode(const Json& value, const std::string& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}

  [[nodiscard]] const Json& value() const { return *value_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string where() const { return *file_ + ": " + (path_.empty() ? "/" : path_); }

  /// A member; absent and null are the same. Throws if this is no object.
  [[nodiscard]] std::optional<JsonNode> find(std::string_view key) const;
  [[nodiscard]] JsonNode at(std::string_view key) const;  ///< a member that must exist
  [[nodiscard]] JsonNode item(std::size_t index) const;
  [[nodiscard]] std::size_t array_size() const;  ///< throws if this is no array

  [[nodiscard]] const std::string& string() const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;  ///< a boolean member

  /// Throws "FILE: PATH: found VALUE; EXPECTED".
  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  const Json* value_;
  const std::string* file_;
  std::string path_;
};

/// Text about a value for a message: its JSON, or its kind if the JSON is long.
[[nodiscard]] std::string describe(const Json& value);

}  // namespace paceline::io::text
