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
  std::vector<float> table;           // [positions][head_dim]
  std::vector<float> qkv;             // [positions][(heads + 2 kv_heads) * head_dim]
  std::vector<float> q_norm, k_norm;  // [head_dim] or empty

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
      params.norm_epsilon = 1e-6F;
    }
  }
  [[nodiscard]] int width() const { return (params.heads + 2 * params.kv_heads) * params.head_dim; }
  [[nodiscard]] int q_width() const { return params.heads * params.head_dim; }
};

/// rope_and_store() and attention() of one layer on rows in host memory.
class Runner {
 public:
  Runner(Backend& backend, const Sequence& s)
      : backend_(backend),
        params_(s.params),
        table_(backend, s.table),
        q_norm_(backend, s.q_norm),
        k_norm_(backend, s.k_norm) {
    if (!s.q_norm.empty()) {
      params_.q_norm = q_norm_.data();
      params_.k_norm = k_norm_.data();
    }
    rope_ = {table_.data(), params_.head_dim, s.positions};
  }
  /// qkv: [rows, width]; returns q and what attention gives, [rows, q width] each.
  std::pair<std::vector<std::byte>, std::vector<std::byte>> run(std::span<const Segment> segments,
                                                                const KvShape& kv, int layer,
                                                                std::byte* cache,
                                                                const std::vector<float>& qkv) {
    const std::size_t rows =
        qkv.size() / ((params_.heads + 2 * params_.kv_heads) * params_.head_dim);
    const TestBatch batch(segments, params_.heads, kv, cache, rope_.max_position);
    const auto padded = static_cast<std::size_t>(backend_.padded({static_cast<int>(rows), 0}).rows);
    std::vector<float> padded_qkv = qkv;
    padded_qkv.resize(qkv.size() / rows * padded);
    const std::size_t width = static_cast<std::size_t>(params_.heads) * params_.head_dim;
    Array<float> in(backend_, padded_qkv);
    // With room behind the rows, which stays as it is.
    constexpr std::size_t kBehind = 16;
    Array<std::byte> q(backend_, poisoned(padded * width + kBehind, kv.dtype));
    Array<std::byte> out(backend_, poisoned(padded * width + kBehind, kv.dtype));
    operate(backend_, batch, [&](Operations& operations) {
      operations.rope_and_store(params_, rope_, layer, in.data(), q.data());
      operations.attention(params_, layer, q.data(), out.data());
    });
    const std::size_t bytes = rows * width * size_of(kv.dtype);
    auto q_bytes = q.values();
    auto out_bytes = out.values();
    for (const auto& written : {q_bytes, out_bytes}) {
      EXPECT_EQ(std::vector<std::byte>(written.end() - kBehind * size_of(kv.dtype), written.end()),
                poisoned(kBehind, kv.dtype));
    }
    q_bytes.resize(bytes);
    out_bytes.resize(bytes);
    return {std::move(q_bytes), std::move(out_bytes)};
  }

 private:
  Backend& backend_;
  QkvParams params_;
  RopeTable rope_;
  Array<float> table_;
  Array<float> q_norm_, k_norm_;
};

/// A pool of KV blocks that holds NaN wherever nothing was stored.
std::unique_ptr<Buffer> poisoned_cache(Backend& backend, const KvShape& kv, int blocks) {
  auto cache = backend.allocate(blocks * kv.block_bytes());
  backend.write(cache->data(), std::vector<std::byte>(cache->size(), std::byte{0xFF}));
  return cache;
}

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
  const auto cache = poisoned_cache(cpu, kv, blocks + 1);
  Runner runner(cpu, s);
  std::vector<std::int32_t> blocks_of(blocks);
  for (int b = 0; b < blocks; ++b) blocks_of[b] = blocks - b;  // scattered: last first
  std::vector<std::byte> q;
  std::vector<std::byte> out;
  int position = 0;
  for (const int chunk : chunks) {
    const int rows = std::min(chunk, s.positions - position);
    const Segment segment = {0, rows, position, blocks_of.data()};
    const auto first = s.qkv.begin() + static_cast<std::ptrdiff_t>(position) * s.width();
    const std::vector<float> qkv(first, first + static_cast<std::ptrdiff_t>(rows) * s.width());
    const auto [some_q, some_out] = runner.run({&segment, 1}, kv, 1, cache->data(), qkv);
    q.insert(q.end(), some_q.begin(), some_q.end());
    out.insert(out.end(), some_out.begin(), some_out.end());
    position += rows;
  }
  EXPECT_EQ(position, s.positions);
  if (rotated_q != nullptr) *rotated_q = q;
  return out;
}

