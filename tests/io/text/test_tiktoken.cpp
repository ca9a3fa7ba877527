// Id for id what the `tiktoken` package gives, and bad files.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/io/text/fixtures.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace {

using nlohmann::json;
using paceline::DataError;
using paceline::TokenId;
using paceline::io::Tokenizer;
using paceline::io::TokenizerFiles;

/// tokenizer_config.json, with names for some of the tokens from `first` on.
json config(int first) {
  json named = json::object();
  for (const auto& [place, name] : {std::pair{0, "[BOS]"},
                                    {1, "[EOS]"},
                                    {2, "<|im_end|>"},
                                    {3, "<|im_user|>"},
                                    {4, "<|im_assistant|>"},
                                    {8, "<|im_middle|>"},
                                    {254, "[UNK]"},
                                    {255, "[PAD]"}}) {
    named[std::to_string(first + place)] = {{"content", name},      {"lstrip", false},
                                            {"normalized", false},  {"rstrip", false},
                                            {"single_word", false}, {"special", true}};
  }
  return {{"tokenizer_class", "TikTokenTokenizer"},
          {"bos_token", "[BOS]"},
          {"eos_token", "[EOS]"},
          {"additional_special_tokens", {"<|im_end|>", "<|im_user|>"}},
          {"added_tokens_decoder", named}};
}

TokenizerFiles fixture() {
  TokenizerFiles files;
  files.directory = "kimi";
  files.tiktoken = fixtures::read_gzip(fixtures::folder() + "kimi.model.gz");
  files.config = config(2000).dump();
  return files;
}

TEST(Tiktoken, IdsAreThoseOfThePackage) {
  const Tokenizer tokenizer = Tokenizer::load(fixture());
  EXPECT_EQ(tokenizer.vocab_size(), 2256);
  std::vector<std::string> lines;
  const std::vector<std::string> corpus = fixtures::lines("corpus");
  for (std::size_t i = 0; i < corpus.size(); i += 4) lines.push_back(corpus[i]);
  for (std::string& line : fixtures::lines("kimi.wild")) lines.push_back(std::move(line));
  EXPECT_GT(lines.size(), 4000U);
  fixtures::Reader reader(fixtures::read_gzip(fixtures::folder() + "kimi.ids.gz"));
  int different = 0;
  for (const std::string& line : lines) {
    std::vector<TokenId> expected(reader.number<std::uint16_t>());
    for (TokenId& id : expected) id = reader.number<std::uint16_t>();
    const std::vector<TokenId> found = tokenizer.encode(line);
    EXPECT_EQ(tokenizer.decode(found, false), line);
    if (found != expected && ++different < 10)
      ADD_FAILURE() << json(line).dump(-1, ' ', true) << '\n'
                    << json(found).dump() << '\n'
                    << json(expected).dump();
  }
  EXPECT_TRUE(reader.done());
  EXPECT_EQ(different, 0);
}

TEST(Tiktoken, SpecialTokens) {
  const Tokenizer tokenizer = Tokenizer::load(fixture());
  EXPECT_EQ(tokenizer.encode("<|im_user|>[EOS]<|reserved_token_2005|>"),
            (std::vector<TokenId>{2003, 2001, 2005}));
  EXPECT_EQ(tokenizer.encode("[BOS]", {.add_special_tokens = true}), std::vector<TokenId>{2000});
  EXPECT_EQ(tokenizer.token_to_id("<|im_middle|>"), 2008);
  EXPECT_TRUE(tokenizer.is_special(2005));
  EXPECT_TRUE(tokenizer.is_special(2255));
  EXPECT_FALSE(tokenizer.is_special(1999));
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2003, 2001}), "");
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{2003, 2001}, false), "<|im_user|>[EOS]");
  EXPECT_NO_THROW(tokenizer.require_fits(2000)) << "reserved ones may be more than the model's";
  EXPECT_THROW(tokenizer.require_fits(1999), DataError);

  TokenizerFiles files = fixture();
  json thinking = config(2000);
  thinking["added_tokens_decoder"]["2100"] = {{"content", "<think>"}, {"special", false}};
  files.config = thinking.dump();
  const Tokenizer thinks = Tokenizer::load(files);
  EXPECT_EQ(thinks.encode("<think>"), std::vector<TokenId>{2100});
  EXPECT_EQ(thinks.decode(std::vector<TokenId>{2100}), "<think>") << "text, not control";
}

