// The sampler on the device: noise, distribution, filters, log-probabilities, ties, faults; and the
// best tokens of a row.
#include "kernels/cuda/sample.hpp"

#include <map>

#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"
#include "tests/kernels/sample_reference.hpp"

namespace paceline::kernels::test {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The rows of a call in device memory. Logits lie `offset` elements into an array, so that rows
/// need not be aligned.
class Call {
 public:
  Call(const std::vector<float>& logits, std::size_t stride, int vocab,
       const std::vector<SampleRow>& rows, int offset = 0)
      : stride_(stride),
        vocab_(vocab),
        offset_(offset),
        count_(static_cast<int>(rows.size())),
        logits_(shifted(logits, offset)),
        rows_(device_rows(rows)),
        banned_(banned_of(rows)),
        workspace_(cuda::sample_workspace_bytes(count_, vocab)) {}

  std::vector<Sampled> sample() {
    DeviceArray<Sampled> out(count_);
    cuda::sample(logits_.data() + offset_, stride_, vocab_, rows_.data(), banned_.data(), count_,
                 workspace_.data(), out.data(), {}, stream_);
    return out.host();
  }
  /// The ids that each row can sample; Sampled::kept of sample() is 0.
  std::vector<std::vector<TokenId>> kept(int most) {
    DeviceArray<Sampled> out(count_);
    DeviceArray<TokenId> ids(static_cast<std::size_t>(count_) * most);
    cuda::sample(logits_.data() + offset_, stride_, vocab_, rows_.data(), banned_.data(), count_,
                 workspace_.data(), out.data(), {ids.data(), most}, stream_);
    const std::vector<TokenId> all = ids.host();
    const std::vector<Sampled> sampled = out.host();
    std::vector<std::vector<TokenId>> kept;
    for (int r = 0; r < count_; ++r) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(r) * most;
      kept.emplace_back(row, row + sampled[r].kept);
    }
    return kept;
  }
  std::vector<Ranked> rank(int best) {
    DeviceArray<Ranked> out(static_cast<std::size_t>(count_) * best);
    cuda::rank(logits_.data() + offset_, stride_, vocab_, rows_.data(), banned_.data(), count_,
               best, workspace_.data(), out.data(), stream_);
    return out.host();
  }

 private:
  static std::vector<float> shifted(const std::vector<float>& logits, int offset) {
    std::vector<float> all(offset, kNan);
    all.insert(all.end(), logits.begin(), logits.end());
    return all;
  }
  static std::vector<cuda::DeviceSampleRow> device_rows(const std::vector<SampleRow>& rows) {
    std::vector<cuda::DeviceSampleRow> out;
    std::int32_t next = 0;
    for (const SampleRow& row : rows) {
      const auto banned = static_cast<std::int32_t>(row.banned.size());
      out.push_back(
          {row.noise, row.step, row.temperature, row.top_k, row.top_p, row.min_p, next, banned});
      next += banned;
    }
    return out;
  }
  static std::vector<TokenId> banned_of(const std::vector<SampleRow>& rows) {
    std::vector<TokenId> out;
    for (const SampleRow& row : rows) out.insert(out.end(), row.banned.begin(), row.banned.end());
    out.push_back(0);
    return out;
  }

  std::size_t stride_;
  int vocab_;
  int offset_;
  int count_;
  TestStream stream_;
  DeviceArray<float> logits_;
  DeviceArray<cuda::DeviceSampleRow> rows_;
  DeviceArray<TokenId> banned_;
  DeviceArray<std::byte> workspace_;
};

