// The best tokens of a row: against a search through all of them in float64, with the filters of
// sample().
#include "kernels_test_util.hpp"
#include "runtime/core/error.hpp"
#include "sample_reference.hpp"

namespace paceline::kernels::test {
namespace {

class RankTest : public EachBackend {
 protected:
  std::vector<Ranked> rank(Backend& cpu, const std::vector<float>& logits, int vocab,
                           const SampleRow& row, int count) {
    std::vector<Ranked> out(count, Ranked{-7, -7});
    cpu.rank(Array<float>(cpu, logits).data(), logits.size(), vocab, {&row, 1}, count, out);
    return out;
  }
};

TEST_P(RankTest, TokensAndScoresMatchFloat64) {
  Random random(1);
  const auto one = backend(1);
  const auto three = backend(3);
  int compared = 0;
  int short_lists = 0;
  for (int round = 0; round < 400; ++round) {
    const int vocab = round % 10 == 0 ? 9000 + random.below(3000) : 1 + random.below(400);
    std::vector<float> logits = random.normals(vocab + random.below(5), round % 3 == 0 ? 0.5F : 4);
    if (round % 4 == 0) {  // ties
      for (float& x : logits) x = std::round(x * 2) / 2;
    }
    for (std::size_t i = vocab; i < logits.size(); ++i) {
      logits[i] = std::numeric_limits<float>::quiet_NaN();  // beyond the vocabulary: not looked at
    }
    SampleRow row;
    row.noise = {random.bits(), random.bits()};
    row.step = random.below(5000);
    row.temperature = round % 5 == 0 ? 0 : 0.3F + static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.top_k = 1 + random.below(random.below(2) == 0 ? 8 : vocab);
    if (random.below(2) == 0) row.top_p = static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.min_p = static_cast<float>(random.uniform() * 0.3);
    std::vector<TokenId> banned;
    if (random.below(2) == 0)
      banned = random_bans(logits.data(), vocab, [&](int n) { return random.below(n); });
    row.banned = banned;
    const int count = 1 + random.below(round % 2 == 0 ? 4 : kMaxRanked);

    const std::vector<Ranked> got = rank(*one, logits, vocab, row, count);
    const std::vector<Ranked> threaded = rank(*three, logits, vocab, row, count);
    ASSERT_EQ(std::memcmp(got.data(), threaded.data(), got.size() * sizeof(Ranked)), 0);
    Sampled sampled;
    one->sample(Array<float>(*one, logits).data(), logits.size(), vocab, {&row, 1}, {&sampled, 1});
    ASSERT_EQ(got[0].token, sampled.token) << "round " << round;

    const RankedReference expected = ranked_reference(logits.data(), vocab, row);
    if (expected.near_boundary) continue;
    const int kept = static_cast<int>(expected.order.size());
    short_lists += kept < count ? 1 : 0;
    bool close = false;  // scores whose order rounding could change
    for (int i = 0; row.temperature > 0 && i < count && i + 1 < kept; ++i) {
      close |= expected.scores[i] - expected.scores[i + 1] < 1e-4;
    }
    if (close) continue;
    ++compared;
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(got[i].token, i < kept ? expected.order[i] : -1) << "round " << round << ", " << i;
      if (i < kept) {
        ASSERT_NEAR(got[i].score, expected.scores[i], 1e-4) << "round " << round << ", " << i;
      } else {
        ASSERT_EQ(got[i].score, -std::numeric_limits<float>::infinity());
      }
    }
  }
  EXPECT_GT(compared, 300);
  EXPECT_GT(short_lists, 40);
}

TEST_P(RankTest, TheMostProbableTokensComeWithTheirLogProbabilities) {
  Random random(5);
  const auto one = backend(1);
  const auto three = backend(3);
  for (int round = 0; round < 60; ++round) {
    const int vocab = round % 10 == 0 ? 9000 + random.below(3000) : 1 + random.below(300);
    const int rows = 1 + random.below(4);
    const std::size_t stride = vocab + random.below(3);
    std::vector<float> logits = random.normals(rows * stride, 3);
    if (round % 4 == 0) {  // ties
      for (float& x : logits) x = std::round(x * 2) / 2;
    }
    const int count = 1 + random.below(round % 2 == 0 ? 5 : kMaxRanked);
    std::vector<Ranked> got(static_cast<std::size_t>(rows) * count);
    std::vector<Ranked> threaded = got;
    one->top(Array<float>(*one, logits).data(), stride, vocab, rows, count, got);
    three->top(Array<float>(*three, logits).data(), stride, vocab, rows, count, threaded);
    ASSERT_EQ(std::memcmp(got.data(), threaded.data(), got.size() * sizeof(Ranked)), 0);
    for (int r = 0; r < rows; ++r) {
      const auto first = logits.begin() + static_cast<std::ptrdiff_t>(r * stride);
      const std::vector<float> row(first, first + vocab);
      std::vector<TokenId> order(vocab);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](TokenId a, TokenId b) { return row[a] > row[b]; });
      for (int i = 0; i < count; ++i) {
        const Ranked& token = got[static_cast<std::size_t>(r) * count + i];
        ASSERT_EQ(token.token, i < vocab ? order[i] : -1) << "round " << round;
        if (i >= vocab) {
          ASSERT_EQ(token.score, -std::numeric_limits<float>::infinity());
          continue;
        }
        SampleRow given;
        given.given = token.token;
        Sampled sampled;
        one->sample(Array<float>(*one, row).data(), vocab, vocab, {&given, 1}, {&sampled, 1});
        ASSERT_EQ(token.score, sampled.logprob) << "as logprob at temperature 1";
      }
    }
  }
}

