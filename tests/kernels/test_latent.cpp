// Latent attention against float64, and the invariances of kernels/backend.hpp.
#include <algorithm>
#include <numeric>

#include "kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

struct Sizes {
  int heads, nope, rope, rank;
};

/// A sequence's projections, and what its heads' queries are in the space of latent vectors.
struct Sequence {
  Sequence(Random& random, const Sizes& sizes, int length) : positions(length) {
    params.heads = sizes.heads;
    params.nope = sizes.nope;
    params.rope = sizes.rope;
    params.rank = sizes.rank;
    params.scale = 1.3F / std::sqrt(static_cast<float>(sizes.nope + sizes.rope));
    params.norm_epsilon = 1e-6F;
    for (int p = 0; p < length; ++p) {
      for (int i = 0; i < sizes.rope; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * (i % (sizes.rope / 2)) / sizes.rope);
        table.push_back(static_cast<float>(i < sizes.rope / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
    norm = random.normals(sizes.rank);
    const auto rows = static_cast<std::size_t>(length);
    q = random.normals(rows * q_width());
    kv = random.normals(rows * params.width());
    taken_in = random.normals(rows * params.heads * params.rank, 0.5F);
  }
  [[nodiscard]] int q_width() const { return params.heads * (params.nope + params.rope); }

  int positions;
  LatentParams params;
  std::vector<float> table;     // [positions][rope]
  std::vector<float> norm;      // [rank]
  std::vector<float> q;         // [positions][q_width()]
  std::vector<float> kv;        // [positions][width]
  std::vector<float> taken_in;  // [positions][heads][rank]
};

/// Rows of a batch that are positions of a sequence.
struct Rows {
  const Sequence& of;
  std::vector<int> positions;  // whose projections they have

  template <class T>
  [[nodiscard]] std::vector<T> pick(const std::vector<T>& all, std::size_t width,
                                    std::size_t padded) const {
    std::vector<T> some;
    for (const int p : positions)
      some.insert(some.end(), all.begin() + p * width, all.begin() + (p + 1) * width);
    some.resize(padded * width);
    return some;
  }
};

/// What a pass gives: [rows][heads][rank], and the queries' parts, [rows][heads][nope].
struct Result {
  std::vector<std::byte> out, nope;
};

/// Rows [heads][padded][size] as [rows][heads][size].
std::vector<std::byte> by_row(const std::vector<std::byte>& all, std::size_t heads,
                              std::size_t rows, std::size_t padded, std::size_t bytes) {
  std::vector<std::byte> out;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t h = 0; h < heads; ++h) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>((h * padded + r) * bytes);
      out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(bytes));
    }
  }
  return out;
}

Result run(Backend& on, std::span<const Segment> segments, const KvShape& kv, std::byte* cache,
           const Rows& rows, bool attends = true) {
  const Sequence& s = rows.of;
  const LatentParams& p = s.params;
  const std::size_t count = rows.positions.size();
  const auto padded = static_cast<std::size_t>(on.padded({static_cast<int>(count), 0}).rows);
  const std::size_t element = size_of(kv.dtype);
  Array<float> table(on, s.table);
  Array<float> norm(on, s.norm);
  Array<float> q(on, rows.pick(s.q, s.q_width(), padded));
  Array<float> latent(on, rows.pick(s.kv, p.width(), padded));
  std::vector<Array<float>> heads;
  for (int h = 0; h < p.heads; ++h) {
    std::vector<float> of_head;
    for (int position = 0; position < s.positions; ++position) {
      const auto from = s.taken_in.begin() + (position * p.heads + h) * p.rank;
      of_head.insert(of_head.end(), from, from + p.rank);
    }
    heads.emplace_back(on, rows.pick(of_head, p.rank, padded));
  }
  Array<std::byte> nope(on, poisoned(padded * p.heads * p.nope, kv.dtype));
  Array<std::byte> query(on, poisoned(padded * p.heads * p.width(), kv.dtype));
  Array<std::byte> out(on, poisoned(padded * p.heads * p.rank, kv.dtype));
  LatentParams params = p;
  params.norm = norm.data();
  operate(on, TestBatch(segments, p.heads, kv, cache, s.positions), [&](Operations& operations) {
    operations.latent_rope_and_store(params, {table.data(), p.rope, s.positions}, 1, q.data(),
                                     latent.data(), nope.data(), query.data());
    for (int h = 0; h < p.heads; ++h) {
      operations.store_columns(heads[h].data(), static_cast<int>(padded), p.rank, kv.dtype,
                               query.data(), p.heads * p.width(), h * p.width());
    }
    if (attends) operations.latent_attention(params, 1, query.data(), out.data());
  });
  return {by_row(out.values(), p.heads, count, padded, p.rank * element),
          by_row(nope.values(), p.heads, count, padded, p.nope * element)};
}

