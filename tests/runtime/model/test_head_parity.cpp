// Heads against references in PyTorch, on the small random ones of tests/models/parity_eagle3,
// parity_dflash and parity_mtp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/dflash_reader.hpp"
#include "io/checkpoint/eagle3_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/feature_head.hpp"
#include "tests/io/checkpoint/files.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/model/parity_fixtures.hpp"

namespace paceline {
namespace {

namespace fs = std::filesystem;

struct Case {
  fs::path fixture;
  std::string backend;
  bool shared;  ///< two processes pack the weights together
};

std::vector<Case> cases(std::initializer_list<const char*> kinds) {
  std::vector<Case> made;
  for (const char* kind : kinds) {
    for (const fs::path& fixture : test::fixtures(kind)) {
      for (const std::string& name : kernels::test::backends()) {
        made.push_back({fixture, name, false});
        made.push_back({fixture, name, true});
      }
    }
  }
  return made;
}

constexpr int kBlock = 16;
constexpr int kBlocks = 8;

class HeadParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const fs::path& folder = GetParam().fixture;
    nlohmann::json reference;
    std::ifstream(folder / "reference.json") >> reference;
    tokens_ = reference["tokens"].get<std::vector<TokenId>>();
    drafted_ = reference["drafted"].get<std::vector<TokenId>>();
    chain_ = reference["chain"].get<std::size_t>();
    levels_ = reference["levels"].get<std::vector<std::vector<std::int32_t>>>();
    target_ids_ = reference["target_ids"].get<std::vector<TokenId>>();
    const test::TemporaryDirectory answers;
    fs::create_symlink(fs::absolute(folder / "reference.safetensors"),
                       answers.file("model.safetensors"));
    answers_ = std::make_unique<io::Checkpoint>(answers.path());
    backend_ = kernels::test::backend_named(GetParam().backend);
    if (folder.parent_path().filename() == "parity_eagle3") {
      io::Eagle3Checkpoint eagle = io::load_eagle3(model::families(), folder);
      config_ = std::move(eagle.config);
      checkpoint_ = std::move(eagle.weights);
    } else if (folder.parent_path().filename() == "parity_dflash") {
      io::DFlashCheckpoint dflash = io::load_dflash(model::families(), folder);
      config_ = std::move(dflash.config);
      checkpoint_ = std::move(dflash.weights);
    } else {
      MtpConfig mtp =
          io::next_token_layer(io::load_model_config(model::families(), folder), "config.json");
      checkpoint_ = std::make_unique<io::Checkpoint>(folder);
      io::check_tensor_shapes(mtp, *checkpoint_);
      config_ = std::move(mtp);
    }
    const io::BorrowingSource source(*checkpoint_, *answers_);
    const auto load = [&](const model::SharedPacking& shared) {
      return std::make_shared<model::HeadWeights>(*backend_, config_, source, DType::f32, shared);
    };
    const std::size_t bytes = model::packed_bytes(*backend_, config_, DType::f32);
    auto weights = load({});
    if (GetParam().shared && bytes > 0) {  // else it computes from memory of its own
      memory_ = backend_->allocate(bytes);
      const std::span<std::byte> memory(memory_->data(), bytes);
      EXPECT_THROW(load({memory.first(bytes - 64)}), Error) << "it takes no more than it uses";
      weights = load({memory, 0, 2});
      (void)load({memory, 1, 2});
    }
    head_ =
        model::make_head({*backend_, std::move(weights),
                          backend_->embedding(kernels::test::whole(*answers_->find("embedding"))),
                          static_cast<int>(tokens_.size()), static_cast<int>(tokens_.size()),
                          kBlock * kBlocks, group_});
    kv_ = head_->kv_shape(kBlock);
    cache_ = backend_->allocate(kv_.block_bytes() * kBlocks);
    std::iota(blocks_.rbegin(), blocks_.rend(), 0);
  }

  /// [rows, columns] of the answers.
  [[nodiscard]] std::span<const float> answer(const std::string& name) const {
    const std::span<const std::byte> bytes = answers_->find(name)->bytes;
    return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
  }