std::vector<float> repeated(const std::vector<float>& logits, int rows) {
  std::vector<float> all;
  for (int r = 0; r < rows; ++r) all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

/// Draws at steps 0, 1, ... and judges how often each token came.
double deviation_of_draws(const std::vector<float>& logits, const SampleRow& row, int draws) {
  const auto vocab = static_cast<int>(logits.size());
  std::vector<SampleRow> rows(draws, row);
  for (int i = 0; i < draws; ++i) rows[i].step = i;
  std::vector<int> counts(vocab);
  for (const Sampled& s : Call(repeated(logits, draws), vocab, vocab, rows).sample()) {
    ++counts[s.token];
  }
  return chi_square_deviation(reference(logits.data(), vocab, row), counts, draws);
}

TEST(CudaSampleTest, DrawsFollowTheFilteredSoftmax) {
  Random random(2);
  const std::vector<float> logits = random.normals(37, 2.0F);
  SampleRow row;
  row.noise = {0x1234567890ABCDEFULL, 77};
  EXPECT_LT(std::abs(deviation_of_draws(logits, row, 5'000)), 4);
  row.temperature = 0.7F;
  row.noise.stream = 78;
  row.top_k = 20;
  EXPECT_LT(std::abs(deviation_of_draws(logits, row, 500)), 4) << "top-k";
  row.noise.stream = 79;
  row.top_k = 0;
  row.top_p = 0.8F;
  EXPECT_LT(std::abs(deviation_of_draws(logits, row, 500)), 4) << "top-p";
  row.noise.stream = 80;
  row.top_p = 1;
  row.min_p = 0.05F;
  EXPECT_LT(std::abs(deviation_of_draws(logits, row, 500)), 4) << "min-p";
}

/// A row of every kind, with logits that have ties now and then, and what it asks for.
struct RandomRow {
  std::vector<float> logits;  ///< [stride], NaN beyond vocab
  std::vector<TokenId> banned;
  SampleRow row;
};

RandomRow random_row(Random& random, int vocab, std::size_t stride, int round) {
  RandomRow out;
  out.logits = random.normals(stride, round % 3 == 0 ? 0.5F : 4.0F);
  if (round % 4 == 0) {
    for (float& x : out.logits) x = std::round(x * 2) / 2;
  }
  std::fill(out.logits.begin() + vocab, out.logits.end(), kNan);
  SampleRow& row = out.row;
  row.noise = {random.bits(), random.bits()};
  row.step = random.below(5000);
  row.temperature = 0.3F + static_cast<float>(random.uniform());
  if (random.below(2) == 0) row.top_k = 1 + random.below(random.below(2) == 0 ? 8 : vocab);
  if (random.below(2) == 0) row.top_p = static_cast<float>(random.uniform());
  if (random.below(2) == 0) row.min_p = static_cast<float>(random.uniform() * 0.3);
  if (random.below(2) == 0)
    out.banned = random_bans(out.logits.data(), vocab, [&](int n) { return random.below(n); });
  return out;
}

TEST(CudaSampleTest, TokensAndLogProbabilitiesMatchFloat64) {
  Random random(4);
  int compared = 0;
  for (int group = 0; group < 16; ++group) {
    // Rows of a group share a vocabulary; the odd ones start at odd addresses.
    const int vocab = group < 3 ? 9000 + random.below(3000) : 1 + random.below(400);
    const std::size_t stride = vocab + random.below(5);
    const int count = group < 3 ? 3 : 20;
    std::vector<RandomRow> inputs;
    for (int i = 0; i < count; ++i) inputs.push_back(random_row(random, vocab, stride, group + i));
    std::vector<float> logits;
    std::vector<SampleRow> rows;
    for (RandomRow& input : inputs) {
      input.row.banned = input.banned;
      rows.push_back(input.row);
      logits.insert(logits.end(), input.logits.begin(), input.logits.end());
    }
    Call call(logits, stride, vocab, rows, group % 4);
    const std::vector<Sampled> all = call.sample();
    const std::vector<std::vector<TokenId>> kept = call.kept(vocab);
    for (int i = 0; i < count; ++i) {
      const SampleRow& row = rows[i];
      const float* mine = inputs[i].logits.data();
      const Sampled got = all[i];
      if (i < 3) {
        const Sampled alone = Call(inputs[i].logits, stride, vocab, {row}).sample()[0];
        ASSERT_EQ(std::memcmp(&got, &alone, sizeof got), 0) << group << ", " << i;
      }
      const Reference expected = reference(mine, vocab, row);
      if (expected.near_boundary) continue;
      std::vector<TokenId> ids = expected.kept;
      std::sort(ids.begin(), ids.end());
      ASSERT_EQ(kept[i], ids) << group << ", " << i;
      double best = -1e300;
      double second = -1e300;
      std::size_t winner = 0;
      for (std::size_t j = 0; j < expected.kept.size(); ++j) {
        const double score = score_of(mine[expected.kept[j]], row, expected.kept[j]);
        if (score > best) {
          second = best;
          best = score;
          winner = j;
        } else {
          second = std::max(second, score);
        }
      }
      if (best - second < 1e-4) continue;
      ++compared;
      ASSERT_EQ(got.token, expected.kept[winner]) << group << ", " << i;
      ASSERT_NEAR(got.sampling_logprob, std::log(expected.probability[winner]), 1e-5);
      double total = 0;
      for (int j = 0; j < vocab; ++j) {
        total += std::exp((static_cast<double>(mine[j]) - mine[got.token]) / row.temperature);
      }
      ASSERT_NEAR(got.logprob, -std::log(total), 1e-5 + 1e-6 * std::log(total));
    }
  }
  EXPECT_GT(compared, 220);
}

TEST(CudaSampleTest, KeptSetIsExactlyTheReference) {
  // The best tokens, as many as there can be, are the kept set.
  const std::vector<float> logits = {1, 2, 2, 2, 0, 1, -1, 2, 1, 1, 0, 0};
  struct Case {
    int top_k;
    float top_p, min_p;
  };
  for (const Case& c : {Case{2, 1, 0},
                        {5, 1, 0},
                        {6, 1, 0},
                        {0, 0.3F, 0},
                        {0, 0.75F, 0},
                        {0, 1, 0.2F},
                        {0, 1, 0.9F},
                        {6, 0.5F, 0},
                        {7, 0.99F, 0.5F},
                        {12, 1, 0},
                        {100, 0.0001F, 0}}) {
    SampleRow row;
    row.noise = {9, 10};
    row.top_k = c.top_k;
    row.top_p = c.top_p;
    row.min_p = c.min_p;
    std::vector<TokenId> ids;
    for (const Ranked& r : Call(logits, 12, 12, {row}).rank(kMaxRanked)) {
      if (r.token >= 0) ids.push_back(r.token);
    }
    std::sort(ids.begin(), ids.end());
    std::vector<TokenId> expected = reference(logits.data(), 12, row).kept;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(ids, expected) << c.top_k << " " << c.top_p << " " << c.min_p;
  }
}

TEST(CudaSampleTest, TiesOfAFilterGoByTheLowestIdAcrossTheVocabulary) {
  // A cut among tens of thousands of equal logits, and one below all of them.
  constexpr int kVocab = 40'000;
  std::vector<float> logits(kVocab, 1.0F);
  logits[31'000] = 3;
  logits[39'999] = 2;
  for (const int top_k : {1, 2, 3, 1'500, 39'999, 40'000}) {
    SampleRow row;
    row.noise = {5, 6};
    row.top_k = top_k;
    const std::vector<TokenId> banned = {0};
    row.banned = banned;
    const Reference expected = reference(logits.data(), kVocab, row);
    const Sampled got = Call(logits, kVocab, kVocab, {row}).sample()[0];
    const auto place = std::find(expected.kept.begin(), expected.kept.end(), got.token);
    ASSERT_NE(place, expected.kept.end()) << top_k;
    ASSERT_NEAR(got.sampling_logprob, std::log(expected.probability[place - expected.kept.begin()]),
                1e-5)
        << top_k;
  }
}

TEST(CudaSampleTest, GreedyTakesTheLowestIdOnTies) {
  Random random(6);
  std::vector<float> logits = random.normals(10'000);
  for (const int id : {9'999, 777, 5'000}) logits[id] = 50;
  SampleRow row;
  row.temperature = 0;
  row.top_k = 3;
  SampleRow other = row;
  const std::vector<TokenId> banned = {777};
  other.banned = banned;
  const std::vector<Sampled> got = Call(repeated(logits, 2), 10'000, 10'000, {row, other}).sample();
  EXPECT_EQ(got[0].token, 777);
  EXPECT_EQ(got[0].sampling_logprob, 0.0F);
  EXPECT_NEAR(got[0].logprob, -std::log(3.0), 1e-5);
  EXPECT_EQ(got[1].token, 5'000);
  EXPECT_NEAR(got[1].logprob, -std::log(3.0), 1e-5);
}

TEST(CudaSampleTest, WideAndFlatRowsOfALargeVocabulary) {
  // Wide logits: most chunks cannot win and are skipped. Flat ones: all can. A row among others has
  // the bits it has alone.
  constexpr int kVocab = 151'936;
  Random random(7);
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  for (int r = 0; r < 3; ++r) {
    std::vector<float> row = random.normals(kVocab, r == 1 ? 0.01F : 2.5F);
    for (int i = 0; i < 30 && r != 1; ++i) row[random.below(kVocab)] += 12;
    logits.insert(logits.end(), row.begin(), row.end());
    rows.push_back({});
    rows.back().noise = {42, 43};
    rows.back().step = r;
  }
  rows[2].top_p = 0.9F;
  rows[2].top_k = 1000;
  const std::vector<Sampled> got = Call(logits, kVocab, kVocab, rows).sample();
  for (int r = 0; r < 3; ++r) {
    const float* mine = logits.data() + static_cast<std::size_t>(r) * kVocab;
    const RankedReference expected = ranked_reference(mine, kVocab, rows[r]);
    ASSERT_FALSE(expected.near_boundary);
    ASSERT_GT(expected.scores[0] - expected.scores[1], 1e-5) << "the test's rows are at fault";
    EXPECT_EQ(got[r].token, expected.order[0]) << r;
  }
  const std::vector<float> last(logits.begin() + 2 * kVocab, logits.end());
  const Sampled alone = Call(last, kVocab, kVocab, {rows[2]}).sample()[0];
  EXPECT_EQ(std::memcmp(&alone, &got[2], sizeof alone), 0);
}

TEST(CudaSampleTest, FaultsAreOfTheirRowAlone) {
  std::vector<float> logits(70 * 200, 0.0F);
  std::vector<SampleRow> rows(70);
  logits[3 * 200 + 150] = kNan;
  logits[5 * 200 + 199] = kInfinity;
  std::fill_n(logits.begin() + 9 * 200, 200, -kInfinity);
  std::fill_n(logits.begin() + 11 * 200, 199, -kInfinity);
  const std::vector<TokenId> banned = {199};
  rows[11].banned = banned;
  logits[13 * 200 + 4] = -kInfinity;
  Call call(logits, 200, 200, rows);
  const std::vector<Sampled> sampled = call.sample();
  const std::vector<Ranked> ranked = call.rank(3);
  for (int r = 0; r < 70; ++r) {
    const bool fault = r == 3 || r == 5 || r == 9 || r == 11;
    EXPECT_EQ(sampled[r].token == cuda::kSampleFault, fault) << r;
    EXPECT_EQ(ranked[3 * r].token == cuda::kRankFault, fault) << r;
    EXPECT_TRUE(fault || ranked[3 * r].token == sampled[r].token) << r;
  }
}

TEST(CudaRankTest, TokensAndScoresMatchFloat64) {
  Random random(1);
  int compared = 0;
  int short_lists = 0;
  for (int group = 0; group < 14; ++group) {
    const int vocab = group < 2 ? 9000 + random.below(3000) : 1 + random.below(400);
    const std::size_t stride = vocab + random.below(5);
    const int count = group < 2 ? 3 : 20;
    const int best = group == 2 ? kMaxRanked : 1 + random.below(group % 2 == 0 ? 4 : kMaxRanked);
    std::vector<RandomRow> inputs;
    for (int i = 0; i < count; ++i) inputs.push_back(random_row(random, vocab, stride, group + i));
    std::vector<float> logits;
    std::vector<SampleRow> rows;
    for (RandomRow& input : inputs) {
      input.row.banned = input.banned;
      if (random.below(5) == 0) input.row.temperature = 0;
      rows.push_back(input.row);
      logits.insert(logits.end(), input.logits.begin(), input.logits.end());
    }
    Call call(logits, stride, vocab, rows);
    const std::vector<Ranked> all = call.rank(best);
    const std::vector<Sampled> sampled = call.sample();
    const std::vector<Ranked> alone = Call(inputs[1].logits, stride, vocab, {rows[1]}).rank(best);
    ASSERT_EQ(std::memcmp(alone.data(), all.data() + best, best * sizeof(Ranked)), 0);
    for (int r = 0; r < count; ++r) {
      const Ranked* got = all.data() + static_cast<std::ptrdiff_t>(r) * best;
      ASSERT_EQ(got[0].token, sampled[r].token);
      const RankedReference expected = ranked_reference(inputs[r].logits.data(), vocab, rows[r]);
      if (expected.near_boundary) continue;
      const int kept = static_cast<int>(expected.order.size());
      short_lists += kept < best ? 1 : 0;
      bool close = false;  // scores whose order rounding could change
      for (int i = 0; rows[r].temperature > 0 && i < best && i + 1 < kept; ++i) {
        close |= expected.scores[i] - expected.scores[i + 1] < 1e-4;
      }
      if (close) continue;
      ++compared;
      for (int i = 0; i < best; ++i) {
        ASSERT_EQ(got[i].token, i < kept ? expected.order[i] : -1)
            << group << ", " << r << ": " << i;
        if (i < kept) {
          ASSERT_NEAR(got[i].score, expected.scores[i], 1e-4);
        } else {
          ASSERT_EQ(got[i].score, -kInfinity);
        }
      }
    }
  }
  EXPECT_GT(compared, 150);
  EXPECT_GT(short_lists, 20);
}

TEST(CudaRankTest, LargeVocabularyWithFewLikelyTokens) {
  constexpr int kVocab = 151'936;
  Random random(2);
  std::vector<float> logits = random.normals(kVocab, 2.5F);
  for (int i = 0; i < 30; ++i) logits[random.below(kVocab)] += 12;
  SampleRow row;
  row.noise = {42, 43};
  const RankedReference expected = ranked_reference(logits.data(), kVocab, row);
  for (const int count : {3, kMaxRanked}) {
    const std::vector<Ranked> got = Call(logits, kVocab, kVocab, {row}).rank(count);
    for (int i = 0; i < count; ++i) {
      ASSERT_NEAR(got[i].score, expected.scores[i], 1e-4) << count << ", " << i;
      if (expected.scores[i] - expected.scores[i + 1] > 1e-4 &&
          (i == 0 || expected.scores[i - 1] - expected.scores[i] > 1e-4)) {
        ASSERT_EQ(got[i].token, expected.order[i]) << count << ", " << i;
      }
    }
  }
}

TEST(CudaRankTest, TiesAtTemperatureZeroGoByTheLowestId) {
  std::vector<float> logits(9'000, -1.0F);
  for (const int id : {8'999, 777, 5'000, 778}) logits[id] = 3;
  logits[4] = 7;
  SampleRow row;
  row.temperature = 0;
  row.top_k = 1;  // filters have no part in it
  std::vector<TokenId> tokens;
  for (const Ranked& r : Call(logits, 9'000, 9'000, {row}).rank(7)) tokens.push_back(r.token);
  EXPECT_EQ(tokens, (std::vector<TokenId>{4, 777, 778, 5'000, 8'999, 0, 1}));
  const std::vector<TokenId> banned = {777};
  row.banned = banned;
  tokens.clear();
  for (const Ranked& r : Call(logits, 9'000, 9'000, {row}).rank(3)) tokens.push_back(r.token);
  EXPECT_EQ(tokens, (std::vector<TokenId>{4, 778, 5'000}));
}

}  // namespace
}  // namespace paceline::kernels::test
