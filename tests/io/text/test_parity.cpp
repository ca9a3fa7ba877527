// Id for id what the `tokenizers` library gives, over a corpus of every script, for each of the
// pre-tokenizers that are supported; and the same for decoding. No difference is tolerated.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "tests/io/text/fixtures.hpp"

namespace {

using paceline::TokenId;
using paceline::io::Tokenizer;

std::vector<TokenId> read_ids(fixtures::Reader& reader) {
  std::vector<TokenId> ids(reader.number<std::uint16_t>());
  for (TokenId& id : ids) id = reader.number<std::uint16_t>();
  return ids;
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    out += digits[static_cast<unsigned char>(b) >> 4U];
    out += digits[static_cast<unsigned char>(b) & 15U];
  }
  return out;
}

std::uint64_t fnv(std::string_view bytes, std::uint64_t state) {
  for (const char b : bytes) state = (state ^ static_cast<unsigned char>(b)) * 0x100000001B3ULL;
  return state;
}

/// A tokenizer of the fixtures, perhaps with another pre-tokenizer.
struct Case {
  const char* name;
  const char* of;      ///< whose tokenizer.json it is
  std::size_t stride;  ///< every how many lines of the corpus
  const char* normalizer;
  const char* pre_tokenizer;

  [[nodiscard]] bool of_characters() const { return std::string_view(of) == "llama2"; }
};

Case plain(const char* name) { return {name, name, 1, nullptr, nullptr}; }

const Case gpt2_prefix{
    "gpt2_prefix", "gpt2", 4, nullptr,
    R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})"};
const Case llama2_first{
    "llama2_first", "llama2", 1, "null",
    R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false})"};
const Case llama2_cut{"llama2_cut", "llama2", 4, "null",
                      R"({"type": "Metaspace", "replacement": "▁", "add_prefix_space": true})"};
const Case llama2_never{
    "llama2_never", "llama2", 4, "null",
    R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false})"};

class Parity : public testing::TestWithParam<Case> {
 protected:
  Parity() : tokenizer_(load()) {}

  static Tokenizer load() {
    const Case& c = GetParam();
    auto json = nlohmann::json::parse(
        fixtures::read_gzip(fixtures::folder() + std::string(c.of) + ".json.gz"));
    if (c.normalizer != nullptr) json["normalizer"] = nlohmann::json::parse(c.normalizer);
    if (c.pre_tokenizer != nullptr) json["pre_tokenizer"] = nlohmann::json::parse(c.pre_tokenizer);
    return Tokenizer::parse(json.dump(), c.name);
  }
  static fixtures::Reader open(const std::string& what) {
    return fixtures::Reader(
        fixtures::read_gzip(fixtures::folder() + GetParam().name + "." + what + ".gz"));
  }

  Tokenizer tokenizer_;
};

class DecodingParity : public Parity {};

TEST_P(Parity, EncodesEveryLineAsTheLibraryDoes) {
  const bool of_characters = GetParam().of_characters();
  const std::vector<std::string> lines =
      fixtures::lines(of_characters ? "corpus_llama2" : "corpus");
  ASSERT_GE(lines.size(), of_characters ? 3'000U : 10'000U);
  fixtures::Reader expected = open("ids");
  std::size_t compared = 0;
  std::size_t different = 0;
  for (std::size_t i = 0; i < lines.size(); i += GetParam().stride, ++compared) {
    const std::vector<TokenId> want = read_ids(expected);
    // Twice: the second time words come from the cache.
    for (int pass = 0; pass < 2; ++pass) {
      if (tokenizer_.encode(lines[i]) == want) continue;
      if (++different <= 10) ADD_FAILURE() << "line " << i << ": " << hex(lines[i]);
    }
  }
  EXPECT_TRUE(expected.done());
  EXPECT_EQ(different, 0U);
  RecordProperty("lines", static_cast<int>(compared));
}

TEST_P(DecodingParity, DecodesEveryLineAsTheLibraryDoes) {
  fixtures::Reader ids = open("ids");
  fixtures::Reader expected = open("decoded");
  std::size_t different = 0;
  while (!expected.done()) {
    std::uint64_t digest = 0xCBF29CE484222325ULL;
    for (int i = 0; i < 8 && !ids.done(); ++i) {
      const std::vector<TokenId> line = read_ids(ids);
      for (const bool skip : {false, true}) {
        digest = fnv(tokenizer_.decode(line, skip) + "\xFF", digest);
      }
    }
    different += expected.number<std::uint64_t>() != digest ? 1 : 0;
  }
  EXPECT_TRUE(ids.done());
  EXPECT_EQ(different, 0U) << "blocks of 8 lines";
}

TEST_P(DecodingParity, DecodesBrokenUtf8AsTheLibraryDoes) {
  fixtures::Reader cuts = open("cut");
  std::size_t different = 0;
  std::size_t replaced = 0;
  while (!cuts.done()) {
    const std::vector<TokenId> ids = read_ids(cuts);
    const std::string_view want = cuts.take(cuts.number<std::uint16_t>());
    const std::string got = tokenizer_.decode(ids);
    replaced += want.find("\xEF\xBF\xBD") != std::string_view::npos ? 1 : 0;
    if (got != want && ++different <= 10) ADD_FAILURE() << hex(want) << " but got " << hex(got);
  }
  EXPECT_EQ(different, 0U);
  EXPECT_GT(replaced, 100U) << "the fixture should hold many broken sequences";
}

TEST_P(DecodingParity, BytesOfTokensSpellTheText) {
  fixtures::Reader ids = open("ids");
  for (int i = 0; i < 500; ++i) {
    const std::vector<TokenId> line = read_ids(ids);
    std::string bytes;
    for (const TokenId id : line) bytes += tokenizer_.bytes_of(id);
    std::string decoded = tokenizer_.decode(line, false);
    if (GetParam().of_characters() && bytes.starts_with(' ')) decoded.insert(0, " ");
    if (decoded.find("\xEF\xBF\xBD") == std::string::npos) {
      EXPECT_EQ(bytes, decoded);
    }
  }
}

std::string name_of(const testing::TestParamInfo<Case>& test) { return test.param.name; }

INSTANTIATE_TEST_SUITE_P(Tokenizers, Parity,
                         testing::Values(plain("gpt2"), gpt2_prefix, plain("qwen2"),
                                         plain("llama3"), plain("llama2"), llama2_first, llama2_cut,
                                         llama2_never),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Tokenizers, DecodingParity,
                         testing::Values(plain("gpt2"), gpt2_prefix, plain("qwen2"),
                                         plain("llama3"), plain("llama2")),
                         name_of);

}  // namespace
