// Prompts with pictures: the ways in which a line names them, their places in the tokens, and a
// message with its place for what is wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/text/base64.hpp"
#include "io/text/prompts.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/images/files.hpp"
#include "tests/io/text/expect_error.hpp"
#include "tests/io/text/fixtures.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace {

using nlohmann::json;
using paceline::DataError;
using paceline::PictureGrid;
using paceline::Prompt;
using paceline::TokenId;
using paceline::io::ChatTemplate;
using paceline::io::Overlong;
using paceline::io::PromptOptions;
using paceline::io::PromptPictures;
using paceline::io::PromptSet;
using paceline::io::Tokenizer;
using Ids = std::vector<TokenId>;
namespace fs = std::filesystem;

constexpr TokenId kStart = 263;
constexpr TokenId kPad = 264;
constexpr TokenId kEnd = 265;
constexpr TokenId kFilm = 266;
constexpr std::int32_t kRows = 6;  // of the fixtures of 31 x 23 pixels

std::string fixture(const std::string& name) {
  return paceline::io::read_fixture("pictures/" + name);
}

std::string to_base64(const std::string& bytes) {
  return paceline::io::text::to_base64(std::as_bytes(std::span(bytes)));
}

class PicturePrompts : public testing::Test {
 protected:
  PicturePrompts() {
    folder_ =
        fs::temp_directory_path() / ("picture_prompts_" + std::to_string(::getpid()) + "_" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_ / "shots");
    write("shots/a.png", fixture("rgb.png"));
    write("b.jpg", fixture("420.jpg"));
    options_.pictures = paceline::io::PictureOptions{kPad, {}};
    options_.placeholders = {kPad, kFilm};
    options_.request.no_media = "the model is given text, and pictures";
    json document = tiny::document();
    TokenId id = kStart;
    for (const char* token :
         {"<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>"}) {
      document["added_tokens"].push_back({{"id", id++},
                                          {"content", token},
                                          {"single_word", false},
                                          {"lstrip", false},
                                          {"rstrip", false},
                                          {"normalized", false},
                                          {"special", true}});
    }
    tokenizer_ = Tokenizer::parse(document.dump(), "tiny");
  }
  ~PicturePrompts() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  [[nodiscard]] std::string name() const { return (folder_ / "p.jsonl").string(); }
  [[nodiscard]] PromptSet parse(const std::string& text) const {
    return paceline::io::parse_prompts(text, name(), &tokenizer_, &chat_, options_);
  }
  [[nodiscard]] PromptSet parse(const char* text) const { return parse(std::string(text)); }
  [[nodiscard]] PromptSet parse(const json& line) const { return parse(line.dump()); }
  /// A line whose only picture is this.
  static json line(const json& picture) {
    return {{"prompt", {{{"role", "user"}, {"content", "<image>a"}}}}, {"images", {picture}}};
  }
  static json parts(const json& content) {
    return {{"messages", {{{"role", "user"}, {"content", content}}}}};
  }
  /// The prompt's text, each picture's rows as one token.
  [[nodiscard]] std::string text_of(const Prompt& prompt) const {
    Ids ids;
    for (const TokenId id : prompt.tokens)
      if (id != kPad || ids.back() != kPad) ids.push_back(id);
    return tokenizer_.decode(ids, false);
  }

  fs::path folder_;
  Tokenizer tokenizer_ = Tokenizer::parse(tiny::document().dump(), "tiny");
  ChatTemplate chat_ = fixtures::chat("qwen2_vl");
  PromptOptions options_;
};

TEST_F(PicturePrompts, BothSpellingsOfPlacesAreWhatTransformersRenders) {
  const json document =
      json::parse(paceline::io::text::read_file(fixtures::folder() + "chat.json"));
  ASSERT_GE(document["pictured"].size(), 3U);
  for (const json& c : document["pictured"]) {
    for (const char* spelling : {"texts", "parts"}) {
      const auto expected = c["text"].get<std::string>();
      std::size_t pictures = 0;
      for (auto at = expected.find("<|image_pad|>"); at != expected.npos;
           at = expected.find("<|image_pad|>", at + 1))
        ++pictures;
      json line = {{"messages", c[spelling]}};
      for (std::size_t i = 0; i < pictures; ++i) line["images"].push_back("b.jpg");
      const PromptSet set = parse(line);
      EXPECT_EQ(text_of(set.prompts.at(0)), expected);
      EXPECT_EQ(set.prompts[0].pictures.size(), pictures);
    }
  }
}

