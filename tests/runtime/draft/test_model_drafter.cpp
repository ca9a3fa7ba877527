// The model drafter on the embedded models. The target drafting for itself must say what plain
// decoding says, whatever was accepted, skipped or given up before.
#include "runtime/draft/model_drafter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "tests/runtime/draft/model_drafter_fixture.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace paceline::draft {
namespace {

/// What the target says, one token a step: the engine itself.
class PlainDecoding {
 public:
  PlainDecoding(kernels::Backend& backend, const SamplingParams& sampling)
      : sampling_(sampling),
        executor_(
            backend,
            model::load_weights(backend, target().config, target().weights, group_, DType::bf16),
            group_, sampling, kStops,
            {.max_batch = 1,
             .prefill_chunk = kContext,
             .kv_block = 16,
             .kv_blocks = kContext / 8,
             .max_position = kContext}) {}

  /// The tokens after the response, at most `count`.
  Text next(const Text& prompt, const Text& response, NoiseKey noise, int count) {
    SamplingParams sampling = sampling_;
    sampling.max_tokens =
        std::min(sampling.max_tokens, static_cast<std::int32_t>(response.size()) + count);
    if (sampling.max_tokens <= static_cast<std::int32_t>(response.size())) return {};
    engine::Batcher batcher({.max_batch = 1,
                             .prefill_chunk = kContext,
                             .kv_block = 16,
                             .kv_blocks = kContext / 8,
                             .context = kContext},
                            sampling, kStops, nullptr);
    Admission request;
    request.prompt = prompt;
    request.noise = noise;
    request.trajectory.tokens = response;
    request.trajectory.logprob.resize(response.size());
    request.trajectory.sampling_logprob.resize(response.size());
    EXPECT_TRUE(batcher.admit(request));
    for (;;) {
      const std::vector<Trajectory> ended = batcher.commit(executor_.run(batcher.plan()));
      if (!ended.empty()) {
        const Text& all = ended[0].tokens;
        return {all.begin() + static_cast<std::ptrdiff_t>(response.size()), all.end()};
      }
    }
  }

