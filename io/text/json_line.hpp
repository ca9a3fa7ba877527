// One line of JSON Lines: the members of an object as written, each with its column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/text/json_node.hpp"

namespace paceline::io::text {

struct Member {
  std::string key;
  std::string_view raw;    ///< the value as written, without spaces around it
  std::size_t offset = 0;  ///< bytes from the line's start to the value
};

/// An error in a line, with its offset.
struct LineError {
  std::size_t offset = 0;
  std::string message;
};

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Splits a line's object into members. Throws LineError if the line is malformed JSON or UTF-8,
/// begins with a byte order mark, is nested too deeply, is no object, or has a key twice.
[[nodiscard]] std::vector<Member> split_object(std::string_view line);

/// Splits an object that is a member's value; offsets are those in the line. Throws LineError too.
[[nodiscard]] std::vector<Member> split_object(const Member& outer);

[[nodiscard]] Json parse(const Member& member);
/// Throws LineError at the member, with the text "'KEY': MESSAGE".
[[noreturn]] void refuse(const Member& member, const std::string& message);

/// JSON without the spaces between its tokens; numbers and strings keep their spelling.
[[nodiscard]] std::string compact(std::string_view raw);

}  // namespace paceline::io::text
