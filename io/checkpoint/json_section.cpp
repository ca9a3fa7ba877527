#include "io/checkpoint/json_section.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include "io/checkpoint/json_text.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

using nlohmann::json;

namespace {

/// Letters and digits of a name, in lower case.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

/// The supported name that differs only in case and punctuation; empty: none. A name that differs
/// in a letter or a digit means something else: gelu is not near silu, nor float16 near bfloat16.
std::string_view spelled_like(std::string_view name, std::span<const std::string_view> supported) {
  const auto at = std::ranges::find_if(
      supported, [&](std::string_view candidate) { return plain(candidate) == plain(name); });
  return at == supported.end() ? std::string_view() : *at;
}

/// The present key of which `key` may be a typing error: all but two letters agree from both ends.
std::string_view slip_of(std::string_view key, std::span<const std::string_view> present) {
  const std::string_view near = nearest_name(key, present);
  const auto begin = std::mismatch(key.begin(), key.end(), near.begin(), near.end()).first;
  const auto end = std::mismatch(key.rbegin(), key.rend(), near.rbegin(), near.rend()).first;
  const auto alike = (begin - key.begin()) + (end - key.rbegin());
  const auto longer = static_cast<std::ptrdiff_t>(std::max(key.size(), near.size()));
  return alike + 2 >= longer ? near : std::string_view();
}

}  // namespace

void JsonSection::fail(std::string_view key, const std::string& what) const {
  throw DataError(file_ + ": " + prefix_ + std::string(key) + ": " + what);
}

void JsonSection::fail_expected(std::string_view key, const std::string& expected) const {
  fail(key, "expected " + expected + ", found " + show_json(object_.at(std::string(key))));
}

void JsonSection::fail_choice(std::string_view key, const std::string& found,
                              std::span<const std::string_view> supported) const {
  std::string list;
  for (std::size_t i = 0; i < supported.size(); ++i) {
    list += (i == 0 ? "" : i + 1 == supported.size() ? " or " : ", ") + std::string(supported[i]);
  }
  const std::string_view near = spelled_like(found, supported);
  fail(key, "expected " + list + ", found " + show_text(found) +
                (near.empty() ? "" : "; the nearest is " + std::string(near)));
}

const json* JsonSection::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json* JsonSection::find_object(const char* key) const {
  const json* object = find(key);
  if (object != nullptr && !object->is_object()) fail_expected(key, "an object");
  return object;
}

std::optional<std::int32_t> JsonSection::integer(const char* key, std::int32_t low,
                                                 std::int32_t high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer() || *value < low || *value > high) {
    fail_expected(key,
                  "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value->get<std::int32_t>();
}

std::optional<double> JsonSection::number(const char* key, double above, double high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !(value->get<double>() > above) || !(value->get<double>() <= high)) {
    fail_expected(key,
                  "a number above " + json(above).dump() + " and at most " + json(high).dump());
  }
  return value->get<double>();
}

bool JsonSection::flag(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) fail_expected(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonSection::text(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail_expected(key, "text");
  return value->get<std::string>();
}

std::string JsonSection::choice(const char* key,
                                std::span<const std::string_view> supported) const {
  std::string found = text(key).value_or(std::string(supported.front()));
  if (std::ranges::find(supported, found) == supported.end()) fail_choice(key, found, supported);
  return found;
}

std::optional<std::string> JsonSection::only_name(const char* key) const {
  const json* list = find(key);
  if (list == nullptr) return std::nullopt;
  if (!list->is_array() || list->size() != 1 || !(*list)[0].is_string())
    fail_expected(key, "a list with one name");
  return (*list)[0].get<std::string>();
}

void JsonSection::require(std::span<const char* const> keys) const {
  std::string missing;
  for (const char* key : keys) {
    if (find(key) != nullptr) continue;
    missing += (missing.empty() ? "" : ", ") + prefix_ + key;
    std::vector<std::string_view> present;
    for (const auto& item : object_.items()) {
      if (item.key().size() <= 64) present.emplace_back(item.key());
    }
    const std::string_view near = slip_of(key, present);
    if (!near.empty()) missing += " (the nearest key is " + std::string(near) + ")";
  }
  if (!missing.empty()) throw DataError(file_ + ": missing keys: " + missing);
}

json parse_json_object(std::string_view text, const std::string& name) {
  json root = parse_json(text, name);
  if (!root.is_object()) throw DataError(name + ": expected an object, found " + show_json(root));
  return root;
}

}  // namespace paceline::io
