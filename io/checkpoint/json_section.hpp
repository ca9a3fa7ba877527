// One JSON object of a file, read key by key. Private to this folder.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace paceline::io {

/// An object whose null members count as absent, as in transformers. Errors are DataErrors that
/// name file, key, the expected and the found value. It refers to the object and the file's name,
/// which must both outlive it.
class JsonSection {
 public:
  /// `prefix` names the object within the file: "" or "rope_scaling.".
  JsonSection(const nlohmann::json& object, const std::string& file, std::string prefix)
      : object_(object), file_(file), prefix_(std::move(prefix)) {}

  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
  [[noreturn]] void fail_expected(std::string_view key, const std::string& expected) const;
  /// Throws "expected A, B or C, found X; the nearest is A" if X is A in another spelling.
  [[noreturn]] void fail_choice(std::string_view key, const std::string& found,
                                std::span<const std::string_view> supported) const;

  /// Null: the key is absent.
  [[nodiscard]] const nlohmann::json* find(const char* key) const;
  [[nodiscard]] const nlohmann::json* find_object(const char* key) const;
  [[nodiscard]] std::optional<std::int32_t> integer(const char* key, std::int32_t low,
                                                    std::int32_t high) const;
  /// A number in (above, high].
  [[nodiscard]] std::optional<double> number(const char* key, double above, double high) const;
  /// false if absent.
  [[nodiscard]] bool flag(const char* key) const;
  [[nodiscard]] std::optional<std::string> text(const char* key) const;
  /// A text among `supported`, the first of them if absent.
  std::string choice(const char* key, std::span<const std::string_view> supported) const;
  /// The name in a list of one.
  [[nodiscard]] std::optional<std::string> only_name(const char* key) const;
  /// A value of this object or else of the one around it. If both have it, the values must be the
  /// same.
  template <typename T>
  [[nodiscard]] std::optional<T> either(const char* key, const std::optional<T>& own,
                                        const std::optional<T>& outside) const {
    if (own && outside && *own != *outside) {
      fail_expected(
          key, "the same as " + std::string(key) + " outside, " + nlohmann::json(*outside).dump());
    }
    return own ? own : outside;
  }
  /// Throws one message about all `keys` that are missing.
  void require(std::span<const char* const> keys) const;

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] const nlohmann::json& object() const { return object_; }

 private:
  const nlohmann::json& object_;
  const std::string& file_;
  std::string prefix_;
};

/// Parses a whole text as one object. Throws DataError("name: ...").
[[nodiscard]] nlohmann::json parse_json_object(std::string_view text, const std::string& name);

}  // namespace paceline::io
