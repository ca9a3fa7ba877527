// Drafting with EAGLE-3, P-EAGLE and DFlash heads of random weights. A draft must be what the head
// says of the text and its features alone, whatever was asked, accepted, rolled back or given up
// before.
#include "runtime/draft/head_drafter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "runtime/kv/block_pool.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/kernels/test_backends.hpp"
#include "tests/runtime/draft/model_drafter_fixture.hpp"
#include "tests/runtime/model/random_model.hpp"

namespace paceline::draft {
namespace {

constexpr int kVocab = 512;

enum class Kind : std::uint8_t { eagle3, peagle, dflash };

/// Two layers in heads that draft at once.
template <class Config>
Config published_config(int draft_vocab, Kind kind) {
  Config config;
  ModelConfig& layer = config.layer;
  layer.vocab = kVocab;
  layer.hidden = target().config.hidden;
  layer.intermediate = 96;
  layer.layers = kind == Kind::eagle3 ? 1 : 2;
  layer.heads = 4;
  layer.kv_heads = 2;
  layer.head_dim = 16;
  config.target_hidden = layer.hidden;
  config.draft_vocab = draft_vocab;
  if (kind != Kind::eagle3) config.mask_token = 3;
  for (int i = 0; draft_vocab < kVocab && i < draft_vocab; ++i)
    config.target_ids.push_back(2 * i + 1);
  return config;
}

HeadConfig head_config(int draft_vocab, Kind kind) {
  if (kind != Kind::dflash) {
    auto config = published_config<Eagle3Config>(draft_vocab, kind);
    config.prefix = "midlayer.";
    return config;
  }
  auto config = published_config<DFlashConfig>(draft_vocab, kind);
  config.layer.qk_norm = true;
  config.read_layers = {1, 2};
  config.block_size = 8;
  config.own_output = true;
  return config;
}

/// What the target is said to have had of a text at a position: any function of what came before.
std::vector<std::byte> feature_of(const Text& text, std::size_t position, std::size_t bytes) {
  std::uint32_t seed = 1;
  for (std::size_t i = 0; i <= position; ++i)
    seed = seed * 1664525U + static_cast<std::uint32_t>(text[i]) + 1013904223U;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> feature(bytes);
  for (std::size_t i = 0; i < bytes; i += 2) {
    std::uint32_t bits = 0;
    const float value = normal(random);
    std::memcpy(&bits, &value, sizeof bits);
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(feature.data() + i, &half, sizeof half);
  }
  return feature;
}

class HeadDrafterTest : public ModelDrafterFixture {
 protected:
  void use(int draft_vocab, Kind kind = Kind::eagle3) {
    const HeadConfig config = head_config(draft_vocab, kind);
    const test::RandomModel random(expected_tensors(model::describe_head(config)));
    weights_ = std::make_shared<model::HeadWeights>(*backend_, config, random, DType::bf16);
    embedding_ = backend_->embedding(
        kernels::test::whole(*target().weights.find("model.embed_tokens.weight")));
  }
  std::unique_ptr<HeadDrafter> make_drafter(const SamplingParams& sampling,
                                            const ModelDrafterOptions& o) {
    return std::make_unique<HeadDrafter>(*backend_, weights_, embedding_, group_, sampling, kStops,
                                         o);
  }

  [[nodiscard]] static Text text_of(const Told& request) {
    Text text = request.prompt;
    text.insert(text.end(), request.response.begin(), request.response.end());
    return text;
  }
  /// Tells of positions [first, end) of the request's text.
  static void observe(Drafter& drafter, const Told& request, std::size_t first, std::size_t end) {
    const Text text = text_of(request);
    FeatureReader& reader = *drafter.capabilities().features;
    std::vector<std::byte> features;
    for (std::size_t position = first; position < end; ++position) {
      const auto one = feature_of(text, position, reader.feature_bytes());
      features.insert(features.end(), one.begin(), one.end());
    }
    reader.observe(request.id, static_cast<std::int32_t>(first), features);
  }
  /// As a step of the target: of the positions up to the last token, then the tokens.
  static void step(Drafter& drafter, Told& request, const Text& tokens) {
    if (tokens.empty()) return;
    const std::size_t known = text_of(request).size() - 1;
    request.response.insert(request.response.end(), tokens.begin(), tokens.end());
    observe(drafter, request, known, known + tokens.size());
    drafter.commit(request.id, tokens, 0);
  }