  /// What a pass gave of its rows.
  struct Rows {
    std::vector<float> logits;    ///< [rows, vocab]
    std::vector<float> features;  ///< [rows, hidden]
  };
  template <class Feature>
  Rows run(std::span<const Feature> features, std::span<const TokenId> tokens,
           kernels::Segment segment) {
    segment.rows = static_cast<int>(tokens.size());
    segment.blocks = blocks_.data();
    std::vector<std::int32_t> all(tokens.size());
    std::iota(all.begin(), all.end(), 0);
    const auto out = head_->forward(features, tokens, {&segment, 1}, all, kv_, cache_->data());
    Rows rows;
    rows.logits.resize(tokens.size() * head_->layer().vocab);
    rows.features.resize(tokens.size() * head_->layer().hidden);
    backend_->read(reinterpret_cast<const std::byte*>(out.logits),
                   std::as_writable_bytes(std::span(rows.logits)));
    backend_->read(reinterpret_cast<const std::byte*>(out.features),
                   std::as_writable_bytes(std::span(rows.features)));
    return rows;
  }
  /// The text's rows, in two passes.
  Rows run_text() {
    const std::span<const std::byte> features = answers_->find("features")->bytes;
    const std::size_t first = 17;
    const std::size_t bytes = head_->feature_bytes();
    const auto tokens = std::span<const TokenId>(tokens_).subspan(1);
    Rows rows = run(features.first(first * bytes), tokens.first(first), {});
    kernels::Segment rest;
    rest.first_position = first;
    const Rows more = run(features.subspan(first * bytes), tokens.subspan(first), rest);
    rows.logits.insert(rows.logits.end(), more.logits.begin(), more.logits.end());
    rows.features.insert(rows.features.end(), more.features.begin(), more.features.end());
    return rows;
  }
  /// The feature of the last of the rows, or of some other.
  std::vector<float> feature(const Rows& rows, std::ptrdiff_t row = -1) const {
    const std::ptrdiff_t hidden = head_->layer().hidden;
    const auto at = row < 0 ? rows.features.end() - hidden : rows.features.begin() + row * hidden;
    return {at, at + hidden};
  }

  /// To 2e-4 of how far logits spread; tokens that the head has not are out of the question.
  void expect_near(std::span<const float> logits, std::span<const float> expected) const {
    const auto drafted = static_cast<std::size_t>(draft_vocab(config_));
    const auto vocab = static_cast<std::size_t>(head_->layer().vocab);
    ASSERT_EQ(logits.size() / vocab, expected.size() / drafted);
    double squares = 0;
    for (const float x : expected) squares += static_cast<double>(x) * x;
    const double spread = std::sqrt(squares / static_cast<double>(expected.size()));
    std::size_t finite = 0;
    double largest = 0;
    for (std::size_t row = 0; row < logits.size() / vocab; ++row) {
      for (std::size_t i = 0; i < drafted; ++i) {
        const double found = logits[row * vocab + target_ids_[i]];
        largest = std::max(largest, std::abs(found - expected[row * drafted + i]));
      }
      for (std::size_t i = 0; i < vocab; ++i)
        finite += logits[row * vocab + i] > -std::numeric_limits<float>::infinity() ? 1 : 0;
    }
    EXPECT_LT(largest, 2e-4 * spread);
    EXPECT_EQ(finite, logits.size() / vocab * drafted);
  }

  std::vector<TokenId> tokens_, drafted_, target_ids_;
  std::size_t chain_ = 0;
  std::vector<std::vector<std::int32_t>> levels_;
  std::unique_ptr<io::Checkpoint> answers_;
  std::shared_ptr<kernels::Backend> backend_;
  std::unique_ptr<io::Checkpoint> checkpoint_;
  HeadConfig config_;
  fabric::SingleRankGroup group_;
  std::unique_ptr<kernels::Buffer> memory_;  ///< of shared weights
  std::unique_ptr<model::FeatureHead> head_;
  kernels::KvShape kv_;
  std::unique_ptr<kernels::Buffer> cache_;
  std::vector<std::int32_t> blocks_ = std::vector<std::int32_t>(kBlocks);
};

TEST_P(HeadParity, OfAText) { expect_near(run_text().logits, answer("logits")); }

TEST_P(HeadParity, OfAChainOnItsOwnFeatures) {
  std::vector<float> last = feature(run_text());
  std::vector<float> logits;
  kernels::Segment segment;
  segment.first_position = static_cast<int>(tokens_.size()) - 1;
  for (std::size_t i = 0; i < chain_; ++i, ++segment.first_position) {
    const Rows row = run(std::span<const float>(last),
                         std::span<const TokenId>(drafted_).subspan(i, 1), segment);
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    last = feature(row);
  }
  expect_near(logits, answer("chain_logits"));
}

TEST_P(HeadParity, OfATreeThatGrows) {
  const std::vector<float> text = feature(run_text());
  std::vector<std::int32_t> parents;
  Rows tree;
  kernels::Segment segment;
  segment.first_position = static_cast<int>(tokens_.size()) - 1;
  for (const std::vector<std::int32_t>& level : levels_) {
    std::vector<float> features;
    for (const std::int32_t parent : level) {
      const std::vector<float> one = parent < 0 ? text : feature(tree, parent);
      features.insert(features.end(), one.begin(), one.end());
    }
    segment.before = static_cast<int>(parents.size());
    parents.insert(parents.end(), level.begin(), level.end());
    segment.parents = parents.data();
    const Rows rows =
        run(std::span<const float>(features),
            std::span<const TokenId>(drafted_).subspan(segment.before, level.size()), segment);
    tree.logits.insert(tree.logits.end(), rows.logits.begin(), rows.logits.end());
    tree.features.insert(tree.features.end(), rows.features.begin(), rows.features.end());
  }
  expect_near(tree.logits, answer("tree_logits"));
}

