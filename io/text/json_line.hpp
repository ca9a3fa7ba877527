// One line of JSON Lines: an object's members as written, each with its column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/text/json_node.hpp"

namespace paceline::io::text {

struct Member {
  std::string key;
  std::string_view raw;    ///< the value as written, without spaces around it
  std::size_t offset = 0;  ///< of the value in the line
};

/// An error in a line, with its place.
struct LineError {
  std::size_t offset = 0;
  std::string message;
};

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Splits a line's object into members. Throws LineError when the line is malformed JSON (UTF-8
/// included), begins with a byte order mark, is nested too deep, no object, or has a key twice.
[[nodiscard]] std::vector<Member> split_object(std::string_view line);

/// Splits the object that a member holds; offsets are in the line. Throws LineError as above.
[[nodiscard]] std::vector<Member> split_object(const Member& outer);

[[nodiscard]] Json parse(const Member& member);
/// Throws LineError at the member: "'KEY': MESSAGE".
[[noreturn]] void refuse(const Member& member, const std::string& message);

/// JSON without the spaces between its tokens; numbers and strings keep their spelling.
[[nodiscard]] std::string compact(std::string_view raw);

}  // namespace paceline::io::text