TEST_F(PicturePrompts, APictureIsNamedInManyWays) {
  const std::string bytes = fixture("rgb.png");
  const std::string path = (folder_ / "shots/a.png").string();
  const std::string base64 = to_base64(bytes);
  const std::vector<json> column = {
      "shots/a.png",
      "./shots/../shots/a.png",
      path,
      "file://" + path,
      "data:image/png;base64," + base64,
      {{"path", "shots/a.png"}},
      {{"bytes", nullptr}, {"path", path}},
      {{"bytes", base64}, {"path", "named.png"}},
      {{"image", "shots/a.png"}},
      {{"image", "data:image/png;base64," + base64}, {"image_url", nullptr}},
      {{"image_url", {{"url", "file://" + path}}}},
  };
  const PromptSet first = parse(line(column[0]));
  const Prompt& known = first.prompts.at(0);
  ASSERT_EQ(known.pictures.size(), 1U);
  EXPECT_EQ(known.pictures[0].grid, (PictureGrid{4, 6}));
  EXPECT_EQ(known.pictures[0].hash, paceline::io::picture_hash(std::as_bytes(std::span(bytes))));
  EXPECT_EQ(std::ranges::count(known.tokens, kPad), kRows);
  const auto at = static_cast<std::size_t>(known.pictures[0].first);
  EXPECT_EQ(known.tokens.at(at - 1), kStart);
  EXPECT_EQ(known.tokens.at(at), kPad);
  EXPECT_EQ(known.tokens.at(at + kRows), kEnd);
  EXPECT_EQ(known.uid, paceline::content_uid(known.tokens, known.pictures));
  EXPECT_NE(known.uid, paceline::content_uid(known.tokens));

  std::vector<json> lines;
  for (const json& picture : column) lines.push_back(line(picture));
  for (const json& part : column) {
    if (part.is_string()) {
      lines.push_back(
          parts({{{"type", "image"}, {"image", part}}, {{"type", "text"}, {"text", "a"}}}));
    } else {
      json named = part;
      named["type"] = "image";
      lines.push_back(parts({named, {{"text", "a"}}}));
    }
  }
  lines.push_back(
      parts({{{"type", "image_url"}, {"image_url", {{"url", path}}}}, {{"text", "a"}}}));
  for (const json& l : lines) {
    SCOPED_TRACE(l.dump().substr(0, 200));
    const PromptSet set = parse(l);
    EXPECT_EQ(set.prompts.at(0).tokens, known.tokens);
    EXPECT_EQ(set.prompts[0].pictures, known.pictures);
    EXPECT_EQ(set.prompts[0].uid, known.uid);
    PromptPictures source(set, name());
    const std::vector<std::byte> read = source.file(0, 0);
    EXPECT_TRUE(std::ranges::equal(read, std::as_bytes(std::span(bytes))));
  }
}

TEST_F(PicturePrompts, ExtraFieldsKeepThemInTheOrderOfTheirPlaces) {
  const std::string path = (folder_ / "b.jpg").string();
  EXPECT_EQ(parse(line("b.jpg")).prompts[0].extra_json,
            R"({"prompt":[{"content":"<image>a","role":"user"}],"images":[")" + path + "\"]}");
  const std::string bytes = fixture("rgb.png");
  json mixed =
      parts({{{"type", "image"}, {"image", "b.jpg"}}, {{"type", "image"}}, {{"text", "a"}}});
  mixed["images"] = {{{"bytes", to_base64(bytes)}}};
  const PromptSet set = parse(mixed);
  const json extra = json::parse(set.prompts[0].extra_json);
  EXPECT_EQ(extra["images"], (json{path, "data:image/*;base64," + to_base64(bytes)}));
  paceline::io::StoredPictures stored(set.prompts, "a run");
  EXPECT_EQ(stored.file(0, 0).size(), fixture("420.jpg").size());
  EXPECT_TRUE(std::ranges::equal(stored.file(0, 1), std::as_bytes(std::span(bytes))));
  write("b.jpg", bytes);
  EXPECT_ERROR(DataError, (void)stored.file(0, 0),
               "a run: prompt 0: picture 1: " + path + ": the file is another one");
}

