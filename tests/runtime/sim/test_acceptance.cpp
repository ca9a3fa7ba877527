// Rates of requests as their distribution says, and tokens that agree as often as the rates say,
// whenever and by whomever they are asked for.
#include "runtime/sim/acceptance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "runtime/core/philox.hpp"
#include "runtime/sim/draws.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::sim {
namespace {

NoiseKey key_of(std::uint32_t request) { return noise_key(7, 3, "prompt", request); }

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double spread_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}
double correlation_of(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean_a = mean_of(a);
  const double mean_b = mean_of(b);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - mean_a) * (b[i] - mean_b);
  return sum / static_cast<double>(a.size()) / spread_of(a) / spread_of(b);
}

/// [methods][requests] rates; of requests of all lengths.
std::vector<std::vector<double>> rates_of(const AcceptanceSettings& settings, int requests) {
  const AcceptanceDistribution distribution(settings);
  std::vector<std::vector<double>> rates(settings.methods.size());
  for (int i = 0; i < requests; ++i) {
    const auto drawn = distribution.draw(key_of(i), normal_quantile((i + 0.5) / requests));
    for (std::size_t m = 0; m < rates.size(); ++m) rates[m].push_back(drawn[m]);
  }
  return rates;
}

TEST(Acceptance, RatesHaveTheMeanAndSpreadThatAreSet) {
  AcceptanceSettings settings;
  for (const auto& [mean, spread] :
       {std::pair{0.6, 0.12}, {0.15, 0.12}, {0.02, 0.05}, {0.5, 0.45}, {0.98, 0.01}, {0.3, 0.0}})
    settings.methods.push_back({.name = "some", .mean = mean, .spread = spread});
  constexpr int kRequests = 20000;
  const auto rates = rates_of(settings, kRequests);
  for (std::size_t m = 0; m < rates.size(); ++m) {
    const MethodAcceptance& method = settings.methods[m];
    EXPECT_NEAR(mean_of(rates[m]), method.mean, 1e-4 + 4 * method.spread / std::sqrt(kRequests));
    EXPECT_NEAR(spread_of(rates[m]), method.spread, 1e-7 + 0.05 * method.spread);
    EXPECT_GE(*std::min_element(rates[m].begin(), rates[m].end()), 0);
    EXPECT_LE(*std::max_element(rates[m].begin(), rates[m].end()), 1);
  }
}

TEST(Acceptance, MethodsAgreeOnRequestsAsFarAsIsSet) {
  for (const double agreement : {0.0, 0.5, 1.0}) {
    AcceptanceSettings settings{.request_agreement = agreement};
    settings.methods = {draft_model_acceptance("model:a"), draft_model_acceptance("model:b")};
    const auto rates = rates_of(settings, 5000);
    EXPECT_NEAR(correlation_of(rates[0], rates[1]), agreement, 0.04);
  }
}

// SpecActor, section 5.2: of the requests that finish last n-gram's acceptance is almost zero, and
// a draft model's is 48.7 to 72.3 %.
TEST(Acceptance, TheLongestRequestsAreHardForLookupAndNotForModels) {
  AcceptanceSettings settings;
  settings.methods = {ngram_acceptance(), draft_model_acceptance("model:draft")};
  constexpr int kRequests = 20000;
  const auto rates = rates_of(settings, kRequests);
  const auto tail = [&](int method) {
    return mean_of({rates[method].end() - kRequests / 100, rates[method].end()});
  };
  EXPECT_LT(tail(0), 0.03);
  EXPECT_NEAR(mean_of(rates[0]), 0.15, 0.005);
  EXPECT_NEAR(tail(1), 0.6, 0.04);
}

TEST(Acceptance, TokensAgreeAsOftenAsTheRateSays) {
  AcceptanceSettings settings;
  settings.methods = {draft_model_acceptance("model:draft"), ngram_acceptance()};
  settings.methods[1].score_spread = 0;
  const std::vector<float> means{0.5F, 0.5F};
  constexpr int kTokens = 100000;
  for (const double rate : {0.0, 0.03, 0.5, 0.72, 1.0}) {
    for (const int method : {0, 1}) {
      const RequestDrafts drafts(settings, key_of(1), means);
      int agreed = 0;
      for (int t = 0; t < kTokens; ++t) agreed += drafts.drafted(method, t, rate).agrees ? 1 : 0;
      EXPECT_NEAR(static_cast<double>(agreed) / kTokens, rate,
                  4 * std::sqrt(rate * (1 - rate) / kTokens));
    }
  }
}