TEST(Tiktoken, TokenizerJsonComesFirst) {
  TokenizerFiles files;
  files.directory = "d";
  files.other_kind = "tokenizer.model";
  EXPECT_NE(files.absence(), "");
  files.tiktoken = "";
  EXPECT_EQ(files.absence(), "");
  TokenizerFiles other = files;
  EXPECT_TRUE(files.same_texts(other));
  other.tiktoken = "x";
  EXPECT_FALSE(files.same_texts(other));
  files.tokenizer = "[]";
  EXPECT_EQ(paceline::test::message_of<DataError>([&] {
              (void)Tokenizer::load(files);
            }).find("d/tokenizer.json"),
            0U);
}

std::string error_of(const std::string& model, const std::optional<json>& with = config(256)) {
  TokenizerFiles files;
  files.directory = "d";
  files.tiktoken = model;
  if (with) files.config = with->dump();
  return paceline::test::message_of<DataError>([&] { (void)Tokenizer::load(files); });
}

TEST(Tiktoken, BadRanks) {
  EXPECT_NO_THROW([] {
    TokenizerFiles files;
    files.tiktoken = tiny::ranks_of_bytes() + "\n";
    files.config = config(256).dump();
    const Tokenizer tokenizer = Tokenizer::load(files);
    EXPECT_EQ(tokenizer.encode("az"), (std::vector<TokenId>{'a', 'z'}));
  }());
  const std::string at = "d/tiktoken.model: line 257: ";
  const std::string expected = at + "expected a token in base64, a space and its rank";
  for (const char* bad : {"YWI=", "YWI= ", "YWI=256", " 256", "YWI= 256 ", "YWI=  256", "YWI= -1",
                          "YWI= 2x", "YWI 256", "YW=I 256", "====", "==== 256", "YWJ= 256",
                          "Y*I= 256", "YWI= 99999999999", "YWI= 256\r", "YWI=\t256"}) {
    EXPECT_EQ(error_of(tiny::ranks_of_bytes() + bad), expected) << bad;
  }
  EXPECT_EQ(error_of(tiny::ranks_of_bytes() + "YWI= 258"),
            at + "rank 258; expected the ranks of 257 tokens to follow one another from 0");
  EXPECT_EQ(error_of(tiny::ranks_of_bytes() + "YWI= 7"), at + "rank 7 a second time");
  EXPECT_EQ(error_of(tiny::ranks_of_bytes() + "YQ== 256"),
            "d/tiktoken.model: ranks 97 and 256 have the same token");
  EXPECT_EQ(error_of(tiny::ranks_of_bytes().substr(0, 7 * 10)),
            "d/tiktoken.model: byte 10 has no token; expected one for each of 256");
  EXPECT_EQ(error_of(""), "d/tiktoken.model: byte 0 has no token; expected one for each of 256");
  std::string longest(4 * 342, 'Y');  // 1,026 bytes
  EXPECT_EQ(error_of(tiny::ranks_of_bytes() + longest + " 256"),
            at + "a token of 1026 bytes; supported: at most 1024");
}

TEST(Tiktoken, BadConfigs) {
  const std::string at = "d/tokenizer_config.json: ";
  EXPECT_EQ(error_of(tiny::ranks_of_bytes(), std::nullopt),
            at + "No such file or directory; tiktoken.model does not say which its special tokens "
                 "are");
  const auto with = [&](const char* key, const json& value) {
    json other = config(256);
    other[key] = value;
    return error_of(tiny::ranks_of_bytes(), other);
  };
  EXPECT_EQ(with("tokenizer_class", "QWenTokenizer"),
            at + "/tokenizer_class: found \"QWenTokenizer\"; supported beside tiktoken.model: "
                 "\"TikTokenTokenizer\", Moonlight's and Kimi's");
  EXPECT_EQ(with("bos_token", "<s>"), at + "/bos_token: '<s>' is none of added_tokens_decoder");
  EXPECT_EQ(with("additional_special_tokens", {"[EOS]", "<a>"}),
            at + "/additional_special_tokens/1: '<a>' is none of added_tokens_decoder");
  EXPECT_EQ(with("added_tokens_decoder", {{"255", {{"content", "a"}}}}),
            at + "/added_tokens_decoder/255: expected an id from 256 to 511, as they follow the "
                 "ranks of tiktoken.model");
  EXPECT_EQ(with("added_tokens_decoder", {{"x", {{"content", "a"}}}}),
            at + "/added_tokens_decoder/x: expected an id");
  EXPECT_EQ(
      with("added_tokens_decoder", {{"300", {{"content", "a"}}}, {"301", {{"content", "a"}}}}),
      at + "/added_tokens_decoder: tokens 300 and 301 are both 'a'");
  EXPECT_NE(with("added_tokens_decoder", {{"300", {{"content", "a"}, {"lstrip", true}}}})
                .find("supported: false for single_word, lstrip and rstrip"),
            std::string::npos);
}

}  // namespace
