// Lengths as their distribution says, siblings as like each other as is asked, and the same work
// from the same seed.
#include "runtime/sim/workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "runtime/core/error.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::sim {
namespace {

/// Of a heavy tail, as responses have: p50 595, p90 1815, p99 16483, longest 32768.
std::vector<LengthBin> histogram() {
  std::vector<LengthBin> bins;
  const auto fill = [&](std::int32_t from, std::int32_t to, double share) {
    const std::int32_t step = std::max(1, (to - from) / 500);
    const int count = (to - from + step - 1) / step;
    for (std::int32_t t = from; t < to; t += step) bins.push_back({t, share / count});
  };
  fill(9, 595, 0.5);
  fill(595, 1815, 0.4);
  fill(1815, 16483, 0.09);
  fill(16483, 32768, 0.0099);
  bins.push_back({32768, 0.0001});
  return bins;
}

WorkloadSettings settings_of(std::int32_t prompts, std::int32_t samples) {
  WorkloadSettings settings;
  settings.prompts = prompts;
  settings.samples = samples;
  settings.max_tokens = 32768;
  settings.acceptance.methods = {ngram_acceptance(), draft_model_acceptance("model:draft")};
  return settings;
}

std::vector<std::int32_t> lengths_of(const Workload& workload) {
  std::vector<std::int32_t> lengths;
  for (const auto& siblings : workload.requests)
    for (const ModelledRequest& request : siblings) lengths.push_back(request.length);
  return lengths;
}

double share_up_to(const std::vector<std::int32_t>& lengths, double most) {
  const auto count = std::count_if(lengths.begin(), lengths.end(),
                                   [most](std::int32_t length) { return length <= most; });
  return static_cast<double>(count) / static_cast<double>(lengths.size());
}

TEST(LengthDistribution, QuantilesAreThoseOfTheHistogram) {
  const std::vector<LengthBin> bins{{3, 1}, {10, 2}, {11, 1}};
  const auto lengths = LengthDistribution::of(bins);
  EXPECT_EQ(lengths.limit(), 11);
  EXPECT_EQ(lengths.quantile(0.01), 3);
  EXPECT_EQ(lengths.quantile(0.25), 3);
  EXPECT_EQ(lengths.quantile(0.26), 10);
  EXPECT_EQ(lengths.quantile(0.75), 10);
  EXPECT_EQ(lengths.quantile(0.999999), 11);
}

TEST(LengthDistribution, ALognormalIsMadeOfItsMedianAndItsTail) {
  const auto lengths = LengthDistribution::deepseek_r1();
  EXPECT_NEAR(lengths.quantile(0.5), 595, 1e-6);
  EXPECT_NEAR(lengths.quantile(0.99), 16483, 1e-5);
  EXPECT_NEAR(lengths.quantile(0.01), 595.0 * 595 / 16483, 1e-6);
  EXPECT_EQ(lengths.limit(), 0);
  EXPECT_NEAR(LengthDistribution::lognormal(100, 100).quantile(0.9), 100, 1e-9);
}

TEST(LengthDistribution, RefusesWhatIsNone) {
  const std::vector<LengthBin> falling{{3, 1}, {3, 1}};
  const std::vector<LengthBin> weightless{{3, 0}};
  EXPECT_THROW((void)LengthDistribution::of({}), std::invalid_argument);
  EXPECT_THROW((void)LengthDistribution::of(falling), std::invalid_argument);
  EXPECT_THROW((void)LengthDistribution::of(weightless), std::invalid_argument);
  EXPECT_THROW((void)LengthDistribution::fixed(0), std::invalid_argument);
  EXPECT_THROW((void)LengthDistribution::lognormal(100, 99), std::invalid_argument);
}

// Siblings are not independent: the error is that of as many groups.
TEST(Workload, LengthsAreDrawnFromTheHistogram) {
  const auto bins = histogram();
  const auto responses = LengthDistribution::of(bins);
  WorkloadSettings settings = settings_of(8000, 4);
  settings.length_correlation = 0.5;
  settings.acceptance.methods.clear();
  const auto lengths =
      lengths_of(make_workload(settings, responses, LengthDistribution::fixed(16)));
  ASSERT_EQ(lengths.size(), 32000U);
  for (const double share : {0.1, 0.5, 0.9, 0.99, 0.999}) {
    EXPECT_NEAR(share_up_to(lengths, responses.quantile(share)), share,
                4 * std::sqrt(share * (1 - share) / 8000) + 0.001);
  }
  // Scaled to another maximum it is the same shares of other lengths.
  settings.max_tokens = 2048;
  const auto scaled = lengths_of(make_workload(settings, responses, LengthDistribution::fixed(16)));
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    ASSERT_EQ(scaled[i], std::max(1.0, std::floor(lengths[i] / 16.0 + 0.5))) << lengths[i];
  }
  EXPECT_EQ(share_up_to(scaled, 2048), 1);
}

