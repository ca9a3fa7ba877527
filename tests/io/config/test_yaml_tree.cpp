#include "io/config/yaml_tree.hpp"

#include <gtest/gtest.h>

#include "io/config/utf8.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

std::string error_of(const std::string& text) {
  return test::message_of<UsageError>([&] { (void)parse_yaml(text, "f.yaml"); });
}

TEST(YamlTree, RemembersPlaces) {
  const YamlNode root = parse_yaml("# comment\na:\n  b: [1, 'two']\nc:\n", "f.yaml");
  ASSERT_EQ(root.kind, YamlNode::Kind::map);
  ASSERT_EQ(root.entries.size(), 2U);
  EXPECT_EQ(root.entries[0].key, "a");
  EXPECT_EQ(root.entries[0].line, 2);
  const YamlEntry& b = root.entries[0].value.entries.at(0);
  EXPECT_EQ(b.line, 3);
  EXPECT_EQ(b.column, 3);
  ASSERT_EQ(b.value.kind, YamlNode::Kind::list);
  EXPECT_EQ(b.value.items.at(0).column, 7);
  EXPECT_FALSE(b.value.items.at(0).quoted);
  EXPECT_TRUE(b.value.items.at(1).quoted);
  EXPECT_EQ(b.value.items.at(1).scalar, "two");
  EXPECT_EQ(root.entries[1].value.kind, YamlNode::Kind::null);
}

TEST(YamlTree, NothingIsNull) {
  EXPECT_EQ(parse_yaml("", "f").kind, YamlNode::Kind::null);
  EXPECT_EQ(parse_yaml("# only\n", "f").kind, YamlNode::Kind::null);
  EXPECT_EQ(parse_yaml("---\n", "f").kind, YamlNode::Kind::null);
  EXPECT_EQ(parse_yaml("~", "f").kind, YamlNode::Kind::null);
}

TEST(YamlTree, RefusesWhatAConfigurationNeedsNot) {
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"),
            "f.yaml:3:1: duplicate key 'a'; it is already at line 1, column 1");
  EXPECT_EQ(error_of("a: &x 1\n"),
            "f.yaml:1:4: anchors (&'x') are not supported; write the value out");
  EXPECT_EQ(error_of("a: !!int 1\n"),
            "f.yaml:1:4: tags ('tag:yaml.org,2002:int') are not supported; write the value alone");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"), "f.yaml:3:1: a second document; a configuration is one");
  EXPECT_EQ(error_of("? [a, b]\n: 1\n"),
            "f.yaml:1:3: a list or map cannot be a key (is a bracket not closed?)");
  EXPECT_EQ(error_of("~: 1\n"), "f.yaml:1:1: a key is missing");
  EXPECT_EQ(error_of("a: *x\n").substr(0, 11), "f.yaml:1:4:");
}

TEST(YamlTree, SyntaxErrorsHavePlaces) {
  EXPECT_EQ(error_of("a: [1, 2\nb: 3\n").substr(0, 27), "f.yaml:2:2: not valid YAML:");
  EXPECT_EQ(error_of("a: 'open\n"), "f.yaml:3:1: not valid YAML: a quote is not closed");
  EXPECT_EQ(error_of("a: \"open"), "f.yaml:2:1: not valid YAML: a quote is not closed");
  EXPECT_EQ(error_of("a:\n\tb: 1\n").find("f.yaml:2:"), 0U);
}

TEST(YamlTree, Bombs) {
  // Billions of nodes once expanded.
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c < 'k'; ++c) {
    const std::string before(1, static_cast<char>(c - 1));
    bomb += std::string(1, c) + ": &" + c + " [*" + before;
    for (int i = 0; i < 8; ++i) bomb += ", *" + before;
    bomb += "]\n";
  }
  EXPECT_EQ(error_of(bomb), "f.yaml:1:4: anchors (&'a') are not supported; write the value out");

  std::string dashes;
  for (int i = 0; i < 100000; ++i) dashes += "- ";
  EXPECT_EQ(error_of(dashes), "f.yaml:1:33: nested more than 16 levels deep");
  EXPECT_EQ(error_of(std::string(100000, '[')),
            "f.yaml:1:1: a list or map cannot be a key (is a bracket not closed?)");
  std::string deep;
  for (int i = 0; i < 400; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_EQ(error_of(deep), "f.yaml:17:17: nested more than 16 levels deep");
  EXPECT_EQ(error_of(std::string(max_yaml_text + 1, ' ')),
            "f.yaml: a configuration is at most 1048576 bytes long");
  std::string wide;
  for (int i = 0; i < 1001; ++i) wide += "k" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(error_of(wide), "f.yaml:1001:1: more than 1000 keys in a map");
}

TEST(YamlTree, OnlyUtf8Text) {
  EXPECT_EQ(error_of("a: 1\nb: \xff\n"), "f.yaml:2:4: not UTF-8 text (byte \\xff)");
  EXPECT_EQ(error_of(std::string("a: 1\0", 5)), "f.yaml:1:5: control character \\x00");
  EXPECT_EQ(find_invalid_utf8("aé€\U0001F600"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("a\xc0\x80"), 1U);         // overlong
  EXPECT_EQ(find_invalid_utf8("a\xe0\x80\x80"), 1U);     // overlong
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0U);      // surrogate
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("ab\xe2\x82"), 2U);        // cut off
  EXPECT_EQ(find_invalid_utf8("\x80"), 0U);
}

TEST(YamlTree, ShownTextIsShortAndWhole) {
  EXPECT_EQ(show("a\n\x7f"), "'a\\x0a\\x7f'");
  EXPECT_EQ(show(std::string(79, 'x') + "é"), "'" + std::string(79, 'x') + "...'");
  EXPECT_EQ(show(std::string(78, 'x') + "é"), "'" + std::string(78, 'x') + "é'");
}

TEST(YamlTree, QuotedTextReadsBack) {
  std::string all = "é€\U0001F600 \"quoted\" \\ # : , [ ] { } & * ! | > ' % @ `";
  for (char c = 1; c < 0x7f; ++c) all += c;
  all += '\x7f';
  for (const std::string& text :
       {all, std::string(), std::string("  spaces  "), std::string("\n\n")}) {
    const YamlNode root = parse_yaml("k: " + quote_yaml(text), "f");
    EXPECT_EQ(root.entries.at(0).value.scalar, text);
    EXPECT_TRUE(root.entries.at(0).value.quoted);
  }
}

}  // namespace
}  // namespace paceline::io
