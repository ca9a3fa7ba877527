#include "io/text/json_node.hpp"

#include "runtime/core/error.hpp"

namespace paceline::io::text {

std::size_t find_too_deep(std::string_view json, int deepest) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::string_view::npos;
}

std::string reason_of(const Json::parse_error& error) {
  std::string_view what = error.what();
  const std::size_t column = what.find("column ");
  const std::size_t reason = column == what.npos ? what.npos : what.find(": ", column);
  if (reason == what.npos) return "malformed JSON";
  what.remove_prefix(reason + 2);
  return "malformed JSON: " + std::string(what.substr(0, what.find("; last read")));
}

Json parse_json(std::string_view text, const std::string& name) {
  // The parser would take a NUL for the end, and skip the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw DataError(name + ": byte " + std::to_string(nul + 1) +
                    ": malformed JSON: a NUL character");
  }
  if (const std::size_t at = find_too_deep(text, deepest_json); at != std::string_view::npos) {
    throw DataError(name + ": byte " + std::to_string(at) + ": nested deeper than " +
                    std::to_string(deepest_json) + " levels");
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& e) {
    throw DataError(name + ": byte " + std::to_string(e.byte) + ": " + reason_of(e));
  } catch (const Json::exception&) {
    throw DataError(name + ": malformed JSON: a number is out of range");
  }
}

std::string describe(const Json& value) {
  if (value.is_structured()) {
    return std::string(value.is_array() ? "an array" : "an object") + " of " +
           std::to_string(value.size());
  }
  if (value.is_string() && value.get_ref<const std::string&>().size() > 60) return "a long string";
  return value.dump();
}

std::optional<JsonNode> JsonNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse("expected an object");
  const auto member = value_->find(std::string(key));
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonNode(*member, *file_, path_ + "/" + std::string(key));
}

JsonNode JsonNode::at(std::string_view key) const {
  std::optional<JsonNode> member = find(key);
  if (!member) throw DataError(where() + ": expected a member '" + std::string(key) + "'");
  return *std::move(member);
}

JsonNode JsonNode::item(std::size_t index) const {
  return {(*value_)[index], *file_, path_ + "/" + std::to_string(index)};
}

std::size_t JsonNode::array_size() const {
  if (!value_->is_array()) refuse("expected an array");
  return value_->size();
}

const std::string& JsonNode::string() const {
  if (!value_->is_string()) refuse("expected a string");
  return value_->get_ref<const std::string&>();
}

bool JsonNode::boolean() const {
  if (!value_->is_boolean()) refuse("expected true or false");
  return value_->get<bool>();
}

std::int64_t JsonNode::integer(std::int64_t low, std::int64_t high) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                        : value_->is_number_integer() && value_->get<std::int64_t>() >= low;
  if (!fits) {
    refuse("expected an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value_->get<std::int64_t>();
}

bool JsonNode::flag(std::string_view key, bool fallback) const {
  const std::optional<JsonNode> member = find(key);
  return member ? member->boolean() : fallback;
}

void JsonNode::refuse(const std::string& expected) const {
  throw DataError(where() + ": found " + describe(*value_) + "; " + expected);
}

}  // namespace paceline::io::text
