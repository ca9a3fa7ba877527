// The order of attention's arithmetic, bit for bit: rows that attend together, whatever they share,
// against a plain loop over the positions that each sees.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

/// KV blocks of one layer, NaN wherever nothing was stored, in the layout of rope.cpp, and what
/// they hold once more as it is read most quickly.
class Pool {
 public:
  Pool(const KvShape& shape, int blocks)
      : kv_(shape), bytes_(blocks * shape.block_bytes(), std::byte{0xFF}) {}
  [[nodiscard]] std::byte* data() { return bytes_.data(); }
  [[nodiscard]] const KvShape& shape() const { return kv_; }

  void fill(Random& random, int block, int slot) {
    keys_.resize(std::max(keys_.size(), row(block + 1, 0, 0)));
    values_.resize(keys_.size());
    for (int head = 0; head < kv_.kv_heads; ++head) {
      for (int i = 0; i < kv_.head_dim; ++i) {
        const std::size_t at = row(block, head, slot) + i;
        keys_[at] = put(block, key(head, slot, i), random.normal());
        values_[at] = put(block, value(head, slot, i), random.normal());
      }
    }
  }
  /// [head_dim]
  [[nodiscard]] const float* k(int block, int head, int slot) const {
    return &keys_[row(block, head, slot)];
  }
  [[nodiscard]] const float* v(int block, int head, int slot) const {
    return &values_[row(block, head, slot)];
  }

 private:
  [[nodiscard]] std::size_t row(int block, int head, int slot) const {
    return ((static_cast<std::size_t>(block) * kv_.kv_heads + head) * kv_.block + slot) *
           kv_.head_dim;
  }
  [[nodiscard]] std::size_t key(int head, int slot, int i) const {
    const std::size_t first = static_cast<std::size_t>(head) * kv_.head_dim * kv_.block;
    if (kv_.dtype == DType::f32) return first + static_cast<std::size_t>(i) * kv_.block + slot;
    return first + (static_cast<std::size_t>(i / 2) * kv_.block + slot) * 2 + i % 2;
  }
  [[nodiscard]] std::size_t value(int head, int slot, int i) const {
    const std::size_t first =
        static_cast<std::size_t>(kv_.kv_heads + head) * kv_.head_dim * kv_.block;
    const std::size_t d = kv_.head_dim;
    return first + (kv_.dtype == DType::f32 ? slot * d + i : (slot / 2 * d + i) * 2 + slot % 2);
  }
  /// Stores it, and returns what is stored.
  float put(int block, std::size_t element, float x) {
    const Values one({x}, kv_.dtype);
    std::copy(one.bytes.begin(), one.bytes.end(),
              bytes_.begin() + block * kv_.block_bytes() + element * size_of(kv_.dtype));
    return one.values[0];
  }

  KvShape kv_;
  std::vector<std::byte> bytes_;
  std::vector<float> keys_, values_;  ///< [block][head][slot][head_dim]
};

/// Where each position that a row sees lies.
struct Place {
  int block, slot;
};

float exponential(const cpu::KernelTable& kernels, float x) {
  const float in[16] = {x};
  const std::uint32_t bits[16] = {};
  float out[16], log[16], gumbel[16];
  kernels.math16(in, bits, out, log, gumbel);
  return out[0];
}

/// As bf16's instructions have it: subnormals are zero.
float nearest_bf16(float x) {
  return std::abs(x) < std::numeric_limits<float>::min()
             ? 0.0F
             : cpu::bf16_to_float(cpu::float_to_bf16(x));
}

/// exp_for_bf16().
float exponential_for_bf16(float x) {
  const float y = std::max(x * 1.44269504F, -128.0F);
  const float n = std::nearbyint(y);
  const float f = y - n;
  float p = 0.0550088F;
  for (const float c : {0.2422112F, 0.6932830F, 1.0F}) p = std::fma(p, f, c);
  return std::ldexp(p, static_cast<int>(n));
}

/// What one instruction of the tile unit adds to a sum: 32 products, the even and the odd ones each
/// a chain.
float add_step(float sum, const float* a, const float* b) {
  float even = 0;
  float odd = 0;
  for (int i = 0; i < 32; i += 2) {
    even = std::fma(a[i], b[i], even);
    odd = std::fma(a[i + 1], b[i + 1], odd);
  }
  return sum + (even + odd);
}

