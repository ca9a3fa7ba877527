// Prompts with pictures in batches, on the small random checkpoints of
// tests/models/parity_pictures: what transformers computed of them, and that nothing of a schedule
// shows.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/image_processor_reader.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/images/processor.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/engine/packed_prefill.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/runtime/model/answers.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/parity_fixtures.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::engine {
namespace {

constexpr int kTokens = 20;  // of a response
constexpr int kSamples = 3;

/// Reads PNG files. One with a byte behind its end has the negative of its colours: another picture
/// of the same grid.
class Reader final : public PictureReader {
 public:
  explicit Reader(const ImageProcessorConfig& config) : config_(config) {}
  [[nodiscard]] std::vector<float> patches(std::span<const std::byte> file, const PictureGrid& grid,
                                           const std::string& name) const override {
    const io::Picture picture = io::decode_picture(file, name);
    const io::ProcessedPicture processed = io::process(config_, picture, name);
    EXPECT_EQ(processed.grid, grid);
    std::vector<float> patches = io::patches_of(config_, processed);
    if (file.back() == std::byte{'-'})
      for (float& value : patches) value = -value;
    ++read;
    return patches;
  }
  mutable int read = 0;

 private:
  ImageProcessorConfig config_;
};

struct Shown {
  std::vector<TokenId> tokens;
  std::vector<PromptPicture> pictures;
  std::vector<PictureBytes> files;
};

/// How requests are run.
struct Way {
  BatcherLimits limits;
  const Responses* truth = nullptr;  ///< drafts are of it, with a wrong sibling beside each token
};

BatcherLimits plain(std::int32_t merge) {
  return {.max_batch = 1,
          .prefill_chunk = 256,
          .kv_block = 16,
          .kv_blocks = 200,
          .context = 512,
          .picture_merge = merge,
          .picture_rows = 1000};
}

class Pictures : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    std::ifstream(GetParam() / "reference.json") >> reference_;
    config_ = io::load_model_config(model::families(), GetParam());
    source_ = std::make_unique<io::Checkpoint>(GetParam());
    answers_ = std::make_unique<test::Answers>(GetParam() / "reference.safetensors");
    backend_ = kernels::make_cpu_backend(2);
    weights_ = model::load_weights(*backend_, config_, *source_, group_, DType::f32);
    reader_ = std::make_shared<Reader>(io::load_image_processor(GetParam()));
    ports_ = {std::make_shared<model::TowerWeights>(*backend_, config_, *source_, DType::f32),
              reader_};
    sampling_.max_tokens = kTokens;
    sampling_.masked = config_.vision->placeholders();
  }

  [[nodiscard]] std::int32_t merge() const { return config_.vision->tower->merge; }

  /// A prompt of the reference. `other`: with other pictures of the same grids.
  [[nodiscard]] Shown prompt(std::size_t number, bool other = false) const {
    const nlohmann::json& json = reference_["prompts"][number];
    Shown shown;
    shown.tokens = json["tokens"].get<std::vector<TokenId>>();
    std::int32_t at = 0;
    for (std::size_t i = 0; i < json["pictures"].size(); ++i) {
      const int picture = json["pictures"][i].get<int>();
      while (shown.tokens[at] != config_.vision->image_token) ++at;
      const PictureGrid grid{json["grids"][i][0].get<int>(), json["grids"][i][1].get<int>()};
      shown.pictures.push_back({{static_cast<std::uint64_t>(picture), other ? 1U : 0U}, grid, at});
      at += static_cast<std::int32_t>(grid.patches()) / (merge() * merge());
      std::ifstream stream(GetParam() / ("picture-" + std::to_string(picture) + ".png"),
                           std::ios::binary);
      std::string file{std::istreambuf_iterator<char>(stream), {}};
      if (other) file += '-';
      const auto bytes = std::as_bytes(std::span(file));
      shown.files.push_back(
          std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
    }
    return shown;
  }

  [[nodiscard]] std::vector<Shown> prompts() const {
    std::vector<Shown> all;
    for (std::size_t i = 0; i < reference_["prompts"].size(); ++i) {
      all.push_back(prompt(i));
      if (!all.back().pictures.empty()) all.push_back(prompt(i, true));
    }
    return all;
  }

  [[nodiscard]] std::deque<Admission> requests() const {
    std::deque<Admission> queue;
    const std::vector<Shown> all = prompts();
    for (std::uint32_t p = 0; p < all.size(); ++p) {
      for (std::uint32_t s = 0; s < kSamples; ++s) {
        Admission made;
        made.trajectory.id = {p, s};
        made.prompt = all[p].tokens;
        made.noise = noise_key(5, 0, "p" + std::to_string(p), s);
        made.pictures = all[p].pictures;
        made.files = all[p].files;
        queue.push_back(std::move(made));
      }
    }
    return queue;
  }

  [[nodiscard]] Executor executor(const BatcherLimits& limits) {
    return {*backend_,
            weights_,
            group_,
            sampling_,
            {},
            {.max_batch = limits.max_batch,
             .max_draft = 6,
             .prefill_chunk = limits.prefill_chunk,
             .kv_block = limits.kv_block,
             .kv_blocks = limits.kv_blocks,
             .max_position = limits.context},
            ports_};
  }

  [[nodiscard]] Responses generate(const Way& way, StepCounts* sums = nullptr) {
    Batcher batcher(way.limits, sampling_, {}, nullptr);
    Executor runner = executor(way.limits);
    std::deque<Admission> waiting = requests();
    Responses responses;
    reader_->read = 0;
    int pictures = 0;
    while (!waiting.empty() || batcher.active() > 0) {
      while (!waiting.empty() && batcher.admit(waiting.front())) waiting.pop_front();
      const Step& step = way.truth == nullptr ? batcher.plan() : draft(batcher, *way.truth);
      for (Admission& parked : batcher.take_parked()) waiting.push_front(std::move(parked));
      pictures += static_cast<int>(batcher.counts().pictures);
      if (sums != nullptr) sums->shared += batcher.counts().shared;
      for (Trajectory& t : batcher.commit(runner.run(step))) {
        const RequestId id = t.id;
        responses.emplace(id, std::move(t));
      }
      for (const RequestId id : batcher.ending(0)) batcher.renew(id, kTokens);
    }
    EXPECT_EQ(pictures, reader_->read);
    if (sums != nullptr) sums->pictures = pictures;
    return responses;
  }

  /// The next step, with trees: the next two tokens of each response, and a wrong one beside each.
  const Step& draft(Batcher& batcher, const Responses& truth) {
    const std::span<const Decoding> decoding = batcher.decoding();
    trees_.assign(decoding.size(), {});
    drafted_.assign(decoding.size(), {});
    static constexpr std::array<std::int32_t, 5> kParents{-1, -1, 1, 1, 0};
    for (std::size_t i = 0; i < decoding.size(); ++i) {
      const std::vector<TokenId>& tokens = truth.at(decoding[i].id).tokens;
      const auto at = static_cast<std::size_t>(decoding[i].response);
      if (at + 2 > tokens.size() || decoding[i].most_drafted < std::ssize(kParents)) continue;
      const TokenId wrong = (tokens[at] + 1) % 300;
      const TokenId later = (tokens[at + 1] + 1) % 300;
      drafted_[i] = {wrong, tokens[at], later, tokens[at + 1], later};
      trees_[i] = {drafted_[i], kParents};
    }
    return batcher.plan(trees_);
  }

  nlohmann::json reference_;
  ModelConfig config_;
  std::unique_ptr<io::Checkpoint> source_;
  std::unique_ptr<test::Answers> answers_;
  std::shared_ptr<kernels::Backend> backend_;
  fabric::SingleRankGroup group_;
  std::shared_ptr<const model::Weights> weights_;
  std::shared_ptr<Reader> reader_;
  PicturePorts ports_;
  SamplingParams sampling_;
  std::vector<DraftTree> trees_;
  std::vector<std::vector<TokenId>> drafted_;
};