TEST_F(PicturePrompts, Base64HasItsThreeEnds) {
  using paceline::io::text::from_base64;
  for (const char* bytes : {"f", "fo", "foo", "foob"})
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  EXPECT_EQ(to_base64("foob"), "Zm9vYg==");
  for (const char* none : {"", "Zm9", "Zm9=Zm9v", "Zm9vYh==", "Z===", "Zm\n9"})
    EXPECT_EQ(from_base64(none), std::nullopt) << none;
}

TEST_F(PicturePrompts, AnotherPictureIsAnotherPrompt) {
  const PromptSet set = parse(line("b.jpg").dump() + "\n" + line("shots/a.png").dump() + "\n" +
                              line("b.jpg").dump() + "\n" + R"({"prompt": "text"})");
  ASSERT_EQ(set.prompts.size(), 4U);
  EXPECT_EQ(set.prompts[0].tokens, set.prompts[1].tokens);
  EXPECT_NE(set.prompts[0].uid, set.prompts[1].uid);
  EXPECT_EQ(set.prompts[2].uid, set.prompts[0].uid + "-2");
  ASSERT_EQ(set.pictures.size(), 4U);
  EXPECT_EQ(set.pictures[1].at(0).path, (folder_ / "shots/a.png").string());
  EXPECT_TRUE(set.pictures[3].empty());
}

TEST_F(PicturePrompts, TokensHaveOnePlaceForAPictureOrOneForARow) {
  const auto ids = [&](const Ids& tokens, const json& images) {
    return parse({{"tokens", tokens}, {"images", images}});
  };
  Ids rows(kRows, kPad);
  rows.insert(rows.begin(), {kStart});
  rows.insert(rows.end(), {kEnd, 7});
  EXPECT_EQ(ids({kStart, kPad, kEnd, 7}, {"b.jpg"}).prompts[0].tokens, rows);
  EXPECT_EQ(ids(rows, {"b.jpg"}).prompts[0].tokens, rows);
  EXPECT_EQ(ids(rows, {"b.jpg"}).prompts[0].pictures[0].first, 1);
  Ids two = rows;
  two.insert(two.end(), rows.begin(), rows.end());
  const PromptSet set = ids({kStart, kPad, kEnd, 7, kStart, kPad, kEnd, 7}, {"b.jpg", "b.jpg"});
  EXPECT_EQ(set.prompts[0].tokens, two);
  EXPECT_EQ(set.prompts[0].pictures[1].first, kRows + 4);

  EXPECT_ERROR(DataError, (void)ids({kPad, kPad, 7}, {"b.jpg"}),
               "p.jsonl:1:30: 'tokens': the prompt has 2 of token 264, which stands for pictures; "
               "expected 1, one for each picture of the line, or 6, one for each row");
  EXPECT_ERROR(DataError, (void)ids({kPad, kPad, 7}, {"b.jpg", "b.jpg"}),
               "picture 1 has 2 neighbouring places at token 1; expected 1, and another token");
  EXPECT_ERROR(DataError, (void)ids({7}, {"b.jpg"}), "the prompt has 0 of token 264");
  EXPECT_ERROR(DataError, (void)parse(R"({"tokens":[264]})"),
               "the prompt has 1 of token 264, which stands for pictures; expected 0");
  EXPECT_ERROR(DataError, (void)ids({7, kPad}, {"b.jpg"}), "the prompt ends with a picture");
  Ids moved = rows;
  std::swap(moved[3], moved.back());
  EXPECT_ERROR(DataError, (void)ids(moved, {"b.jpg"}), "picture 1 has 2 neighbouring places");

  // Ids beside the messages that they were made of, whose pictures these are.
  json line = parts({{{"type", "image"}, {"image", "b.jpg"}}, {{"type", "text"}, {"text", "a"}}});
  line["prompt_tokens"] = Ids{kStart, kPad, kEnd, 7};
  EXPECT_EQ(parse(line).prompts[0].tokens, rows);
}

TEST_F(PicturePrompts, TextHasItsPlacesToo) {
  const PromptSet set = parse({{"prompt", "he<image>"}, {"images", {"b.jpg"}}});
  EXPECT_EQ(text_of(set.prompts[0]), "<bos>he<|vision_start|><|image_pad|><|vision_end|>");
  const PromptSet spelled =
      parse({{"prompt", "he<|vision_start|><|image_pad|><|vision_end|>"}, {"images", {"b.jpg"}}});
  EXPECT_EQ(spelled.prompts[0].tokens, set.prompts[0].tokens);
}