TEST(Workload, WithoutALimitLengthsAreCutNotScaled) {
  WorkloadSettings settings = settings_of(4000, 1);
  settings.max_tokens = 1000;
  const auto lengths = lengths_of(
      make_workload(settings, LengthDistribution::deepseek_r1(), LengthDistribution::fixed(16)));
  EXPECT_NEAR(share_up_to(lengths, 595), 0.5, 0.03);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 1000);
  EXPECT_GT(std::count(lengths.begin(), lengths.end(), 1000), 1000);
}

/// Ranks from 0; equal values have the middle of theirs.
std::vector<double> ranks_of(const std::vector<std::int32_t>& values) {
  std::vector<std::int32_t> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<double> ranks;
  for (const std::int32_t value : values) {
    const auto [first, last] = std::equal_range(sorted.begin(), sorted.end(), value);
    ranks.push_back(static_cast<double>((first - sorted.begin()) + (last - sorted.begin()) - 1) /
                    2);
  }
  return ranks;
}

TEST(Workload, SiblingsAreCorrelatedAsFarAsIsAsked) {
  const auto responses = LengthDistribution::of(histogram());
  for (const double asked : {0.0, 0.3, 0.7, 1.0}) {
    WorkloadSettings settings = settings_of(30000, 2);
    settings.length_correlation = asked;
    settings.acceptance.methods.clear();
    const auto ranks =
        ranks_of(lengths_of(make_workload(settings, responses, LengthDistribution::fixed(1))));
    const double mean = static_cast<double>(ranks.size() - 1) / 2;
    double common = 0;
    double own = 0;
    for (std::size_t i = 0; i < ranks.size(); i += 2) {
      common += 2 * (ranks[i] - mean) * (ranks[i + 1] - mean);
      own += (ranks[i] - mean) * (ranks[i] - mean) + (ranks[i + 1] - mean) * (ranks[i + 1] - mean);
    }
    EXPECT_NEAR(common / own, asked, 0.012);
  }
}

TEST(Workload, PromptsAreDrawnAndCut) {
  const std::vector<LengthBin> bins{{4, 1}, {40, 1}, {400, 2}};
  WorkloadSettings settings = settings_of(2000, 1);
  settings.vocabulary = 50;
  settings.max_prompt_tokens = 300;
  const Workload workload =
      make_workload(settings, LengthDistribution::fixed(5), LengthDistribution::of(bins));
  EXPECT_EQ(workload.vocabulary, 50);
  int longest = 0;
  std::set<std::string> uids;
  std::set<TokenId> tokens;
  for (const Prompt& prompt : workload.prompts) {
    ASSERT_TRUE(prompt.tokens.size() == 4 || prompt.tokens.size() == 40 ||
                prompt.tokens.size() == 300);
    longest += prompt.tokens.size() == 300 ? 1 : 0;
    uids.insert(prompt.uid);
    tokens.insert(prompt.tokens.begin(), prompt.tokens.end());
  }
  EXPECT_NEAR(longest, 1000, 100);
  EXPECT_EQ(uids.size(), 2000U);
  EXPECT_EQ(*tokens.begin(), 1);
  EXPECT_EQ(*tokens.rbegin(), 49);
  for (const auto& siblings : workload.requests) EXPECT_EQ(siblings.at(0).length, 5);
}