 private:
  SamplingParams sampling_;
  fabric::SingleRankGroup group_;
  engine::Executor executor_;
};

class ModelDrafterTest : public ModelDrafterFixture {
 protected:
  /// Steps in which the target's own drafts are compared with what it says, parts of them are
  /// accepted, other tokens are committed against them, and requests sit out, end and are resumed.
  void follow(const SamplingParams& sampling, ModelDrafterOptions o, std::uint32_t seed) {
    PlainDecoding plain(*backend_, sampling);
    const auto drafter = make(target(), sampling, o);
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    std::vector<Told> requests = four();
    for (const Told& r : requests) drafter->start(r.start(), 0);
    int compared = 0;
    for (int step = 0; step < 30; ++step) {
      const DraftLimits limits{1 + below(9), 1 + below(6), 1 + 2 * below(2)};
      std::vector<const Told*> asked;
      for (const Told& r : requests) {
        if (below(4) != 0) asked.push_back(&r);
      }
      std::shuffle(asked.begin(), asked.end(), random);
      const std::vector<Draft> drafts = propose(*drafter, asked, limits);
      for (Told& r : requests) {
        const int length = std::min(limits.max_tokens, limits.max_length);
        const Text truth = plain.next(r.prompt, r.response, r.noise, length + 1);
        const auto at = std::find(asked.begin(), asked.end(), &r) - asked.begin();
        if (at < static_cast<std::ptrdiff_t>(asked.size())) {
          const Text expected(truth.begin(),
                              truth.begin() + std::min<std::ptrdiff_t>(length, std::ssize(truth)));
          ASSERT_EQ(drafts[at].main_path(), expected) << "step " << step;
          if (limits.paths == 1) {
            ASSERT_EQ(drafts[at].tokens, expected);
          }
          compared += static_cast<int>(expected.size());
        }
        Text tokens(truth.begin(), truth.begin() + below(static_cast<int>(truth.size()) + 1));
        if (tokens.size() < truth.size() && below(2) == 0) {
          tokens.push_back((truth[tokens.size()] + 1 + below(400)) % 500);  // none of the stops
        }
        commit(*drafter, r, tokens);
        if (r.ended() || std::ssize(r.response) >= sampling.max_tokens) {
          drafter->finish(r.id, 0);
          r.id.sample += 10;
          r.noise.stream += 100;
          r.response.resize(below(static_cast<int>(r.response.size())));
          drafter->start(r.start(), 0);  // goes on that began elsewhere
        }
      }
    }
    EXPECT_GT(compared, 150);
  }
};

TEST_F(ModelDrafterTest, TheTargetForItselfSaysWhatPlainDecodingSays) {
  SamplingParams sampling;
  sampling.max_tokens = 60;
  follow(sampling, options(), 1);
  sampling.temperature = 1.4F;
  follow(sampling, options(), 2);
}

TEST_F(ModelDrafterTest, FiltersAndTemperatureZeroAreTheTargets) {
  SamplingParams sampling;
  sampling.max_tokens = 60;
  sampling.temperature = 2;
  sampling.top_k = 12;
  sampling.top_p = 0.9F;
  follow(sampling, options(), 3);
  sampling.top_k = 0;
  sampling.min_p = 0.02F;
  follow(sampling, options(), 4);
  sampling.temperature = 0;
  follow(sampling, options(), 5);
}

TEST_F(ModelDrafterTest, GreedyDraftsAreArgmaxWhateverTheTemperature) {
  SamplingParams greedy;
  greedy.temperature = 0;
  PlainDecoding plain(*backend_, greedy);
  SamplingParams sampling;
  sampling.temperature = 3;
  ModelDrafterOptions o = options();
  o.noise = DraftNoise::greedy;
  const auto drafter = make(target(), sampling, o);
  for (const Told& r : four()) {
    drafter->start(r.start(), 0);
    EXPECT_EQ(propose(*drafter, r, {8, 8, 1}).tokens, plain.next(r.prompt, {}, r.noise, 8));
  }
}

TEST_F(ModelDrafterTest, StopIdsAreBannedBeforeMinTokensAndEndChainsAfterwards) {
  // A position at which the target stops, with and without the ban.
  SamplingParams sampling;
  sampling.max_tokens = 400;
  PlainDecoding plain(*backend_, sampling);
  Told r = four()[2];
  const Text whole = plain.next(r.prompt, {}, r.noise, 400);
  ASSERT_EQ(whole.back(), 511);
  r.response.assign(whole.begin(), whole.end() - 3);

  const auto free = make(target(), sampling, options());
  free->start(r.start(), 0);
  EXPECT_EQ(propose(*free, r, {8, 8, 1}).tokens, Text(whole.end() - 3, whole.end()));

  sampling.min_tokens = static_cast<std::int32_t>(whole.size()) + 2;
  PlainDecoding banned_plain(*backend_, sampling);
  const auto banned = make(target(), sampling, options());
  banned->start(r.start(), 0);
  const Draft draft = propose(*banned, r, {8, 8, 1});
  EXPECT_EQ(draft.tokens, banned_plain.next(r.prompt, r.response, r.noise, 8));
  EXPECT_GE(draft.tokens.size(), 6U);
  follow(sampling, options(), 6);
}

TEST_F(ModelDrafterTest, DraftsDoNotDependOnTheBatchOrOnWhatIsHeld) {
  SamplingParams sampling;
  const DraftLimits limits{9, 5, 3};
  const auto together = make(small(), sampling, options());
  std::vector<Told> requests = four();
  requests.push_back({{7, 0}, chat("Sort 47 55 12 51 97 69."), {5, 14}, {}});  // a second part
  std::vector<const Told*> all;
  for (const Told& r : requests) {
    together->start(r.start(), 0);
    all.push_back(&r);
  }
  for (int step = 0; step < 6; ++step) {
    const std::vector<Draft> drafts = propose(*together, all, limits);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      ModelDrafterOptions other = options();
      other.max_requests = 1;
      other.kv_block = 32;
      other.kv_blocks = kContext / 32;
      const auto alone = make(small(), sampling, other);
      alone->start(requests[i].start(), 0);
      ASSERT_EQ(propose(*alone, requests[i], limits), drafts[i]) << "step " << step;
      Text tokens = drafts[i].main_path();
      tokens.resize(step % 5);
      tokens.push_back(static_cast<TokenId>(20 + step));
      commit(*together, requests[i], tokens);
    }
  }
}