/// A paged cache of one sequence, NaN wherever nothing was stored.
class Cache {
 public:
  Cache(Backend& on, const Sequence& s, DType dtype, int block, int slots)
      : on_(on), kv_{2, 1, s.params.width(), block, dtype, s.params.rank}, s_(s) {
    const int blocks = (slots + block - 1) / block;
    for (int b = 0; b < blocks; ++b) blocks_.push_back(blocks - b);
    memory_ = on.allocate((blocks + 1) * kv_.block_bytes());
    on.write(memory_->data(), std::vector<std::byte>(memory_->size(), std::byte{0xFF}));
  }
  Result run(int position, const std::vector<int>& rows, const std::int32_t* parents = nullptr) {
    const Segment segment{0, static_cast<int>(rows.size()), position, blocks_.data(), parents};
    return test::run(on_, {&segment, 1}, kv_, memory_->data(), {s_, rows});
  }
  Result run(int first, int count) {
    std::vector<int> rows;
    for (int i = 0; i < count; ++i) rows.push_back(first + i);
    return run(first, rows);
  }
  /// Stores the first positions, which takes little time.
  void store(int count) {
    const Segment segment{0, count, 0, blocks_.data()};
    std::vector<int> rows(count);
    std::iota(rows.begin(), rows.end(), 0);
    if (count > 0) (void)test::run(on_, {&segment, 1}, kv_, memory_->data(), {s_, rows}, false);
  }
  void move(const std::vector<std::pair<int, int>>& moves) {
    std::vector<Backend::SlotMove> slots;
    for (const auto& [from, to] : moves) {
      slots.push_back(
          {blocks_[from / kv_.block], from % kv_.block, blocks_[to / kv_.block], to % kv_.block});
    }
    on_.move_slots(kv_, memory_->data(), slots);
  }

 private:
  Backend& on_;
  KvShape kv_;
  const Sequence& s_;
  std::vector<std::int32_t> blocks_;
  std::unique_ptr<Buffer> memory_;
};

Result in_chunks(Backend& on, const Sequence& s, DType dtype, int block,
                 const std::vector<int>& chunks) {
  Cache cache(on, s, dtype, block, s.positions);
  Result all;
  int first = 0;
  for (const int chunk : chunks) {
    const int rows = std::min(chunk, s.positions - first);
    const Result some = cache.run(first, rows);
    all.out.insert(all.out.end(), some.out.begin(), some.out.end());
    all.nope.insert(all.nope.end(), some.nope.begin(), some.nope.end());
    first += rows;
  }
  EXPECT_EQ(first, s.positions);
  return all;
}

std::vector<double> rounded(const std::vector<double>& x, DType dtype) {
  const Values values(std::vector<float>(x.begin(), x.end()), dtype);
  return {values.values.begin(), values.values.end()};
}

/// The last elements of a head or of a latent vector, rotated to a position.
std::vector<double> rotated(const Sequence& s, const float* in, int position) {
  const int half = s.params.rope / 2;
  std::vector<double> out(s.params.rope);
  for (int i = 0; i < half; ++i) {
    const double c = s.table[position * 2 * half + i];
    const double sine = s.table[position * 2 * half + half + i];
    out[i] = in[2 * i] * c - in[2 * i + 1] * sine;
    out[half + i] = in[2 * i + 1] * c + in[2 * i] * sine;
  }
  return out;
}