  /// The best tokens after the request's text and a path behind it, by the head alone, from rows
  /// from position `origin` on. With masked rows only the path's length counts, which is below a
  /// block's.
  std::vector<kernels::Ranked> ranked(const Told& request, const SamplingParams& sampling,
                                      const Text& path, int count, std::size_t origin = 0) {
    const Text text = text_of(request);
    const std::optional<TokenId> mask = mask_token(weights_->config());
    const int block = block_size(weights_->config());
    const std::size_t masked = mask && block == 0 ? path.size() : 0;
    const auto rows = static_cast<int>(text.size() - 1 - origin + masked);
    const auto made = model::make_head(
        {*backend_, weights_, embedding_, std::max({rows, block, 1}), 1, 5 * kContext, group_});
    model::FeatureHead& head = *made;
    const kernels::KvShape kv = head.kv_shape(16);
    const std::int64_t blocks = kv::blocks_for(rows + std::ssize(path) + 1 + block, 16);
    const auto cache = backend_->allocate(kv.block_bytes() * blocks);
    std::vector<std::int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::vector<std::byte> features;
    for (std::size_t position = origin; position + 1 < text.size(); ++position) {
      const auto one = feature_of(text, position, head.feature_bytes());
      features.insert(features.end(), one.begin(), one.end());
    }
    Text tokens(text.begin() + static_cast<std::ptrdiff_t>(origin) + 1, text.end());
    for (std::size_t i = 0; i < masked; ++i) {
      const std::span<const std::byte> one = weights_->mask_feature();
      features.insert(features.end(), one.begin(), one.end());
      tokens.push_back(*mask);
    }
    kernels::Segment segment{0, rows, 0, table.data()};
    std::int32_t last = rows - 1;
    auto out = head.forward(std::span<const std::byte>(features), tokens, {&segment, 1},
                            {&last, block == 0 ? 1U : 0U}, kv, cache->data());
    if (block > 0) {
      tokens.assign(block, *mask);
      tokens[0] = text.back();
      segment = {
          .rows = block, .first_position = rows, .blocks = table.data(), .seen = rows + block};
      last = static_cast<std::int32_t>(1 + path.size());
      out = head.forward(std::span<const float>(), tokens, {&segment, 1}, {&last, 1}, kv,
                         cache->data());
    }
    last = 0;
    for (int i = 0; !mask && i < std::ssize(path); ++i) {
      std::vector<float> own(head.layer().hidden);
      backend_->read(reinterpret_cast<const std::byte*>(out.features),
                     std::as_writable_bytes(std::span(own)));
      segment = {0, 1, rows + i, table.data()};
      out = head.forward(std::span<const float>(own), {&path[i], 1}, {&segment, 1}, {&last, 1}, kv,
                         cache->data());
    }
    const auto index = static_cast<std::int32_t>(request.response.size() + path.size());
    const kernels::SampleRow row{request.noise,
                                 index,
                                 sampling.temperature,
                                 sampling.top_k,
                                 sampling.top_p,
                                 sampling.min_p,
                                 index < sampling.min_tokens ? std::span<const TokenId>(kStops)
                                                             : std::span<const TokenId>()};
    std::vector<kernels::Ranked> best(count);
    backend_->rank(out.logits, kVocab, kVocab, {&row, 1}, count, best);
    return best;
  }
  /// The chain that the head alone drafts after that, `assumed` taken as said.
  Text chain(const Told& request, const SamplingParams& sampling, int length,
             std::size_t origin = 0, const Text& assumed = {}) {
    Text path = assumed;
    for (int i = 0; i < length; ++i) {
      path.push_back(ranked(request, sampling, path, 1, origin)[0].token);
      if (is_stop(path.back())) break;
    }
    return {path.begin() + std::ssize(assumed), path.end()};
  }
  [[nodiscard]] static bool is_stop(TokenId token) {
    return std::find(kStops.begin(), kStops.end(), token) != kStops.end();
  }

