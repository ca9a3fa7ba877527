// Decoders of prompts with pictures against transformers, on the small random checkpoints of
// tests/models/parity_pictures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/image_processor_reader.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/images/processor.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/picture_rows.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/tower.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/model/answers.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/parity_fixtures.hpp"

namespace paceline {
namespace {

constexpr int kBlock = 16;
constexpr int kBlocks = 16;

/// A prompt of the reference with its pictures.
struct Shown {
  std::vector<TokenId> tokens;
  std::vector<PictureRows> pictures;
  std::vector<RotaryPosition> rotary;    ///< [tokens]
  std::vector<const float*> embeddings;  ///< [tokens]
};

struct Case {
  std::filesystem::path fixture;
  std::string backend;
};

/// Every checkpoint on the CPU's best instruction set, and on a device where there is one.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::filesystem::path& fixture : test::fixtures("parity_pictures")) {
    all.push_back({fixture, "auto"});
    if (kernels::test::backends().back() == "cuda") all.push_back({fixture, "cuda"});
  }
  return all;
}

class PictureParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::filesystem::path& fixture = GetParam().fixture;
    std::ifstream(fixture / "reference.json") >> reference_;
    config_ = io::load_model_config(model::families(), fixture);
    source_ = std::make_unique<io::Checkpoint>(fixture);
    io::check_tensor_shapes(config_, *source_);
    answers_ = std::make_unique<test::Answers>(fixture / "reference.safetensors");
    backend_ = kernels::test::backend_named(GetParam().backend, 2);
    weights_ = model::load_weights(*backend_, config_, *source_, group_, DType::f32);
  }

  [[nodiscard]] Shown prompt(std::size_t number) const {
    const nlohmann::json& json = reference_["prompts"][number];
    Shown shown;
    shown.tokens = json["tokens"].get<std::vector<TokenId>>();
    const auto rows = static_cast<std::int32_t>(shown.tokens.size());
    shown.embeddings.resize(rows, nullptr);
    std::int32_t at = 0;
    for (std::size_t i = 0; i < json["pictures"].size(); ++i) {
      while (shown.tokens[at] != config_.vision->image_token) ++at;
      const nlohmann::json& grid = json["grids"][i];
      const int merge = config_.vision->tower->merge;
      shown.pictures.push_back({at, grid[0].get<int>() / merge, grid[1].get<int>() / merge});
      const float* embeddings =
          answers_->find("embeddings." + std::to_string(json["pictures"][i].get<int>()));
      for (std::int32_t row = 0; row < shown.pictures.back().count(); ++row)
        shown.embeddings[at++] = embeddings + std::ptrdiff_t{row} * config_.hidden;
    }
    for (std::int32_t row = 0; row < rows; ++row)
      shown.rotary.push_back(rotary_position(shown.pictures, row));
    return shown;
  }

  /// What the tower makes of a picture.
  [[nodiscard]] std::vector<float> rows_of(int picture, DType compute) {
    const std::filesystem::path& fixture = GetParam().fixture;
    const ImageProcessorConfig processor = io::load_image_processor(fixture);
    const std::filesystem::path path = fixture / ("picture-" + std::to_string(picture) + ".png");
    std::ifstream stream(path, std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    const io::ProcessedPicture processed =
        io::process(processor, io::decode_picture(std::as_bytes(std::span(file)), path), path);
    model::Tower tower(*backend_,
                       std::make_shared<model::TowerWeights>(*backend_, config_, *source_, compute),
                       group_);
    return tower.compute(io::patches_of(processor, processed), processed.grid);
  }

  /// Values in memory of the backend.
  [[nodiscard]] std::vector<float> host(const float* values, std::size_t count) const {
    std::vector<float> copy(count);
    backend_->read(reinterpret_cast<const std::byte*>(values),
                   std::as_writable_bytes(std::span(copy)));
    return copy;
  }

  /// Logits of all rows, in passes of these many rows.
  [[nodiscard]] std::vector<float> logits(const Shown& shown, std::span<const int> passes) {
    const auto rows = static_cast<int>(shown.tokens.size());
    model::Decoder decoder(*backend_, weights_, group_, rows, rows, 512);
    const kernels::KvShape kv = decoder.kv_shape(kBlock);
    const auto cache = backend_->allocate(kv.block_bytes() * kBlocks);
    std::vector<std::int32_t> blocks(kBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<float> all;
    int first = 0;
    for (const int count : passes) {
      const kernels::Segment segment{0, count, first, blocks.data()};
      std::vector<std::int32_t> wanted(count);
      std::iota(wanted.begin(), wanted.end(), 0);
      const auto part = [first, count](const auto& values) {
        return std::span(values).subspan(first, count);
      };
      const float* of_pass =
          decoder.forward(part(shown.tokens), {&segment, 1}, wanted, kv, cache->data(),
                          {part(shown.rotary), part(shown.embeddings)});
      const std::vector<float> more = host(of_pass, std::size_t{1} * count * config_.vocab);
      all.insert(all.end(), more.begin(), more.end());
      first += count;
    }
    return all;
  }

  nlohmann::json reference_;
  ModelConfig config_;
  std::unique_ptr<io::Checkpoint> source_;
  std::unique_ptr<test::Answers> answers_;
  std::shared_ptr<kernels::Backend> backend_;
  fabric::SingleRankGroup group_;
  std::shared_ptr<const model::Weights> weights_;
};

TEST_P(PictureParity, Positions) {
  for (std::size_t i = 0; i < reference_["prompts"].size(); ++i) {
    const Shown shown = prompt(i);
    const float* expected = answers_->find("rotary." + std::to_string(i));
    for (const RotaryPosition& at : shown.rotary) {
      EXPECT_EQ(at, (RotaryPosition{static_cast<int>(expected[0]), static_cast<int>(expected[1]),
                                    static_cast<int>(expected[2])}));
      expected += 3;
    }
  }
}

TEST_P(PictureParity, RowsOfPictures) {
  float largest = 0;
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> found = rows_of(i, DType::f32);
    const std::string name = "embeddings." + std::to_string(i);
    ASSERT_EQ(std::ssize(found), answers_->shape(name)[0] * config_.hidden);
    const float* expected = answers_->find(name);
    for (std::size_t j = 0; j < found.size(); ++j) {
      ASSERT_NEAR(found[j], expected[j], 1e-4) << "picture " << i << " element " << j;
      largest = std::max(largest, std::abs(found[j] - expected[j]));
    }
  }
  RecordProperty("largest", std::to_string(largest));
  std::printf("largest difference of a row's element: %.2g\n", largest);
}