TEST(Acceptance, ATokenIsTheSameWheneverItIsAskedFor) {
  AcceptanceSettings settings;
  settings.methods = {draft_model_acceptance("model:draft"), suffix_acceptance()};
  const std::vector<float> means{0.6F, 0.4F};
  const RequestDrafts drafts(settings, key_of(1), means);
  std::map<std::pair<int, int>, std::pair<bool, double>> forwards;
  for (int t = 0; t < 3000; ++t) {
    for (const int method : {0, 1}) {
      const double rate = drafts.rate(method, t, 5);
      forwards[{method, t}] = {drafts.drafted(method, t, rate).agrees,
                               drafts.drafted(method, t, rate).score};
    }
  }
  const RequestDrafts again(settings, key_of(1), means);
  const RequestDrafts other(settings, key_of(2), means);
  int different = 0;
  for (int t = 2999; t >= 0; --t) {
    for (const int method : {1, 0}) {
      const double rate = again.rate(method, t, 5);
      const auto [agrees, score] = forwards[{method, t}];
      EXPECT_EQ(again.drafted(method, t, rate).agrees, agrees);
      EXPECT_EQ(again.drafted(method, t, rate).score, score);
      different += other.drafted(method, t, other.rate(method, t, 5)).agrees != agrees ? 1 : 0;
    }
  }
  EXPECT_GT(different, 2000);  // of 6,000: another request has a stream of its own
}

TEST(Acceptance, MethodsAgreeOnTokensAsFarAsIsSet) {
  for (const double agreement : {0.0, 0.4, 1.0}) {
    AcceptanceSettings settings{.token_agreement = agreement};
    settings.methods = {draft_model_acceptance("model:a"), draft_model_acceptance("model:b")};
    const std::vector<float> means{0.5F, 0.5F};
    const RequestDrafts drafts(settings, key_of(1), means);
    constexpr int kTokens = 40000;
    int alike = 0;
    int refuted_below = 0;
    for (int t = 0; t < kTokens; ++t) {
      alike += drafts.drafted(0, t, 0.5).agrees == drafts.drafted(1, t, 0.5).agrees ? 1 : 0;
      refuted_below +=
          drafts.drafted(0, t, 0.4).agrees && !drafts.drafted(1, t, 0.6).agrees ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(alike) / kTokens, agreement + (1 - agreement) / 2, 0.01);
    // Where both draw alike, what the worse one finds the better one finds.
    EXPECT_NEAR(static_cast<double>(refuted_below) / kTokens, (1 - agreement) * 0.16, 0.01);
  }
}

TEST(Acceptance, OfTokensOfAScoreThatShareAgrees) {
  AcceptanceSettings settings;
  settings.methods = {draft_model_acceptance("model:draft"), ngram_acceptance()};
  settings.methods[0].score_spread = 0.9;
  const std::vector<float> means{0.6F, 0.1F};
  const RequestDrafts drafts(settings, key_of(1), means);
  struct Bucket {
    double sum = 0;
    double agreed = 0;
    double count = 0;
  };
  std::array<Bucket, 10> buckets{};
  for (int t = 0; t < 100000; ++t) {
    const double score = drafts.drafted(0, t, 0.6).score;
    Bucket& bucket = buckets[static_cast<std::size_t>(score * 10)];
    bucket.sum += score;
    bucket.agreed += drafts.drafted(0, t, 0.6).agrees ? 1 : 0;
    ++bucket.count;
    EXPECT_EQ(drafts.drafted(1, t, 0.1).score, 1);  // it has none
  }
  int used = 0;
  for (const Bucket& bucket : buckets) {
    if (bucket.count < 1000) continue;
    ++used;
    EXPECT_NEAR(bucket.agreed / bucket.count, bucket.sum / bucket.count, 0.02);
  }
  EXPECT_GE(used, 6);  // 0.6 +- 0.36
}