TEST_F(PicturePrompts, CountsMustAgree) {
  json two = line("b.jpg");
  two["images"].push_back("b.jpg");
  EXPECT_ERROR(DataError, (void)parse(two),
               "p.jsonl:1:11: 'images': has 2 pictures, and the prompt places for 1");
  json none = line("b.jpg");
  none.erase("images");
  EXPECT_ERROR(DataError, (void)parse(none), "'prompt': message 1: has more places for pictures",
               "there are no 'images'");
  none["images"] = json::array();
  EXPECT_ERROR(DataError, (void)parse(none), "there are no 'images'");
  json text = parts({{{"type", "text"}, {"text", "<image>"}}});
  EXPECT_TRUE(parse(text).prompts[0].pictures.empty()) << "a part of type text is text";
  EXPECT_ERROR(DataError, (void)parse(parts({{{"type", "image"}}})),
               "'messages': message 1: part 1: has more places for pictures");
  EXPECT_ERROR(DataError, (void)parse({{"prompt", "<|image_pad|>"}}),
               "the prompt has 1 of token 264, which stands for pictures; expected 0");
  EXPECT_ERROR(DataError, (void)parse({{"prompt", "<|video_pad|>"}}),
               "token 266 stands for a picture or a film, and films are not supported");
}

TEST_F(PicturePrompts, FormsThatArePicturesOfNothingAreRefused) {
  const auto refused = [&](const json& picture, const std::string& why) {
    EXPECT_ERROR(DataError, (void)parse(line(picture)),
                 "p.jsonl:1:11: 'images': picture 1: " + why);
  };
  refused("https://a.b/c.png", "expected a file, for nothing is fetched from a network");
  refused({{"image_url", {{"url", "http://a.b/c.png"}}}}, "expected a file, for nothing");
  refused("s3://b/c.png", "expected a file, for nothing is fetched");
  refused("data:image/png,abc", "expected data:image/...;base64,...");
  refused("data:image/png;base64,@@@@", "expected the bytes of a picture in base64");
  refused({{"bytes", "ab"}}, "expected the bytes of a picture in base64");
  refused({{"bytes", 5}}, "'bytes': expected text, found 5");
  refused("", "expected the path of a picture");
  refused(3, "expected a path, or {");
  refused(json::object(), "expected path, bytes, image or image_url");
  refused({{"path", "b.jpg"}, {"max_pixels", 100}}, "'max_pixels' cannot be honoured");
  json images = line("b.jpg");
  images["images"] = "b.jpg";
  EXPECT_ERROR(DataError, (void)parse(images), "'images': expected a list of pictures");
  EXPECT_ERROR(DataError, (void)parse(parts({{{"type", "video"}, {"video", "a.mp4"}}})),
               "message 1: part 1: type 'video' is not supported");
  EXPECT_ERROR(DataError, (void)parse(parts({"text"})), "part 1: expected {\"type\": \"text\"");
  EXPECT_ERROR(DataError, (void)parse(parts({{{"type", "text"}}})), "'text': expected text");
  for (const char* media : {"videos", "audios", "image", "multi_modal_data"}) {
    json other = line("b.jpg");
    other[media] = {"a"};
    EXPECT_ERROR(DataError, (void)parse(other),
                 std::string("'") + media +
                     "': cannot be honoured: the model is given text, and "
                     "pictures; expected nothing");
  }
  options_.pictures.reset();
  options_.request.no_media = "the model is given text alone";
  EXPECT_ERROR(DataError, (void)parse(line("b.jpg")),
               "'images': cannot be honoured: the model is given text alone");
  EXPECT_EQ(parse(R"({"prompt": "<image>"})").prompts[0].tokens.size(), 8U) << "text as any";
  EXPECT_ERROR(DataError, (void)parse(parts({{{"type", "text"}, {"text", "a"}}})),
               "'content': expected text",
               "of parts are the contents of models that read pictures");
}

