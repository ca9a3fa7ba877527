// Drafts cost what the table says, and say the same however they are asked for.
#include "runtime/sim/drafter.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "tests/runtime/sim/modelled_work.hpp"
#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

constexpr int kNgram = 0, kModel = 1;

/// Of easy numbers. Past one point costs rise in proportion.
DrafterCosts costs(bool lags, const CostCurve& next) {
  DrafterCosts costs{.name = "draft",
                     .first = CostCurve({{1, 1}}, 0.01),
                     .round = CostCurve({{1, 0.1}}, 0.001),
                     .catch_up = {}};
  if (lags) costs.catch_up = CostCurve({{4, 8}, {100, 200}});
  costs.next = next;
  return costs;
}

/// Two siblings that are finished make the rates a fifth higher.
Workload learning_from_siblings(Workload work) {
  for (MethodAcceptance& method : work.acceptance.methods)
    method.by_references = {{0, 1}, {2, 1.2}};
  return work;
}

class Drafting {
 public:
  explicit Drafting(int method = kModel, bool lags = true, bool learns = false,
                    const CostCurve& next = {})
      : work(learns ? learning_from_siblings(modelled_work(2, 3)) : modelled_work(2, 3)),
        responses(work, kNoiseSeed, 0),
        costs_(costs(lags, next)),
        actor_(world),
        drafter(world, actor_.id, costs_, method, work.acceptance, responses) {}

  /// With so many tokens of its response.
  void start(RequestId id, std::int32_t tokens = 0) {
    drafter.start({.id = id,
                   .prompt = work.prompts[id.prompt].tokens,
                   .response = said(id, 0, tokens),
                   .noise = noise_of(work, id)},
                  0);
  }
  void commit(RequestId id, std::int32_t from, std::int32_t count) {
    drafter.commit(id, said(id, from, count), 0);
  }
  /// What the response says there.
  std::vector<TokenId>& said(RequestId id, std::int32_t from, std::int32_t count) {
    const Response& response = responses.of(noise_of(work, id));
    said_.clear();
    for (std::int32_t i = from; i < from + count; ++i)
      said_.push_back(responses.token(response, i));
    return said_;
  }

  [[nodiscard]] int lag(RequestId id) const { return drafter.lag(id); }

  struct Wish {
    RequestId id;
    int tokens = 0;
    std::vector<TokenId> assumed = {};
  };
  /// [wishes] The tokens drafted; sets seconds and scores.
  std::vector<std::vector<TokenId>> propose(std::vector<Wish> wishes) {
    std::vector<std::vector<TokenId>> tokens;
    std::vector<std::vector<std::int32_t>> parents;
    scores.clear();
    for (const Wish& wish : wishes) {
      tokens.emplace_back(wish.tokens);
      parents.emplace_back(wish.tokens);
      scores.emplace_back(wish.tokens);
    }
    std::vector<draft::DraftSlot> slots;
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      slots.push_back({wishes[i].id,
                       {wishes[i].tokens, wishes[i].tokens, 1},
                       {tokens[i], parents[i], scores[i]},
                       wishes[i].assumed});
    }
    const double before = world.clock(actor_.id).now();
    drafter.propose(slots, before, nullptr);
    seconds = world.clock(actor_.id).now() - before;
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      for (int t = 0; t < slots[i].count; ++t) EXPECT_EQ(parents[i][t], t - 1);
      tokens[i].resize(slots[i].count);
      scores[i].resize(slots[i].count);
    }
    return tokens;
  }

  World world;
  Workload work;
  Responses responses;

 private:
  DrafterCosts costs_;
  ScriptedActor actor_;
  std::vector<TokenId> said_;

 public:
  ModelledDrafter drafter;
  double seconds = 0;
  std::vector<std::vector<float>> scores;
};