TEST(Acceptance, TheRateDriftsSlowlyAboutItsMean) {
  AcceptanceSettings settings{.drift = 0.5, .drift_tokens = 100};
  settings.methods = {draft_model_acceptance("model:draft"), suffix_acceptance()};
  const std::vector<float> means{0.7F, 0.2F};
  const RequestDrafts drafts(settings, key_of(1), means);
  std::vector<double> model;
  std::vector<double> suffix;
  double steepest = 0;
  for (int t = 0; t < 100000; ++t) {
    model.push_back(drafts.rate(0, t));
    suffix.push_back(drafts.rate(1, t));
    if (t > 0) steepest = std::max(steepest, std::abs(model[t] - model[t - 1]));
  }
  EXPECT_NEAR(mean_of(model), 0.7, 0.01);
  EXPECT_NEAR(mean_of(suffix), 0.2, 0.01);
  EXPECT_GT(spread_of(model), 0.05);
  EXPECT_GE(*std::min_element(model.begin(), model.end()), 0.55);
  EXPECT_LE(*std::max_element(model.begin(), model.end()), 0.85);
  EXPECT_LE(steepest, 0.3 / 100 + 1e-9);
  EXPECT_NEAR(correlation_of(model, suffix), 1, 1e-6);  // text is easy or hard for all
  settings.drift = 0;
  EXPECT_EQ(drafts.rate(0, 12345), 0.7F);
}

// Seer's table 2: mean accepted lengths, the target's own token among them, of drafts of 8 tokens.
TEST(Acceptance, FinishedSiblingsHelpTheSuffixDrafterAsInSeer) {
  AcceptanceSettings settings{.drift = 0};
  settings.methods = {suffix_acceptance()};
  const std::vector<float> means{static_cast<float>(settings.methods[0].mean)};
  const RequestDrafts drafts(settings, key_of(1), means);
  for (const auto& [references, length] :
       {std::pair{0, 1.70}, {1, 2.04}, {5, 2.32}, {15, 2.53}, {40, 2.53}}) {
    const double rate = drafts.rate(0, 100, references);
    EXPECT_NEAR((1 - std::pow(rate, 9)) / (1 - rate), length, 0.005) << references;
  }
  EXPECT_NEAR(drafts.rate(0, 100, 3), (drafts.rate(0, 100, 1) + drafts.rate(0, 100, 5)) / 2, 1e-9);
  const std::vector<float> twice{2 * means[0]};
  EXPECT_NEAR(RequestDrafts(settings, key_of(1), twice).rate(0, 100, 1),
              std::min(1.0, 2 * drafts.rate(0, 100, 1)), 1e-6);
}

// Texts of earlier steps have their share of the tokens that this step's texts miss; other methods
// know none of them.
TEST(Acceptance, EarlierStepsHaveAShareOfWhatThisStepMisses) {
  AcceptanceSettings settings;
  settings.methods = {suffix_acceptance(), ngram_acceptance()};
  const std::vector<float> means{0.4F, 0.15F};
  AcceptanceSettings later = settings;
  later.methods[0].history = 0.75;
  const RequestDrafts first(settings, key_of(1), means);
  const RequestDrafts drafts(later, key_of(1), means);
  constexpr int kTokens = 20000;
  int agreed = 0;
  double expected = 0;
  for (int t = 0; t < kTokens; ++t) {
    const double rate = drafts.rate(0, t, 5);
    ASSERT_NEAR(1 - rate, 0.25 * (1 - first.rate(0, t, 5)), 1e-12);
    ASSERT_EQ(drafts.rate(1, t), first.rate(1, t));
    agreed += drafts.drafted(0, t, rate).agrees ? 1 : 0;
    expected += rate;
  }
  EXPECT_NEAR(agreed, expected, 4 * std::sqrt(kTokens * 0.25));
  later.methods[0].history = 1;
  EXPECT_DOUBLE_EQ(drafts.rate(0, 100), 1);
}

