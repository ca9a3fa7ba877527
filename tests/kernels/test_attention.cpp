// Rotary embedding, the paged cache and attention: against float64, and bit for bit across block
// sizes, chunkings, neighbours and threads.
#include <algorithm>
#include <numeric>

#include "kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

/// A head geometry with the rows of one sequence, projected.
struct Sequence {
  QkvParams params;
  int positions = 0;
  std::vector<float> table;  // [positions][head_dim]
  std::vector<float> qkv;    // [positions][(heads + 2 kv_heads) * head_dim]
  std::vector<float> q_norm, k_norm;

  Sequence(Random& random, int heads, int kv_heads, int head_dim, int length, bool norm)
      : positions(length) {
    params.heads = heads;
    params.kv_heads = kv_heads;
    params.head_dim = head_dim;
    for (int p = 0; p < length; ++p) {
      for (int i = 0; i < head_dim; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * (i % (head_dim / 2)) / head_dim);
        table.push_back(static_cast<float>(i < head_dim / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    qkv = random.normals(static_cast<std::size_t>(length) * width());
    if (norm) {
      q_norm = random.normals(head_dim);
      k_norm = random.normals(head_dim);
      params.q_norm = q_norm.data();
      params.k_norm = k_norm.data();
      params.norm_epsilon = 1e-6F;
    }
  }
  [[nodiscard]] int width() const { return (params.heads + 2 * params.kv_heads) * params.head_dim; }
  [[nodiscard]] int q_width() const { return params.heads * params.head_dim; }
  [[nodiscard]] RopeTable rope() const { return {table.data(), params.head_dim, positions}; }
};

/// Runs a sequence through the cache in chunks of the given sizes; returns [positions][q width].
/// The pool holds NaN wherever nothing was stored.
std::vector<std::byte> run_chunks(Backend& cpu, const Sequence& s, DType dtype, int block,
                                  const std::vector<int>& chunks,
                                  std::vector<std::byte>* rotated_q = nullptr) {
  const KvShape kv = {.layers = 2,
                      .kv_heads = s.params.kv_heads,
                      .head_dim = s.params.head_dim,
                      .block = block,
                      .dtype = dtype};
  const int blocks = (s.positions + block - 1) / block;
  const auto cache = cpu.allocate((blocks + 1) * kv.block_bytes());
  std::memset(cache->data(), 0xFF, cache->size());
  std::vector<std::int32_t> blocks_of(blocks);
  for (int b = 0; b < blocks; ++b) blocks_of[b] = blocks - b;  // scattered: last first
  std::vector<std::byte> q = poisoned(s.positions * s.q_width(), dtype);
  std::vector<std::byte> out = poisoned(s.positions * s.q_width(), dtype);
  int position = 0;
  for (const int chunk : chunks) {
    const int rows = std::min(chunk, s.positions - position);
    const Segment segment = {0, rows, position, blocks_of.data()};
    const std::size_t at = static_cast<std::size_t>(position) * s.q_width() * size_of(dtype);
    cpu.rope_and_store(s.params, s.rope(), kv, 1, cache->data(), {&segment, 1},
                       s.qkv.data() + static_cast<std::size_t>(position) * s.width(),
                       q.data() + at);
    cpu.attention(s.params, kv, 1, cache->data(), {&segment, 1}, q.data() + at, out.data() + at);
    position += rows;
  }
  EXPECT_EQ(position, s.positions);
  if (rotated_q != nullptr) *rotated_q = q;
  return out;
}

/// A head after norm and rotation, rounded to dtype, in float64.
std::vector<double> rotated(const Sequence& s, const float* in, const float* norm, int position,
                            DType dtype, bool rotate = true) {
  const int d = s.params.head_dim;
  std::vector<double> x(in, in + d);
  if (norm != nullptr) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / d + s.params.norm_epsilon);
    for (int i = 0; i < d; ++i) x[i] *= scale * norm[i];
  }
  std::vector<double> y = x;
  if (rotate) {
    for (int i = 0; i < d / 2; ++i) {
      const double c = s.table[position * d + i];
      const double sine = s.table[position * d + d / 2 + i];
      y[i] = x[i] * c - x[i + d / 2] * sine;
      y[i + d / 2] = x[i + d / 2] * c + x[i] * sine;
    }
  }
  for (double& value : y) value = Values({static_cast<float>(value)}, dtype).values[0];
  return y;
}

class AttentionTest : public EachIsaAndType {};

TEST_P(AttentionTest, MatchesFloat64) {
  Random random(1);
  for (const auto& [heads, kv_heads, d, length, norm] : {std::tuple{4, 2, 64, 150, false},
                                                         {14, 2, 64, 70, true},
                                                         {3, 3, 16, 130, true},
                                                         {6, 1, 48, 33, false},
                                                         {4, 2, 128, 66, true},
                                                         {2, 1, 256, 20, false},
                                                         {16, 1, 80, 65, true}}) {
    const Sequence s(random, heads, kv_heads, d, length, norm);
    const auto cpu = backend(2);
    std::vector<std::byte> q_bytes;
    const std::vector<float> out =
        decode(run_chunks(*cpu, s, dtype(), 16, {length}, &q_bytes), dtype());
    const std::vector<float> q = decode(q_bytes, dtype());
    for (const int p : {0, 1, 15, 16, length / 2, length - 1}) {
      const float* row = s.qkv.data() + static_cast<std::size_t>(p) * s.width();
      for (int h = 0; h < heads; ++h) {
        const std::vector<double> expected_q = rotated(s, row + h * d, s.params.q_norm, p, dtype());
        for (int i = 0; i < d; ++i) {
          // bf16 may round the other way after fp32 arithmetic.
          ASSERT_NEAR(q[p * s.q_width() + h * d + i], expected_q[i],
                      std::abs(expected_q[i]) * (dtype() == DType::bf16 ? 0.008 : 2e-6) + 4e-6);
        }
        const int kv_head = h / (heads / kv_heads);
        std::vector<double> scores;
        std::vector<std::vector<double>> values;
        for (int t = 0; t <= p; ++t) {
          const float* other = s.qkv.data() + static_cast<std::size_t>(t) * s.width();
          const auto k = rotated(s, other + (heads + kv_head) * d, s.params.k_norm, t, dtype());
          values.push_back(
              rotated(s, other + (heads + kv_heads + kv_head) * d, nullptr, t, dtype(), false));
          double score = 0;
          for (int i = 0; i < d; ++i) score += k[i] * q[p * s.q_width() + h * d + i];
          scores.push_back(score / std::sqrt(static_cast<double>(d)));
        }
        const double top = *std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - top);
        for (int i = 0; i < d; ++i) {
          double expected = 0;
          for (int t = 0; t <= p; ++t) expected += scores[t] / total * values[t][i];
          const double slack = dtype() == DType::bf16 ? 0.01 : 1e-5;
          ASSERT_NEAR(out[p * s.q_width() + h * d + i], expected, slack * (1 + std::abs(expected)))
              << "position " << p << " head " << h << " lane " << i;
        }
      }
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnChunksBlocksOrThreads) {
  Random random(2);
  for (const auto& [heads, kv_heads, d] : {std::tuple{14, 2, 64}, {4, 4, 32}, {5, 1, 128}}) {
    const int length = 203;
    const Sequence s(random, heads, kv_heads, d, length, heads == 5);
    const auto one = backend(1);
    const std::vector<std::byte> expected = run_chunks(*one, s, dtype(), 16, {length});
    const std::vector<int> single(length, 1);
    EXPECT_EQ(run_chunks(*one, s, dtype(), 16, single), expected) << "one by one";
    EXPECT_EQ(run_chunks(*backend(2), s, dtype(), 128, single), expected) << "one by one, 128";
    for (const int block : {32, 48, 64, 256}) {
      EXPECT_EQ(run_chunks(*backend(3), s, dtype(), block, {100, 103}), expected) << block;
    }
    EXPECT_EQ(run_chunks(*backend(2), s, dtype(), 16, {1, 2, 3, 5, 8, 13, 21, 34, 55, 61}),
              expected);
  }
}

TEST_P(AttentionTest, SequencesOfABatchDoNotMix) {
  Random random(3);
  const int d = 64;
  const int block = 32;
  std::vector<Sequence> sequences;
  for (const int length : {5, 77, 130, 1}) sequences.emplace_back(random, 7, 1, d, length, false);
  const KvShape kv = {.layers = 1, .kv_heads = 1, .head_dim = d, .block = block, .dtype = dtype()};
  const auto cpu = backend(2);
  const auto cache = cpu->allocate(20 * kv.block_bytes());
  std::memset(cache->data(), 0xFF, cache->size());
  std::vector<std::vector<std::int32_t>> tables;
  std::vector<Segment> segments;
  std::vector<float> qkv;
  int next_block = 0;
  int rows = 0;
  for (const Sequence& s : sequences) {
    tables.emplace_back();
    for (int b = 0; b < (s.positions + block - 1) / block; ++b)
      tables.back().push_back(next_block++);
    segments.push_back({rows, s.positions, 0, nullptr});
    rows += s.positions;
    qkv.insert(qkv.end(), s.qkv.begin(), s.qkv.end());
  }
  for (std::size_t i = 0; i < segments.size(); ++i) segments[i].blocks = tables[i].data();
  const int q_width = sequences[0].q_width();
  std::vector<std::byte> q = poisoned(rows * q_width, dtype());
  std::vector<std::byte> out = poisoned(rows * q_width, dtype());
  const RopeTable rope = sequences[2].rope();
  cpu->rope_and_store(sequences[0].params, rope, kv, 0, cache->data(), segments, qkv.data(),
                      q.data());
  cpu->attention(sequences[0].params, kv, 0, cache->data(), segments, q.data(), out.data());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<std::byte> alone =
        run_chunks(*backend(), sequences[i], dtype(), 16, {sequences[i].positions});
    EXPECT_EQ(std::memcmp(alone.data(),
                          out.data() + static_cast<std::size_t>(segments[i].first_row) * q_width *
                                           size_of(dtype()),
                          alone.size()),
              0)
        << "sequence " << i;
  }
}

PACELINE_EACH_ISA_AND_TYPE(AttentionTest);

}  // namespace
}  // namespace paceline::kernels::test
