#include "io/text/chat_shape.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

namespace paceline::io::text {
namespace {

constexpr int deepest_nesting = 32;

/// Thrown and caught within this file: the text is not a template of the kind read here.
struct Unreadable {};

// --- 1. Text to tags ---------------------------------------------------------------------------

enum class TagKind : std::uint8_t { text, output, block, comment };
struct Tag {
  TagKind kind;
  std::string_view body;  ///< without delimiters and trim marks
  bool trims_before = false, trims_after = false;
};

/// The end of a tag's body: the first `close` outside string literals.
std::size_t find_close(std::string_view text, std::size_t at, std::string_view close) {
  char quote = '\0';
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != '\0') {
      if (c == '\\') {
        ++at;
      } else if (c == quote) {
        quote = '\0';
      }
    } else if (text.substr(at, 2) == close) {
      return at;
    } else if (close != "#}" && (c == '\'' || c == '"')) {
      quote = c;
    }
  }
  throw Unreadable{};
}

std::vector<Tag> read_tags(std::string_view text) {
  std::vector<Tag> tags;
  std::size_t done = 0;
  for (std::size_t at = 0; at + 1 < text.size();) {
    const char mark = text[at + 1];
    if (text[at] != '{' || (mark != '{' && mark != '%' && mark != '#')) {
      ++at;
      continue;
    }
    if (at > done) tags.push_back({TagKind::text, text.substr(done, at - done)});
    const char* close = mark == '{' ? "}}" : mark == '%' ? "%}" : "#}";
    const std::size_t end = find_close(text, at + 2, close);
    Tag tag{mark == '{'   ? TagKind::output
            : mark == '%' ? TagKind::block
                          : TagKind::comment,
            text.substr(at + 2, end - at - 2)};
    if (!tag.body.empty() && tag.body.front() == '-') {
      tag.trims_before = true;
      tag.body.remove_prefix(1);
    }
    if (!tag.body.empty() && tag.body.back() == '-') {
      tag.trims_after = true;
      tag.body.remove_suffix(1);
    }
    tags.push_back(tag);
    done = at = end + 2;
  }
  if (done < text.size()) tags.push_back({TagKind::text, text.substr(done)});
  return tags;
}

/// What a stretch of text between two tags prints, under the settings of `transformers`:
/// trim_blocks (a newline after a block goes), lstrip_blocks (spaces on a line before a block go)
/// and one newline at the end of the template goes. `before` and `after` are null at the ends.
std::string_view printed(std::string_view text, const Tag* before, const Tag* after) {
  constexpr std::string_view white = " \t\r\n";
  const auto is_statement = [](const Tag* tag) {
    return tag != nullptr && tag->kind != TagKind::output;
  };
  const std::string_view whole = text;
  if (after == nullptr && !text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (before != nullptr && before->trims_after) {
    text.remove_prefix(std::min(text.find_first_not_of(white), text.size()));
  } else if (is_statement(before) && !text.empty() && text.front() == '\n') {
    text.remove_prefix(1);
  }
  if (after != nullptr && after->trims_before) {
    text.remove_suffix(text.size() - (text.find_last_not_of(white) + 1));
  } else if (is_statement(after)) {
    std::string_view rest = text;
    while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\t')) rest.remove_suffix(1);
    const bool line_start =
        rest.empty() ? before == nullptr || text.data() != whole.data() : rest.back() == '\n';
    if (line_start) text = rest;
  }
  return text;
}

// --- 2. Expressions, canonically ---------------------------------------------------------------

std::string quoted(std::string_view value) {
  std::string out = "'";
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "'";
}

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// One token of an expression. `text` is a literal's value, or the token as written.
struct Word {
  bool literal = false;
  std::string text;
};

std::vector<Word> read_words(std::string_view body) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < body.size();) {
    const char c = body[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++i;
    } else if (c == '\'' || c == '"') {
      Word word{true, ""};
      for (++i; i < body.size() && body[i] != c; ++i) {
        if (body[i] == '\\' && i + 1 < body.size()) {
          ++i;
          word.text += body[i] == 'n' ? '\n' : body[i] == 't' ? '\t' : body[i];
        } else {
          word.text += body[i];
        }
      }
      ++i;
      words.push_back(std::move(word));
    } else if (is_name(c)) {
      std::size_t end = i;
      while (end < body.size() && is_name(body[end])) ++end;
      words.push_back({false, std::string(body.substr(i, end - i))});
      i = end;
    } else {
      words.push_back({false, std::string(1, c)});
      ++i;
    }
  }
  return words;
}