// Decoders alone are tested with more of them (tests/io/images).
TEST_F(PicturePrompts, HostilePicturesAreRefusedByFileAndLine) {
  const std::string jpeg = fixture("420.jpg");
  std::string huge = jpeg;
  huge.replace(huge.find("\xFF\xC0") + 5, 4, "\xFF\xDC\xFF\xDC");
  std::string metadata = fixture("turned-8.png");
  metadata.replace(metadata.find("eXIf") - 4, 1, "\x60");
  const std::vector<std::array<std::string, 3>> table = {
      {"cut.jpg", jpeg.substr(0, jpeg.size() / 2), "a JPEG that is cut off"},
      {"cut.png", fixture("rgb.png").substr(0, 900), "a PNG that is cut off"},
      {"cut.webp", fixture("lossless.webp").substr(0, 900), "a WebP that is"},
      {"huge.jpg", huge, "a picture of 65500 x 65500 pixels; expected at most 67108864 in all"},
      {"metadata.png", metadata, "a PNG that is cut off"},
      {"empty.png", "", "the file is empty"},
      {"text.png", "a text", "expected a JPEG, PNG or WebP picture, found something else"},
      {"film.gif", "GIF89a", "expected a JPEG, PNG or WebP picture, found a GIF"},
  };
  for (const auto& [file, bytes, why] : table) {
    SCOPED_TRACE(file);
    write(file, bytes);
    const std::string text = R"({"prompt":"he"})"
                             "\n" +
                             line("b.jpg").dump() + "\n" +
                             json{{"images", {"b.jpg", file}}, {"prompt", "<image><image>"}}.dump();
    EXPECT_ERROR(DataError, (void)parse(text),
                 name() + ":3:11: 'images': picture 2: ", (folder_ / file).string() + ": " + why);
    if (bytes.empty()) continue;
    EXPECT_ERROR(DataError, (void)parse(line({{"bytes", to_base64(bytes)}})),
                 ":1:11: 'images': picture 1: the line's own bytes: " + why);
  }
  EXPECT_ERROR(DataError, (void)parse(line("no.png")),
               ":1:11: 'images': picture 1: ", "no.png: cannot be read: No such file or directory");
  EXPECT_ERROR(DataError, (void)parse(line("shots")), "shots: not a regular file");
  for (const char* taken : {"cmyk.jpg", "rgb-16.png", "grey-16.png", "animated.webp",
                            "animated.png", "rgba.png", "turned-6.jpg"}) {
    write(taken, fixture(taken));
    EXPECT_EQ(parse(line(taken)).prompts[0].pictures.size(), 1U) << taken;
  }
}

TEST_F(PicturePrompts, RowsCountAndAreNeverCut) {
  const auto n = static_cast<std::int32_t>(parse(line("b.jpg")).prompts[0].tokens.size());
  options_.max_tokens = n;
  EXPECT_EQ(parse(line("b.jpg")).prompts.size(), 1U);
  options_.max_tokens = n - 1;
  EXPECT_ERROR(DataError, (void)parse(line("b.jpg")),
               "has " + std::to_string(n) + " tokens, 6 of them its pictures' rows, the limit is");
  options_.overlong = Overlong::skip;
  const PromptSet set = parse(line("b.jpg").dump() + "\n" + R"({"prompt":"he"})");
  EXPECT_EQ(set.prompts.size(), 1U);
  EXPECT_EQ(set.skipped.size(), 1U);
  EXPECT_TRUE(set.pictures.empty());
  options_.overlong = Overlong::truncate;
  EXPECT_ERROR(DataError, (void)parse(line("b.jpg")),
               "a prompt with pictures is not truncated (prompts.overlong: skip");
}

TEST_F(PicturePrompts, AFileThatChangedIsNoticed) {
  const PromptSet set = parse("\n" + line("b.jpg").dump());
  PromptPictures source(set, name());
  EXPECT_FALSE(source.file(0, 0).empty());
  write("b.jpg", fixture("444.jpg"));
  EXPECT_ERROR(DataError, (void)source.file(0, 0), name() + ":2: picture 1: ",
               "b.jpg: the file is another one than when the run began");
  fs::remove(folder_ / "b.jpg");
  EXPECT_ERROR(DataError, (void)source.file(0, 0),
               name() + ":2: picture 1: ", "No such file or directory");
}

TEST_F(PicturePrompts, PlansCountRowsWithoutATokenizer) {
  options_.estimate = true;
  const PromptSet set =
      paceline::io::parse_prompts(line("b.jpg").dump(), name(), nullptr, nullptr, options_);
  const std::size_t text = std::string(paceline::io::kPictureMark).size() + 1 + 16;
  EXPECT_EQ(set.prompts.at(0).tokens.size(), (text + 3) / 4 + kRows);
}

}  // namespace
