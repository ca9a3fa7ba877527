#include "io/text/json_line.hpp"

#include <algorithm>

namespace paceline::io::text {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Walks through JSON that the parser has found well-formed. If the two ever disagree, it stops at
/// the end of the text and does not run past it: peek() there is a NUL, which is never expected.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}
  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip_space() {
    while (!at_end() && is_space(text_[at_])) ++at_;
  }
  /// Takes the next character, which must exist.
  char take() { return text_[at_++]; }
  /// Skips the next character, which must be `c`.
  void expect(char c) {
    if (peek() != c) throw LineError{at_, std::string("malformed JSON: expected '") + c + "'"};
    ++at_;
  }
  std::string_view string() {
    const std::size_t start = at_;
    for (expect('"'); !at_end() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    expect('"');
    return text_.substr(start, at_ - start);
  }
  std::string_view value() {
    const std::size_t start = at_;
    int depth = 0;
    do {
      const char c = peek();
      if (c == '"') {
        (void)string();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        --depth;
        ++at_;
      } else if (depth > 0) {
        ++at_;
      } else {
        at_ = std::min(text_.find_first_of(" \t\r\n,}", at_), text_.size());
      }
    } while (depth > 0 && !at_end());
    return text_.substr(start, at_ - start);
  }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

/// Parses only to find errors; values are read member by member.
void require_well_formed(std::string_view line) {
  // The parser silently accepts a mark at the front, and takes a NUL for the end of the text.
  if (line.starts_with(byte_order_mark)) {
    throw LineError{0, "a byte order mark within the file (were files joined?); remove it"};
  }
  if (const std::size_t nul = line.find('\0'); nul != std::string_view::npos) {
    throw LineError{nul, "malformed JSON: a NUL character"};
  }
  if (const std::size_t at = find_too_deep(line, deepest_json); at != std::string_view::npos) {
    throw LineError{at, "nested deeper than " + std::to_string(deepest_json) + " levels"};
  }
  try {
    const Json value = Json::parse(line.begin(), line.end());
    if (!value.is_object()) {
      throw LineError{0, "expected one JSON object a line, found " + describe(value)};
    }
  } catch (const Json::parse_error& e) {
    const std::size_t at = std::min(e.byte > 0 ? e.byte - 1 : 0, line.size());
    throw LineError{at, reason_of(e)};
  } catch (const Json::exception&) {
    throw LineError{0, "malformed JSON: a number is out of range"};
  }
}

}  // namespace

std::vector<Member> split_object(std::string_view line) {
  require_well_formed(line);
  std::vector<Member> members;
  Walker walker(line);
  walker.skip_space();
  walker.expect('{');
  walker.skip_space();
  while (walker.peek() != '}') {
    if (!members.empty()) walker.expect(',');
    walker.skip_space();
    const std::size_t key_at = walker.at();
    const std::string_view key = walker.string();
    walker.skip_space();
    walker.expect(':');
    walker.skip_space();
    const std::size_t offset = walker.at();
    members.push_back({Json::parse(key).get<std::string>(), walker.value(), offset});
    if (std::any_of(members.begin(), members.end() - 1,
                    [&](const Member& m) { return m.key == members.back().key; })) {
      throw LineError{key_at, "the key '" + members.back().key + "' is there twice"};
    }
    walker.skip_space();
  }
  return members;
}

std::vector<Member> split_object(const Member& outer) {
  try {
    std::vector<Member> members = split_object(outer.raw);
    for (Member& member : members) member.offset += outer.offset;
    return members;
  } catch (LineError& e) {
    e.offset += outer.offset;
    throw;
  }
}

Json parse(const Member& member) { return Json::parse(member.raw.begin(), member.raw.end()); }

void refuse(const Member& member, const std::string& message) {
  throw LineError{member.offset, "'" + member.key + "': " + message};
}

std::string compact(std::string_view raw) {
  std::string out;
  Walker walker(raw);
  for (walker.skip_space(); !walker.at_end(); walker.skip_space()) {
    if (walker.peek() == '"') {
      out += walker.string();
    } else {
      out += walker.take();
    }
  }
  return out;
}

}  // namespace paceline::io::text