/// x['key'] becomes x.key, and 'a' + 'b' becomes 'ab'.
std::vector<Word> simplify(std::vector<Word> words) {
  std::vector<Word> out;
  const auto is = [](const Word& w, const char* text) { return !w.literal && w.text == text; };
  for (std::size_t i = 0; i < words.size(); ++i) {
    Word& w = words[i];
    const bool key = i + 2 < words.size() && is(w, "[") && words[i + 1].literal &&
                     is(words[i + 2], "]") && !out.empty() && !out.back().literal &&
                     !words[i + 1].text.empty() &&
                     std::all_of(words[i + 1].text.begin(), words[i + 1].text.end(), is_name);
    if (key) {
      out.push_back({false, "."});
      out.push_back({false, words[i + 1].text});
      i += 2;
    } else if (w.literal && out.size() >= 2 && is(out.back(), "+") && out[out.size() - 2].literal) {
      out.pop_back();
      out.back().text += w.text;
    } else {
      out.push_back(std::move(w));
    }
  }
  return out;
}

std::string spell(const std::vector<Word>& words) {
  std::string out;
  bool after_name = false;
  for (const Word& w : words) {
    const bool name = !w.literal && is_name(w.text[0]);
    if (name && after_name) out += ' ';
    out += w.literal ? quoted(w.text) : w.text;
    after_name = name;
  }
  return out;
}

// --- 3. Tags to the statements that remain -----------------------------------------------------

constexpr std::array never_conditions = {
    "tools",
    "tools is not none",
    "custom_tools is defined",
    "builtin_tools is defined",
    "builtin_tools is defined or tools is not none",
    "tools is not none and not tools_in_user_message",
    "tools_in_user_message and not tools is none",
    "message.tool_calls",
    "'tool_calls'in message",
    "message.role=='tool'",
    "message.role=='tool'or message.role=='ipython'",
    "message.reasoning_content is string",
    "message.reasoning_content is defined and message.reasoning_content is not none",
    "strftime_now is defined",
    "not add_generation_prompt is defined",
};
constexpr std::array always_conditions = {
    "not tools is defined",
    "not tools_in_user_message is defined",
    "not date_string is defined",
    "message.content is string",
    "not(message.role=='ipython'or message.role=='tool'or'tool_calls'in message)",
};
constexpr std::array idle_statements = {"tools=none", "tools_in_user_message=true"};  // after set