TEST(Workload, PromptsOfGivenLengthsLeaveRoomForNoMoreThanTheContext) {
  WorkloadSettings settings = settings_of(5, 2);
  settings.prompt_tokens = {3, 900, 40};
  settings.context = 1000;
  settings.max_tokens = 500;
  const Workload workload =
      make_workload(settings, LengthDistribution::fixed(400), LengthDistribution::fixed(7));
  const std::vector<std::size_t> expected{3, 900, 40, 3, 900};
  for (std::size_t p = 0; p < expected.size(); ++p) {
    EXPECT_EQ(workload.prompts[p].tokens.size(), expected[p]);
    for (const ModelledRequest& request : workload.requests[p])
      EXPECT_EQ(request.length, expected[p] == 900 ? 100 : 400);
  }
}

TEST(Workload, LongResponsesAreTheHardOnesForLookup) {
  const Workload workload = make_workload(settings_of(2000, 8), LengthDistribution::of(histogram()),
                                          LengthDistribution::fixed(16));
  double lookup = 0;
  double model = 0;
  int longest = 0;
  for (const auto& siblings : workload.requests) {
    for (const ModelledRequest& request : siblings) {
      ASSERT_EQ(request.acceptance.size(), 2U);
      if (request.length < 16483) continue;
      lookup += request.acceptance[0];
      model += request.acceptance[1];
      ++longest;
    }
  }
  ASSERT_GT(longest, 80);
  EXPECT_LT(lookup / longest, 0.04);
  EXPECT_NEAR(model / longest, 0.6, 0.05);
}

bool same(const ModelledRequest& a, const ModelledRequest& b) {
  return a.length == b.length && a.acceptance == b.acceptance;
}

TEST(Workload, IsOfItsSeedAndOfNothingElse) {
  const auto responses = LengthDistribution::of(histogram());
  const auto prompts = LengthDistribution::lognormal(30, 300);
  const Workload few = make_workload(settings_of(5, 3), responses, prompts);
  const Workload many = make_workload(settings_of(50, 6), responses, prompts);
  WorkloadSettings other = settings_of(5, 3);
  other.seed = 2;
  const Workload others = make_workload(other, responses, prompts);
  int different = 0;
  for (std::size_t p = 0; p < 5; ++p) {
    EXPECT_EQ(few.prompts[p].uid, many.prompts[p].uid);
    EXPECT_EQ(few.prompts[p].tokens, many.prompts[p].tokens);
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_TRUE(same(few.requests[p][s], many.requests[p][s]));
      different += same(few.requests[p][s], others.requests[p][s]) ? 0 : 1;
    }
  }
  EXPECT_EQ(different, 15);
}