  /// A request whose prompt the target has computed, with the token that came of it.
  static void prefill(Drafter& drafter, Told& request, TokenId token) {
    drafter.start(request.start(), 0);
    // In chunks, as the target does.
    for (std::size_t first = 0; first < request.prompt.size(); first += 11)
      observe(drafter, request, first, std::min(first + 11, request.prompt.size()));
    request.response = {token};
    drafter.commit(request.id, request.response, 0);
  }
  /// One whose prompt a sibling's step has computed: its own begins at the prompt's last position.
  static void prefill_last(Drafter& drafter, Told& request, TokenId token) {
    drafter.start(request.start(), 0);
    observe(drafter, request, request.prompt.size() - 1, request.prompt.size());
    request.response = {token};
    drafter.commit(request.id, request.response, 0);
  }

  std::shared_ptr<const model::HeadWeights> weights_;
  std::shared_ptr<const kernels::Embedding> embedding_;
};

SamplingParams hot() {
  SamplingParams sampling;
  sampling.max_tokens = 400;
  return sampling;
}

// Heads of all tokens and of some, and those that draft at once.
constexpr std::pair<int, Kind> kHeads[] = {
    {kVocab, Kind::eagle3}, {200, Kind::eagle3}, {200, Kind::peagle}, {kVocab, Kind::dflash}};

TEST_F(HeadDrafterTest, DraftsAreOfTheTextAlone) {
  for (const auto& [draft_vocab, kind] : kHeads) {
    use(draft_vocab, kind);
    for (const float temperature : {0.0F, 1.0F}) {
      SamplingParams sampling = hot();
      sampling.temperature = temperature;
      sampling.max_tokens = 60;
      sampling.min_tokens = 20;
      ModelDrafterOptions o = options();
      o.paths = 1;
      const auto drafter = make_drafter(sampling, o);
      std::mt19937 random(draft_vocab);
      const auto below = [&](int n) { return static_cast<int>(random() % n); };
      std::vector<Told> requests = four();
      prefill(*drafter, requests[0], 7);
      prefill(*drafter, requests[1], 8);
      prefill(*drafter, requests[2], 9);
      prefill_last(*drafter, requests[3], 10);
      int compared = 0;
      int agreed = 0;
      for (int round = 0; round < 25; ++round) {
        const int length = 1 + below(6);
        std::vector<const Told*> asked;
        for (const Told& r : requests) {
          if (below(4) != 0) asked.push_back(&r);
        }
        std::shuffle(asked.begin(), asked.end(), random);
        const std::vector<Draft> drafts = propose(*drafter, asked, {8, length, 1});
        for (Told& r : requests) {
          const Text expected = chain(r, sampling, length);
          const auto at = std::find(asked.begin(), asked.end(), &r) - asked.begin();
          if (at < std::ssize(asked)) {
            const auto most = static_cast<std::size_t>(sampling.max_tokens) - r.response.size();
            Text wanted = expected;
            wanted.resize(std::min(wanted.size(), most));
            ASSERT_EQ(drafts[at].tokens, wanted) << "round " << round;
            compared += static_cast<int>(wanted.size());
          }
          // Some of the draft is accepted, and a token of the target's comes behind it.
          const int accepted = below(static_cast<int>(expected.size()) + 1);
          Text tokens(expected.begin(), expected.begin() + accepted);
          agreed += accepted;
          while (!tokens.empty() && tokens.back() >= 509) tokens.pop_back();
          tokens.push_back(below(500));
          if (r.response.size() + tokens.size() < 55) step(*drafter, r, tokens);
        }
      }
      EXPECT_GT(compared, 100);
      EXPECT_GT(agreed, 20);
    }
  }
}

// Every token of a tree by the chain of its ancestors, all computed anew.
TEST_F(HeadDrafterTest, ATreeIsOfTheLikeliestPaths) {
  for (const auto& [draft_vocab, kind] : kHeads) {
    use(draft_vocab, kind);
    const SamplingParams sampling = hot();
    ModelDrafterOptions o = options();
    o.paths = 4;
    const auto drafter = make_drafter(sampling, o);
    std::vector<Told> requests = four();
    std::vector<const Told*> asked;
    for (std::size_t i = 0; i < 3; ++i) {
      prefill(*drafter, requests[i], 20);
      asked.push_back(&requests[i]);
    }
    const int most = 11;
    std::vector<Draft> drafts;
    for (int round = 0; round < 2; ++round) {
      const std::vector<Text> assumed{{}, {31}, {}};
      drafts = propose(*drafter, asked, {most, 3, 3}, 64, nullptr, assumed);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        struct Node {
          Text path;
          int parent;
          double score;
        };
        std::vector<Node> pool;
        std::vector<int> frontier{-1};
        for (int level = 0; level < 3; ++level) {
          const std::size_t first = pool.size();
          for (const int at : frontier) {
            const Text path = at < 0 ? assumed[i] : pool[at].path;
            const auto best = ranked(*asked[i], sampling, path, 4);
            double sum = 0;
            for (const auto& r : best) sum += std::exp(double{r.score} - best[0].score);
            for (int c = 0; c < 3; ++c) {
              Node node{
                  path, at,
                  (at < 0 ? 0 : pool[at].score) - std::log(sum) + best[c].score - best[0].score};
              node.path.push_back(best[c].token);
              pool.push_back(node);
            }
          }
          frontier.clear();
          for (std::size_t n = first; n < pool.size(); ++n) {
            if (!is_stop(pool[n].path.back())) frontier.push_back(static_cast<int>(n));
          }
          std::stable_sort(frontier.begin(), frontier.end(),
                           [&](int a, int b) { return pool[a].score > pool[b].score; });
          frontier.resize(std::min<std::size_t>(frontier.size(), 3));
        }
        std::vector<int> kept(pool.size());
        std::iota(kept.begin(), kept.end(), 0);
        std::stable_sort(kept.begin(), kept.end(),
                         [&](int a, int b) { return pool[a].score > pool[b].score; });
        kept.resize(most);
        std::sort(kept.begin(), kept.end());
        ASSERT_EQ(drafts[i].tokens.size(), kept.size());
        for (std::size_t n = 0; n < kept.size(); ++n) {
          const Node& node = pool[kept[n]];
          EXPECT_EQ(drafts[i].tokens[n], node.path.back());
          EXPECT_NEAR(drafts[i].scores[n], std::exp(node.score), 1e-6);
          EXPECT_EQ(drafts[i].parents[n],
                    node.parent < 0
                        ? -1
                        : std::lower_bound(kept.begin(), kept.end(), node.parent) - kept.begin());
        }
      }
      for (std::size_t i = 0; i < 3; ++i)
        step(*drafter, requests[i], {drafts[i].tokens[0], static_cast<TokenId>(40 + i)});
    }
  }
}

/// Lets the draft of each request grow to so many levels.
class UnevenJudge final : public Levels {
 public:
  explicit UnevenJudge(std::map<RequestId, int> levels) : levels_(std::move(levels)) {}
  void judge(int level, std::span<GrowingDraft> drafts) override {
    for (GrowingDraft& draft : drafts) {
      asked.emplace_back(draft.id, level);
      ASSERT_EQ(draft.frontier.size(), 3U);
      ASSERT_TRUE(std::is_sorted(draft.frontier.begin(), draft.frontier.end(), std::greater<>()));
      best[draft.id] = std::exp(draft.frontier[0]);
      firsts[draft.id] = draft.first;
      draft.grows = level < levels_.at(draft.id);
    }
  }
  std::vector<std::pair<RequestId, int>> asked;
  std::map<RequestId, float> best;  ///< when last asked
  std::map<RequestId, int> firsts;