TEST(ModelledDrafter, ADraftIsAFirstRoundAndFurtherOnes) {
  Drafting d(kModel, false);
  d.start({0, 0}, 10);  // texts of 30 and 20 tokens
  d.start({1, 0});
  d.propose({{{0, 0}, 1}});
  EXPECT_NEAR(d.seconds, 1 + 0.01 * 30, 1e-9);
  d.propose({{{0, 0}, 3}, {{1, 0}, 1}});
  EXPECT_NEAR(d.seconds, (2 + 0.01 * 2 * 25) + 2 * (0.1 + 0.001 * 25), 1e-9);
  d.propose({{{0, 0}, 0}});
  EXPECT_EQ(d.seconds, 0);
}

TEST(ModelledDrafter, ADraftThatGoesOnFromTheLastOneCostsWhatWasMeasuredOfThat) {
  Drafting d(kModel, false, false, CostCurve({{1, 0.2}}));
  d.start({0, 0}, 10);  // texts of 30 and 20 tokens
  d.start({1, 0});
  std::vector<TokenId> chain = d.propose({{{0, 0}, 1}})[0];
  EXPECT_NEAR(d.seconds, 1 + 0.01 * 30, 1e-9);
  chain.push_back(d.propose({{{0, 0}, 1, chain}})[0][0]);
  EXPECT_NEAR(d.seconds, 0.2, 1e-9);
  d.commit({0, 0}, 10, 1);
  chain.erase(chain.begin());
  d.propose({{{0, 0}, 2, chain}, {{1, 0}, 1}});
  EXPECT_NEAR(d.seconds, 2 * 0.2 + (1 + 0.01 * 25.5 - 0.2) + (0.1 + 0.001 * 25.5), 1e-9);
  d.propose({{{0, 0}, 1, chain}});  // after fewer tokens than were drafted
  EXPECT_NEAR(d.seconds, 1 + 0.01 * 31, 1e-9);
}

TEST(ModelledDrafter, CatchesUpWithWhatIsCommitted) {
  Drafting d;
  EXPECT_NE(d.drafter.capabilities().state, nullptr);
  d.start({0, 0}, 10);
  EXPECT_EQ(d.lag({0, 0}), 29);  // all but the last, with which every draft begins
  d.propose({{{0, 0}, 1}});
  EXPECT_NEAR(d.seconds, 1 + 0.01 * 30 + 2.0 * 29, 1e-9);
  EXPECT_EQ(d.lag({0, 0}), 0);
  d.commit({0, 0}, 10, 1);
  EXPECT_EQ(d.lag({0, 0}), 0);
  d.commit({0, 0}, 11, 2);
  EXPECT_EQ(d.lag({0, 0}), 2);
  d.propose({{{0, 0}, 1}});
  // Fewer tokens than were measured cost their share.
  EXPECT_NEAR(d.seconds, 1 + 0.01 * 33 + 8.0 * 2 / 4, 1e-9);
}

TEST(ModelledDrafter, LookupNeverLags) {
  Drafting d(kNgram, false);
  d.start({0, 0}, 40);
  EXPECT_EQ(d.drafter.capabilities().state, nullptr);
  EXPECT_EQ(d.lag({0, 0}), 0);
}

/// How many tokens of a draft from `from` on are the response's.
int agreeing(Drafting& d, RequestId id, std::int32_t from, const std::vector<TokenId>& draft) {
  const std::vector<TokenId> said = d.said(id, from, static_cast<std::int32_t>(draft.size()));
  int right = 0;
  while (right < static_cast<int>(draft.size()) && draft[right] == said[right]) ++right;
  return right;
}

// Of a draft the KV of the tokens that are accepted is there, but that of its last.
TEST(ModelledDrafter, WhatOfADraftIsAcceptedNeedNotBeCaughtUpWith) {
  Drafting d;
  std::set<int> seen;
  for (const RequestId id : {RequestId{0, 0}, RequestId{0, 1}, RequestId{1, 0}}) {
    d.start(id);
    for (std::int32_t at = 0; at + 8 < 60;) {
      const std::vector<TokenId> draft = d.propose({{id, 4}}).front();
      const int right = agreeing(d, id, at, draft);
      d.commit(id, at, right + 1);
      at += right + 1;
      EXPECT_EQ(d.lag(id), right == 4 ? 1 : 0) << "at " << at;
      seen.insert(right);
    }
  }
  EXPECT_EQ(seen, std::set<int>({0, 1, 2, 3, 4})) << "not all that can happen has";
}

