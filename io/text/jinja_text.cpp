#include "io/text/jinja_text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>

#include "io/config/utf8.hpp"
#include "io/text/unicode.hpp"

namespace paceline::io::text {
namespace {

/// White_Space, and four separators that Python counts too.
bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

char closing(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

/// Finds the end of a tag's body: the first `close` outside of literals and brackets.
std::size_t find_close(std::string_view text, std::size_t at, std::string_view close) {
  if (close == "#}") {
    at = text.find(close, at);
    if (at == std::string_view::npos) throw UnreadableTemplate{};
    return at;
  }
  std::string brackets;  // closing brackets still expected
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (brackets.empty() && text.substr(at, 2) == close) return at;
    if (c == '\'' || c == '"') {
      for (++at; at < text.size() && text[at] != c; ++at) {
        if (text[at] == '\\') ++at;
      }
    } else if (c == '(' || c == '[' || c == '{') {
      brackets += closing(c);
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) throw UnreadableTemplate{};
      brackets.pop_back();
    }
  }
  throw UnreadableTemplate{};
}

/// Reads the tag that starts at `at`; moves `at` past it.
Tag read_tag(std::string_view text, std::size_t& at) {
  const char mark = text[at + 1];
  const TagKind kind = mark == '{'   ? TagKind::output
                       : mark == '%' ? TagKind::block
                                     : TagKind::comment;
  const char* close = mark == '{' ? "}}" : mark == '%' ? "%}" : "#}";
  std::size_t start = at + 2;
  Tag tag{kind, {}};
  if (start < text.size() && text[start] == '+') throw UnreadableTemplate{};
  if (start < text.size() && text[start] == '-') {
    tag.trims_before = true;
    ++start;
  }
  const std::size_t end = find_close(text, start, close);
  tag.body = text.substr(start, end - start);
  if (!tag.body.empty() && tag.body.back() == '+') throw UnreadableTemplate{};
  if (!tag.body.empty() && tag.body.back() == '-') {
    tag.trims_after = true;
    tag.body.remove_suffix(1);
  }
  if (kind == TagKind::block && strip(tag.body) == "raw") throw UnreadableTemplate{};
  at = end + 2;
  return tag;
}

/// The printed part of the text between two tags. A null tag stands for an end of the template.
/// trim_blocks removes a line feed after a block, lstrip_blocks the white space before a block at
/// the start of a line.
std::string_view printed(std::string_view text, const Tag* before, const Tag* after) {
  const auto is_statement = [](const Tag* tag) {
    return tag != nullptr && (tag->kind == TagKind::block || tag->kind == TagKind::comment);
  };
  bool line_starts = before == nullptr;
  if (before != nullptr && before->trims_after) {
    text = strip(text, true, false);
  } else if (is_statement(before) && text.starts_with('\n')) {
    text.remove_prefix(1);
    line_starts = true;
  }
  if (after != nullptr && after->trims_before) return strip(text, false, true);
  if (is_statement(after)) {
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if ((line > 0 || line_starts) && strip(text.substr(line)).empty()) text = text.substr(0, line);
  }
  return text;
}

/// Reads the digits of a \x, \u or \U escape at `at`; moves `at` past them.
char32_t read_hex(std::string_view body, std::size_t& at, std::size_t digits) {
  char32_t value = 0;
  if (body.size() - at < digits) throw UnreadableTemplate{};
  for (const std::size_t end = at + digits; at < end; ++at) {
    const auto c = static_cast<unsigned char>(body[at]);
    if (std::isxdigit(c) == 0) throw UnreadableTemplate{};
    const int digit = std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) throw UnreadableTemplate{};
  return value;
}

/// Appends the character of the escape whose letter is at `at`; moves `at` past the escape.
void read_escape(std::string_view body, std::size_t& at, std::string& value) {
  constexpr std::string_view letters = "abfnrtv\\'\"";
  constexpr std::string_view values = "\a\b\f\n\r\t\v\\'\"";
  if (at >= body.size()) throw UnreadableTemplate{};
  const char c = body[at];
  if (c == 'N' || (c >= '0' && c <= '7') || static_cast<unsigned char>(c) >= 0x80) {
    throw UnreadableTemplate{};
  }
  ++at;
  if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
    value += values[known];
  } else if (c == 'x' || c == 'u' || c == 'U') {
    append_utf8(value, read_hex(body, at, c == 'x' ? 2 : c == 'u' ? 4 : 8));
  } else if (c != '\n') {  // not a continued line
    value += '\\';
    value += c;
  }
}

/// Reads the literal whose quote is at `at`; moves `at` past it.
Word read_literal(std::string_view body, std::size_t& at) {
  const char quote = body[at++];
  Word word{WordKind::literal, ""};
  while (at < body.size() && body[at] != quote) {
    if (body[at] == '\\') {
      ++at;
      read_escape(body, at, word.text);
    } else {
      word.text += body[at++];
    }
  }
  if (at >= body.size()) throw UnreadableTemplate{};
  ++at;
  return word;
}

}  // namespace

std::string_view strip(std::string_view text, bool front, bool back) {
  while (front && !text.empty()) {
    const CodePoint c = decode_utf8(text, 0);
    if (c.size == 0 || !is_python_space(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (back && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80) --at;
    const CodePoint c = decode_utf8(text, at);
    if (c.size == 0 || !is_python_space(c.value)) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string jinja_source(std::string_view text) {
  if (find_invalid_utf8(text) != std::string_view::npos) throw UnreadableTemplate{};
  std::string source;
  source.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    source += text[i] == '\r' ? '\n' : text[i];
  }
  if (source.ends_with('\n')) source.pop_back();
  return source;
}

std::vector<Tag> read_tags(std::string_view source) {
  std::vector<Tag> tags;
  std::size_t done = 0;
  for (std::size_t at = 0; at + 1 < source.size();) {
    const char mark = source[at + 1];
    if (source[at] != '{' || (mark != '{' && mark != '%' && mark != '#')) {
      ++at;
      continue;
    }
    if (at > done) tags.push_back({TagKind::text, source.substr(done, at - done)});
    tags.push_back(read_tag(source, at));
    done = at;
  }
  if (done < source.size()) tags.push_back({TagKind::text, source.substr(done)});
  for (std::size_t i = 0; i < tags.size(); ++i) {
    if (tags[i].kind != TagKind::text) continue;
    tags[i].body = printed(tags[i].body, i > 0 ? &tags[i - 1] : nullptr,
                           i + 1 < tags.size() ? &tags[i + 1] : nullptr);
  }
  return tags;
}

std::vector<Word> read_words(std::string_view body) {
  constexpr std::array<std::string_view, 6> pairs = {"==", "!=", "<=", ">=", "//", "**"};
  std::vector<Word> words;
  for (std::size_t at = 0; at < body.size();) {
    const char c = body[at];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (c == '\'' || c == '"') {
      words.push_back(read_literal(body, at));
    } else if (is_name(c)) {
      std::size_t end = at;
      while (end < body.size() && is_name(body[end])) ++end;
      words.push_back({WordKind::name, std::string(body.substr(at, end - at))});
      at = end;
    } else {
      const bool pair = std::find(pairs.begin(), pairs.end(), body.substr(at, 2)) != pairs.end();
      words.push_back({WordKind::sign, std::string(body.substr(at, pair ? 2 : 1))});
      at += pair ? 2 : 1;
    }
  }
  return words;
}

}  // namespace paceline::io::text