TEST_F(ModelDrafterTest, TreesHaveTheNextRankedTokensAsLeaves) {
  for (const DraftNoise noise : {DraftNoise::shared, DraftNoise::greedy}) {
    SamplingParams sampling;
    sampling.temperature = 1.5F;
    ModelDrafterOptions o = options();
    o.noise = noise;
    const auto drafter = make(small(), sampling, o);
    Told r = four()[1];
    r.response = {40, 41, 42};
    drafter->start(r.start(), 0);
    const Draft draft = propose(*drafter, r, {64, 6, 3});
    const Text path = draft.main_path();
    ASSERT_EQ(path.size(), 6U);
    ASSERT_EQ(draft.tokens.size(), 18U);

    // The model's scores after each token of the path, from one pass.
    Text text = r.prompt;
    text.insert(text.end(), r.response.begin(), r.response.end());
    const auto first = static_cast<std::int32_t>(text.size()) - 1;
    text.insert(text.end(), path.begin(), path.end() - 1);
    const int rows = static_cast<int>(text.size());
    model::Decoder decoder(*backend_, load(small()), group_, rows, 6, kContext);
    const kernels::KvShape kv = decoder.kv_shape(16);
    const auto cache = backend_->allocate(kv.block_bytes() * kContext / 16);
    std::vector<std::int32_t> blocks(kContext / 16);
    std::iota(blocks.begin(), blocks.end(), 0);
    const kernels::Segment segment{0, rows, 0, blocks.data()};
    const std::vector<std::int32_t> logit_rows = {first,     first + 1, first + 2,
                                                  first + 3, first + 4, first + 5};
    const float* logits = decoder.forward(text, {&segment, 1}, logit_rows, kv, cache->data());
    double path_score = 1;
    std::int32_t parent = -1;
    for (int level = 0; level < 6; ++level) {
      kernels::SampleRow row;
      row.noise = r.noise;
      row.step = 3 + level;
      row.temperature = noise == DraftNoise::greedy ? 0 : 1.5F;
      std::vector<kernels::Ranked> ranked(4);
      const int vocab = small().config.vocab;
      backend_->rank(logits + static_cast<std::ptrdiff_t>(level) * vocab, vocab, vocab, {&row, 1},
                     4, ranked);
      std::vector<std::size_t> children;
      for (std::size_t i = 0; i < draft.tokens.size(); ++i) {
        if (draft.parents[i] == parent) children.push_back(i);
      }
      ASSERT_EQ(children.size(), 3U);
      double sum = 0;
      for (const kernels::Ranked& k : ranked) sum += std::exp(k.score);
      for (int j = 0; j < 3; ++j) {
        EXPECT_EQ(draft.tokens[children[j]], ranked[j].token);
        const double expected = path_score * std::exp(ranked[j].score) / sum;
        EXPECT_NEAR(draft.scores[children[j]], expected, 1e-5 * expected);
      }
      path_score = draft.scores[children[0]];
      parent = static_cast<std::int32_t>(children[0]);
    }

    // The room that is left goes to the likeliest leaves.
    for (const int room : {1, 4, 6, 7, 11}) {
      const Draft cut = propose(*drafter, r, {64, 6, 3}, room);
      ASSERT_EQ(propose(*drafter, r, {room, 6, 3}), cut);
      ASSERT_EQ(static_cast<int>(cut.tokens.size()), room);
      ASSERT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), draft.tokens.begin()));
      ASSERT_TRUE(std::equal(cut.parents.begin(), cut.parents.end(), draft.parents.begin()));
    }
    ASSERT_TRUE(std::is_sorted(draft.scores.begin() + 6, draft.scores.end(), std::greater<>()));
  }
}