// Masked rows come in the pass that has the text's last rows.
TEST_P(HeadParity, OfMaskedRows) {
  const std::optional<TokenId> mask = mask_token(config_);
  if (!mask) {
    EXPECT_EQ(answers_->find("masked_logits"), nullptr);
    return;
  }
  const std::span<const float> expected = answer("masked_logits");
  const std::size_t masked = expected.size() / draft_vocab(config_);
  ASSERT_GT(masked, 3U);
  const std::span<const std::byte> given = answers_->find("features")->bytes;
  std::vector<std::byte> features(given.begin(), given.end());
  const std::span<const std::byte> one = head_->weights().mask_feature();
  for (std::size_t i = 0; i < masked; ++i) features.insert(features.end(), one.begin(), one.end());
  std::vector<TokenId> tokens(tokens_.begin() + 1, tokens_.end());
  tokens.insert(tokens.end(), masked, *mask);
  const std::size_t first = tokens.size() - masked - 3;
  const std::size_t bytes = head_->feature_bytes();
  (void)run(std::span<const std::byte>(features).first(first * bytes),
            std::span<const TokenId>(tokens).first(first), {});
  kernels::Segment rest;
  rest.first_position = static_cast<int>(first);
  const Rows rows = run(std::span<const std::byte>(features).subspan(first * bytes),
                        std::span<const TokenId>(tokens).subspan(first), rest);
  const std::size_t vocab = head_->layer().vocab;
  expect_near(std::span<const float>(rows.logits).subspan(3 * vocab), expected);
}

class DFlashParity : public HeadParity {};

// The context in two passes, beside a shorter sequence's, then both blocks in one.
TEST_P(DFlashParity, OfABlock) {
  const std::span<const std::byte> features = answers_->find("features")->bytes;
  const std::size_t bytes = head_->feature_bytes();
  const auto context = static_cast<int>(tokens_.size()) - 1;
  constexpr int kFirst = 17;
  constexpr int kOther = 5;  // positions of the other sequence
  const std::span<const std::int32_t> other = std::span(blocks_).last(2);
  const auto store = [&](int first, int rows, std::span<const kernels::Segment> segments) {
    const std::vector<TokenId> none(rows);
    (void)head_->forward(features.subspan(first * bytes, rows * bytes), none, segments, {}, kv_,
                         cache_->data());
  };
  const kernels::Segment begin{.rows = kFirst, .blocks = blocks_.data()};
  store(0, kFirst, {&begin, 1});
  const std::vector<kernels::Segment> rest{
      {.rows = context - kFirst - kOther, .first_position = kFirst, .blocks = blocks_.data()},
      {.first_row = context - kFirst - kOther, .rows = kOther, .blocks = other.data()}};
  store(kFirst, context - kFirst, rest);
  const kernels::Segment last{
      .rows = kOther, .first_position = context - kOther, .blocks = blocks_.data()};
  store(context - kOther, kOther, {&last, 1});

  const int block = block_size(config_);
  std::vector<TokenId> tokens(block, *mask_token(config_));
  tokens[0] = tokens_.back();
  const std::vector<TokenId> one = tokens;
  tokens.insert(tokens.end(), one.begin(), one.end());
  const std::vector<kernels::Segment> blocks{
      {.rows = block, .first_position = context, .blocks = blocks_.data(), .seen = context + block},
      {.first_row = block,
       .rows = block,
       .first_position = kOther,
       .blocks = other.data(),
       .seen = kOther + block}};
  std::vector<std::int32_t> all(2 * block);
  std::iota(all.begin(), all.end(), 0);
  const auto out =
      head_->forward(std::span<const float>(), tokens, blocks, all, kv_, cache_->data());
  std::vector<float> logits(static_cast<std::size_t>(2 * block) * head_->layer().vocab);
  backend_->read(reinterpret_cast<const std::byte*>(out.logits),
                 std::as_writable_bytes(std::span(logits)));
  const std::span<const float> first = std::span(logits).first(logits.size() / 2);
  expect_near(first, answer("block_logits"));
  EXPECT_FALSE(std::ranges::equal(first, std::span(logits).last(first.size())));
}

const auto kNameOf = [](const auto& made) {
  std::string name = made.param.fixture.filename().string() + "_" + made.param.backend +
                     (made.param.shared ? "_shared" : "");
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(Heads, HeadParity,
                         testing::ValuesIn(cases({"parity_eagle3", "parity_mtp"})), kNameOf);
INSTANTIATE_TEST_SUITE_P(Heads, DFlashParity, testing::ValuesIn(cases({"parity_dflash"})), kNameOf);

}  // namespace
}  // namespace paceline