TEST(Acceptance, TokensAreOfTheVocabularyAndTheStopIsNone) {
  constexpr int kVocabulary = 11;
  std::vector<double> counts(kVocabulary, 0);
  for (int t = 0; t < 20000; ++t) {
    const TokenId token = modelled_token(key_of(1), t, kVocabulary);
    const TokenId wrong = wrong_token(token, kVocabulary);
    ++counts.at(token);
    ASSERT_NE(wrong, token);
    ASSERT_NE(wrong, kModelledStop);
    ASSERT_LT(wrong, kVocabulary);
  }
  EXPECT_EQ(counts[kModelledStop], 0);
  for (int token = 1; token < kVocabulary; ++token) EXPECT_NEAR(counts[token], 2000, 200);
  EXPECT_EQ(wrong_token(kModelledStop, 3), 1);
}

TEST(Acceptance, WhatIsOutOfRangeIsNamed) {
  const auto message = [](const std::function<void(AcceptanceSettings&)>& change) {
    AcceptanceSettings settings;
    settings.methods = {ngram_acceptance()};
    change(settings);
    return test::message_of<UsageError>([&] { AcceptanceDistribution{settings}; });
  };
  EXPECT_EQ(message([](auto& s) { s.drift = 1.5; }), "acceptance: drift is 1.5, expected 0 to 1");
  EXPECT_EQ(message([](auto& s) { s.drift_tokens = 0; }),
            "acceptance: drift_tokens is 0, expected 1 to 1000000000");
  EXPECT_EQ(message([](auto& s) { s.methods[0].mean = std::nan(""); }),
            "acceptance of ngram: mean is nan, expected 0 to 1");
  EXPECT_EQ(message([](auto& s) { s.methods[0].history = -0.1; }),
            "acceptance of ngram: history is -0.1, expected 0 to 1");
  EXPECT_EQ(message([](auto& s) { s.methods[0].spread = 0.4; }),
            "acceptance of ngram: spread is 0.4, expected less than 0.3571, as the mean is 0.15");
  EXPECT_EQ(message([](auto& s) {
              s.methods[0].by_references = {{1, 1}, {1, 2}};
            }),
            "acceptance of ngram: point 1 of by_references is 1: 2, expected points further and "
            "further on, with factors from 0 on");
}

// Token noise uses counters up to a quarter of the largest token id: half of all are free for
// draws.
TEST(Draws, AreApartFromTokenNoise) {
  const NoiseKey key = key_of(1);
  static_assert(static_cast<std::uint32_t>(Draw::prompt_length) == 0);
  // Of the draw's counter only what sets draws apart from token noise is not 0.
  EXPECT_NE(draw_block(key, Draw::prompt_length, 0)[0], noise_bits(key, 0, 0));
  const PhiloxBlock last =
      philox4x32({0x7FFFFFFF / 64 * 16 + 15, 0, static_cast<std::uint32_t>(key.stream),
                  static_cast<std::uint32_t>(key.stream >> 32)},
                 {static_cast<std::uint32_t>(key.key), static_cast<std::uint32_t>(key.key >> 32)});
  EXPECT_EQ(noise_bits(key, 0, 0x7FFFFFFF), last[3]);
}

// To the bit, so that a machine or compiler that differs is found.
TEST(Draws, AreTheSameEverywhere) {
  EXPECT_EQ(log_of(7), 0x1.f2272ae325a56p+0);
  EXPECT_EQ(exp_of(-2.5), 0x1.50385c094f425p-4);
  EXPECT_EQ(normal_quantile(0.003), -0x1.5fb74ce9859c3p+1);
  EXPECT_EQ(beta_cdf(0.3, 2.5, 4), 0x1.68a67be4cc811p-2);
  AcceptanceSettings settings;
  settings.methods = {draft_model_acceptance("model:draft"), ngram_acceptance()};
  const auto rates = AcceptanceDistribution(settings).draw(key_of(0), 1.25);
  EXPECT_EQ(rates[0], 0x1.9016f8p-2F);
  EXPECT_EQ(rates[1], 0x1.4391cp-6F);
  const RequestDrafts drafts(settings, key_of(0), rates);
  EXPECT_EQ(drafts.rate(0, 777), 0x1.de96cfafd844fp-2);
  EXPECT_EQ(drafts.drafted(0, 777, 0.5).score, 0x1.616c3485p-2);
  EXPECT_EQ(modelled_token(key_of(0), 5, 32768), 2874);
}

}  // namespace
}  // namespace paceline::sim
