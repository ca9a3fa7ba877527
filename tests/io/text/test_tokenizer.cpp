// The tokenizer's own interface, and the refusal of every file it would not reproduce.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "io/config/utf8.hpp"
#include "io/text/pattern.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/expect_error.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace {

using nlohmann::json;
using paceline::DataError;
using paceline::IoError;
using paceline::TokenId;
using paceline::io::Tokenizer;
using Ids = std::vector<TokenId>;

Tokenizer tokenizer_of(const json& document) {
  return Tokenizer::parse(document.dump(), "dir/tokenizer.json");
}

TEST(Tokenizer, EncodesMergesBytesAndAddedTokens) {
  const Tokenizer t = tokenizer_of(tiny::document());
  EXPECT_EQ(t.encode("hello"), Ids{259});
  EXPECT_EQ(t.encode("hell he"), (Ids{258, ' ', 256}));
  EXPECT_EQ(t.encode("<bos>hello<tag>"), (Ids{260, 259, 262}));
  EXPECT_EQ(t.encode("é"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(t.encode("e\u0301"), (Ids{0xC3, 0xA9})) << "NFC";
  EXPECT_EQ(t.encode(""), Ids{});
  EXPECT_EQ(t.encode(std::string_view("\0", 1)), Ids{0});
  EXPECT_EQ(t.encode("hello", {.add_special_tokens = true}), (Ids{260, 259}));
  EXPECT_EQ(t.encode("", {.add_special_tokens = true}), Ids{260});
}

TEST(Tokenizer, DecodesAndNamesTokens) {
  const Tokenizer t = tokenizer_of(tiny::document());
  EXPECT_EQ(t.decode(Ids{260, 259, 262, 261}), "hello<tag>");
  EXPECT_EQ(t.decode(Ids{260, 259}, false), "<bos>hello");
  EXPECT_EQ(t.decode(Ids{0xC3}), "\uFFFD");
  EXPECT_EQ(t.decode(Ids{-1, 'a', 263, 2'000'000'000}), "a") << "ids without a token give nothing";
  EXPECT_EQ(t.bytes_of(259), "hello");
  EXPECT_EQ(t.bytes_of(0xC3), "\xC3");
  EXPECT_EQ(t.bytes_of(260), "<bos>") << "special";
  EXPECT_EQ(t.bytes_of(262), "<tag>");
  EXPECT_EQ(t.bytes_of(-1), "");
  EXPECT_EQ(t.bytes_of(263), "");
  EXPECT_EQ(t.vocab_size(), 263);
  EXPECT_EQ(t.token_to_id("hello"), 259);
  EXPECT_EQ(t.token_to_id("<end>"), 261);
  EXPECT_EQ(t.token_to_id("nope"), std::nullopt);
  EXPECT_TRUE(t.is_special(260));
  EXPECT_FALSE(t.is_special(262));
  EXPECT_FALSE(t.is_special(1000));
  EXPECT_TRUE(t.has_token(0));
  EXPECT_TRUE(t.has_token(260));
  EXPECT_FALSE(t.has_token(263));
  EXPECT_FALSE(t.has_token(-1));
}

TEST(Tokenizer, MergesComeInOrderOfRankThenPlace) {
  const Tokenizer t = tokenizer_of(tiny::document());
  // Long enough for the heap, against the same word cut to lengths that take the linear path.
  std::string word;
  for (int i = 0; i < 40; ++i) word += i % 3 == 0 ? "hello" : i % 3 == 1 ? "lll" : "helo";
  const Ids whole = t.encode(word);
  EXPECT_EQ(t.decode(whole), word);
  Ids expected;
  for (int i = 0; i < 40; ++i) {
    const Ids piece = i % 3 == 0 ? Ids{259} : i % 3 == 1 ? Ids{257, 'l'} : Ids{256, 'l', 'o'};
    expected.insert(expected.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(t.encode(std::string(5, 'l')), (Ids{257, 257, 'l'}));
  EXPECT_EQ(t.encode(std::string(41, 'l')).size(), 21U);
}

TEST(Tokenizer, EncodesAMegabyteWordInMoments) {
  const Tokenizer t = tokenizer_of(tiny::document());
  std::string word;
  while (word.size() < 1'000'000) word += "hello";
  EXPECT_EQ(t.encode(word).size(), word.size() / 5);
  EXPECT_EQ(t.encode(std::string(1'000'000, ' ')).size(), 1'000'000U);
}

TEST(Tokenizer, ThreadsMayShareIt) {
  const Tokenizer t = tokenizer_of(tiny::document());
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&t, k] {
      for (int i = 0; i < 500; ++i) {
        const std::string text = "hello " + std::to_string(i) + " hell" + std::to_string(k);
        EXPECT_EQ(t.decode(t.encode(text)), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Tokenizer, RefusesInvalidUtf8WithItsPlace) {
  const Tokenizer t = tokenizer_of(tiny::document());
  EXPECT_ERROR(DataError, (void)t.encode("ab\xFF"), "byte 2 is not valid UTF-8");
  EXPECT_ERROR(DataError, (void)t.encode("\xED\xA0\x80"), "byte 0");  // a surrogate
  EXPECT_ERROR(DataError, (void)t.encode("x\xC3"), "byte 1");
}

TEST(Tokenizer, SaysWhenItDoesNotFitTheModel) {
  const Tokenizer t = tokenizer_of(tiny::document());
  EXPECT_NO_THROW(t.require_fits(263));
  EXPECT_NO_THROW(t.require_fits(1000));
  EXPECT_NO_THROW(t.require_fits(260)) << "added tokens may be the tokenizer's alone";
  EXPECT_ERROR(DataError, t.require_fits(259), "dir/tokenizer.json: ", "highest id is 259",
               "'hello'", "259 entries");
}

TEST(Tokenizer, AFileThatIsNotThereIsBadData) {
  EXPECT_ERROR(DataError, (void)Tokenizer::load("/nonexistent"), "/nonexistent/tokenizer.json",
               "No such file");
}

TEST(Tokenizer, AcceptsWhatIsEquivalent) {
  json d = tiny::document();
  d.erase("normalizer");
  d.erase("post_processor");
  d.erase("added_tokens");
  d["model"].erase("type");
  d["model"]["continuing_subword_prefix"] = "";
  d["model"]["dropout"] = 0.0;
  d["model"]["merges"] = json::parse(R"([["h","e"],["l","l"],["he","ll"],["hell","o"]])");
  const Tokenizer t = tokenizer_of(d);
  EXPECT_EQ(t.encode("hello"), Ids{259});
  EXPECT_EQ(t.vocab_size(), 260);
  EXPECT_EQ(t.encode("e\u0301").size(), 3U) << "no normalizer";
}

TEST(Tokenizer, IgnoreMergesTakesWholeWordsFirst) {
  json d = tiny::document();
  d["model"]["merges"] = json::array({"h e"});
  EXPECT_EQ(tokenizer_of(d).encode("hello"), (Ids{256, 'l', 'l', 'o'}));
  d["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(d).encode("hello"), Ids{259});
  EXPECT_EQ(tokenizer_of(d).encode("hellos").size(), 5U);
}

TEST(Tokenizer, WordsOfCharactersFallBackToBytes) {
  const Tokenizer t = tokenizer_of(tiny::characters());
  const TokenId space = 259, hello = 264;  // ids 3..258 are the bytes
  EXPECT_EQ(t.token_to_id("▁hello"), hello);
  EXPECT_EQ(t.encode("hello"), Ids{hello});
  EXPECT_EQ(t.encode(" hello"), (Ids{space, hello}));
  EXPECT_EQ(t.encode("hello hello"), (Ids{hello, hello}));
  EXPECT_EQ(t.encode("é"), (Ids{space, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(t.encode("<s>hello", {.add_special_tokens = true}), (Ids{1, 1, hello}));
  EXPECT_EQ(t.encode(""), Ids{});

  EXPECT_EQ(t.decode(Ids{1, hello, hello}), "hello hello");
  EXPECT_EQ(t.decode(Ids{space, hello}), " hello") << "one space goes, not two";
  EXPECT_EQ(t.decode(Ids{space, 3 + 0xC3, 3 + 0xA9}), "é");
  EXPECT_EQ(t.decode(Ids{3 + 0xC3, 1, 3 + 0xA9}), "é") << "special tokens part nothing";
  EXPECT_EQ(t.decode(Ids{3 + 0xC3, 3 + 0xA9, 3 + 0xC3}), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(t.decode(Ids{3 + 0xC3, hello}), "\uFFFD hello");
  EXPECT_EQ(t.bytes_of(hello), " hello");
  EXPECT_EQ(t.bytes_of(3 + 0xC3), "\xC3");
  EXPECT_EQ(t.bytes_of(1), "<s>");
}

TEST(Tokenizer, ALongTextIsOneWordOfCharacters) {
  const Tokenizer t = tokenizer_of(tiny::characters());
  std::string text = "hello";
  while (text.size() < 1'000'000) text += " hello";
  EXPECT_EQ(t.encode(text), Ids(text.size() / 6 + 1, 264));
  EXPECT_EQ(t.decode(t.encode(text)), text);
}

struct Refusal {
  const char* title;
  const char* pointer;  ///< what is replaced
  json value;
  std::vector<std::string> message;
};

TEST(Tokenizer, RefusesEverythingItWouldTokenizeDifferently) {
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "\\s+"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto sequence = [](const json& list) {
    return json{{"type", "Sequence"}, {"pretokenizers", list}};
  };
  const auto split_with = [&](const char* key, const json& value) {
    json changed = split;
    changed[key] = value;
    return sequence({changed, byte_level});
  };
  const Refusal refusals[] = {
      {"model",
       "/model/type",
       "WordPiece",
       {"/model/type: found \"WordPiece\"; supported: \"BPE\""}},
      {"unigram", "/model/type", "Unigram", {"/model/type: found \"Unigram\""}},
      {"no model", "/model", nullptr, {"/: expected a member 'model'"}},
      {"model is no object", "/model", 3, {"/model: found 3; expected an object"}},
      {"dropout", "/model/dropout", 0.1, {"/model/dropout: found 0.1; supported: null"}},
      {"prefix",
       "/model/continuing_subword_prefix",
       "##",
       {"continuing_subword_prefix: found \"##\""}},
      {"suffix", "/model/end_of_word_suffix", "</w>", {"end_of_word_suffix: found \"</w>\""}},
      {"fallback without bytes",
       "/model/byte_fallback",
       true,
       {"/model/vocab: byte 0 has no token ('<0x00>'): supported: byte-level BPE, or"}},
      {"flag type",
       "/model/ignore_merges",
       "yes",
       {"ignore_merges: found \"yes\"; expected true or"}},
      {"vocab type", "/model/vocab", json::array(), {"/model/vocab: found an array of 0"}},
      {"negative id",
       "/model/vocab/he",
       -1,
       {"/model/vocab/he: found -1; expected an integer from 0"}},
      {"fraction id", "/model/vocab/he", 1.5, {"/model/vocab/he: found 1.5"}},
      {"huge id", "/model/vocab/he", 1e300, {"/model/vocab/he: found 1e+300"}},
      {"id twice", "/model/vocab/he", 257, {"/model/vocab: tokens 'he' and 'll' both have id 257"}},
      {"sparse ids",
       "/model/vocab/hello",
       2000000000,
       {"the highest id is 2000000000 but only 263"}},
      {"merge form",
       "/model/merges/0",
       "h  e",
       {"/model/merges/0: found \"h  e\"; expected \"a b\" or"}},
      {"merge type", "/model/merges/1", 7, {"/model/merges/1: found 7"}},
      {"merge of three",
       "/model/merges/1",
       {"a", "b", "c"},
       {"/model/merges/1: found an array of 3"}},
      {"merge of unknown", "/model/merges/1", "he zz", {"token 'zz' is not in /model/vocab"}},
      {"merge to unknown", "/model/merges/1", "he he", {"token 'hehe' is not in /model/vocab"}},
      {"merges type", "/model/merges", {{"a", 1}}, {"/model/merges: found an object of 1"}},
      {"normalizer",
       "/normalizer/type",
       "NFKC",
       {"/normalizer/type: found \"NFKC\"; supported: \"NFC\""}},
      {"normalizers",
       "/normalizer",
       {{"type", "Sequence"}, {"normalizers", {{{"type", "Lowercase"}}}}},
       {"/normalizer/normalizers/0/type: found \"Lowercase\""}},
      {"pre-tokenizer",
       "/pre_tokenizer/type",
       "Metaspace",
       {"/pre_tokenizer/type: found \"Metaspace\"; supported: \"ByteLevel\", or \"Sequence\""}},
      {"no pre-tokenizer", "/pre_tokenizer", nullptr, {"expected a member 'pre_tokenizer'"}},
      {"no byte level",
       "/pre_tokenizer",
       sequence(json::array({split})),
       {"pretokenizers/0/type: found \"Split\""}},
      {"no steps",
       "/pre_tokenizer",
       sequence(json::array()),
       {"expected a \"ByteLevel\" at the end"}},
      {"digits",
       "/pre_tokenizer",
       sequence({{{"type", "Digits"}}, byte_level}),
       {"/pre_tokenizer/pretokenizers/0/type: found \"Digits\""}},
      {"behavior",
       "/pre_tokenizer",
       split_with("behavior", "Removed"),
       {"/pre_tokenizer/pretokenizers/0/behavior: found \"Removed\"; supported: \"Isolated\""}},
      {"invert",
       "/pre_tokenizer",
       split_with("invert", true),
       {"/invert: found true; supported: false"}},
      {"literal",
       "/pre_tokenizer",
       split_with("pattern", {{"String", " "}}),
       {"/pattern: found an object of 1; supported: {\"Regex\": ...}"}},
      {"pattern syntax",
       "/pre_tokenizer",
       split_with("pattern", {{"Regex", "\\w+"}}),
       {"/pattern/Regex: the pattern cannot be used: '\\w' at byte 0 is not among the supported"}},
      {"pattern brackets",
       "/pre_tokenizer",
       split_with("pattern", {{"Regex", "(a"}}),
       {"/pattern/Regex: the pattern cannot be used: missing closing parenthesis"}},
      {"empty match",
       "/pre_tokenizer",
       split_with("pattern", {{"Regex", "a*"}}),
       {"it matches the empty string"}},
      {"decoder", "/decoder/type", "Metaspace", {"/decoder/type: found \"Metaspace\"; supported"}},
      {"no decoder", "/decoder", nullptr, {"expected a member 'decoder'"}},
      {"processor",
       "/post_processor/type",
       "BertProcessing",
       {"/post_processor/type: found \"Bert"}},
      {"template",
       "/post_processor/single/1/Sequence/id",
       "B",
       {"expected the sequence \"A\", once"}},
      {"template id",
       "/post_processor/special_tokens/<bos>/ids/0",
       999,
       {"/post_processor/special_tokens/<bos>/ids/0: found 999; expected an integer from 0 to "
        "262"}},
      {"added gap",
       "/added_tokens/0/id",
       300,
       {"/added_tokens/0/id: found 300; expected 260 for '<bos>'"}},
      {"added of model",
       "/added_tokens/0/content",
       "hello",
       {"/added_tokens/0/id: found 260; expected 259 for 'hello'"}},
      {"added twice", "/added_tokens/1/content", "<bos>", {"expected 260 for '<bos>'"}},
      {"added empty", "/added_tokens/1/content", "", {"/added_tokens/1/content: found \"\""}},
      {"added type", "/added_tokens/1", 5, {"/added_tokens/1: found 5; expected an object"}},
  };
  for (const Refusal& r : refusals) {
    SCOPED_TRACE(r.title);
    json d = tiny::document();
    d[json::json_pointer(r.pointer)] = r.value;
    for (const std::string& part : r.message) {
      EXPECT_ERROR(DataError, (void)tokenizer_of(d), "dir/tokenizer.json: ", part);
    }
  }
}

TEST(Tokenizer, RefusesEverythingItWouldTokenizeDifferentlyOfCharacters) {
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
  const json fallback = {{"type", "ByteFallback"}};
  const json fuse = {{"type", "Fuse"}};
  const auto strip = [](const char* content, int stop) {
    return json{{"type", "Strip"}, {"content", content}, {"start", 1}, {"stop", stop}};
  };
  const auto decoders = [](const json& list) {
    return json{{"type", "Sequence"}, {"decoders", list}};
  };
  const auto metaspace = [](const char* key, const json& value) {
    json m = {{"type", "Metaspace"}, {"replacement", "▁"}};
    m[key] = value;
    return m;
  };
  const auto normalizers = [](const json& list) {
    return json{{"type", "Sequence"}, {"normalizers", list}};
  };
  const json grows = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaa"}};
  const Refusal refusals[] = {
      {"bytes without", "/model/byte_fallback", false, {"/model/vocab: byte 0 has no token"}},
      {"byte-level",
       "/pre_tokenizer",
       {{"type", "ByteLevel"}},
       {"/pre_tokenizer/type: found \"ByteLevel\"; supported with byte_fallback: \"Metaspace\""}},
      {"scheme",
       "/pre_tokenizer",
       metaspace("prepend_scheme", "First"),
       {"prepend_scheme: found \"First\"; supported"}},
      {"old scheme",
       "/pre_tokenizer",
       metaspace("add_prefix_space", false),
       {"/pre_tokenizer/add_prefix_space: found false; expected prepend_scheme"}},
      {"character", "/pre_tokenizer", metaspace("replacement", "__"), {"expected a character"}},
      {"no character", "/pre_tokenizer", metaspace("replacement", ""), {"expected a character"}},
      {"pattern",
       "/normalizer/normalizers/1/pattern",
       {{"Regex", " "}},
       {"/normalizer/normalizers/1/pattern: found an object of 1; supported: {\"String\": ...}"}},
      {"nothing", "/normalizer/normalizers/1/pattern/String", "", {"expected some text"}},
      {"growth",
       "/normalizer",
       grows,
       {"/normalizer/content: found \"aaaaa\"; supported: at most"}},
      {"long", "/normalizer/normalizers/0/prepend", std::string(65, 'x'), {"at most 64 bytes"}},
      {"steps", "/normalizer", normalizers(json(5, replace)), {"supported: at most 4 steps"}},
      {"nested",
       "/normalizer",
       normalizers(json::array({normalizers(json::array({replace}))})),
       {"no sequence within"}},
      {"decoder", "/decoder", {{"type", "ByteLevel"}}, {"/decoder/type: found \"ByteLevel\""}},
      {"no fallback",
       "/decoder",
       decoders({replace, fuse}),
       {"/decoder/decoders/1/type: found \"Fuse\"; supported with byte_fallback"}},
      {"no fuse", "/decoder", decoders({replace, fallback}), {"/decoder/decoders: found an array"}},
      {"order", "/decoder", decoders({fallback, replace, fuse}), {"/decoder/decoders/1/type"}},
      {"more",
       "/decoder",
       decoders({replace, fallback, fuse, strip(" ", 0), fuse}),
       {"/decoder/decoders/4/type: found \"Fuse\""}},
      {"strip",
       "/decoder",
       decoders({replace, fallback, fuse, strip("a", 0)}),
       {"/decoder/decoders/3/content: found \"a\"; supported: \" \""}},
      {"strip behind",
       "/decoder",
       decoders({replace, fallback, fuse, strip(" ", 1)}),
       {"/decoder/decoders/3/stop: found 1; supported: 0"}},
      {"decoders", "/decoder", decoders(json(9, replace)), {"supported: at most 7 steps"}},
  };
  for (const Refusal& r : refusals) {
    SCOPED_TRACE(r.title);
    json d = tiny::characters();
    d[json::json_pointer(r.pointer)] = r.value;
    for (const std::string& part : r.message) {
      EXPECT_ERROR(DataError, (void)tokenizer_of(d), "dir/tokenizer.json: ", part);
    }
  }
}

TEST(Tokenizer, RefusesAVocabularyWithoutEveryByte) {
  json d = tiny::document();
  d["model"]["vocab"].erase("!");
  EXPECT_ERROR(DataError, (void)tokenizer_of(d), "/model/vocab: byte 33 has no token ('!')");
}

TEST(Tokenizer, MalformedJsonNamesTheByte) {
  EXPECT_ERROR(DataError, (void)Tokenizer::parse("", "f"), "f: byte ", "malformed JSON");
  EXPECT_ERROR(DataError, (void)Tokenizer::parse("{\"a\": tru}", "f"), "f: byte 10",
               "invalid literal");
  EXPECT_ERROR(DataError, (void)Tokenizer::parse("{\"a\": \"\xFF\"}", "f"), "f: byte 8", "UTF-8");
  EXPECT_ERROR(DataError, (void)Tokenizer::parse(std::string("{}\0x", 4), "f"),
               "f: byte 3: malformed JSON: a NUL character");
  EXPECT_ERROR(DataError, (void)Tokenizer::parse("{\"a\": 1e999}", "f"), "f: ", "out of range");
  EXPECT_ERROR(DataError, (void)Tokenizer::parse(std::string(1'000'000, '['), "f"), "f: byte 64",
               "deeper than 64 levels");
  EXPECT_ERROR(DataError, (void)Tokenizer::parse("[]", "f"), "f: /: found an array of 0");
}

TEST(Pattern, RefusesSyntaxThatMeansAnotherThingToTheReference) {
  using paceline::io::text::unsupported_syntax;
  for (const char* supported :
       {paceline::io::text::gpt2_pattern, "\\p{N}{1,3}", "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+",
        "a{2}b{1,}", "\\s+(?!\\S)|(?i:'s|'t)", "\\P{Lu}", "(?=x)y", "\\.\\[", "[a-z]"}) {
    EXPECT_EQ(unsupported_syntax(supported), "") << supported;
  }
  for (const char* refused :
       {"\\w",   "\\b",    "\\h",      "\\x41",   "\\1",     "\\K",   ".",       "^a",    "a$",
        "[[a]]", "[a&&b]", "[]a]",     "(?<n>a)", "(?<=a)b", "(?>a)", "(*UTF)a", "(?i)a", "a{,3}",
        "a{2}+", "{",      "\\p{Han}", "\\pL",    "é",       "[é]",   "\\",      "[\\w]", "\\é"}) {
    EXPECT_NE(unsupported_syntax(refused), "") << refused;
  }
}

TEST(Pattern, GivesUpOnPatternsThatNeedTooManySteps) {
  const paceline::io::text::Pattern bad("(a|aa)+\\d", "f: /x");
  EXPECT_ERROR(DataError, bad.split(std::string(200, 'a'), [](std::string_view) {}),
               "f: /x: the pattern could not be matched against a text of 200 bytes", "limit");
}

TEST(Utf8, ReplacesMaximalPrefixes) {
  using paceline::io::replace_invalid_utf8;
  const std::string r = "\uFFFD";
  EXPECT_EQ(replace_invalid_utf8("a\xF0\x9F\x98z"), "a" + r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\x80"), "\U0001F600");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80"), r + r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), r);
}

TEST(Tokenizer, TheEmbeddedModelsTokenizerReads) {
  const std::string directory = PACELINE_SOURCE_DIR "/configs/models/target";
  if (!std::filesystem::exists(directory + "/tokenizer.json")) GTEST_SKIP();
  const Tokenizer t = Tokenizer::load(directory);
  const std::string text = "<|im_start|>user\nCompute 12 + (3*4).<|im_end|>\n";
  EXPECT_EQ(t.decode(t.encode(text), false), text);
}

}  // namespace