TEST_P(RankTest, LargeVocabularyWithFewLikelyTokens) {
  // What a language model gives: most chunks cannot reach the list and are left out.
  constexpr int kVocab = 151'936;
  Random random(2);
  std::vector<float> logits = random.normals(kVocab, 2.5F);
  for (int i = 0; i < 30; ++i) logits[random.below(kVocab)] += 12;
  SampleRow row;
  row.noise = {42, 43};
  for (const int threads : {1, 2}) {
    const auto cpu = backend(threads);
    for (row.step = 0; row.step < 3; ++row.step) {
      const RankedReference expected = ranked_reference(logits.data(), kVocab, row);
      for (const int count : {1, 3, kMaxRanked}) {
        const std::vector<Ranked> got = rank(*cpu, logits, kVocab, row, count);
        for (int i = 0; i < count; ++i) {
          ASSERT_NEAR(got[i].score, expected.scores[i], 1e-4) << count << ", " << i;
          if (expected.scores[i] - expected.scores[i + 1] > 1e-4 &&
              (i == 0 || expected.scores[i - 1] - expected.scores[i] > 1e-4)) {
            ASSERT_EQ(got[i].token, expected.order[i]) << count << ", " << i;
          }
        }
      }
    }
  }
}

TEST_P(RankTest, TiesAtTemperatureZeroGoByTheLowestId) {
  std::vector<float> logits(9'000, -1.0F);
  for (const int id : {8'999, 777, 5'000, 778}) logits[id] = 3;
  logits[4] = 7;
  SampleRow row;
  row.temperature = 0;
  row.top_k = 1;  // filters have no part in it
  const std::vector<TokenId> banned = {777};
  for (const int threads : {1, 2}) {
    const auto cpu = backend(threads);
    row.banned = {};
    std::vector<TokenId> tokens;
    for (const Ranked& r : rank(*cpu, logits, 9'000, row, 7)) tokens.push_back(r.token);
    EXPECT_EQ(tokens, (std::vector<TokenId>{4, 777, 778, 5'000, 8'999, 0, 1}));
    row.banned = banned;
    tokens.clear();
    for (const Ranked& r : rank(*cpu, logits, 9'000, row, 3)) tokens.push_back(r.token);
    EXPECT_EQ(tokens, (std::vector<TokenId>{4, 778, 5'000}));
  }
}

TEST_P(RankTest, RowsAreIndependentAndFaultsAreReported) {
  Random random(3);
  constexpr int kVocab = 501;  // rows begin at any alignment
  constexpr int kRows = 5;
  constexpr int kCount = 4;
  std::vector<float> logits = random.normals(kRows * kVocab);
  std::vector<SampleRow> rows(kRows);
  for (int r = 0; r < kRows; ++r) rows[r].noise = {7, static_cast<std::uint64_t>(r)};
  rows[1].temperature = 0;
  rows[2].top_k = 2;
  for (const int threads : {1, 2, 8}) {
    const auto cpu = backend(threads);
    std::vector<Ranked> together(kRows * kCount);
    Array<float> on(*cpu, logits);
    cpu->rank(on.data(), kVocab, kVocab, rows, kCount, together);
    for (int r = 0; r < kRows; ++r) {
      std::vector<Ranked> alone(kCount);
      cpu->rank(on.data() + r * kVocab, kVocab, kVocab, {&rows[r], 1}, kCount, alone);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + r * kCount, kCount * sizeof(Ranked)),
                0);
    }
    EXPECT_EQ(together[2 * kCount + 2].token, -1);
    std::vector<float> bad = logits;
    bad[3 * kVocab + 150] = std::numeric_limits<float>::quiet_NaN();
    try {
      cpu->rank(Array<float>(*cpu, bad).data(), kVocab, kVocab, rows, kCount, together);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("row 3"), std::string::npos) << error.what();
    }
  }
}

PACELINE_EACH_BACKEND(RankTest);

}  // namespace
}  // namespace paceline::kernels::test