TEST_F(ModelDrafterTest, AcceptedTokensAreNotComputedAgain) {
  const auto drafter = make(small(), {}, options());
  Told r = four()[0];
  drafter->start(r.start(), 0);
  EXPECT_EQ(drafter->rows(), 0U);
  const auto rows_of = [&](const DraftLimits& limits) {
    const std::uint64_t before = drafter->rows();
    static_cast<void>(propose(*drafter, r, limits));
    return drafter->rows() - before;
  };
  const DraftLimits limits{32, 5, 3};
  const Draft draft = propose(*drafter, r, limits);
  EXPECT_EQ(drafter->rows(), r.prompt.size() + 4);  // none for the last token
  const Text path = draft.main_path();
  commit(*drafter, r, {path[0], path[1], path[2]});  // a prefix, in two parts
  commit(*drafter, r, {path[3], (path[4] + 1) % 500});
  EXPECT_EQ(rows_of(limits), 1U + 4);
  const Text second = propose(*drafter, r, limits).main_path();
  commit(*drafter, r, {(second[0] + 1) % 500});  // nothing was right, whatever comes after
  commit(*drafter, r, {second[0], second[1]});
  EXPECT_EQ(rows_of(limits), 3U + 4);
  EXPECT_EQ(rows_of(limits), 1U + 4) << "nothing new: the last token again";
  Text all = propose(*drafter, r, limits).tokens;
  all.resize(5);
  all.push_back(33);
  commit(*drafter, r, all);  // all was right; the last drafted token has no KV yet
  EXPECT_EQ(rows_of({1, 5, 1}), 2U);
  EXPECT_EQ(drafter->kv_bytes(), 2U * 3 * 2 * 64 * 2 * kContext * 4);
  EXPECT_GT(drafter->weight_bytes(), 1'100'000U);  // bf16, norms and biases apart
}

TEST_F(ModelDrafterTest, FullPoolGivesUpWhatWasNotDraftedForLongest) {
  SamplingParams sampling;
  PlainDecoding plain(*backend_, sampling);
  ModelDrafterOptions o = options();
  o.kv_blocks = 2 * (4 + 1);  // a prompt has one block beside those of its sequences
  const auto drafter = make(target(), sampling, o);
  std::vector<Told> requests = four();
  requests[3].id = {3, 0};
  for (Told& r : requests) {
    r.response = plain.next(r.prompt, {}, r.noise, 50 - static_cast<int>(r.prompt.size()));
    ASSERT_EQ(r.prompt.size() + r.response.size(), 50U);  // four blocks each with a draft
    drafter->start(r.start(), 0);
  }
  const DraftLimits limits{4, 4, 1};
  const auto check = [&](const std::vector<int>& asked, const std::vector<int>& counts,
                         std::size_t rows) {
    std::vector<const Told*> batch;
    for (const int i : asked) batch.push_back(&requests[i]);
    const std::uint64_t before = drafter->rows();
    const std::vector<Draft> drafts = propose(*drafter, batch, limits);
    EXPECT_EQ(drafter->rows() - before, rows);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const Told& r = *batch[i];
      EXPECT_EQ(drafts[i].tokens, plain.next(r.prompt, r.response, r.noise, counts[i]))
          << "request " << asked[i];
    }
  };
  check({0, 1}, {4, 4}, 2 * 53);
  check({1}, {4}, 1 + 3);
  check({2}, {4}, 53);                       // in the place of 0
  check({1, 2}, {4, 4}, 2 * 4);              // so these are held
  check({0, 1, 2, 3}, {0, 4, 4, 0}, 2 * 4);  // those that are held stay
  check({3, 0}, {4, 4}, 2 * 53);             // room for both, now that no other is asked for
  for (const int i : {0, 1, 2}) drafter->finish(requests[i].id, 0);
  check({3}, {4}, 4);

  // Alone it has the whole pool, 144 positions; then it gets shorter drafts, then none.
  Told& last = requests[3];
  commit(*drafter, last, Text(93, 40));
  check({3}, {2}, 93 + 1);
  commit(*drafter, last, {41});
  check({3}, {1}, 1);
  commit(*drafter, last, {42});
  check({3}, {0}, 0);
}

