#include "io/checkpoint/json_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "io/checkpoint/mapped_file.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr int max_depth = 32;
constexpr std::size_t max_file = std::size_t{64} << 20;  // bytes
constexpr std::size_t max_shown = 100;                   // characters shown in a message

// The text of nlohmann's error without its "[json.exception.parse_error.101] ".
std::string reason(const json::exception& error) {
  std::string_view text = error.what();
  if (const std::size_t bracket = text.find("] "); bracket != std::string_view::npos) {
    text.remove_prefix(bracket + 2);
  }
  return std::string(text.substr(0, 300));  // the text may quote a whole hostile token
}

}  // namespace

json parse_json(std::string_view text, const std::string& name) {
  // The library would take a NUL for the end, and skip the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw DataError(name + ": not valid JSON: a NUL character at byte " + std::to_string(nul + 1));
  }
  // Keys seen in each open object. The library itself silently keeps the last of equal keys.
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key &&
        !open.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw DataError(name + ": duplicate key " + show_json(parsed));
    }
    if (depth > max_depth) {
      throw DataError(name + ": nested more than " + std::to_string(max_depth) + " levels deep");
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    throw DataError(name + ": not valid JSON: " + reason(error));
  }
}

std::string read_text_file(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().size() > max_file) {
    throw DataError(path + ": expected at most " + std::to_string(max_file) + " bytes, found " +
                    std::to_string(file.bytes().size()));
  }
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string show_json(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > max_shown) text = text.substr(0, max_shown) + "...";
  return text;
}

std::string show_shape(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string show_text(std::string_view text) {
  // JSON's escapes, in single quotes.
  std::string shown = show_json(json(std::string(text.substr(0, max_shown))));
  if (shown.size() >= 2 && shown.back() == '"') shown = shown.substr(1, shown.size() - 2);
  return "'" + shown + (text.size() > max_shown ? "...'" : "'");
}

}  // namespace paceline::io