TEST(ModelledDrafter, SaysTheSameHoweverItIsAsked) {
  for (const int method : {kNgram, kModel}) {
    Drafting d(method, method == kModel), other(method, method == kModel);
    d.start({0, 1});
    const std::vector<TokenId> whole = d.propose({{{0, 1}, 12}}).front();
    ASSERT_EQ(whole.size(), 12U);
    EXPECT_NE(whole, d.said({0, 1}, 0, 12)) << "all of it is right";
    // Five tokens, and then the others with those assumed.
    const std::vector<TokenId> head = d.propose({{{0, 1}, 5}}).front();
    std::vector<TokenId> tail = d.propose({{{0, 1}, 7, head}}).front();
    tail.insert(tail.begin(), head.begin(), head.end());
    EXPECT_EQ(tail, whole);
    // One by one, as responses are committed, of one that began elsewhere too.
    other.start({0, 1}, 3);
    for (std::int32_t at = 3; at < 12; ++at) {
      const std::vector<TokenId> one = other.propose({{{0, 1}, 1}}).front();
      EXPECT_EQ(one.front(), whole[at]) << "token " << at;
      other.commit({0, 1}, at, 1);
    }
  }
}

// However it comes to know that they are: each counts once, and those of other prompts do not.
TEST(ModelledDrafter, SiblingsCountOnceTheirEndIsKnown) {
  const auto right = [](Drafting& d) {
    d.propose({{{0, 0}, 30}});
    double sum = 0;
    for (const float score : d.scores.front()) sum += score;
    return sum;
  };
  EXPECT_EQ(Drafting().drafter.capabilities().siblings, nullptr);
  Drafting d(kModel, false, true);
  EXPECT_NE(d.drafter.capabilities().siblings, nullptr);
  d.start({0, 0});
  d.start({0, 1});
  const double alone = right(d);
  const std::vector<TokenId> text(5, 3);
  d.drafter.hear({0, 2}, 0, text, false, 0);
  d.drafter.hear({1, 2}, 0, text, true, 0);
  EXPECT_EQ(right(d), alone);
  d.drafter.hear({0, 2}, 5, {}, true, 0);
  d.drafter.hear({0, 2}, 5, {}, true, 0);
  const double one = right(d);
  EXPECT_GT(one, alone);
  d.drafter.finish({0, 1}, 0);
  EXPECT_GT(right(d), one);
}

TEST(ModelledDrafter, DraftsEndWithTheResponse) {
  Drafting d;
  d.start({0, 0}, 57);
  EXPECT_EQ(d.propose({{{0, 0}, 8}}).front().size(), 3U);
}

TEST(ModelledDrafter, ScoresOfAPathNeverRise) {
  Drafting d;
  d.start({0, 0});
  d.propose({{{0, 0}, 10}});
  float before = 1;
  for (const float score : d.scores.front()) {
    EXPECT_LE(score, before);
    EXPECT_GT(score, 0);
    before = score;
  }
  EXPECT_LT(before, 1);
}

TEST(ModelledDrafter, RequestsBeginAndEndOnce) {
  Drafting d;
  d.start({0, 0});
  EXPECT_THROW(d.start({0, 0}), std::logic_error);
  d.drafter.leave({0, 0}, 0);
  d.start({0, 0}, 5);  // it comes back
  d.drafter.finish({0, 0}, 0);
  EXPECT_THROW(d.drafter.finish({0, 0}, 0), std::logic_error);
  EXPECT_THROW(d.drafter.leave({0, 0}, 0), std::logic_error);
}

}  // namespace
}  // namespace paceline::sim