TEST_F(ModelDrafterTest, SmallPoolsChangeNothingElse) {
  SamplingParams sampling;
  sampling.max_tokens = 40;
  PlainDecoding plain(*backend_, sampling);
  ModelDrafterOptions o = options();
  o.kv_blocks = 11;
  const auto drafter = make(target(), sampling, o);
  std::mt19937 random(9);
  std::vector<Told> requests = four();
  std::vector<const Told*> batch;
  for (const Told& r : requests) {
    drafter->start(r.start(), 0);
    batch.push_back(&r);
  }
  int drafted = 0;
  int refused = 0;
  for (int step = 0; step < 12; ++step) {
    std::shuffle(batch.begin(), batch.end(), random);
    const std::span<const Told* const> asked = std::span(batch).first(1 + random() % 4);
    const std::vector<Draft> drafts = propose(*drafter, {asked.begin(), asked.end()}, {4, 4, 1});
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const Text& tokens = drafts[i].tokens;
      const Told& r = *asked[i];
      EXPECT_EQ(tokens, plain.next(r.prompt, r.response, r.noise, static_cast<int>(tokens.size())));
      drafted += static_cast<int>(tokens.size());
      refused += tokens.empty() ? 1 : 0;
    }
    for (Told& r : requests) commit(*drafter, r, plain.next(r.prompt, r.response, r.noise, 3));
  }
  EXPECT_GT(drafted, 30);
  EXPECT_GT(refused, 0);
}

TEST_F(ModelDrafterTest, LongTextsGetShorterDraftsAndThenNone) {
  SamplingParams sampling;
  sampling.max_tokens = 60;
  ModelDrafterOptions o = options();
  o.max_position = 100;
  const auto drafter = make(small(), sampling, o);
  Told r{{0, 0}, Text(90, 30), {1, 2}, {}};
  drafter->start(r.start(), 0);
  EXPECT_EQ(propose(*drafter, r, {16, 16, 1}).tokens.size(), 8U);  // max_length
  commit(*drafter, r, Text(8, 31));
  EXPECT_EQ(propose(*drafter, r, {16, 16, 1}).tokens.size(), 3U);
  commit(*drafter, r, Text(2, 31));
  EXPECT_EQ(propose(*drafter, r, {16, 16, 2}).tokens.size(), 2U);
  commit(*drafter, r, Text(1, 31));
  EXPECT_TRUE(propose(*drafter, r, {16, 16, 2}).tokens.empty());
  Told near{{0, 1}, Text(5, 30), {1, 3}, Text(58, 31)};  // two tokens from the response's longest
  drafter->start(near.start(), 0);
  EXPECT_EQ(propose(*drafter, near, {16, 16, 1}).tokens.size(), 2U);
  EXPECT_TRUE(propose(*drafter, near, {0, 16, 1}).tokens.empty());
  EXPECT_TRUE(propose(*drafter, near, {16, 16, 0}).tokens.empty());
}

TEST_F(ModelDrafterTest, SharedNoiseAgreesMoreThanIndependentNoise) {
  SamplingParams sampling;
  sampling.temperature = 3;  // high entropy: these models are sure of what they know
  PlainDecoding plain(*backend_, sampling);
  int agreed[2] = {0, 0};
  int total = 0;
  for (const Told& r : four()) {
    const Text truth = plain.next(r.prompt, {}, r.noise, 80);
    for (const bool shared : {true, false}) {
      const auto drafter = make(small(), sampling, options());
      Told told = r;
      if (!shared) told.noise.key ^= 0x9E3779B97F4A7C15U;
      drafter->start(told.start(), 0);
      for (const TokenId token : truth) {
        agreed[shared ? 0 : 1] += propose(*drafter, told, {1, 1, 1}).tokens[0] == token ? 1 : 0;
        commit(*drafter, told, {token});
      }
    }
    total += static_cast<int>(truth.size());
  }
  RecordProperty("shared", std::to_string(agreed[0]) + " of " + std::to_string(total));
  RecordProperty("independent", std::to_string(agreed[1]) + " of " + std::to_string(total));
  EXPECT_GT(agreed[0], total * 4 / 10);
  EXPECT_GT(agreed[0], 5 * agreed[1]);
}