TEST_P(Pictures, LogProbabilitiesAreThoseOfTransformers) {
  constexpr int kGiven = 8;  // tokens at the end of each prompt, whose logits the reference has
  const double spread = reference_["logit_std"].get<double>();
  sampling_.masked = {};
  std::vector<Shown> all;
  std::vector<GivenResponse> given;
  for (std::size_t i = 0; i < reference_["prompts"].size(); ++i) all.push_back(prompt(i));
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const std::span<const TokenId> tokens = all[i].tokens;
    given.push_back({.id = {i, 0},
                     .prompt = tokens.first(tokens.size() - kGiven),
                     .response = tokens.last(kGiven),
                     .pictures = all[i].pictures});
  }
  for (const int rows : {256, 7}) {
    PackedPrefill prefill({.rows = rows,
                           .kv_blocks = 100,
                           .picture_merge = merge(),
                           .picture_rows = 20,
                           .files = [&](std::uint32_t p) { return all[p].files; }},
                          0, given);
    Executor runner = executor(
        {.max_batch = rows, .prefill_chunk = 0, .kv_block = 16, .kv_blocks = 100, .context = 512});
    std::size_t scored = 0;
    while (true) {
      const Step& step = prefill.plan();
      if (step.empty()) break;
      for (const ResponseScores& scores : prefill.commit(runner.run(step))) {
        const std::uint32_t i = scores.id.prompt;
        const std::string name = "logits." + std::to_string(i);
        const std::int64_t kept = answers_->shape(name)[0];
        for (int t = 0; t < kGiven; ++t) {
          const float* logits = answers_->find(name) + (kept - 1 - kGiven + t) * config_.vocab;
          double sum = 0;
          for (int v = 0; v < config_.vocab; ++v) sum += std::exp(double{logits[v]});
          EXPECT_NEAR(scores.logprob[t], logits[given[i].response[t]] - std::log(sum),
                      2e-4 * spread);
          ++scored;
        }
      }
    }
    EXPECT_EQ(scored, all.size() * kGiven);
  }
}

