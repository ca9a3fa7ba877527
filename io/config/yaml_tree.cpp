#include "io/config/yaml_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sstream>
#include <utility>

#include "io/config/utf8.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

constexpr std::size_t max_depth = 16;  // a configuration needs four levels

std::string escape(unsigned char c) {
  std::array<char, 8> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "\\x%02x", c);
  return buffer.data();
}

// Builds the tree from the parser's events. Anchors and aliases are events too, so none is ever
// expanded. Stops at the first thing that a configuration may not contain.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& text, const std::string& name, bool located)
      : text_(text), name_(name), located_(located) {}

  [[noreturn]] void fail(int line, int column, const std::string& what) const {
    if (!located_) throw UsageError(name_ + ": " + what);
    throw UsageError(name_ + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " +
                     what);
  }
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    fail(mark.line + 1, mark.column + 1, what);
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(make(mark)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "aliases (*name) are not supported; write the value out");
  }
  void OnAnchor(const YAML::Mark& mark, const std::string& anchor) override {
    fail(mark, "anchors (&" + show(anchor) + ") are not supported; write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    check_tag(mark, tag);
    if (!located_) check_on_one_line(mark, value);
    YamlNode node = make(mark);
    node.kind = YamlNode::Kind::scalar;
    node.quoted = tag == "!";
    node.scalar = value;
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::list);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, YamlNode::Kind::map);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  [[nodiscard]] YamlNode take() { return std::move(root_); }

 private:
  struct Open {
    YamlNode node;
    bool has_key = false;  // in a map: the next event is the last entry's value
  };

  static YamlNode make(const YAML::Mark& mark) {
    YamlNode node;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    return node;
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    // "?" stands for a plain value without a tag, "!" for a quoted one.
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(mark, "tags (" + show(tag) + ") are not supported; write the value alone");
    }
  }

  // YAML turns a line feed within a value into a space, but someone who typed it wanted it.
  void check_on_one_line(const YAML::Mark& mark, const std::string& value) const {
    const auto at = static_cast<std::size_t>(mark.pos);
    const char first = at < text_.size() ? text_[at] : '\0';
    const bool quoted = first == '"' || first == '\'';
    std::size_t end = at + 1;
    while (quoted && end < text_.size() && text_[end] != first)
      end += first == '"' && text_[end] == '\\' ? 2 : 1;
    const std::string_view written = std::string_view(text_).substr(std::min(at, text_.size()));
    const bool folded = quoted ? written.substr(0, end - at).find('\n') != std::string_view::npos
                               : !written.starts_with(value);
    if (folded && (quoted || !open_.empty()) && first != '|' && first != '>')
      fail(mark, "a line feed in a value; write it as \\n, in double quotes");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    check_tag(mark, tag);
    if (open_.size() >= max_depth) {
      fail(mark, "nested more than " + std::to_string(max_depth) + " levels deep");
    }
    if (awaits_key()) fail(mark, "a list or map cannot be a key (is a bracket not closed?)");
    Open frame;
    frame.node = make(mark);
    frame.node.kind = kind;
    open_.push_back(std::move(frame));
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add(std::move(node));
  }

  [[nodiscard]] bool awaits_key() const {
    return !open_.empty() && open_.back().node.kind == YamlNode::Kind::map && !open_.back().has_key;
  }

  void add(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      parent.node.entries.back().value = std::move(node);
      parent.has_key = false;
    } else {
      add_key(parent, std::move(node));
    }
  }

  void add_key(Open& parent, YamlNode node) {
    if (node.kind != YamlNode::Kind::scalar) fail(node.line, node.column, "a key is missing");
    for (const YamlEntry& entry : parent.node.entries) {
      if (entry.key == node.scalar) {
        fail(node.line, node.column,
             "duplicate key " + show(node.scalar) + "; it is already at line " +
                 std::to_string(entry.line) + ", column " + std::to_string(entry.column));
      }
    }
    if (parent.node.entries.size() >= max_entries) {
      fail(node.line, node.column, "more than " + std::to_string(max_entries) + " keys in a map");
    }
    YamlEntry entry;
    entry.key = std::move(node.scalar);
    entry.line = node.line;
    entry.column = node.column;
    parent.node.entries.push_back(std::move(entry));
    parent.has_key = true;
  }

  static constexpr std::size_t max_entries = 1000;  // keeps the search for duplicates short

  const std::string& text_;
  const std::string& name_;
  bool located_;
  std::vector<Open> open_;
  YamlNode root_;
};

// Checks what the parser does not: yaml-cpp guesses encodings, and lets bad bytes pass.
void check_characters(const std::string& text, const TreeBuilder& builder) {
  const std::size_t invalid = find_invalid_utf8(text);
  int line = 1;
  int column = 1;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (i == invalid) builder.fail(line, column, "not UTF-8 text (byte " + escape(c) + ")");
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F) {
      builder.fail(line, column, "control character " + escape(c));
    }
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n' ? 1 : 0;
  }
}

}  // namespace

YamlNode parse_yaml(const std::string& text, const std::string& name, bool located) {
  TreeBuilder builder(text, name, located);
  if (text.size() > max_yaml_text) {
    throw UsageError(name + ": a configuration is at most " + std::to_string(max_yaml_text) +
                     " bytes long");
  }
  check_characters(text, builder);
  // The parser skips it at the start of a file, as it should; in a value it is a part.
  if (!located && text.starts_with("\xEF\xBB\xBF")) builder.fail(1, 1, "a byte order mark");
  try {
    // The end marker makes an unclosed quote an error. Without it, yaml-cpp takes the quote for
    // closed at the end of the text.
    std::istringstream stream(text + "\n...\n");
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    YamlNode root = builder.take();
    if (parser.HandleNextDocument(builder)) {
      const YamlNode second = builder.take();
      builder.fail(second.line, second.column, "a second document; a configuration is one");
    }
    return root;
  } catch (const YAML::Exception& error) {
    const bool unclosed = error.msg == YAML::ErrorMsg::DOC_IN_SCALAR;
    builder.fail(error.mark, "not valid YAML: " + (unclosed ? "a quote is not closed" : error.msg));
  }
}

std::string read_yaml_file(const std::string& path, const std::string& what) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  std::string text(max_yaml_text + 1, '\0');
  const std::size_t size = file ? std::fread(text.data(), 1, text.size(), file.get()) : 0;
  if (!file || std::ferror(file.get()) != 0) {
    const int reason = errno;
    const std::string message = path + ": cannot read " + what + ": " + std::strerror(reason);
    if (reason == ENOENT || reason == ENOTDIR) throw UsageError(message);
    throw IoError(message);
  }
  text.resize(size);
  return text;
}

std::string quote_yaml(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      quoted += escape(byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string clip(std::string_view text) {
  std::size_t longest = std::min<std::size_t>(80, text.size());
  // Moves back to before a character that would be cut.
  while (longest < text.size() && longest > 0 &&
         (static_cast<unsigned char>(text[longest]) & 0xC0U) == 0x80U) {
    --longest;
  }
  std::string shown;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      shown += escape(byte);
    } else {
      shown += c;
    }
  }
  return shown + (text.size() > longest ? "..." : "");
}

std::string show(std::string_view text) { return "'" + clip(text) + "'"; }

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return show(node.scalar) + (node.quoted ? " in quotes" : "");
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
  }
  return "";
}

}  // namespace paceline::io