TEST_P(PictureParity, RowsOfPicturesInBf16) {
  const std::vector<float> found = rows_of(0, DType::bf16);
  const float* expected = answers_->find("embeddings.0");
  double squares = 0;
  double all = 0;
  for (std::size_t j = 0; j < found.size(); ++j) {
    squares += std::pow(found[j] - expected[j], 2);
    all += std::pow(expected[j], 2);
  }
  EXPECT_LT(std::sqrt(squares / all), 0.03);
  EXPECT_GT(squares, 0);
}

TEST_P(PictureParity, LogitsOfPromptsWithPictures) {
  const double spread = reference_["logit_std"].get<double>();
  for (std::size_t i = 0; i < reference_["prompts"].size(); ++i) {
    const Shown shown = prompt(i);
    const int rows = static_cast<int>(shown.tokens.size());
    const std::vector<float> found = logits(shown, {{rows}});
    const float* expected = answers_->find("logits." + std::to_string(i));
    for (const nlohmann::json& position : reference_["prompts"][i]["positions"]) {
      for (int token = 0; token < config_.vocab; ++token) {
        ASSERT_NEAR(found[position.get<int>() * config_.vocab + token], *expected++, 2e-4 * spread)
            << "prompt " << i << " position " << position;
      }
    }
  }
}

TEST_P(PictureParity, ChunksHaveTheSameBits) {
  const Shown shown = prompt(3);
  const int rows = static_cast<int>(shown.tokens.size());
  const std::vector<float> whole = logits(shown, {{rows}});
  EXPECT_EQ(logits(shown, {{1, 12, 17, rows - 30}}), whole);
  const std::vector<int> single(rows, 1);
  EXPECT_EQ(logits(shown, single), whole);
}

TEST_P(PictureParity, PositionsOutsideTheTableAreRefused) {
  Shown shown = prompt(1);
  const int rows = static_cast<int>(shown.tokens.size());
  for (const std::int32_t position : {-1, 512}) {
    shown.rotary[9].column = position;
    EXPECT_THROW((void)logits(shown, {{rows}}), Error);
  }
}

// Positions of three equal parts, and no rows of pictures, are what a text has anyway.
TEST_P(PictureParity, TextsAreUnchangedToTheBit) {
  Shown text = prompt(0);
  const int rows = static_cast<int>(text.tokens.size());
  const std::vector<float> given = logits(text, {{rows}});
  text.rotary.clear();
  text.embeddings.clear();
  model::Decoder decoder(*backend_, weights_, group_, rows, rows, 512);
  const kernels::KvShape kv = decoder.kv_shape(kBlock);
  const auto cache = backend_->allocate(kv.block_bytes() * kBlocks);
  std::vector<std::int32_t> blocks(kBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  const kernels::Segment segment{0, rows, 0, blocks.data()};
  std::vector<std::int32_t> wanted(rows);
  std::iota(wanted.begin(), wanted.end(), 0);
  const float* plain = decoder.forward(text.tokens, {&segment, 1}, wanted, kv, cache->data());
  EXPECT_EQ(host(plain, std::size_t{1} * rows * config_.vocab), given);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, PictureParity, testing::ValuesIn(cases()),
                         [](const auto& made) {
                           std::string name =
                               made.param.fixture.filename().string() + "_" + made.param.backend;
                           std::replace(name.begin(), name.end(), '-', '_');
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(RotaryPosition, NoPartIsAbovePositions) {
  std::mt19937 random(3);
  for (int run = 0; run < 200; ++run) {
    std::vector<PictureRows> pictures;
    std::int32_t at = 0;
    for (int i = 0; i < 3; ++i) {
      at += static_cast<std::int32_t>(random() % 5);
      pictures.push_back({at, 1 + static_cast<std::int32_t>(random() % 7),
                          1 + static_cast<std::int32_t>(random() % 7)});
      at += pictures.back().count();
    }
    std::int32_t before = -1;
    for (std::int32_t position = 0; position < at + 5; ++position) {
      const RotaryPosition p = rotary_position(pictures, position);
      EXPECT_LE(std::max({p.frame, p.row, p.column}), position);
      EXPECT_GE(std::min({p.row, p.column}), p.frame);
      EXPECT_GE(p.frame, before);
      before = p.frame;
    }
  }
}

}  // namespace
}  // namespace paceline