TEST_P(Pictures, NothingOfAScheduleShowsInResponses) {
  const Responses truth = generate({plain(merge())});
  std::set<std::vector<TokenId>> different;
  for (const auto& [id, response] : truth) different.insert(response.tokens);
  EXPECT_EQ(different.size(), truth.size());  // other pictures give other responses
  for (const int batch : {3, 30}) {
    for (const int chunk : {5, 64}) {
      for (const int rows : {0, 25, 1000}) {
        BatcherLimits limits = plain(merge());
        limits.max_batch = batch;
        limits.prefill_chunk = chunk;
        limits.picture_rows = rows;
        expect_same(truth, generate({limits}));
        limits.kv_blocks = 14;  // requests are parked, and computed again
        limits.growth = 16;
        if (chunk == 64) {
          limits.kv_block = 32;
          limits.kv_blocks = 8;
        }
        expect_same(truth, generate({limits}));
        expect_same(truth, generate({limits, &truth}));
      }
    }
  }
}

TEST_P(Pictures, SiblingsComputeAPictureOnceAndOtherPicturesShareNothing) {
  BatcherLimits limits = plain(merge());
  limits.max_batch = 30;
  StepCounts sums;
  const Responses shared = generate({limits}, &sums);
  EXPECT_EQ(sums.pictures, 6U);  // three pictures, and their negatives
  EXPECT_EQ(sums.shared, 0U);    // no two prompts have a block's tokens and pictures in common
  limits.share_prefixes = false;
  expect_same(shared, generate({limits}));
}

