#include "io/text/chat_shape.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>
#include <vector>

#include "io/text/jinja_text.hpp"

namespace paceline::io::text {
namespace {

constexpr int deepest_nesting = 32;

// --- 1. Expressions in canonical form ----------------------------------------------------------

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

template <std::size_t n>
bool is_one_of(const std::array<const char*, n>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

constexpr std::array keywords = {"if", "else", "and", "or", "not", "in", "is"};

bool is_keyword(const Word& word) {
  return word.kind == WordKind::name && is_one_of(keywords, word.text);
}

/// Whether a bracket after the word is its subscript.
bool takes_subscript(const Word& word) {
  return (word.kind == WordKind::name && !is_keyword(word)) || word.is(")") || word.is("]");
}

/// Whether the operand of a plus sign ends before this word: nothing there binds more tightly.
bool ends_sum(const Word& word) {
  constexpr std::array ends = {"+", ")", "]", ",", "if", "else", "and", "or"};
  return word.kind != WordKind::literal && is_one_of(ends, word.text);
}
bool starts_sum(const Word& word) {
  constexpr std::array starts = {"+", "(", "[", ",", "=", "==", "if", "else", "and", "or"};
  return word.kind != WordKind::literal && is_one_of(starts, word.text);
}

/// Throws if Jinja could not read the words as an expression, as far as neighbouring words show.
/// Branches that are dropped get no other check.
void require_expression(std::span<const Word> words) {
  constexpr std::array signs = {"+", "-", "[", "]", "(", ")", "{", "}", ":"};
  constexpr std::array infix = {"*", "/", "//", "**", "%",  "~",  "|",  ".",
                                "=", "<", ">",  "==", "!=", "<=", ">=", ","};
  const auto is_value = [](const Word& w) { return w.kind != WordKind::sign && !is_keyword(w); };
  const auto ends_value = [&](const Word& w) {
    return is_value(w) || w.is(")") || w.is("]") || w.is("}");
  };
  const Word* before = nullptr;
  int calls = 0;  // number of enclosing calls or other parentheses
  for (const Word& w : words) {
    calls += w.is("(") ? 1 : w.is(")") ? -1 : 0;
    const bool value_before = before != nullptr && ends_value(*before);
    bool wrong = false;
    if (w.kind == WordKind::literal) {
      wrong = value_before && before->kind != WordKind::literal;
    } else if (is_value(w)) {
      wrong = value_before;
    } else if (is_keyword(w)) {
      wrong = !value_before && w.text != "not" && !(w.text == "if" && before == nullptr);
    } else if (is_one_of(infix, w.text)) {
      wrong = !value_before || (w.is("=") && calls == 0);
    } else {
      wrong = !is_one_of(signs, w.text) || (w.is("{") && value_before);
      if (w.is("]") || w.is(")") ||
          w.is("}")) {  // follows a value, a comma, a slice's colon or nothing
        constexpr std::array may_end = {"(", "[", "{", ",", ":"};
        wrong |= !value_before && !(before != nullptr && is_one_of(may_end, before->text));
      }
    }
    wrong |= before != nullptr && before->is(".") && w.kind != WordKind::name;
    if (wrong) throw UnreadableTemplate{};
    before = &w;
  }
  if (before == nullptr || !(ends_value(*before) || before->is(","))) throw UnreadableTemplate{};
}

/// Throws if Jinja could not read the words after a statement's name.
void require_statement(const std::string& name, std::span<const Word> words) {
  constexpr std::array bare = {"else",     "endif",   "endfor",     "break",        "continue",
                               "endmacro", "endcall", "generation", "endgeneration"};
  constexpr std::array others = {"if", "elif", "for", "set", "macro", "call"};
  if (is_one_of(bare, name)) {
    if (!words.empty()) throw UnreadableTemplate{};
    return;
  }
  if (!is_one_of(others, name)) throw UnreadableTemplate{};
  if (name == "for" || name == "set") {  // targets, maybe of a namespace; then their value
    const char* divider = name == "for" ? "in" : "=";
    std::size_t targets = 0;
    while (targets < words.size() && !words[targets].is(divider)) {
      const Word& w = words[targets++];
      const bool named = w.kind == WordKind::name && !is_keyword(w);
      if (!named && !w.is(",") && !w.is(".")) throw UnreadableTemplate{};
    }
    if (targets == 0 || targets == words.size()) throw UnreadableTemplate{};
    require_expression(words.first(targets));
    words = words.subspan(targets + 1);
  }
  require_expression(words);
}

/// Simplifies expressions: x['key'] becomes x.key, and 'a' + 'b' becomes 'ab'.
std::vector<Word> simplify(std::vector<Word> words) {
  std::vector<Word> out;
  const auto is_key = [](const std::string& text) {
    return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
           std::all_of(text.begin(), text.end(), [](char c) {
             return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
           });
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    Word& w = words[i];
    const bool literal = w.kind == WordKind::literal;
    const bool key = w.is("[") && i + 2 < words.size() && words[i + 2].is("]") &&
                     words[i + 1].kind == WordKind::literal && is_key(words[i + 1].text) &&
                     !out.empty() && takes_subscript(out.back());
    const bool joins = literal && out.size() >= 2 && out.back().is("+") &&
                       out[out.size() - 2].kind == WordKind::literal &&
                       (out.size() == 2 || starts_sum(out[out.size() - 3])) &&
                       (i + 1 == words.size() || ends_sum(words[i + 1]));
    if (key) {
      out.push_back({WordKind::sign, "."});
      out.push_back({WordKind::name, words[i + 1].text});
      i += 2;
    } else if (joins) {
      out.pop_back();
      out.back().text += w.text;
    } else {
      out.push_back(std::move(w));
    }
  }
  return out;
}

/// Whether two adjacent signs would be read as one.
bool would_join(char first, char second) {
  return second == '=' ? first == '=' || first == '!' || first == '<' || first == '>'
                       : first == second && (first == '/' || first == '*');
}

std::string spell(const std::vector<Word>& words) {
  std::string out;
  WordKind last = WordKind::literal;
  for (const Word& w : words) {
    const bool apart =
        last == w.kind && (w.kind == WordKind::name ||
                           (w.kind == WordKind::sign && would_join(out.back(), w.text[0])));
    if (apart) out += ' ';
    out += w.kind == WordKind::literal ? quoted(w.text) : w.text;
    last = w.kind;
  }
  return out;
}

// --- 2. From tags to the statements that remain ------------------------------------------------

/// Conditions that are true if tools are passed, and false otherwise.
constexpr std::array tool_conditions = {
    "tools",
    "tools is not none",
    "builtin_tools is defined or tools is not none",
    "tools_in_user_message and not tools is none",
};
constexpr std::array never_conditions = {
    "not tools is defined",  // tools are always passed, even if None
    "custom_tools is defined",
    "builtin_tools is defined",
    "tools is not none and not tools_in_user_message",
    "message.tool_calls",
    "'tool_calls'in message",
    "message.role=='assistant'and message.content is none",
    "message.role=='assistant'and message.get('tool_calls')",
    "message.reasoning_content is string",
    "message.reasoning_content is defined and message.reasoning_content is not none",
    "not add_generation_prompt is defined",
    "add_vision_id",
};
constexpr std::array always_conditions = {
    "not message.tool_calls",
};
/// True unless contents may be lists of parts.
constexpr std::string_view text_condition = "message.content is string";
/// True once and then false, so nothing may depend on it.
constexpr std::string_view idle_condition = "not tools_in_user_message is defined";
/// Conditions that are never, or always, true for the roles system, user and assistant.
constexpr std::array never_of_known_roles = {
    "message.role=='tool'",
    "message.role=='tool'or message.role=='ipython'",
};
constexpr std::array always_of_known_roles = {
    "not(message.role=='ipython'or message.role=='tool'or'tool_calls'in message)",
};
constexpr std::array idle_statements = {"tools=none", "tools_in_user_message=true"};  // after set

class Reducer {
 public:
  Reducer(std::vector<Tag> tags, bool has_tools, bool has_parts = false)
      : tags_(std::move(tags)), has_tools_(has_tools), has_parts_(has_parts) {}

  std::string run() {
    Body body;
    statements(body, 0);
    if (at_ < tags_.size()) throw UnreadableTemplate{};  // a stray endif or endfor
    return std::move(body).finish();
  }
  [[nodiscard]] bool other_roles_differ() const { return other_roles_differ_; }

 private:
  struct Block {
    std::string name;  ///< if, elif, else, endif, for, endfor, set, ...
    std::string rest;
  };

  /// Statements being assembled; neighbouring outputs are joined with plus signs.
  class Body {
   public:
    void print(std::vector<Word> words) {
      require_expression(words);
      const bool sum = std::none_of(words.begin(), words.end(), [](const Word& w) {
        return is_keyword(w) || w.is(",") || w.is("==") || w.is("!=") || w.is("<") || w.is(">") ||
               w.is("<=") || w.is(">=");
      });
      if (!output_.empty()) output_.push_back({WordKind::sign, "+"});
      if (!sum) output_.push_back({WordKind::sign, "("});
      output_.insert(output_.end(), std::make_move_iterator(words.begin()),
                     std::make_move_iterator(words.end()));
      if (!sum) output_.push_back({WordKind::sign, ")"});
    }
    void state(const std::string& statement) {
      flush();
      form_ += statement;
    }
    [[nodiscard]] std::string finish() && {
      flush();
      return std::move(form_);
    }
    /// The statements since `start`, an earlier size().
    [[nodiscard]] std::string_view since(std::size_t start) const {
      return std::string_view(form_).substr(start);
    }
    [[nodiscard]] std::size_t size() const { return form_.size(); }

   private:
    void flush() {
      if (!output_.empty()) form_ += "{{" + spell(simplify(std::move(output_))) + "}}";
      output_.clear();
    }
    std::string form_;
    std::vector<Word> output_;
  };

  [[nodiscard]] static Block block_of(const Tag& tag) {
    std::vector<Word> words = read_words(tag.body);
    if (words.empty() || words[0].kind != WordKind::name) throw UnreadableTemplate{};
    std::string name = std::move(words[0].text);
    words.erase(words.begin());
    require_statement(name, words);
    return {std::move(name), spell(simplify(std::move(words)))};
  }
  /// The block of the tag at which statements() ended; there must be one.
  [[nodiscard]] Block ending() const {
    if (at_ >= tags_.size()) throw UnreadableTemplate{};
    return block_of(tags_[at_]);
  }
  void expect_end(std::string_view name) const {
    if (ending().name != name) throw UnreadableTemplate{};
  }

  /// Reads up to a tag that ends or continues the enclosing statement, which stays unread.
  void statements(Body& body, int depth) {
    constexpr std::array ends = {"elif", "else", "endif", "endfor", "endgeneration"};
    if (depth > deepest_nesting) throw UnreadableTemplate{};
    for (; at_ < tags_.size(); ++at_) {
      const Tag& tag = tags_[at_];
      if (tag.kind == TagKind::text) {
        if (!tag.body.empty()) body.print({{WordKind::literal, std::string(tag.body)}});
      } else if (tag.kind == TagKind::output) {
        body.print(read_words(tag.body));
      } else if (tag.kind == TagKind::block) {
        const Block block = block_of(tag);
        if (is_one_of(ends, block.name)) break;
        if (block.name == "if") {
          const std::string inner = condition(depth);
          if (!inner.empty()) body.state(inner);  // else the outputs around it are joined
        } else if (block.name == "for") {
          body.state(loop(block, depth));
        } else if (block.name == "generation") {
          generation(body, depth);
        } else if (block.name != "set" || !is_one_of(idle_statements, block.rest)) {
          body.state("{%" + block.name + " " + block.rest + "%}");
        }
      }
    }
  }

  std::string loop(const Block& block, int depth) {
    ++at_;
    Body body;
    const bool of_messages = block.rest.starts_with("message in");
    message_loops_ += of_messages ? 1 : 0;
    statements(body, depth + 1);
    message_loops_ -= of_messages ? 1 : 0;
    expect_end("endfor");
    return "{%for " + block.rest + "%}" + std::move(body).finish() + "{%endfor%}";
  }

  /// Reads a generation block, by which trainers' templates mark the model's own words. It prints
  /// the same as without the block. Variables set in it end with it, except a namespace's.
  void generation(Body& body, int depth) {
    ++at_;
    const std::size_t start = body.size();
    statements(body, depth + 1);
    expect_end("endgeneration");
    constexpr std::string_view set = "{%set ";
    const std::string_view inside = body.since(start);
    for (std::size_t at = inside.find(set); at != std::string_view::npos;
         at = inside.find(set, at)) {
      at += set.size();
      if (!inside.substr(at).starts_with("ns.")) throw UnreadableTemplate{};
    }
  }

  /// Whether `condition` is in one of the lists. Outside a loop there is no message to test.
  template <std::size_t n, std::size_t m>
  [[nodiscard]] bool is_listed(const std::string& condition, const std::array<const char*, n>& list,
                               const std::array<const char*, m>& of_known_roles) {
    if (condition.find("message") != std::string::npos && message_loops_ == 0 &&
        condition.find("tools_in_user_message") == std::string::npos)
      return false;
    const bool of_roles = is_one_of(of_known_roles, condition);
    other_roles_differ_ |= of_roles;
    return of_roles || is_one_of(list, condition);
  }

  std::string condition(int depth) {
    std::string form;
    bool tested = false;                   // a test remains, so that `form` is an if
    bool decided = false;                  // an earlier branch is always taken
    bool ended = false;                    // by else
    bool assistant_without_tools = false;  // an earlier branch takes all assistant messages left
    for (Block block = block_of(tags_[at_]); block.name != "endif"; block = ending()) {
      const bool otherwise = block.name == "else";
      if (ended || (!otherwise && block.name != "if" && block.name != "elif"))
        throw UnreadableTemplate{};
      ended = otherwise;
      ++at_;
      Body inner;
      statements(inner, depth + 1);
      const std::string body = std::move(inner).finish();
      const bool of_tools = is_one_of(tool_conditions, block.rest);
      const bool never = !decided && !otherwise &&
                         ((of_tools && !has_tools_) ||
                          is_listed(block.rest, never_conditions, never_of_known_roles) ||
                          (assistant_without_tools && block.rest == "message.role=='assistant'"));
      if (!decided && block.rest == idle_condition) {
        if (tested || !body.empty()) throw UnreadableTemplate{};
        expect_end("endif");
        return "";
      }
      if (decided || never) continue;
      const bool of_text = block.rest == text_condition && message_loops_ > 0 && !has_parts_;
      if (otherwise || of_tools || of_text ||
          is_listed(block.rest, always_conditions, always_of_known_roles)) {
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
    expect_end("endif");
    return tested ? form + "{%endif%}" : form;
  }

  std::vector<Tag> tags_;
  bool has_tools_;
  bool has_parts_;
  std::size_t at_ = 0;
  int message_loops_ = 0;  ///< enclosing loops over messages
  bool other_roles_differ_ = false;
};

/// Replaces the only literal that is a whole system message between these marks.
void take_default_system(ChatShape& shape, std::string_view open, std::string_view close) {
  std::size_t at = 0;
  while ((at = shape.form.find(open, at)) != std::string::npos) {
    const std::size_t start = at + open.size();
    std::size_t end = start;
    while (end < shape.form.size() && shape.form[end] != '\'') {
      end += shape.form[end] == '\\' ? 2 : 1;
    }
    at = start;
    if (end >= shape.form.size()) return;
    const std::string_view literal = std::string_view(shape.form).substr(start, end + 1 - start);
    if (literal.size() < close.size() || !literal.ends_with(close)) continue;
    const std::string_view system = literal.substr(0, literal.size() - close.size());
    if (system.empty() || shape.default_system) return;
    shape.default_system = read_words("'" + std::string(system) + "'")[0].text;
    shape.form.replace(start, system.size(), "$SYSTEM");
  }
}

}  // namespace

std::uint64_t fingerprint(std::string_view form) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : form) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

ChatShape shape_of(std::string_view jinja) {
  ChatShape shape;
  try {
    const std::string source = jinja_source(jinja);
    const std::vector<Tag> tags = read_tags(source);
    Reducer reducer(tags, false);
    shape.form = reducer.run();
    shape.form_with_tools = Reducer(tags, true).run();
    shape.form_with_parts = Reducer(tags, false, true).run();
    shape.other_roles_differ = reducer.other_roles_differ();
    take_default_system(shape, "'<|im_start|>system\\n", "<|im_end|>\\n'");          // ChatML's
    take_default_system(shape, "'<|im_system|>system<|im_middle|>", "<|im_end|>'");  // Kimi's
    if (shape.default_system) {
      const std::string spelled = quoted(*shape.default_system);
      const std::string_view system = std::string_view(spelled).substr(1, spelled.size() - 2);
      constexpr std::string_view mark = "$SYSTEM";
      for (std::string* form : {&shape.form_with_tools, &shape.form_with_parts}) {
        for (auto at = form->find(system); at != std::string::npos;
             at = form->find(system, at + mark.size()))
          form->replace(at, system.size(), mark);
      }
    }
  } catch (const UnreadableTemplate&) {
    return {};
  }
  return shape;
}

}  // namespace paceline::io::text