/// How an instruction set multiplies, and what goes with it.
class Arithmetic {
 public:
  Arithmetic(const cpu::KernelTable& kernels, DType dtype, int head_dim) {
    const std::string isa = kernels.isa;
    dots_ = isa == "avx512_bf16" && dtype == DType::bf16;
    tiles_ = isa == "amx_bf16" && dtype == DType::bf16 && head_dim % 32 == 0;
#ifndef __FP_FAST_FMAF
    fused_ = isa != "portable";
#endif
  }
  /// Queries and weights are bf16, and scores are scaled when they are there.
  [[nodiscard]] bool paired() const { return dots_ || tiles_; }

  [[nodiscard]] float score(const std::vector<float>& query, const float* key, float scale) const {
    float sum = 0;
    for (std::size_t i = 0; i < query.size(); ++i) {
      if (tiles_) {
        if (i % 32 == 0) sum = add_step(sum, &query[i], &key[i]);
      } else {
        // A dot product takes the later element of each pair first.
        const std::size_t at = dots_ ? i ^ 1U : i;
        sum = multiply_add(paired() ? query[at] : query[at] * scale, key[at], sum);
      }
    }
    return sum;
  }
  /// values: [kAttentionTile] of one lane, of which `count` are there; the others are zero, as are
  /// their weights.
  [[nodiscard]] float accumulate(float before, float alpha, const float* weights,
                                 const float* values, int count) const {
    if (tiles_) {
      float sum = 0;
      for (int p = 0; p < count; p += 32) sum = add_step(sum, weights + p, values + p);
      return std::fma(before, alpha, sum);
    }
    float sum = before * alpha;
    for (int step = 0; step < (count + 1) / 2 * 2; ++step) {
      const int p = dots_ ? step ^ 1 : step;
      if (p < count) sum = multiply_add(weights[p], values[p], sum);
    }
    return sum;
  }

 private:
  [[nodiscard]] float multiply_add(float a, float b, float c) const {
    return fused_ ? std::fma(a, b, c) : a * b + c;
  }

  bool dots_ = false, tiles_ = false, fused_ = true;
};

