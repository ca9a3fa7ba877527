// What the files beside tokenizer.json say of a tokenizer, against what `transformers` 4 and 5 make
// of it (make_tokenizer_files.py): where they agree the result is theirs; where they do not, the
// tokenizer is refused, or follows one of them and says so.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/expect_error.hpp"
#include "tests/io/text/fixtures.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace {

using nlohmann::json;
using paceline::DataError;
using paceline::TokenId;
using paceline::io::Tokenizer;
using paceline::io::TokenizerFiles;

struct Answer {
  json result;  ///< as the fixture has it; null: refused
  std::string refusal;
  std::vector<std::string> warnings;
};

Answer answer(const json& document, const json& c) {
  const auto file = [&](const char* name) -> std::optional<std::string> {
    const auto found = c["files"].find(name);
    return found == c["files"].end() ? std::nullopt : std::optional(found->dump());
  };
  TokenizerFiles files;
  files.directory = "dir";
  files.tokenizer = document["bases"][c["base"].get<std::string>()].dump();
  files.config = file("tokenizer_config");
  files.special_tokens_map = file("special_tokens_map");
  files.added_tokens = file("added_tokens");
  Answer a;
  try {
    const Tokenizer t = Tokenizer::load(files);
    a.warnings = t.warnings();
    json result = json::array();
    for (const json& text : document["texts"]) {
      const auto& words = text.get_ref<const std::string&>();
      const std::vector<TokenId> whole = t.encode(words, {.add_special_tokens = true});
      result.push_back({t.encode(words), whole, t.decode(whole)});
    }
    a.result = result;
  } catch (const DataError& error) {
    a.refusal = error.what();
  }
  return a;
}

TEST(TokenizerFiles, AreReadAsTransformersReadsThemOrRefused) {
  const json document =
      json::parse(paceline::io::text::read_file(fixtures::folder() + "tokenizer_files.json"));
  std::size_t read = 0;
  std::size_t refused = 0;
  for (const json& c : document["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    const json& in_4 = c["results"]["4"];
    const json& in_5 = c["results"]["5"];
    const Answer got = answer(document, c);
    (got.result.is_null() ? refused : read) += 1;
    if (got.result.is_null()) {
      EXPECT_EQ(got.refusal.find("dir/"), 0U) << got.refusal;
    }
    if (c["refused"].get<bool>() || (in_4.is_null() && in_5.is_null())) {
      EXPECT_TRUE(got.result.is_null()) << "expected a refusal";
    } else if (in_4 == in_5) {
      EXPECT_EQ(got.result, in_4) << got.refusal;
      EXPECT_TRUE(got.warnings.empty());
    } else if (!got.result.is_null()) {
      EXPECT_TRUE(got.result == in_4 || got.result == in_5) << got.result;
      EXPECT_TRUE(!got.warnings.empty() || in_4.is_null()) << "4 and 5 differ, and nothing is said";
    }
  }
  EXPECT_GE(read, 40U);
  EXPECT_GE(refused, 20U);
}

class TokenizerDirectory : public testing::Test {
 protected:
  TokenizerDirectory() { std::filesystem::create_directories(path_); }
  ~TokenizerDirectory() override { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  const std::string path_ = testing::TempDir() + "paceline_tokenizer";
};

TEST_F(TokenizerDirectory, AddsTokensOfTheOtherFiles) {
  write("tokenizer.json", tiny::document().dump());
  write("tokenizer_config.json", R"({"pad_token": "<pad>"})");
  write("added_tokens.json", R"({"<new>": 263})");
  const Tokenizer t = Tokenizer::load(path_);
  EXPECT_EQ(t.encode("<new><pad>"), (std::vector<TokenId>{263, 264}));
  EXPECT_TRUE(t.is_special(264));
  EXPECT_EQ(t.vocab_size(), 265);
  EXPECT_NO_THROW(t.require_fits(260));
}

TEST_F(TokenizerDirectory, NamesTheFileAtFault) {
  write("tokenizer.json", tiny::document().dump());
  write("tokenizer_config.json", R"({"pad_token": 3})");
  EXPECT_ERROR(DataError, (void)Tokenizer::load(path_),
               path_ + "/tokenizer_config.json: /pad_token: found 3; expected a string");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {}}})");
  EXPECT_ERROR(DataError, (void)Tokenizer::load(path_), "/added_tokens_decoder/x: expected an id");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"999999999": {"content": "<n>"}}})");
  EXPECT_ERROR(DataError, (void)Tokenizer::load(path_), "token '<n>' has id 263 by tokenizer.json");
  write("tokenizer_config.json", "{}");
  write("special_tokens_map.json", "[]");
  EXPECT_ERROR(DataError, (void)Tokenizer::load(path_),
               "/special_tokens_map.json: /: found an array of 0; expected an object");
}

TEST_F(TokenizerDirectory, SaysHowToMakeWhatIsRead) {
  EXPECT_ERROR(DataError, (void)Tokenizer::load(path_), "/tokenizer.json: No such file");
  write("tokenizer.model", "\n");
  EXPECT_ERROR(DataError, (void)Tokenizer::load(path_), "/tokenizer.json: No such file",
               "tokenizer.model alone is not read. Make tokenizer.json of it: python3 -c",
               "save_pretrained('" + path_ + "')");
}

}  // namespace