void expect_near_float64(const Sequence& s, const Result& result, DType dtype) {
  const LatentParams& p = s.params;
  std::vector<std::vector<double>> vectors;
  for (int t = 0; t < s.positions; ++t) {
    const float* in = s.kv.data() + static_cast<std::ptrdiff_t>(t) * p.width();
    double squares = 0;
    for (int i = 0; i < p.rank; ++i) squares += static_cast<double>(in[i]) * in[i];
    const double scale = 1 / std::sqrt(squares / p.rank + p.norm_epsilon);
    std::vector<double> vector(p.rank);
    for (int i = 0; i < p.rank; ++i) vector[i] = in[i] * scale * s.norm[i];
    const std::vector<double> turned = rotated(s, in + p.rank, t);
    vector.insert(vector.end(), turned.begin(), turned.end());
    vectors.push_back(rounded(vector, dtype));
  }
  const std::vector<float> out = decode(result.out, dtype);
  const std::vector<float> nope = decode(result.nope, dtype);
  for (int t = 0; t < s.positions; ++t) {
    for (int h = 0; h < p.heads; ++h) {
      const int head = t * p.heads + h;
      const float* q = s.q.data() + static_cast<std::ptrdiff_t>(head) * (p.nope + p.rope);
      const std::vector<double> kept = rounded({q, q + p.nope}, dtype);
      for (int i = 0; i < p.nope; ++i) ASSERT_EQ(nope[head * p.nope + i], kept[i]);
      const float* in = s.taken_in.data() + static_cast<std::ptrdiff_t>(head) * p.rank;
      std::vector<double> query(in, in + p.rank);
      const std::vector<double> turned = rotated(s, q + p.nope, t);
      query.insert(query.end(), turned.begin(), turned.end());
      query = rounded(query, dtype);
      std::vector<double> weights;
      double total = 0;
      for (int u = 0; u <= t; ++u) {
        double score = 0;
        for (int i = 0; i < p.width(); ++i) score += query[i] * vectors[u][i];
        weights.push_back(std::exp(score * p.scale));
        total += weights.back();
      }
      for (int i = 0; i < p.rank; ++i) {
        double expected = 0;
        for (int u = 0; u <= t; ++u) expected += weights[u] / total * vectors[u][i];
        ASSERT_NEAR(out[head * p.rank + i], expected, dtype == DType::bf16 ? 0.03 : 1e-5)
            << "position " << t << ", head " << h << ", element " << i;
      }
    }
  }
}

class LatentTest : public EachBackendAndType {};

TEST_P(LatentTest, MatchesFloat64WhateverTheChunks) {
  Random random(41);
  for (const auto& [sizes, length] : {std::pair{Sizes{2, 16, 8, 32}, 70},
                                      {Sizes{1, 24, 32, 96}, 130},
                                      {Sizes{1, 128, 64, 512}, 18},
                                      {Sizes{5, 12, 16, 24}, 20}}) {
    const Sequence s(random, sizes, length);
    const Result whole = in_chunks(*backend(2), s, dtype(), 16, {length});
    expect_near_float64(s, whole, dtype());
    EXPECT_EQ(in_chunks(*backend(1), s, dtype(), 48, std::vector<int>(length, 1)).out, whole.out);
    EXPECT_EQ(in_chunks(*backend(2), s, dtype(), 128, {1, 2, 5, 13, 34, 55, 61}).out, whole.out);
  }
}

// Past several segments, which threads may take apart.
TEST_P(LatentTest, LongContextsHaveOneOrder) {
  Random random(42);
  const Sequence s(random, {2, 8, 8, 40}, 1100);
  const auto alone = backend(1);
  const auto shared = backend(2);
  Cache one(*alone, s, dtype(), 16, s.positions);
  Cache other(*shared, s, dtype(), 128, s.positions);
  one.store(1090);
  other.store(1090);
  const Result together = one.run(1090, 10);
  Result apart;
  for (int i = 0; i < 10; ++i) {
    const Result row = other.run(1090 + i, 1);
    apart.out.insert(apart.out.end(), row.out.begin(), row.out.end());
  }
  EXPECT_EQ(together.out, apart.out);
}