 private:
  std::map<RequestId, int> levels_;
};

TEST_F(HeadDrafterTest, AJudgeEndsEachTreeForItself) {
  use(kVocab);
  const SamplingParams sampling = hot();
  std::vector<Told> requests = four();
  const auto started = [&] {
    auto drafter = make_drafter(sampling, options());
    for (std::size_t i = 0; i < 3; ++i) {
      requests[i].response.clear();
      prefill(*drafter, requests[i], 20);
    }
    return drafter;
  };
  const std::vector<const Told*> asked{&requests[0], &requests[1], &requests[2]};
  const std::vector<Text> assumed{{}, {31}, {}};
  const auto drafter = started();
  UnevenJudge judge({{requests[0].id, 1}, {requests[1].id, 2}, {requests[2].id, 9}});
  const auto drafts = propose(*drafter, asked, {30, 4, 3}, 64, &judge, assumed);
  for (std::size_t i = 0; i < 3; ++i) {
    const int levels = i == 2 ? 4 : static_cast<int>(i) + 1;
    const auto other = started();
    const auto expected =
        propose(*other, {&requests[i]}, {30, levels, 3}, 64, nullptr, {assumed[i]});
    EXPECT_EQ(drafts[i], expected[0]) << i;
    EXPECT_EQ(judge.firsts.at(requests[i].id), 1 + std::ssize(assumed[i]));
  }
  EXPECT_EQ(drafter->rows() - started()->rows(),
            // Prompts' rows, what is assumed, and three of a level but of the last.
            requests[0].prompt.size() + requests[1].prompt.size() + requests[2].prompt.size() + 1 +
                3 * (0 + 1 + 3));
  EXPECT_FLOAT_EQ(judge.best.at(requests[0].id), drafts[0].scores[0]);
  using Asked = std::pair<RequestId, int>;
  EXPECT_EQ(judge.asked, (std::vector<Asked>{{requests[0].id, 1},
                                             {requests[1].id, 1},
                                             {requests[2].id, 1},
                                             {requests[1].id, 2},
                                             {requests[2].id, 2},
                                             {requests[2].id, 3}}));
}

class EachHead : public HeadDrafterTest, public testing::WithParamInterface<Kind> {};
INSTANTIATE_TEST_SUITE_P(Heads, EachHead, testing::Values(Kind::eagle3, Kind::dflash),
                         [](const auto& made) {
                           return made.param == Kind::eagle3 ? "eagle3" : "dflash";
                         });

TEST_P(EachHead, WhatIsAssumedCountsAsSaid) {
  use(kVocab, GetParam());
  const SamplingParams sampling = hot();
  const auto drafter = make_drafter(sampling, options());
  std::vector<Told> requests = four();
  for (std::size_t i = 0; i < 3; ++i) prefill(*drafter, requests[i], 20);
  const std::vector<Text> assumed{{}, {5}, {6, 7, 8}};
  const auto drafts = propose(*drafter, {&requests[0], &requests[1], &requests[2]}, {4, 4, 1}, 64,
                              nullptr, assumed);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(drafts[i].tokens, chain(requests[i], sampling, 4, 0, assumed[i])) << i;
  // A round without: what was assumed is gone.
  EXPECT_EQ(propose(*drafter, requests[2], {4, 4, 1}).tokens, chain(requests[2], sampling, 4));
}

TEST_P(EachHead, APromptIsItsSiblingsTooWhenTheOneThatComputedItIsGone) {
  use(kVocab, GetParam());
  const SamplingParams sampling = hot();
  const auto drafter = make_drafter(sampling, options());
  Told first = four()[2];
  Told second = four()[3];
  Told third = second;
  third.id.sample = 2;
  drafter->start(second.start(), 0);
  prefill(*drafter, first, 3);
  drafter->finish(first.id, 0);
  observe(*drafter, second, second.prompt.size() - 1, second.prompt.size());
  second.response = {4};
  drafter->commit(second.id, second.response, 0);
  EXPECT_EQ(propose(*drafter, second, {5, 5, 1}).tokens, chain(second, sampling, 5));
  // Its KV is there now, and a sibling that comes later needs no features of it.
  prefill_last(*drafter, third, 9);
  EXPECT_EQ(propose(*drafter, third, {5, 5, 1}).tokens, chain(third, sampling, 5));
  // Before its first token too: the prompt's last token is what is drafted after.
  Told fourth = third;
  fourth.id.sample = 3;
  fourth.response.clear();
  drafter->start(fourth.start(), 0);
  EXPECT_EQ(propose(*drafter, fourth, {5, 5, 1}).tokens, chain(fourth, sampling, 5));
  // And when all have ended.
  for (const Told* r : {&second, &third, &fourth}) drafter->finish(r->id, 0);
  Told fifth = third;
  fifth.id.sample = 4;
  fifth.response.clear();
  prefill_last(*drafter, fifth, 11);
  EXPECT_EQ(propose(*drafter, fifth, {5, 5, 1}).tokens, chain(fifth, sampling, 5));
}

TEST_P(EachHead, RowsBeginWhereFeaturesDo) {
  use(kVocab, GetParam());
  const SamplingParams sampling = hot();
  const auto drafter = make_drafter(sampling, options());
  // Siblings are about to say their first token, and nobody here has computed their prompt.
  Told unknown = four()[0];
  drafter->start(unknown.start(), 0);
  EXPECT_TRUE(propose(*drafter, unknown, {5, 5, 1}).tokens.empty());
  std::size_t at = text_of(unknown).size() - 1;
  step(*drafter, unknown, {30});
  EXPECT_EQ(propose(*drafter, unknown, {5, 5, 1}).tokens, chain(unknown, sampling, 5, at));
  Told moved = four()[1];
  moved.response = {1, 2, 3, 4, 5, 6, 7};
  drafter->start(moved.start(), 0);
  EXPECT_EQ(drafter->lag(moved.id), 0);
  EXPECT_TRUE(propose(*drafter, moved, {5, 5, 1}).tokens.empty()) << "nothing is known yet";
  // Its KV came from elsewhere up to its last token.
  std::size_t origin = text_of(moved).size() - 1;
  step(*drafter, moved, {8});
  EXPECT_EQ(propose(*drafter, moved, {5, 5, 1}).tokens, chain(moved, sampling, 5, origin));
  step(*drafter, moved, {9, 10});
  step(*drafter, moved, {11});
  EXPECT_EQ(propose(*drafter, moved, {5, 5, 1}).tokens, chain(moved, sampling, 5, origin));
  // Told of again, what is known stays.
  observe(*drafter, moved, origin, text_of(moved).size() - 1);
  EXPECT_EQ(propose(*drafter, moved, {5, 5, 1}).tokens, chain(moved, sampling, 5, origin));
  // It left, and comes back.
  drafter->leave(moved.id, 0);
  moved.response.insert(moved.response.end(), {12, 13});
  drafter->start(moved.start(), 0);
  EXPECT_TRUE(propose(*drafter, moved, {5, 5, 1}).tokens.empty());
  origin = text_of(moved).size() - 1;
  step(*drafter, moved, {14});
  EXPECT_EQ(propose(*drafter, moved, {5, 5, 1}).tokens, chain(moved, sampling, 5, origin));
  // After a gap what came before is of no use.
  drafter->commit(moved.id, Text{15, 16}, 0);
  moved.response.insert(moved.response.end(), {15, 16});
  EXPECT_TRUE(propose(*drafter, moved, {5, 5, 1}).tokens.empty());
  origin = text_of(moved).size() - 1;
  step(*drafter, moved, {17});
  EXPECT_EQ(propose(*drafter, moved, {5, 5, 1}).tokens, chain(moved, sampling, 5, origin));
}

TEST_P(EachHead, FeaturesOfLongAgoAreForgotten) {
  use(kVocab, GetParam());
  SamplingParams sampling = hot();
  sampling.max_tokens = 4 * kContext;
  ModelDrafterOptions o = options();
  o.max_position = 4 * kContext;
  o.kv_blocks = 256;
  const auto drafter = make_drafter(sampling, o);
  Told request = four()[0];
  prefill(*drafter, request, 3);
  const std::size_t kept = kMostKeptFeatures;
  Text said;
  for (std::size_t i = 0; i < kept; ++i) said.push_back(static_cast<TokenId>(i));
  step(*drafter, request, said);
  EXPECT_EQ(drafter->lag(request.id), static_cast<int>(text_of(request).size()) - 3);
  const Text whole = chain(request, sampling, 5);
  EXPECT_EQ(propose(*drafter, request, {5, 5, 1}).tokens, whole);
  EXPECT_EQ(drafter->lag(request.id), 0);
  // What was computed is not forgotten, however much comes behind it, up to twice as much.
  step(*drafter, request, said);
  EXPECT_EQ(propose(*drafter, request, {5, 5, 1}).tokens, chain(request, sampling, 5));
  for (int i = 0; i < 2; ++i) step(*drafter, request, said);
  EXPECT_EQ(drafter->lag(request.id), static_cast<int>(kept) - 2);
  const std::size_t known = text_of(request).size() - 1;
  EXPECT_EQ(propose(*drafter, request, {5, 5, 1}).tokens,
            chain(request, sampling, 5, known - kept));
}

TEST_P(EachHead, SequencesThatMadeRoomBeginAnew) {
  use(kVocab, GetParam());
  const SamplingParams sampling = hot();
  ModelDrafterOptions o = options();
  o.kv_blocks = 9;  // two of the texts
  const auto drafter = make_drafter(sampling, o);
  std::vector<Told> requests = four();
  for (Told& r : requests) prefill(*drafter, r, 20);
  // The two that are asked for always keep what they have.
  int drafted = 0;
  for (int round = 0; round < 12; ++round) {
    const Text draft = propose(*drafter, requests[0], {4, 4, 1}).tokens;
    ASSERT_EQ(draft, chain(requests[0], sampling, 4)) << "round " << round;
    for (std::size_t i = 1; round > 3 && i < 4; ++i)
      drafted += static_cast<int>(propose(*drafter, requests[i], {4, 4, 1}).tokens.size());
    for (Told& r : requests) step(*drafter, r, {static_cast<TokenId>(30 + round)});
    if (round > 3) break;
  }
  EXPECT_GT(drafted, 0);
  // Together they do not fit: some are drafted for, and all in turn.
  std::vector<const Told*> all;
  for (const Told& r : requests) all.push_back(&r);
  std::vector<int> served(4);
  for (int round = 0; round < 12; ++round) {
    const auto drafts = propose(*drafter, all, {4, 4, 1});
    for (std::size_t i = 0; i < 4; ++i) served[i] += drafts[i].tokens.empty() ? 0 : 1;
    for (Told& r : requests) step(*drafter, r, {static_cast<TokenId>(50 + round), 3, 4});
  }
  EXPECT_GT(*std::max_element(served.begin(), served.end()), 6);
}

// Assumed tokens take places of the block, and a draft does not depend on the length asked for.
TEST_F(HeadDrafterTest, ADraftEndsWithItsBlock) {
  use(kVocab, Kind::dflash);
  const SamplingParams sampling = hot();
  ModelDrafterOptions o = options();
  o.max_length = 20;
  const auto drafter = make_drafter(sampling, o);
  std::vector<Told> requests = four();
  for (std::size_t i = 0; i < 3; ++i) prefill(*drafter, requests[i], 20);
  const std::vector<const Told*> asked{&requests[0], &requests[1], &requests[2]};
  const std::vector<Text> assumed{{}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6, 7}};
  const auto drafts = propose(*drafter, asked, {20, 20, 1}, 64, nullptr, assumed);
  EXPECT_EQ(drafts[0].tokens, chain(requests[0], sampling, 7));
  EXPECT_EQ(drafts[1].tokens, chain(requests[1], sampling, 2, 0, assumed[1]));
  EXPECT_EQ(drafts[2].tokens, Text());
  const Text shorter = propose(*drafter, requests[0], {3, 3, 1}).tokens;
  EXPECT_EQ(shorter, Text(drafts[0].tokens.begin(), drafts[0].tokens.begin() + 3));
  // A drafter of short drafts has logits for no more rows of a block, and drafts the same.
  o.max_length = 3;
  o.max_requests = 3;
  const auto brief = make_drafter(sampling, o);
  for (Told& request : requests) request.response.clear();
  for (std::size_t i = 0; i < 3; ++i) prefill(*brief, requests[i], 20);
  const auto briefly = propose(*brief, asked, {20, 20, 1});
  EXPECT_EQ(briefly[0].tokens, shorter);
  for (const std::size_t i : {1, 2}) EXPECT_EQ(briefly[i].tokens, chain(requests[i], sampling, 3));
}

TEST_F(HeadDrafterTest, FaultsOfTheCaller) {
  use(kVocab);
  const auto drafter = make_drafter(hot(), options());
  Told request = four()[0];
  EXPECT_THROW(observe(*drafter, request, 0, 3), std::logic_error);
  drafter->start(request.start(), 0);
  EXPECT_THROW(drafter->start(request.start(), 0), std::logic_error);
  drafter->finish(request.id, 0);
  EXPECT_THROW(drafter->finish(request.id, 0), std::logic_error);
  EXPECT_EQ(drafter->capabilities().memory, nullptr);
  ModelDrafterOptions bad = options();
  bad.kv_block = 8;
  EXPECT_THROW((void)make_drafter(hot(), bad), std::invalid_argument);
}

}  // namespace
}  // namespace paceline::draft
