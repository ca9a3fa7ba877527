// The sampler: noise words, distribution, filters, log-probabilities, ties and faults.
#include <algorithm>
#include <numeric>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels_test_util.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/philox.hpp"
#include "sample_reference.hpp"

namespace paceline::kernels::test {
namespace {

TEST(PhiloxTest, KnownAnswers) {
  const std::uint32_t f = 0xFFFFFFFFU;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
}

class SampleTest : public EachBackend {};
class CpuSampleTest : public EachIsa {};

/// Of one row of logits in host memory.
Sampled sample(Backend& backend, const std::vector<float>& logits, int vocab,
               const SampleRow& row) {
  Sampled got;
  backend.sample(Array<float>(backend, logits).data(), logits.size(), vocab, {&row, 1}, {&got, 1});
  return got;
}

/// Whether the kept ids that come with the row's sample are those of the reference, and the sample
/// is the same with them.
void expect_kept(Backend& backend, const std::vector<float>& logits, int vocab,
                 const SampleRow& row, const Sampled& alone, const Reference& expected) {
  std::vector<TokenId> kept(static_cast<std::size_t>(row.top_k) + 3, -1);
  Sampled got;
  backend.sample(Array<float>(backend, logits).data(), logits.size(), vocab, {&row, 1}, {&got, 1},
                 kept);
  std::vector<TokenId> ids = expected.kept;
  std::sort(ids.begin(), ids.end());
  kept.resize(got.kept);
  ASSERT_EQ(kept, ids);
  ASSERT_TRUE(std::find(ids.begin(), ids.end(), got.token) != ids.end());
  got.kept = 0;
  ASSERT_EQ(std::memcmp(&got, &alone, sizeof got), 0);
}

TEST_P(CpuSampleTest, VectorNoiseIsTheScalarDefinition) {
  const cpu::KernelTable& kernels = cpu::kernel_table(GetParam().c_str());
  Random random(1);
  for (int round = 0; round < 50; ++round) {
    const NoiseKey key = {std::uint64_t{random.bits()} << 32 | random.bits(),
                          std::uint64_t{random.bits()} << 32 | random.bits()};
    const std::uint32_t step = random.bits() >> 8;
    const cpu::NoiseArgs args = {
        {static_cast<std::uint32_t>(key.key), static_cast<std::uint32_t>(key.key >> 32)},
        step,
        {static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32)}};
    const std::uint32_t chunk = random.below(3000);
    std::uint32_t bits[64];
    float gumbel[64];
    kernels.noise_chunk(args, chunk, bits, gumbel);
    for (std::uint32_t i = 0; i < 64; ++i) {
      ASSERT_EQ(bits[i], noise_bits(key, step, chunk * 64 + i));
      const double g =
          gumbel_of({.noise = key, .step = static_cast<std::int32_t>(step), .banned = {}},
                    static_cast<TokenId>(chunk * 64 + i));
      ASSERT_NEAR(gumbel[i], g, 2e-6);
    }
  }
}

/// Draws `draws` tokens at steps 0, 1, ... and returns the chi-square statistic against the
/// reference, in standard deviations from its mean. Cells of small expectation are pooled.
double chi_square_deviation(Backend& cpu, const std::vector<float>& logits, SampleRow row,
                            int draws) {
  const int vocab = static_cast<int>(logits.size());
  const Reference expected = reference(logits.data(), vocab, row);
  std::vector<int> counts(vocab);
  constexpr int kBatch = 500;
  std::vector<float> batch;
  for (int i = 0; i < kBatch; ++i) batch.insert(batch.end(), logits.begin(), logits.end());
  std::vector<SampleRow> rows(kBatch, row);
  std::vector<Sampled> out(kBatch);
  Array<float> on(cpu, batch);
  for (int done = 0; done < draws; done += kBatch) {
    for (int i = 0; i < kBatch; ++i) rows[i].step = done + i;
    cpu.sample(on.data(), logits.size(), vocab, rows, out);
    for (const Sampled& s : out) ++counts[s.token];
  }
  return chi_square_deviation(expected, counts, draws);
}

TEST_P(SampleTest, DrawsFollowTheFilteredSoftmax) {
  Random random(2);
  const auto cpu = backend(1);
  const std::vector<float> logits = random.normals(97, 2.0F);
  SampleRow row;
  row.noise = {0x1234567890ABCDEFULL, 77};
  // The instruction sets share every line above the vector type: most draws go to the first. A
  // device may be emulated.
  const int draws = GetParam() == supported_cpu_isas().front() ? 1'000'000
                    : GetParam() == "cuda"                     ? 1'000
                                                               : 50'000;
  EXPECT_LT(std::abs(chi_square_deviation(*cpu, logits, row, draws)), 4);
  row.temperature = 0.7F;
  row.noise.stream = 78;
  row.top_k = 20;
  EXPECT_LT(std::abs(chi_square_deviation(*cpu, logits, row, draws)), 4) << "top-k";
  row.noise.stream = 79;
  row.top_k = 0;
  row.top_p = 0.8F;
  EXPECT_LT(std::abs(chi_square_deviation(*cpu, logits, row, draws)), 4) << "top-p";
  row.noise.stream = 80;
  row.top_p = 1;
  row.min_p = 0.05F;
  EXPECT_LT(std::abs(chi_square_deviation(*cpu, logits, row, draws)), 4) << "min-p";
}

TEST_P(SampleTest, DrawsFollowTheSoftmaxOfALargeVocabulary) {
  if (GetParam() != supported_cpu_isas().front()) GTEST_SKIP() << "the same code again";
  Random random(3);
  std::vector<float> logits = random.normals(20'011, 1.5F);
  for (int i = 0; i < 40; ++i) logits[random.below(20'011)] += 8;
  SampleRow row;
  row.noise = {42, 43};
  EXPECT_LT(std::abs(chi_square_deviation(*backend(1), logits, row, 40'000)), 4);
}

TEST_P(SampleTest, TokensAndLogProbabilitiesMatchFloat64) {
  Random random(4);
  const auto one = backend(1);
  const auto three = backend(3);
  int compared = 0;
  for (int round = 0; round < 400; ++round) {
    const int vocab = round % 10 == 0 ? 9000 + random.below(3000) : 1 + random.below(400);
    const std::size_t stride = vocab + random.below(5);
    std::vector<float> logits = random.normals(stride, round % 3 == 0 ? 0.5F : 4.0F);
    if (round % 4 == 0) {  // ties
      for (float& x : logits) x = std::round(x * 2) / 2;
    }
    for (std::size_t i = vocab; i < stride; ++i) {
      logits[i] = std::numeric_limits<float>::quiet_NaN();  // beyond the vocabulary: not looked at
    }
    SampleRow row;
    row.noise = {random.bits(), random.bits()};
    row.step = random.below(5000);
    row.temperature = 0.3F + static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.top_k = 1 + random.below(random.below(2) == 0 ? 8 : vocab);
    if (random.below(2) == 0) row.top_p = static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.min_p = static_cast<float>(random.uniform() * 0.3);
    std::vector<TokenId> banned;
    if (random.below(2) == 0)
      banned = random_bans(logits.data(), vocab, [&](int n) { return random.below(n); });
    row.banned = banned;
    const Sampled got = sample(*one, logits, vocab, row);
    const Sampled threaded = sample(*three, logits, vocab, row);
    ASSERT_EQ(std::memcmp(&got, &threaded, sizeof got), 0);

    const Reference expected = reference(logits.data(), vocab, row);
    if (expected.near_boundary) continue;
    if (row.top_k > 0)
      expect_kept(round % 2 == 0 ? *one : *three, logits, vocab, row, got, expected);
    double best = -1e300;
    double second = -1e300;
    std::size_t winner = 0;
    for (std::size_t i = 0; i < expected.kept.size(); ++i) {
      const TokenId id = expected.kept[i];
      const double score = static_cast<double>(logits[id]) / row.temperature + gumbel_of(row, id);
      if (score > best) {
        second = best;
        best = score;
        winner = i;
      } else {
        second = std::max(second, score);
      }
    }
    if (best - second < 1e-4) continue;
    ++compared;
    ASSERT_EQ(got.token, expected.kept[winner]) << "round " << round;
    ASSERT_NEAR(got.sampling_logprob, std::log(expected.probability[winner]), 1e-5)
        << "round " << round;
    double total = 0;
    for (int i = 0; i < vocab; ++i) {
      total += std::exp((static_cast<double>(logits[i]) - logits[got.token]) / row.temperature);
    }
    ASSERT_NEAR(got.logprob, -std::log(total), 1e-5 + 1e-6 * std::log(total)) << "round " << round;
  }
  EXPECT_GT(compared, 300);
}

TEST_P(SampleTest, KeptSetIsExactlyTheReference) {
  // The best tokens, as many as there can be, are the kept set.
  const auto cpu = backend(1);
  const std::vector<float> logits = {1, 2, 2, 2, 0, 1, -1, 2, 1, 1, 0, 0};
  Array<float> on(*cpu, logits);
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
    std::vector<Ranked> ranked(kMaxRanked);
    cpu->rank(on.data(), 12, 12, {&row, 1}, kMaxRanked, ranked);
    std::vector<TokenId> ids;
    for (const Ranked& r : ranked) {
      if (r.token >= 0) ids.push_back(r.token);
    }
    std::sort(ids.begin(), ids.end());
    std::vector<TokenId> expected = reference(logits.data(), 12, row).kept;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(ids, expected) << c.top_k << " " << c.top_p << " " << c.min_p;
  }
}

TEST_P(SampleTest, TiesOfAFilterGoByTheLowestIdAcrossTheVocabulary) {
  // A cut among tens of thousands of equal logits, and one below all of them.
  constexpr int kVocab = 40'000;
  std::vector<float> logits(kVocab, 1.0F);
  logits[31'000] = 3;
  logits[39'999] = 2;
  const std::vector<TokenId> banned = {0};
  for (const int top_k : {1, 2, 3, 1'500, 39'999, 40'000}) {
    SampleRow row;
    row.noise = {5, 6};
    row.top_k = top_k;
    row.banned = banned;
    const Sampled got = sample(*backend(2), logits, kVocab, row);
    expect_kept(*backend(2), logits, kVocab, row, got, reference(logits.data(), kVocab, row));
  }
}

TEST_P(SampleTest, GreedyTakesTheLowestIdOnTies) {
  Random random(6);
  std::vector<float> logits = random.normals(10'000);
  for (const int id : {9'999, 777, 5'000}) logits[id] = 50;
  SampleRow row;
  row.temperature = 0;
  row.top_k = 3;
  for (const int threads : {1, 2}) {
    Sampled got = sample(*backend(threads), logits, 10'000, row);
    EXPECT_EQ(got.token, 777);
    EXPECT_EQ(got.sampling_logprob, 0.0F);
    EXPECT_NEAR(got.logprob, -std::log(3.0), 1e-5);
    const std::vector<TokenId> banned = {777};
    SampleRow other = row;
    other.banned = banned;
    got = sample(*backend(threads), logits, 10'000, other);
    EXPECT_EQ(got.token, 5'000);
    expect_kept(*backend(threads), logits, 10'000, other, got, {{5'000}, {1}});
  }
}

TEST_P(SampleTest, AGivenTokenHasTheProbabilitiesThatItIsSampledWith) {
  Random random(8);
  const auto one = backend(1);
  const auto three = backend(3);
  int kept = 0;
  int left_out = 0;
  for (int round = 0; round < 40; ++round) {
    const int vocab = round % 8 == 0 ? 9000 + random.below(3000) : 4 + random.below(200);
    const std::vector<float> logits = random.normals(vocab, 3.0F);
    SampleRow row;
    row.noise = {random.bits(), random.bits()};
    row.temperature = round % 6 == 0 ? 0 : 0.3F + static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.top_k = 1 + random.below(vocab);
    if (random.below(2) == 0) row.top_p = static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.min_p = static_cast<float>(random.uniform() * 0.3);
    const auto best =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::vector<TokenId> banned = {best};
    if (round % 3 == 0)
      banned = random_bans(logits.data(), vocab, [&](int n) { return random.below(n); });
    if (random.below(2) == 0) row.banned = banned;
    const Sampled drawn = sample(*one, logits, vocab, row);
    row.given = drawn.token;
    for (const auto& threads : {one, three}) {
      const Sampled again = sample(*threads, logits, vocab, row);
      ASSERT_EQ(std::memcmp(&drawn, &again, sizeof drawn), 0) << "round " << round;
    }

    const bool greedy = row.temperature == 0;
    SampleRow full;
    full.temperature = greedy ? 1 : row.temperature;
    const Reference all = reference(logits.data(), vocab, full);
    const RankedReference ranked = ranked_reference(logits.data(), vocab, row);
    const Reference filtered = greedy ? Reference() : reference(logits.data(), vocab, row);
    const auto log_of = [](const Reference& in, TokenId id) {
      const auto at = std::find(in.kept.begin(), in.kept.end(), id);
      return at == in.kept.end() ? -INFINITY : std::log(in.probability[at - in.kept.begin()]);
    };
    for (const TokenId id : {best, 0, vocab - 1, random.below(vocab), ranked.order.front()}) {
      row.given = id;
      const Sampled got = sample(*one, logits, vocab, row);
      ASSERT_EQ(got.token, id);
      ASSERT_NEAR(got.logprob, log_of(all, id), 2e-5) << "round " << round;
      if (filtered.near_boundary) continue;
      const double expected =
          greedy ? (id == ranked.order.front() ? 0 : -INFINITY) : log_of(filtered, id);
      ++(expected == -INFINITY ? left_out : kept);
      if (expected == -INFINITY) {
        ASSERT_EQ(got.sampling_logprob, -INFINITY) << "round " << round << ", token " << id;
      } else {
        ASSERT_NEAR(got.sampling_logprob, expected, 2e-5) << "round " << round << ", token " << id;
      }
    }
  }
  EXPECT_GT(kept, 40);
  EXPECT_GT(left_out, 40);
}

/// Some tokens, the last and one past it.
std::vector<LogitEdit> random_edits(Random& random, int vocab) {
  std::vector<LogitEdit> edits;
  for (int token = random.below(7); token <= vocab; token += 1 + random.below(vocab / 4 + 1)) {
    edits.push_back({.token = token,
                     .bias = random.below(3) == 0 ? static_cast<float>(random.uniform()) * 9 : 0,
                     .repetition = 0.5F + static_cast<float>(random.uniform()),
                     .frequency = static_cast<float>(random.uniform()),
                     .presence = random.below(2) == 0 ? 1.5F : 0});
  }
  return edits;
}

// As if the logits were others, but for logprob.
TEST_P(SampleTest, EditsAreMadeBeforeAllElse) {
  Random random(9);
  const auto one = backend(1);
  const auto three = backend(3);
  int other_token = 0;
  for (int round = 0; round < 60; ++round) {
    const int vocab = round % 6 == 0 ? 9000 + random.below(3000) : 4 + random.below(300);
    const std::vector<float> logits = random.normals(vocab, 3.0F);
    SampleRow row;
    row.noise = {random.bits(), random.bits()};
    row.temperature = round % 5 == 0 ? 0 : 0.3F + static_cast<float>(random.uniform());
    if (random.below(2) == 0) row.top_k = 1 + random.below(vocab);
    if (random.below(2) == 0) row.top_p = static_cast<float>(random.uniform());
    std::vector<TokenId> banned;
    if (random.below(2) == 0)
      banned = random_bans(logits.data(), vocab, [&](int n) { return random.below(n); });
    row.banned = banned;
    SampleRow edited_row = row;
    const std::vector<LogitEdit> edits = random_edits(random, vocab);
    edited_row.edits = edits;
    std::vector<float> others = logits;
    for (const LogitEdit& edit : edits) {
      if (edit.token >= vocab) continue;
      float x = logits[edit.token] + edit.bias;
      x = x < 0 ? x * edit.repetition : x / edit.repetition;
      x = x - edit.frequency;
      others[edit.token] = x - edit.presence;
    }
    const Sampled expected = sample(*one, others, vocab, row);
    const Sampled got = sample(*one, logits, vocab, edited_row);
    const Sampled threaded = sample(*three, logits, vocab, edited_row);
    ASSERT_EQ(std::memcmp(&got, &threaded, sizeof got), 0) << "round " << round;
    ASSERT_EQ(got.token, expected.token) << "round " << round;
    ASSERT_EQ(got.sampling_logprob, expected.sampling_logprob) << "round " << round;
    other_token += got.token != sample(*one, logits, vocab, row).token ? 1 : 0;
    SampleRow given = row;
    given.given = got.token;
    ASSERT_EQ(got.logprob, sample(*one, logits, vocab, given).logprob) << "of logits as they came";
    given = edited_row;
    given.given = got.token;
    const Sampled again = sample(*one, logits, vocab, given);
    ASSERT_EQ(std::memcmp(&got, &again, sizeof got), 0) << "round " << round;
    std::vector<Ranked> best(5);
    std::vector<Ranked> best_expected(5);
    one->rank(Array<float>(*one, logits).data(), vocab, vocab, {&edited_row, 1}, 5, best);
    one->rank(Array<float>(*one, others).data(), vocab, vocab, {&row, 1}, 5, best_expected);
    ASSERT_EQ(std::memcmp(best.data(), best_expected.data(), 5 * sizeof(Ranked)), 0);
    if (row.top_k == 0) continue;
    std::vector<TokenId> kept(row.top_k, -1);
    std::vector<TokenId> kept_expected(row.top_k, -1);
    Sampled with;
    one->sample(Array<float>(*one, logits).data(), vocab, vocab, {&edited_row, 1}, {&with, 1},
                kept);
    one->sample(Array<float>(*one, others).data(), vocab, vocab, {&row, 1}, {&with, 1},
                kept_expected);
    ASSERT_EQ(kept, kept_expected) << "round " << round;
  }
  EXPECT_GT(other_token, 10);
}

TEST_P(SampleTest, RowsWithAndWithoutEditsStandSideBySide) {
  Random random(10);
  const auto one = backend(1);
  constexpr int kVocab = 5000;
  const std::vector<float> logits = random.normals(3 * kVocab, 3.0F);
  std::vector<SampleRow> rows(3);
  const std::vector<LogitEdit> edits = random_edits(random, kVocab);
  for (int r = 0; r < 3; ++r) rows[r].noise = {random.bits(), random.bits()};
  rows[1].edits = edits;
  std::vector<Sampled> all(3);
  one->sample(Array<float>(*one, logits).data(), kVocab, kVocab, rows, all);
  for (int r = 0; r < 3; ++r) {
    const auto first = logits.begin() + r * kVocab;
    const Sampled alone = sample(*one, {first, first + kVocab}, kVocab, rows[r]);
    EXPECT_EQ(std::memcmp(&alone, &all[r], sizeof alone), 0) << r;
  }
}

TEST_P(CpuSampleTest, SkippingChunksChangesNothing) {
  // Wide logits: most chunks cannot win. The winner must be that of an exhaustive search with the
  // same noise.
  const cpu::KernelTable& kernels = cpu::kernel_table(GetParam().c_str());
  Random random(7);
  const std::vector<float> logits = random.normals(10'000, 8.0F);
  const auto cpu = backend(1);
  SampleRow row;
  row.noise = {3, 4};
  std::vector<TokenId> banned;  // in the midst, whole chunks of it, and the end
  for (TokenId id = 100; id < 9'990; id += id < 500 || id > 4'000 ? 1 : 97) banned.push_back(id);
  for (TokenId id = 9'995; id < 10'000; ++id) banned.push_back(id);
  for (row.step = 0; row.step < 200; ++row.step) {
    row.banned = std::span(banned).first(row.step % 2 == 0 ? 0 : banned.size());
    const Sampled got = sample(*cpu, logits, 10'000, row);
    float best = -std::numeric_limits<float>::infinity();
    TokenId token = -1;
    for (int chunk = 0; chunk * 64 < 10'000; ++chunk) {
      std::uint32_t bits[64];
      float gumbel[64];
      kernels.noise_chunk({{3, 0}, static_cast<std::uint32_t>(row.step), {4, 0}}, chunk, bits,
                          gumbel);
      for (int i = 0; i < 64 && chunk * 64 + i < 10'000; ++i) {
        const float score = logits[chunk * 64 + i] + gumbel[i];
        if (std::binary_search(row.banned.begin(), row.banned.end(), chunk * 64 + i)) continue;
        if (score > best) {
          best = score;
          token = chunk * 64 + i;
        }
      }
    }
    ASSERT_EQ(got.token, token) << row.step;
  }
}

TEST_P(CpuSampleTest, ATokenThatOnlyTheRarestNoiseLiftsIsNotSkipped) {
  // Steps at which a token has all bits set, or all but one: about the most noise that there is.
  // The last has 0xFFFFFAB5: a bound that is a multiple of 1,024 must be rounded for it.
  const cpu::KernelTable& kernels = cpu::kernel_table(GetParam().c_str());
  struct Rare {
    std::uint32_t step;
    int token;
  };
  for (const Rare& rare : {Rare{312'708, 8010}, Rare{888'469, 7078}, Rare{3323, 9443}}) {
    const auto noise_of = [&](int token) {
      std::uint32_t bits[64];
      float gumbel[64];
      kernels.noise_chunk({{3, 0}, rare.step, {4, 0}}, token / 64, bits, gumbel);
      return gumbel[token % 64];
    };
    const int likely = 77;
    ASSERT_GT(noise_of(rare.token), 14.9F);
    SampleRow row;
    row.noise = {3, 4};
    row.step = static_cast<std::int32_t>(rare.step);
    std::vector<float> logits(10'000, -1000.0F);
    logits[rare.token] = 0;
    for (const int threads : {1, 2}) {
      logits[likely] = noise_of(rare.token) - noise_of(likely) - 0.001F;
      EXPECT_EQ(sample(*backend(threads), logits, 10'000, row).token, rare.token) << rare.token;
      logits[likely] += 0.002F;
      EXPECT_EQ(sample(*backend(threads), logits, 10'000, row).token, likely) << rare.token;
    }
  }
}

TEST_P(CpuSampleTest, ASpanOfWhichNothingIsLeftIsNoFault) {
  // The sums of 4,096 tokens each are joined by their maxima, and one of them has none.
  std::vector<float> logits(10'000, 0.0F);
  std::fill(logits.begin() + 4096, logits.begin() + 8192, -std::numeric_limits<float>::infinity());
  const SampleRow row;
  const Sampled got = sample(*backend(1), logits, 10'000, row);
  EXPECT_TRUE(got.token < 4096 || got.token >= 8192);
  EXPECT_NEAR(got.logprob, -std::log(10'000.0 - 4096.0), 1e-5);
  logits[5000] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW((void)sample(*backend(1), logits, 10'000, row), Error);
}

TEST_P(SampleTest, FaultsAreReported) {
  for (const int threads : {1, 2}) {
    const auto cpu = backend(threads);
    std::vector<float> logits(5 * 200, 0.0F);
    std::vector<SampleRow> rows(5);
    std::vector<Sampled> out(5);
    cpu->sample(Array<float>(*cpu, logits).data(), 200, 200, rows, out);
    logits[3 * 200 + 150] = std::numeric_limits<float>::quiet_NaN();
    try {
      cpu->sample(Array<float>(*cpu, logits).data(), 200, 200, rows, out);
      FAIL();
    } catch (const UnusableLogits& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_data);
      EXPECT_NE(std::string(error.what()).find("row 3"), std::string::npos) << error.what();
    }
    logits[3 * 200 + 150] = std::numeric_limits<float>::infinity();
    EXPECT_THROW(cpu->sample(Array<float>(*cpu, logits).data(), 200, 200, rows, out), Error);
    std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
    EXPECT_THROW(cpu->sample(Array<float>(*cpu, logits).data(), 200, 200, rows, out), Error);
  }
}

PACELINE_EACH_BACKEND(SampleTest);
PACELINE_EACH_ISA(CpuSampleTest);

}  // namespace
}  // namespace paceline::kernels::test