TEST_P(LatentTest, TreesHaveTheBitsOfTheirPaths) {
  Random random(43);
  for (const auto& [sizes, block] :
       {std::pair{Sizes{2, 16, 8, 32}, 16}, {Sizes{1, 24, 32, 64}, 48}}) {
    for (const int base : {0, 15, 63, 120}) {
      const int rows = 1 + random.below(12);
      const Sequence s(random, sizes, base + rows + 1);
      const auto on = backend(2);
      std::vector<std::int32_t> parents{-1};
      for (int row = 1; row < rows; ++row) parents.push_back(random.below(row + 1) - 1);
      std::vector<int> drafted;
      for (int row = 0; row < rows; ++row) drafted.push_back(base + row);
      Cache tree(*on, s, dtype(), block, base + rows + 1);
      tree.store(base);
      // Row i has the projections of position base + i, and stands where its path ends.
      const Result made = tree.run(base, drafted, parents.data());
      const std::size_t row_bytes = made.out.size() / rows;
      for (int row = 0; row < rows; ++row) {
        std::vector<int> path;
        for (int at = row; at >= 0; at = parents[at]) path.insert(path.begin(), base + at);
        Cache chain(*on, s, dtype(), 16, base + rows + 1);
        chain.store(base);
        const Result alone = chain.run(base, path);
        ASSERT_EQ(std::memcmp(alone.out.data() + alone.out.size() - row_bytes,
                              made.out.data() + row * row_bytes, row_bytes),
                  0)
            << "row " << row << " of " << rows << ", base " << base;
        if (row + 1 < rows) continue;
        std::vector<std::pair<int, int>> moves;
        for (int i = 0; i < static_cast<int>(path.size()); ++i) {
          if (path[i] != base + i) moves.emplace_back(path[i], base + i);
        }
        tree.move(moves);
        const int next = base + static_cast<int>(path.size());
        const std::vector<int> after{base + rows};
        ASSERT_EQ(tree.run(next, after).out, chain.run(next, after).out);
      }
    }
  }
}

TEST_P(LatentTest, SequencesOfABatchDoNotMix) {
  Random random(44);
  const Sequence s(random, {2, 16, 8, 32}, 90);
  const auto on = backend(2);
  const KvShape kv{2, 1, s.params.width(), 16, dtype(), s.params.rank};
  const auto cache = on->allocate(40 * kv.block_bytes());
  // The last two share the blocks of their first 64 positions.
  const std::vector<std::pair<int, int>> parts{{0, 20}, {0, 90}, {64, 20}, {66, 5}};
  std::vector<std::vector<std::int32_t>> tables(parts.size());
  std::int32_t next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (int b = 0; b < 6; ++b) tables[i].push_back(i >= 2 && b < 4 ? 30 + b : next++);
  }
  const auto positions = [](int first, int count) {
    std::vector<int> all;
    for (int i = 0; i < count; ++i) all.push_back(first + i);
    return all;
  };
  const Segment before{0, 64, 0, tables[2].data()};
  (void)run(*on, {&before, 1}, kv, cache->data(), {s, positions(0, 64)}, false);
  const Segment own{0, 2, 64, tables[3].data()};
  (void)run(*on, {&own, 1}, kv, cache->data(), {s, positions(64, 2)}, false);
  std::vector<Segment> segments;
  std::vector<int> rows;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [first, count] = parts[i];
    segments.push_back({static_cast<int>(rows.size()), count, first, tables[i].data()});
    const std::vector<int> more = positions(first, count);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  const Result together = run(*on, segments, kv, cache->data(), {s, rows});
  const Result alone = in_chunks(*backend(1), s, dtype(), 16, {90});
  const std::size_t row_bytes = alone.out.size() / 90;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    ASSERT_EQ(std::memcmp(together.out.data() + r * row_bytes,
                          alone.out.data() + rows[r] * row_bytes, row_bytes),
              0)
        << "row " << r;
  }
}

PACELINE_EACH_BACKEND_AND_TYPE(LatentTest);

}  // namespace
}  // namespace paceline::kernels::test