TEST_F(ModelDrafterTest, TokensThatTheTargetDoesNotHaveAreNotDrafted) {
  SamplingParams sampling;
  sampling.temperature = 30;  // nearly uniform: all tokens come up
  ModelDrafterOptions o = options();
  for (const int vocab : {512, 100}) {
    o.vocab = vocab;
    const auto drafter = make(small(), sampling, o);
    Told r{{0, 0}, {5, 6, 7, 8}, {1, 10}, {}};
    drafter->start(r.start(), 0);
    TokenId largest = 0;
    for (int step = 0; step < 20; ++step) {
      for (const TokenId token : propose(*drafter, r, {24, 8, 3}).tokens) {
        EXPECT_LT(token, vocab);
        largest = std::max(largest, token);
      }
      commit(*drafter, r, {static_cast<TokenId>(9 + step)});
    }
    EXPECT_GT(largest, vocab * 3 / 4);
  }
}

TEST_F(ModelDrafterTest, SiblingsComputeTheirPromptOnce) {
  const auto drafter = make(small(), {}, options());
  std::vector<Told> requests;
  for (std::uint32_t s = 0; s < 3; ++s)
    requests.push_back({{7, s}, chat("Compute 153 * 5."), {1, 10 + s}, {}});
  const std::size_t prompt = requests[0].prompt.size();
  for (const Told& r : requests) drafter->start(r.start(), 0);
  const auto together = propose(*drafter, {&requests[0], &requests[1], &requests[2]}, {1, 1, 1});
  EXPECT_EQ(drafter->rows(), prompt + 2);  // the others compute its last token alone

  const auto other = make(small(), {}, options());
  for (std::size_t i = 0; i < 3; ++i) {
    other->start(requests[i].start(), 0);
    EXPECT_EQ(propose(*other, requests[i], {1, 1, 1}).tokens, together[i].tokens);
    commit(*drafter, requests[i], {9, 9, 9});
    drafter->finish(requests[i].id, 0);  // the last leaves the prompt behind
    other->finish(requests[i].id, 0);
  }
  EXPECT_THROW(drafter->commit(requests[2].id, requests[2].prompt, 0), std::logic_error);
  std::uint64_t before = drafter->rows();
  Told late{{7, 9}, requests[0].prompt, {1, 19}, {}};
  drafter->start(late.start(), 0);
  EXPECT_EQ(drafter->lag(late.id), 0);
  const Draft with_help = propose(*drafter, late, {8, 8, 1});
  EXPECT_EQ(drafter->rows() - before, with_help.tokens.size());
  const auto fresh = make(small(), {}, options());
  fresh->start(late.start(), 0);
  EXPECT_EQ(propose(*fresh, late, {8, 8, 1}).tokens, with_help.tokens);

  drafter->finish(late.id, 0);
  drafter->start(late.start(), 0);  // an ended request may come again
  before = drafter->rows();
  EXPECT_EQ(propose(*drafter, late, {8, 8, 1}).tokens, with_help.tokens);
  EXPECT_GE(drafter->rows() - before, with_help.tokens.size());
}

TEST_F(ModelDrafterTest, LagIsWhatADraftMustCatchUpOn) {
  const auto drafter = make(small(), {}, options());
  Told r = four()[0];
  drafter->start(r.start(), 0);
  EXPECT_EQ(drafter->lag(r.id), static_cast<int>(r.prompt.size()) - 2);
  static_cast<void>(propose(*drafter, r, {4, 4, 1}));
  EXPECT_EQ(drafter->lag(r.id), 0);
  commit(*drafter, r, {9});
  EXPECT_EQ(drafter->lag(r.id), 0);
  commit(*drafter, r, {9, 9, 9, 9});
  EXPECT_EQ(drafter->lag(r.id), 3);
}

/// Lets drafts grow to so many levels, and keeps what it was asked with.
class CountingJudge final : public Levels {
 public:
  explicit CountingJudge(int levels) : levels_(levels) {}
  void judge(int level, std::span<GrowingDraft> drafts) override {
    asked.push_back(level);
    seen.clear();
    for (GrowingDraft& draft : drafts) {
      ASSERT_EQ(draft.frontier.size(), 1U);
      seen.push_back(std::exp(draft.frontier[0]));
      draft.grows = level < levels_;
    }
  }
  std::vector<int> asked;
  std::vector<float> seen;  ///< likelihoods of the paths, when last asked