template <std::size_t n>
bool is_one_of(const std::array<const char*, n>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

class Reducer {
 public:
  explicit Reducer(std::vector<Tag> tags) : tags_(std::move(tags)) {}

  std::string run() {
    std::string form = statements(0);
    if (at_ < tags_.size()) throw Unreadable{};  // a stray endif or endfor
    return form;
  }

 private:
  struct Block {
    std::string name;  ///< if, elif, else, endif, for, endfor, set, ...
    std::string rest;
  };
  [[nodiscard]] static Block block_of(const Tag& tag) {
    std::vector<Word> words = simplify(read_words(tag.body));
    if (words.empty() || words[0].literal) throw Unreadable{};
    std::string name = std::move(words[0].text);
    words.erase(words.begin());
    return {std::move(name), spell(words)};
  }

  /// Everything up to a tag that ends or continues the enclosing statement (left unread).
  std::string statements(int depth) {
    if (depth > deepest_nesting) throw Unreadable{};
    std::string form;
    std::vector<Word> output;  // neighbouring outputs, joined by +
    const auto print = [&](const std::vector<Word>& words) {
      if (!output.empty()) output.push_back({false, "+"});
      output.insert(output.end(), words.begin(), words.end());
    };
    const auto flush = [&] {
      if (!output.empty()) form += "{{" + spell(simplify(std::move(output))) + "}}";
      output.clear();
    };
    for (; at_ < tags_.size(); ++at_) {
      const Tag& tag = tags_[at_];
      if (tag.kind == TagKind::comment) continue;
      if (tag.kind == TagKind::text) {
        const std::string_view text = printed(tag.body, at_ > 0 ? &tags_[at_ - 1] : nullptr,
                                              at_ + 1 < tags_.size() ? &tags_[at_ + 1] : nullptr);
        if (!text.empty()) print({{true, std::string(text)}});
        continue;
      }
      if (tag.kind == TagKind::output) {
        print(read_words(tag.body));
        continue;
      }
      const Block block = block_of(tag);
      if (block.name == "elif" || block.name == "else" || block.name == "endif" ||
          block.name == "endfor") {
        break;
      }
      if (block.name == "set" && is_one_of(idle_statements, block.rest)) continue;
      std::string inner = block.name == "if"    ? condition(depth)
                          : block.name == "for" ? loop(block, depth)
                                                : "{%" + block.name + " " + block.rest + "%}";
      if (inner.empty()) continue;
      flush();  // where a branch went without a trace, the outputs around it join
      form += inner;
    }
    flush();
    return form;
  }

  std::string loop(const Block& block, int depth) {
    ++at_;
    const std::string body = statements(depth + 1);
    if (at_ >= tags_.size() || block_of(tags_[at_]).name != "endfor") throw Unreadable{};
    return "{%for " + block.rest + "%}" + body + "{%endfor%}";
  }

  std::string condition(int depth) {
    std::string form;
    bool tested = false;                   // a test remained, so that `form` is an if
    bool decided = false;                  // an earlier branch is always taken
    bool assistant_without_tools = false;  // an earlier branch takes every assistant message left
    for (Block block = block_of(tags_[at_]); block.name != "endif"; block = block_of(tags_[at_])) {
      const bool otherwise = block.name == "else";
      if (!otherwise && block.name != "if" && block.name != "elif") throw Unreadable{};
      ++at_;
      const std::string body = statements(depth + 1);
      if (at_ >= tags_.size()) throw Unreadable{};
      const bool never =
          !otherwise && (is_one_of(never_conditions, block.rest) ||
                         (assistant_without_tools && block.rest == "message.role=='assistant'"));
      if (decided || never) continue;
      if (otherwise || is_one_of(always_conditions, block.rest)) {
        decided = true;
        form += tested && !body.empty() ? "{%else%}" + body : body;
        continue;
      }
      form += (tested ? "{%elif " : "{%if ") + block.rest + "%}" + body;
      tested = true;
      assistant_without_tools |=
          block.rest.find("(message.role=='assistant'and not message.tool_calls)") !=
          std::string::npos;
    }
    return tested ? form + "{%endif%}" : form;
  }

  std::vector<Tag> tags_;
  std::size_t at_ = 0;
};

/// Replaces the one literal that is a whole ChatML system message.
void take_default_system(ChatShape& shape) {
  constexpr std::string_view open = "'<|im_start|>system\\n";
  constexpr std::string_view close = "<|im_end|>\\n'";
  std::size_t at = 0;
  while ((at = shape.form.find(open, at)) != std::string::npos) {
    const std::size_t start = at + open.size();
    const std::size_t end = shape.form.find('\'', start);
    at = start;
    if (end == std::string::npos) return;
    const std::string_view literal = std::string_view(shape.form).substr(start, end + 1 - start);
    if (literal.size() < close.size() || !literal.ends_with(close)) continue;
    const std::string_view system = literal.substr(0, literal.size() - close.size());
    if (system.empty() || shape.default_system) return;
    shape.default_system = read_words("'" + std::string(system) + "'")[0].text;
    shape.form.replace(start, system.size(), "$SYSTEM");
  }
}

}  // namespace

std::uint64_t ChatShape::fingerprint() const {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : form) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

ChatShape shape_of(std::string_view jinja) {
  ChatShape shape;
  try {
    shape.form = Reducer(read_tags(jinja)).run();
  } catch (const Unreadable&) {
    return {};
  }
  take_default_system(shape);
  return shape;
}

}  // namespace paceline::io::text