/// A head after norm and rotation, rounded to dtype, in float64.
std::vector<double> rotated(const Sequence& s, const float* in, const std::vector<float>& norm,
                            int position, DType dtype, bool rotate = true) {
  const int d = s.params.head_dim;
  std::vector<double> x(in, in + d);
  if (!norm.empty()) {
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

/// What attention gives for a sequence in one piece, against float64.
void expect_near_float64(Backend& on, const Sequence& s, DType dtype) {
  const int heads = s.params.heads;
  const int kv_heads = s.params.kv_heads;
  const int d = s.params.head_dim;
  const int length = s.positions;
  std::vector<std::byte> q_bytes;
  const std::vector<float> out = decode(run_chunks(on, s, dtype, 16, {length}, &q_bytes), dtype);
  const std::vector<float> q = decode(q_bytes, dtype);
  for (const int p : {0, 1, 15, 16, length / 2, length - 1}) {
    const float* row = s.qkv.data() + static_cast<std::size_t>(p) * s.width();
    for (int h = 0; h < heads; ++h) {
      const std::vector<double> expected_q = rotated(s, row + h * d, s.q_norm, p, dtype);
      for (int i = 0; i < d; ++i) {
        // bf16 may round the other way after fp32 arithmetic.
        ASSERT_NEAR(q[p * s.q_width() + h * d + i], expected_q[i],
                    std::abs(expected_q[i]) * (dtype == DType::bf16 ? 0.008 : 2e-6) + 4e-6);
      }
      const int kv_head = h / (heads / kv_heads);
      std::vector<double> scores;
      std::vector<std::vector<double>> values;
      for (int t = 0; t <= p; ++t) {
        const float* other = s.qkv.data() + static_cast<std::size_t>(t) * s.width();
        const auto k = rotated(s, other + (heads + kv_head) * d, s.k_norm, t, dtype);
        values.push_back(rotated(s, other + (heads + kv_heads + kv_head) * d, {}, t, dtype, false));
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
        const double slack = dtype == DType::bf16 ? 0.01 : 1e-5;
        ASSERT_NEAR(out[p * s.q_width() + h * d + i], expected, slack * (1 + std::abs(expected)))
            << "position " << p << " head " << h << " lane " << i;
      }
    }
  }
}

class AttentionTest : public EachBackendAndType {};

TEST_P(AttentionTest, MatchesFloat64) {
  Random random(1);
  for (const auto& [heads, kv_heads, d, length, norm] : {std::tuple{4, 2, 64, 150, false},
                                                         {14, 2, 64, 70, true},
                                                         {3, 3, 16, 130, true},
                                                         {6, 1, 48, 33, false},
                                                         {4, 2, 128, 66, true},
                                                         {2, 1, 256, 20, false},
                                                         {16, 1, 80, 65, true},
                                                         {4, 2, 40, 70, true},
                                                         {13, 1, 40, 130, false},
                                                         {2, 2, 96, 66, false},
                                                         {3, 1, 104, 40, true}}) {
    const Sequence s(random, heads, kv_heads, d, length, norm);
    expect_near_float64(*backend(2), s, dtype());
  }
}

TEST_P(AttentionTest, TakesTheHeadsThatAreSaidToBeSupported) {
  Random random(6);
  ModelConfig config;
  config.heads = 2;
  config.kv_heads = 1;
  config.hidden = config.intermediate = 64;
  int supported = 0;
  for (int d = 2; d <= 272; d += 2) {
    config.head_dim = d;
    const bool claimed = unsupported(backend()->info().name, config).empty();
    EXPECT_EQ(claimed, d % 8 == 0 && d <= 256) << d;
    const Sequence s(random, 2, 1, d, 19, d % 3 == 0);
    if (claimed) {
      expect_near_float64(*backend(2), s, dtype());
      ++supported;
    } else {
      EXPECT_THROW(static_cast<void>(run_chunks(*backend(), s, dtype(), 16, {19})), Error) << d;
    }
  }
  EXPECT_EQ(supported, 32);
}

TEST_P(AttentionTest, BitsDoNotDependOnChunksBlocksOrThreads) {
  Random random(2);
  for (const auto& [heads, kv_heads, d] : {std::tuple{14, 2, 64},
                                           {4, 4, 32},
                                           {5, 1, 128},
                                           {4, 2, 40},
                                           {2, 2, 80},
                                           {2, 1, 96},
                                           {1, 1, 104},
                                           {1, 1, 256}}) {
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
  const int block = 32;
  for (const int d : {64, 40}) {
    std::vector<Sequence> sequences;
    for (const int length : {5, 77, 130, 1}) sequences.emplace_back(random, 7, 1, d, length, false);
    const KvShape kv = {
        .layers = 1, .kv_heads = 1, .head_dim = d, .block = block, .dtype = dtype()};
    const auto cpu = backend(2);
    const auto cache = poisoned_cache(*cpu, kv, 20);
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
    const auto [q, out] = Runner(*cpu, sequences[2]).run(segments, kv, 0, cache->data(), qkv);
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
}

/// A paged cache with one sequence in it, NaN wherever nothing was stored.
class OneSequence {
 public:
  OneSequence(Backend& cpu, const Sequence& s, DType dtype, int block, int slots)
      : cpu_(cpu),
        s_(s),
        kv_{.layers = 2,
            .kv_heads = s.params.kv_heads,
            .head_dim = s.params.head_dim,
            .block = block,
            .dtype = dtype},
        cache_(poisoned_cache(cpu, kv_, (slots + block - 1) / block + 1)),
        runner_(cpu, s) {
    const int blocks = (slots + block - 1) / block;
    for (int b = 0; b < blocks; ++b) blocks_.push_back(blocks - b);
  }
  /// qkv: [rows, width]; returns q and what attention gives, [rows, q width] each.
  std::pair<std::vector<std::byte>, std::vector<std::byte>> run(
      int position, const std::vector<float>& qkv, const std::int32_t* parents = nullptr,
      int before = 0) {
    const int rows = static_cast<int>(qkv.size()) / s_.width();
    const Segment segment{0, rows, position, blocks_.data(), parents, before};
    return runner_.run({&segment, 1}, kv_, 1, cache_->data(), qkv);
  }
  void move(const std::vector<std::pair<int, int>>& moves) {
    std::vector<Backend::SlotMove> slots;
    for (const auto& [from, to] : moves) {
      slots.push_back(
          {blocks_[from / kv_.block], from % kv_.block, blocks_[to / kv_.block], to % kv_.block});
    }
    cpu_.move_slots(kv_, cache_->data(), slots);
  }

 private:
  Backend& cpu_;
  const Sequence& s_;
  KvShape kv_;
  std::unique_ptr<Buffer> cache_;
  Runner runner_;
  std::vector<std::int32_t> blocks_;
};

// A tree in depth-first order: row i hangs under a row of the path to row i - 1.
std::vector<std::int32_t> random_tree(Random& random, int rows) {
  std::vector<std::int32_t> parents{-1};
  std::vector<std::int32_t> path{0};
  for (int row = 1; row < rows; ++row) {
    for (int up = random.below(4) - 1; up > 0 && path.size() > 1; --up) path.pop_back();
    parents.push_back(path.back());
    path.push_back(row);
  }
  return parents;
}

TEST_P(AttentionTest, TreesHaveTheBitsOfTheirPaths) {
  Random random(4);
  for (const auto& [heads, kv_heads, d, block] :
       {std::tuple{14, 2, 64, 16}, {4, 4, 32, 48}, {5, 1, 128, 128}, {4, 2, 40, 32}}) {
    for (const int base : {0, 1, 15, 37, 63, 64, 120}) {
      const int rows = 1 + random.below(40);
      const Sequence s(random, heads, kv_heads, d, base + rows + 1, heads == 5);
      const std::vector<float> before(s.qkv.begin(), s.qkv.begin() + base * s.width());
      const std::vector<float> drafted(s.qkv.begin() + base * s.width(), s.qkv.end() - s.width());
      const std::vector<float> after(s.qkv.end() - s.width(), s.qkv.end());
      const std::vector<std::int32_t> parents = random_tree(random, rows);
      const auto cpu = backend(2);
      OneSequence tree(*cpu, s, dtype(), block, base + rows + 1);
      if (base > 0) tree.run(0, before);
      const auto [q, out] = tree.run(base, drafted, parents.data());
      const std::size_t row_bytes = s.q_width() * size_of(dtype());

      std::vector<int> path;  // of the last row looked at
      for (int row = 0; row < rows; ++row) {
        path.clear();
        for (int at = row; at >= 0; at = parents[at]) path.insert(path.begin(), at);
        std::vector<float> alone;
        for (const int at : path) {
          alone.insert(alone.end(), drafted.begin() + at * s.width(),
                       drafted.begin() + (at + 1) * s.width());
        }
        OneSequence chain(*cpu, s, dtype(), 16, base + rows + 1);
        if (base > 0) chain.run(0, before);
        const auto [chain_q, chain_out] = chain.run(base, alone);
        const std::size_t last = chain_out.size() - row_bytes;
        ASSERT_EQ(std::memcmp(chain_q.data() + last, q.data() + row * row_bytes, row_bytes), 0)
            << "q of row " << row << " of " << rows << ", base " << base;
        ASSERT_EQ(std::memcmp(chain_out.data() + last, out.data() + row * row_bytes, row_bytes), 0)
            << "row " << row << " of " << rows << ", base " << base;
        if (row + 1 < rows) continue;

        // The last row's path is accepted: what follows sees a plain sequence.
        std::vector<std::pair<int, int>> moves;
        for (int i = 0; i < static_cast<int>(path.size()); ++i) {
          if (path[i] != i) moves.emplace_back(base + path[i], base + i);
        }
        tree.move(moves);
        const int next = base + static_cast<int>(path.size());
        ASSERT_EQ(tree.run(next, after).second, chain.run(next, after).second)
            << "after " << rows << " rows, base " << base;
      }
    }
  }
}

// Level by level, from several rows at the first position: what earlier passes computed is where
// they put it.
TEST_P(AttentionTest, TreesThatGrowOverPassesHaveTheBitsOfTheirPaths) {
  Random random(6);
  for (const auto& [heads, kv_heads, d, block] : {std::tuple{14, 2, 64, 16}, {5, 1, 32, 48}}) {
    for (const int base : {0, 37, 63, 120}) {
      std::vector<std::int32_t> parents;
      std::vector<int> levels{0};  // where each begins
      for (int level = 0; level < 5; ++level) {
        const int first = level == 0 ? -1 : levels[level - 1];
        const int last = level == 0 ? -1 : levels[level] - 1;
        for (int row = 1 + random.below(7); row > 0; --row)
          parents.push_back(first + random.below(last - first + 1));
        levels.push_back(static_cast<int>(parents.size()));
      }
      const int rows = levels.back();
      const Sequence s(random, heads, kv_heads, d, base + rows, heads == 5);
      const auto qkv_of = [&](int first, int last) {
        return std::vector<float>(s.qkv.begin() + first * s.width(),
                                  s.qkv.begin() + last * s.width());
      };
      const auto cpu = backend(2);
      OneSequence tree(*cpu, s, dtype(), block, base + rows);
      if (base > 0) tree.run(0, qkv_of(0, base));
      const std::size_t row_bytes = s.q_width() * size_of(dtype());
      for (std::size_t level = 0; level + 1 < levels.size(); ++level) {
        const int first = levels[level];
        const auto [q, out] =
            tree.run(base, qkv_of(base + first, base + levels[level + 1]), parents.data(), first);
        for (int row = first; row < levels[level + 1]; ++row) {
          std::vector<float> alone;
          for (int at = row; at >= 0; at = parents[at]) {
            const std::vector<float> of_row = qkv_of(base + at, base + at + 1);
            alone.insert(alone.begin(), of_row.begin(), of_row.end());
          }
          OneSequence chain(*cpu, s, dtype(), 16, base + rows);
          if (base > 0) chain.run(0, qkv_of(0, base));
          const std::vector<std::byte> expected = chain.run(base, alone).second;
          ASSERT_EQ(std::memcmp(expected.data() + expected.size() - row_bytes,
                                out.data() + (row - first) * row_bytes, row_bytes),
                    0)
              << "row " << row << " of " << rows << ", base " << base;
        }
      }
    }
  }
}

// As rows of a picture see one another: with the bits of a row alone, and the last with those of a
// row that sees the positions up to its own.
TEST_P(AttentionTest, RowsThatSeeAllPositionsHaveTheBitsOfRowsAlone) {
  const auto& [name, dtype] = GetParam();
  Random random(21);
  const auto cpu = backend(2);
  for (const auto& [all, first, rows] :
       {std::array{70, 0, 70}, {40, 3, 5}, {300, 100, 17}, {700, 600, 90}}) {
    const Sequence s(random, 2, 2, 16, all, false);
    const KvShape kv = {.layers = 1, .kv_heads = 2, .head_dim = 16, .block = 16, .dtype = dtype};
    std::vector<std::int32_t> blocks((all + 15) / 16);
    std::iota(blocks.begin(), blocks.end(), 0);
    const auto cache = poisoned_cache(*cpu, kv, static_cast<int>(blocks.size()));
    Runner runner(*cpu, s);
    const auto run = [&](const Segment& segment, const std::vector<float>& qkv) {
      return runner.run({&segment, 1}, kv, 0, cache->data(), qkv).second;
    };
    static_cast<void>(run({0, all, 0, blocks.data()}, s.qkv));
    const auto of = [&](int position) {
      const auto begin = s.qkv.begin() + static_cast<std::ptrdiff_t>(position) * s.width();
      return std::vector<float>(begin, begin + s.width());
    };
    std::vector<float> some;
    for (int i = 0; i < rows; ++i) {
      const std::vector<float> row = of(first + i);
      some.insert(some.end(), row.begin(), row.end());
    }
    const std::vector<std::byte> found =
        run({.rows = rows, .first_position = first, .blocks = blocks.data(), .seen = all}, some);
    const std::size_t bytes = s.q_width() * size_of(dtype);
    for (const int i : {0, rows / 2, rows - 1}) {
      const Segment alone = {
          .rows = 1, .first_position = first + i, .blocks = blocks.data(), .seen = all};
      const std::vector<std::byte> expected = run(alone, of(first + i));
      ASSERT_EQ(std::memcmp(found.data() + i * bytes, expected.data(), bytes), 0)
          << all << " positions, row " << i;
    }
    const std::vector<std::byte> last = run({0, 1, all - 1, blocks.data()}, of(all - 1));
    const Segment last_alone = {
        .rows = 1, .first_position = all - 1, .blocks = blocks.data(), .seen = all};
    ASSERT_EQ(run(last_alone, of(all - 1)), last);
    if (first + rows < all) continue;
    ASSERT_EQ(std::memcmp(found.data() + (rows - 1) * bytes, last.data(), bytes), 0);
  }
}

PACELINE_EACH_BACKEND_AND_TYPE(AttentionTest);

}  // namespace
}  // namespace paceline::kernels::test