 private:
  int levels_;
};

TEST_F(ModelDrafterTest, AJudgeIsAskedBetweenLevels) {
  const std::vector<Told> requests = four();
  std::vector<const Told*> batch;
  for (const Told& r : requests) batch.push_back(&r);
  const auto started = [&](const ModelDrafterOptions& o) {
    auto drafter = make(small(), {}, o);
    for (const Told& r : requests) drafter->start(r.start(), 0);
    return drafter;
  };
  for (int levels = 1; levels <= 6; ++levels) {
    const auto short_limits = started(options());
    const auto expected = propose(*short_limits, batch, {12, levels, 2});
    const auto judged = started(options());
    CountingJudge judge(levels);
    EXPECT_EQ(propose(*judged, batch, {12, 6, 2}, 64, &judge), expected);
    EXPECT_EQ(judged->rows(), short_limits->rows()) << "no level is computed in vain";
    std::vector<int> asked(std::min(levels, 5));  // the last level of all is not judged
    std::iota(asked.begin(), asked.end(), 1);
    EXPECT_EQ(judge.asked, asked);
    if (levels == 6) continue;
    std::vector<float> paths;  // that could have gone on
    for (const Draft& draft : expected) {
      const Text path = draft.main_path();
      if (std::ssize(path) == levels && path.back() < kStops.front())
        paths.push_back(draft.scores[levels - 1]);
    }
    ASSERT_EQ(judge.seen.size(), paths.size());
    for (std::size_t i = 0; i < paths.size(); ++i)
      EXPECT_NEAR(judge.seen[i], paths[i], 1e-5F * paths[i]) << "it sees how likely the draft is";
  }
  ModelDrafterOptions o = options();
  o.max_requests = 3;
  CountingJudge judge(2);
  const auto in_parts = started(o);
  EXPECT_EQ(propose(*in_parts, batch, {12, 6, 2}, 64, &judge),
            propose(*started(options()), batch, {12, 2, 2}));
  EXPECT_EQ(judge.asked, (std::vector<int>{1, 2, 1, 2}));
  EXPECT_EQ(judge.seen.size(), 1U);
}

TEST_F(ModelDrafterTest, WrongUseIsRefused) {
  const auto drafter = make(small(), {}, options());
  Told r = four()[0];
  Told other = four()[1];
  EXPECT_THROW(propose(*drafter, r, {4, 4, 1}), std::logic_error);
  EXPECT_THROW(drafter->finish(r.id, 0), std::logic_error);
  drafter->start(r.start(), 0);
  drafter->start(other.start(), 0);
  EXPECT_THROW(drafter->start(r.start(), 0), std::logic_error);
  EXPECT_THROW(propose(*drafter, std::vector<const Told*>{&r, &r}, {4, 4, 1}), std::logic_error);
  commit(*drafter, r, {512});  // the draft model has no such token
  EXPECT_TRUE(propose(*drafter, r, {4, 4, 1}).tokens.empty());
  EXPECT_EQ(propose(*drafter, other, {4, 4, 1}).tokens.size(), 4U);

  for (const auto& spoil : std::vector<void (*)(ModelDrafterOptions&)>{
           [](ModelDrafterOptions& o) { o.vocab = 0; },
           [](ModelDrafterOptions& o) { o.max_requests = 0; },
           [](ModelDrafterOptions& o) { o.kv_block = 24; },
           [](ModelDrafterOptions& o) { o.kv_blocks = 0; },
           [](ModelDrafterOptions& o) { o.max_position = 0; },
           [](ModelDrafterOptions& o) { o.max_length = 0; },
           [](ModelDrafterOptions& o) { o.paths = 0; },
           [](ModelDrafterOptions& o) { o.paths = kernels::kMaxRanked; },
           [](ModelDrafterOptions& o) { o.prefill_chunk = -1; }}) {
    ModelDrafterOptions bad = options();
    spoil(bad);
    EXPECT_THROW(make(small(), {}, bad), std::invalid_argument);
  }
}

}  // namespace
}  // namespace paceline::draft