TEST(Workload, TurnsShareAResponseAndLeaveRoomForAnswers) {
  WorkloadSettings settings = settings_of(200, 4);
  settings.max_tokens = 3000;
  settings.turns = {
      .most = 6, .longest = 700, .turns = {3, 9}, .seconds = {0.5, 20}, .tokens = {100, 1500}};
  const auto lengths = LengthDistribution::lognormal(600, 2500);
  const Workload work = make_workload(settings, lengths, LengthDistribution::fixed(5));
  std::map<std::size_t, int> turns;
  std::vector<double> seconds;
  for (const auto& siblings : work.requests) {
    for (const ModelledRequest& request : siblings) {
      ++turns[request.turns.size()];
      std::int32_t begin = 0;
      double waits = 0;
      std::int32_t given = 0;
      for (const ModelledTurn& turn : request.turns) {
        ASSERT_GT(turn.end, begin);
        ASSERT_LE(turn.end - begin, 700);
        begin = turn.end + turn.given;
        given += turn.given;
        waits += turn.seconds;
        seconds.push_back(turn.seconds);
      }
      ASSERT_EQ(request.length, request.turns.back().end);
      ASSERT_EQ(request.turns.back().given, 0) << "it is over";
      ASSERT_LE(request.length, 3000);
      EXPECT_EQ(request.sampled(), request.length - given);
      EXPECT_DOUBLE_EQ(request.waits(), waits);
    }
  }
  EXPECT_EQ(turns.rbegin()->first, 6U);
  EXPECT_GT(turns[1], 10);
  EXPECT_GT(turns[3], 100);
  std::sort(seconds.begin(), seconds.end());
  EXPECT_NEAR(seconds[seconds.size() / 2], 0.5, 0.06);
  EXPECT_NEAR(seconds[seconds.size() * 99 / 100], 20, 8);
  settings.turns.most = 1;
  const Workload plain = make_workload(settings, lengths, LengthDistribution::fixed(5));
  EXPECT_TRUE(plain.requests[0][0].turns.empty());
}

TEST(Workload, AConversationFailsWhereAnAnswerTakesLongerThanIsWaited) {
  WorkloadSettings settings = settings_of(200, 4);
  settings.max_tokens = 3000;
  settings.turns = {.most = 6, .turns = {3, 9}, .seconds = {0.5, 20}, .tokens = {100, 1500}};
  const auto lengths = LengthDistribution::lognormal(600, 2500);
  const auto make = [&] { return make_workload(settings, lengths, LengthDistribution::fixed(5)); };
  const Workload patient = make();
  settings.turns.timeout = 2;
  settings.turns.attempts = 3;
  const Workload bounded = make();
  int failed = 0;
  for (std::size_t p = 0; p < 200; ++p) {
    for (std::size_t s = 0; s < 4; ++s) {
      const std::vector<ModelledTurn>& asked = patient.requests[p][s].turns;
      const std::vector<ModelledTurn>& turns = bounded.requests[p][s].turns;
      ASSERT_EQ(bounded.requests[p][s].length, turns.back().end);
      for (std::size_t t = 0; t < turns.size(); ++t) {
        ASSERT_EQ(turns[t].end, asked[t].end);
        ASSERT_FALSE(asked[t].failed);
        ASSERT_EQ(turns[t].failed, asked[t].seconds > 2);
        ASSERT_EQ(turns[t].seconds, turns[t].failed ? 6 : asked[t].seconds);
        if (!turns[t].failed) continue;
        ++failed;
        ASSERT_EQ(t + 1, turns.size());
        ASSERT_EQ(turns[t].given, 0);
      }
      ASSERT_TRUE(turns.back().failed || turns.size() == asked.size());
    }
  }
  EXPECT_GT(failed, 100);
}

TEST(Workload, WhatIsOutOfRangeIsNamed) {
  const auto message = [](const std::function<void(WorkloadSettings&)>& change) {
    WorkloadSettings settings = settings_of(1, 1);
    change(settings);
    return test::message_of<UsageError>([&] {
      (void)make_workload(settings, LengthDistribution::fixed(5), LengthDistribution::fixed(5));
    });
  };
  EXPECT_EQ(message([](auto& s) { s.prompts = 0; }), "workload: prompts is 0, expected at least 1");
  EXPECT_EQ(message([](auto& s) { s.vocabulary = 2; }),
            "workload: vocabulary is 2, expected at least 3");
  EXPECT_EQ(message([](auto& s) { s.length_correlation = -0.1; }),
            "workload: length_correlation is -0.1, expected 0 to 1");
  EXPECT_EQ(message([](auto& s) { s.acceptance.drift = 2; }),
            "acceptance: drift is 2, expected 0 to 1");
}

}  // namespace
}  // namespace paceline::sim