/// One row of one head: the definition.
std::vector<float> attend(const cpu::KernelTable& kernels, const Pool& pool, int kv_head,
                          const std::vector<float>& query, const std::vector<Place>& seen) {
  const int d = pool.shape().head_dim;
  const Arithmetic arithmetic(kernels, pool.shape().dtype, d);
  const bool paired = arithmetic.paired();
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  // [segment] of kAttentionSegment positions.
  std::vector<float> tops, totals;
  std::vector<std::vector<float>> outs;
  for (std::size_t start = 0; start < seen.size(); start += kAttentionTile) {
    if (start % cpu::kAttentionSegment == 0) {
      tops.push_back(std::numeric_limits<float>::lowest());
      totals.push_back(0.0F);
      outs.emplace_back(d, 0.0F);
    }
    float& top = tops.back();
    float& total = totals.back();
    std::vector<float>& out = outs.back();
    const int count = std::min<int>(kAttentionTile, static_cast<int>(seen.size() - start));
    float weights[kAttentionTile];
    float highest = top;
    for (int p = 0; p < count; ++p) {
      const Place& at = seen[start + p];
      weights[p] = arithmetic.score(query, pool.k(at.block, kv_head, at.slot), scale);
      highest = std::max(highest, paired ? weights[p] * scale : weights[p]);
    }
    const float alpha = exponential(kernels, top - highest);
    top = highest;
    float sums[16] = {};
    for (int p = 0; p < kAttentionTile; ++p) {
      if (p >= count) {
        weights[p] = 0;
      } else if (paired) {
        weights[p] = nearest_bf16(exponential_for_bf16(weights[p] * scale - top));
      } else {
        weights[p] = exponential(kernels, weights[p] - top);
      }
    }
    for (int lane = 0; lane < 16; ++lane) {
      const float* w = weights + (paired ? 2 * lane : lane);
      sums[lane] = paired ? (w[0] + w[1]) + (w[32] + w[33]) : (w[0] + w[16]) + (w[32] + w[48]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    total = total * alpha + sums[0];
    const float* rows[kAttentionTile];
    for (int p = 0; p < count; ++p)
      rows[p] = pool.v(seen[start + p].block, kv_head, seen[start + p].slot);
    for (int i = 0; i < d; ++i) {
      float values[kAttentionTile] = {};
      for (int p = 0; p < count; ++p) values[p] = rows[p][i];
      out[i] = arithmetic.accumulate(out[i], alpha, weights, values, count);
    }
  }
  std::vector<float> out(d, 0.0F);
  float top = std::numeric_limits<float>::lowest();
  float total = 0;
  for (std::size_t s = 0; s < outs.size(); ++s) {
    const float highest = std::max(top, tops[s]);
    const float keep = exponential(kernels, top - highest);
    const float take = exponential(kernels, tops[s] - highest);
    top = highest;
    total = total * keep + totals[s] * take;
    for (int i = 0; i < d; ++i) out[i] = out[i] * keep + outs[s][i] * take;
  }
  const float inverse = 1.0F / total;
  for (float& x : out) x = x * inverse + 0.0F;
  return Values(out, pool.shape().dtype).values;
}

/// Siblings in groups, each group with a prompt whose whole blocks its members have in common, in
/// an order that mixes the groups; each has some rows, a chain or a tree. One of the prompts is
/// `more` positions longer.
struct Mixed {
  std::vector<std::vector<std::int32_t>> tables;
  std::vector<std::vector<std::int32_t>> parents;
  std::vector<Segment> segments;
  std::vector<std::vector<Place>> seen;  ///< by each row
  int positions = 0;
};

Mixed make_batch(Random& random, Pool& pool, int members, int more, int next_block) {
  const int block = pool.shape().block;
  const int prompts[] = {1 + random.below(60), 130 + random.below(40),
                         more + 64 * (1 + random.below(3))};
  Mixed batch;
  std::vector<std::vector<std::int32_t>> common(std::size(prompts));
  const auto new_block = [&](int slots) {
    for (int slot = 0; slot < slots; ++slot) pool.fill(random, next_block, slot);
    return next_block++;
  };
  int row = 0;
  for (int m = 0; m < members; ++m) {
    const int prompt = random.below(static_cast<int>(std::size(prompts)));
    std::vector<std::int32_t>& whole = common[prompt];
    while (static_cast<int>(whole.size()) < (prompts[prompt] - 1) / block)
      whole.push_back(new_block(block));
    const int first = prompts[prompt] + random.below(random.below(2) == 0 ? 3 : 150);
    const int rows = random.below(8) == 0 ? 20 + random.below(60) : 1 + random.below(6);
    std::vector<std::int32_t> table = whole;
    for (int stored = 0; stored = static_cast<int>(table.size()) * block, stored < first + rows;)
      table.push_back(new_block(std::min(block, first + rows - stored)));
    std::vector<std::int32_t> parents;
    if (random.below(3) == 0) {
      for (int i = 0; i < rows; ++i)
        parents.push_back(i == 0 ? -1 : i - 1 - random.below(std::min(i, 3)));
    }
    for (int i = 0; i < rows; ++i) {
      std::vector<int> slots;
      for (int at = i; at >= 0; at = parents.empty() ? at - 1 : parents[at])
        slots.insert(slots.begin(), first + at);
      std::vector<int> before(first);
      std::iota(before.begin(), before.end(), 0);
      slots.insert(slots.begin(), before.begin(), before.end());
      batch.seen.emplace_back();
      for (const int at : slots) batch.seen.back().push_back({table[at / block], at % block});
    }
    batch.positions = std::max(batch.positions, first + rows);
    batch.segments.push_back({row, rows, first});
    batch.tables.push_back(std::move(table));
    batch.parents.push_back(std::move(parents));
    row += rows;
  }
  for (int m = 0; m < members; ++m) {
    batch.segments[m].blocks = batch.tables[m].data();
    if (!batch.parents[m].empty()) batch.segments[m].parents = batch.parents[m].data();
  }
  return batch;
}

class AttentionOrderTest : public testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(AttentionOrderTest, IsThatOfAPlainLoop) {
  const auto& [isa, dtype] = GetParam();
  const cpu::KernelTable& kernels = cpu::kernel_table(isa.c_str());
  Random random(8);
  struct Shape {
    int group, kv_heads, head_dim, block, members, threads, more = 0;
  };
  for (const Shape& s : {Shape{1, 2, 64, 16, 12, 1},
                         {2, 1, 80, 32, 8, 2},
                         {3, 2, 40, 16, 6, 3},
                         {4, 1, 128, 64, 6, 4},
                         {5, 1, 64, 48, 6, 2},
                         {6, 1, 80, 16, 5, 1},
                         {7, 2, 64, 16, 12, 2},
                         {8, 1, 256, 16, 4, 3},
                         {1, 3, 256, 16, 6, 1},
                         {2, 5, 72, 32, 8, 1},
                         {7, 1, 64, 16, 6, 1, 900},
                         {7, 1, 64, 16, 6, 4, 900},
                         {1, 2, 40, 16, 3, 8, 1500},
                         {2, 1, 80, 64, 1, 8, 448},
                         {16, 2, 32, 32, 6, 2},
                         {7, 2, 96, 48, 6, 2, 700},
                         {17, 1, 128, 16, 4, 3, 600},
                         {11, 1, 128, 48, 16, 1, 300}}) {
    const KvShape kv = {.layers = 1,
                        .kv_heads = s.kv_heads,
                        .head_dim = s.head_dim,
                        .block = s.block,
                        .dtype = dtype};
    Pool pool(kv, 1000);
    const Mixed batch = make_batch(random, pool, s.members, s.more, 1);
    const int heads = s.group * s.kv_heads;
    const std::size_t width = static_cast<std::size_t>(heads) * s.head_dim;
    const Values q(random.normals(batch.seen.size() * width), dtype);
    std::vector<std::byte> out = poisoned(batch.seen.size() * width, dtype);
    const auto cpu = make_cpu_backend(s.threads, isa);
    const TestBatch given(batch.segments, heads, kv, pool.data(), batch.positions);
    operate(*cpu, given, [&](Operations& operations) {
      operations.attention({.heads = heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim}, 0,
                           q.bytes.data(), out.data());
    });
    const std::vector<float> found = decode(out, dtype);
    for (std::size_t row = 0; row < batch.seen.size(); ++row) {
      for (int h = 0; h < heads; ++h) {
        const std::size_t at = row * width + static_cast<std::size_t>(h) * s.head_dim;
        const auto query = q.values.begin() + static_cast<std::ptrdiff_t>(at);
        const auto of_head = found.begin() + static_cast<std::ptrdiff_t>(at);
        ASSERT_TRUE(same_bits(
            {of_head, of_head + s.head_dim},
            attend(kernels, pool, h / s.group, {query, query + s.head_dim}, batch.seen[row])))
            << "group " << s.group << " head " << h << " row " << row << " of "
            << batch.seen.size();
      }
    }
  }
}

// The best of huge scores has weight 1, whatever scaling them rounds.
TEST_P(AttentionOrderTest, HugeScoresGiveValues) {
  const auto& [isa, dtype] = GetParam();
  Random random(9);
  for (const int d : {40, 96, 128}) {
    constexpr int kRows = 70;
    const KvShape kv = {.layers = 1, .kv_heads = 1, .head_dim = d, .dtype = dtype};
    constexpr int kBlocks = (kRows + 15) / 16;
    Pool pool(kv, kBlocks);
    for (int at = 0; at < kBlocks * kv.block; ++at) pool.fill(random, at / kv.block, at % kv.block);
    std::vector<std::int32_t> table(kBlocks);
    std::iota(table.begin(), table.end(), 0);
    const Segment segment = {0, kRows, 0, table.data()};
    std::vector<float> queries = random.normals(static_cast<std::size_t>(kRows) * d);
    for (float& x : queries) x *= 1e9F;
    const Values q(queries, dtype);
    std::vector<std::byte> out = poisoned(queries.size(), dtype);
    const auto cpu = make_cpu_backend(1, isa);
    const TestBatch given({&segment, 1}, 1, kv, pool.data(), kRows);
    operate(*cpu, given, [&](Operations& operations) {
      operations.attention({.heads = 1, .kv_heads = 1, .head_dim = d}, 0, q.bytes.data(),
                           out.data());
    });
    const std::vector<float> found = decode(out, dtype);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_LE(std::abs(found[i]), 6.0F) << "head of " << d << ", row " << i / d;  // NaN is not
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, AttentionOrderTest,
                         testing::Combine(testing::ValuesIn(supported_cpu_isas()),
                                          testing::Values(DType::bf16, DType::f32)),
                         name_of_backend_and_type);

}  // namespace
}  // namespace paceline::kernels::test