TEST_P(Pictures, ARunScoresItsResponsesToTheBit) {
  BatcherLimits limits = plain(merge());
  limits.max_batch = 8;
  const Responses truth = generate({limits});
  const std::vector<Shown> all = prompts();
  std::vector<GivenResponse> given;
  for (const auto& [id, response] : truth) {
    given.push_back({.id = id,
                     .prompt = all[id.prompt].tokens,
                     .response = response.tokens,
                     .pictures = all[id.prompt].pictures});
  }
  PackedPrefill prefill({.rows = 50,
                         .kv_blocks = 100,
                         .picture_merge = merge(),
                         .picture_rows = 12,
                         .files = [&](std::uint32_t p) { return all[p].files; }},
                        0, given);
  Executor runner = executor(
      {.max_batch = 50, .prefill_chunk = 0, .kv_block = 16, .kv_blocks = 100, .context = 512});
  std::size_t scored = 0;
  while (true) {
    const Step& step = prefill.plan();
    if (step.empty()) break;
    for (const ResponseScores& scores : prefill.commit(runner.run(step))) {
      EXPECT_EQ(scores.logprob, truth.at(scores.id).logprob);
      EXPECT_EQ(scores.sampling_logprob, truth.at(scores.id).sampling_logprob);
      ++scored;
    }
  }
  EXPECT_EQ(scored, truth.size());
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, Pictures,
                         testing::ValuesIn(test::fixtures("parity_pictures")),
                         [](const auto& made) {
                           std::string name = made.param.filename().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

/// Pictures of these many rows each, in one row of patches, a token before each and behind all.
TextPictures text_of(std::uint32_t prompt, std::span<const int> rows) {
  std::vector<PromptPicture> pictures;
  std::int32_t at = 1;
  for (const int count : rows) {
    pictures.push_back({{prompt, pictures.size()}, {1, count}, at});
    at += count + 1;
  }
  const auto file = std::make_shared<const std::vector<std::byte>>(1);
  std::vector<PictureBytes> files(pictures.size(), file);
  return TextPictures::of(prompt, std::move(pictures), std::move(files), 1);
}

TEST(PictureSlots, AStepEndsBeforeThePictureThatHasNoPlace) {
  PictureSlots slots(10);
  const std::array<int, 3> sizes{6, 4, 3};
  const TextPictures text = text_of(0, sizes);
  Step step;
  slots.begin();
  EXPECT_EQ(slots.add(text, 0, 17, step), 13);  // up to the third
  ASSERT_EQ(step.pictures.size(), 2U);
  ASSERT_EQ(step.spans.size(), 2U);
  EXPECT_EQ(step.spans[1].first_row, 8);
  EXPECT_EQ(step.spans[1].slot, 1);
  step.clear();
  slots.begin();
  EXPECT_EQ(slots.add(text, 13, 4, step), 4);  // the first makes way
  ASSERT_EQ(step.pictures.size(), 2U);
  EXPECT_EQ(step.files[0], nullptr);
  EXPECT_EQ(step.pictures[1].slot, 0);
  EXPECT_NE(step.files[1], nullptr);
  step.clear();
  slots.begin();
  EXPECT_EQ(slots.add(text, 9, 3, step), 3);  // the second is kept still
  EXPECT_TRUE(step.pictures.empty());
  EXPECT_EQ(step.spans[0].first, 1);
}

TEST(PictureSlots, OnePictureIsKeptHoweverLarge) {
  PictureSlots slots(10);
  const std::array<int, 1> large{50};
  Step step;
  slots.begin();
  EXPECT_EQ(slots.add(text_of(0, large), 0, 20, step), 20);
  EXPECT_EQ(slots.add(text_of(1, large), 0, 20, step), 1);
  slots.begin();
  EXPECT_EQ(slots.add(text_of(1, large), 1, 20, step), 20);
}

}  // namespace
}  // namespace paceline::engine
