// Attention on CUDA, emulated: against float64, and bit for bit between all ways to compute a row.
#include <algorithm>
#include <map>
#include <set>

#include "kernels/cuda/attention.hpp"
#include "tests/kernels/cuda_host/host_test_util.hpp"
#include "tests/kernels/kernels_test_util.hpp"

namespace paceline::kernels::cuda {
namespace {

using cuda_host::DeviceArray;
using cuda_host::TestStream;
using test::Random;
using Bytes = std::vector<std::byte>;

constexpr int kMostBlockShared = 227 * 1024;  ///< of compute capability 9.0

struct HeadShape {
  int heads, kv_heads, head_dim;
};

/// Tokens with their q, k and v, in the dtype of the cache.
class Tokens {
 public:
  Tokens(Random& random, const HeadShape& shape, DType dtype)
      : random_(random), shape_(shape), dtype_(dtype) {}
  int add() {
    const auto width = static_cast<std::size_t>(shape_.head_dim);
    q_.emplace_back(random_.normals(shape_.heads * width, 2.0F), dtype_);
    k_.emplace_back(random_.normals(shape_.kv_heads * width), dtype_);
    v_.emplace_back(random_.normals(shape_.kv_heads * width), dtype_);
    return static_cast<int>(q_.size()) - 1;
  }
  std::vector<int> add(int count) {
    std::vector<int> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(add());
    return tokens;
  }
  [[nodiscard]] const test::Values& q(int token) const { return q_[token]; }
  [[nodiscard]] const test::Values& k(int token) const { return k_[token]; }
  [[nodiscard]] const test::Values& v(int token) const { return v_[token]; }
  [[nodiscard]] const HeadShape& shape() const { return shape_; }
  [[nodiscard]] DType dtype() const { return dtype_; }

 private:
  Random& random_;
  HeadShape shape_;
  DType dtype_;
  std::vector<test::Values> q_, k_, v_;
};

/// A step: segments over a pool that holds NaN wherever nothing was stored.
class Step {
 public:
  Step(const Tokens& tokens, int block, int blocks) : tokens_(tokens) {
    kv_ = {.layers = 2,
           .kv_heads = tokens.shape().kv_heads,
           .head_dim = tokens.shape().head_dim,
           .block = block,
           .dtype = tokens.dtype()};
    pool_.assign(blocks * kv_.block_bytes(), std::byte{0xFF});
    for (int b = 0; b < blocks; ++b) free_.push_back(b);
    // Scattered, the same on every run.
    for (int b = blocks - 1; b > 0; --b) std::swap(free_[b], free_[(b * 7919 + 13) % (b + 1)]);
  }

  /// `before`: tokens that the cache has already; `rows`: those of the segment. `sibling`: segment
  /// with which the blocks that hold `shared` tokens are shared, -1: none.
  void add(const std::vector<int>& before, const std::vector<int>& rows,
           std::vector<std::int32_t> parents = {}, int sibling = -1, int shared = 0) {
    std::vector<int> all = before;
    all.insert(all.end(), rows.begin(), rows.end());
    std::vector<std::int32_t> table;
    for (int b = 0; b * kv_.block < static_cast<int>(all.size()); ++b) {
      if (sibling >= 0 && (b + 1) * kv_.block <= shared) {
        table.push_back(tables_[sibling][b]);
      } else {
        table.push_back(free_.back());
        free_.pop_back();
      }
    }
    for (int p = 0; p < static_cast<int>(all.size()); ++p) {
      store(table[p / kv_.block], p % kv_.block, all[p]);
    }
    for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
      std::vector<int> path;
      if (parents.empty()) {
        path.assign(rows.begin(), rows.begin() + i + 1);
      } else {
        for (int r = i; r >= 0; r = parents[r]) path.insert(path.begin(), rows[r]);
      }
      std::vector<int> context = before;
      context.insert(context.end(), path.begin(), path.end());
      contexts_.push_back(context);
    }
    segments_.push_back({static_cast<int>(rows_.size()), static_cast<int>(rows.size()),
                         static_cast<int>(before.size()), nullptr, nullptr});
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    tables_.push_back(table);
    parents_.push_back(std::move(parents));
  }

  /// Attention of all rows: [rows][heads * head_dim] of the dtype. `change`: of the options.
  template <class Change>
  [[nodiscard]] std::vector<Bytes> run(Change&& change) {
    std::vector<std::vector<std::int32_t>> tables = tables_;
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      for (std::int32_t& b : tables[s]) b += first_block;
      segments_[s].blocks = tables[s].data();
      segments_[s].parents = parents_[s].empty() ? nullptr : parents_[s].data();
    }
    const HeadShape& shape = tokens_.shape();
    AttentionPlannerOptions options;
    options.heads = shape.heads;
    options.kv_heads = shape.kv_heads;
    options.head_dim = shape.head_dim;
    options.block = kv_.block;
    AttentionGrid at_least;
    change(options, at_least);
    const std::vector<TokenId> ids(rows_.size());
    Batch batch;
    batch.tokens = ids;
    batch.segments = segments_;
    batch.kv = kv_;
    batch.vocab = 1;
    batch.positions = 1 << 20;
    RowPlan row_plan;
    row_plan.set(batch);
    AttentionPlanner planner(options);
    const AttentionPlan& plan = planner.plan(segments_, row_plan, at_least);
    grid = plan.grid;

    const std::size_t row_bytes =
        static_cast<std::size_t>(shape.heads) * shape.head_dim * size_of(kv_.dtype);
    Bytes q;
    for (const int token : rows_) {
      const Bytes& bytes = tokens_.q(token).bytes;
      q.insert(q.end(), bytes.begin(), bytes.end());
    }
    const DeviceArray<std::byte> device_q(q);
    const DeviceArray<std::byte> cache(pool_);
    const DeviceArray<std::int32_t> words(plan.words);
    DeviceArray<std::byte> out(q.size());
    DeviceArray<std::byte> states(
        std::max<std::size_t>(16, plan.slots * attention_state_bytes(shape.heads, shape.head_dim)));
    DeviceArray<unsigned> arrivals(std::vector<unsigned>(rows_.size() * shape.kv_heads));
    QkvParams params;
    params.heads = shape.heads;
    params.kv_heads = shape.kv_heads;
    params.head_dim = shape.head_dim;
    const TestStream stream;
    // Blocks before the first are not there.
    const auto* block0 = reinterpret_cast<const std::byte*>(
        reinterpret_cast<std::uintptr_t>(cache.data()) - first_block * kv_.block_bytes());
    const auto launch = [&](DeviceArray<std::byte>& to) {
      attention(params, kv_, 1, block0, plan.grid, words.data(), device_q.data(), to.data(),
                {reinterpret_cast<float*>(states.data()), arrivals.data()}, block_shared, stream);
      stream.synchronize();
      return to.host();
    };
    const Bytes all = launch(out);
    // Twice, as a graph is replayed: states are the former launch's, arrivals none.
    DeviceArray<std::byte> again(q.size());
    EXPECT_TRUE(launch(again) == all);
    EXPECT_EQ(arrivals.host(), std::vector<unsigned>(rows_.size() * shape.kv_heads));
    std::vector<Bytes> rows;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      rows.emplace_back(all.begin() + r * row_bytes, all.begin() + (r + 1) * row_bytes);
    }
    return rows;
  }
  [[nodiscard]] std::vector<Bytes> run() {
    return run([](AttentionPlannerOptions&, AttentionGrid&) {});
  }
  /// The tokens that each row sees, the last its own.
  [[nodiscard]] const std::vector<std::vector<int>>& contexts() const { return contexts_; }

  [[nodiscard]] const KvShape& kv() const { return kv_; }

  std::int32_t first_block = 0;         ///< of the pool that the step uses
  int block_shared = kMostBlockShared;  ///< of the device
  AttentionGrid grid;                   ///< of the last run

 private:
  void store(int block, int slot, int token) {
    const std::size_t row = kv_.head_dim * size_of(kv_.dtype);
    for (int head = 0; head < kv_.kv_heads; ++head) {
      for (int value = 0; value < 2; ++value) {
        const test::Values& from = value == 0 ? tokens_.k(token) : tokens_.v(token);
        const std::size_t at =
            block * kv_.block_bytes() + kv_.layer_bytes() +
            ((static_cast<std::size_t>(value) * kv_.kv_heads + head) * kv_.block + slot) * row;
        std::copy_n(from.bytes.begin() + head * row, row, pool_.begin() + at);
      }
    }
  }

  const Tokens& tokens_;
  KvShape kv_;
  Bytes pool_;
  std::vector<std::int32_t> free_;
  std::vector<std::vector<std::int32_t>> tables_, parents_;
  std::vector<Segment> segments_;
  std::vector<int> rows_;  ///< tokens
  std::vector<std::vector<int>> contexts_;
};

/// A row decoded on its own, over blocks of its own, of 16 positions.
Bytes alone(const Tokens& tokens, const std::vector<int>& context) {
  Step step(tokens, 16, static_cast<int>(context.size()) / 16 + 2);
  step.add({context.begin(), context.end() - 1}, {context.back()});
  return step.run()[0];
}

/// Softmax over a row's own keys in float64.
void expect_near_float64(const Tokens& tokens, const std::vector<int>& context, const Bytes& row) {
  const HeadShape& shape = tokens.shape();
  const int d = shape.head_dim;
  const std::vector<float> out = test::decode(row, tokens.dtype());
  const std::vector<float>& q = tokens.q(context.back()).values;
  for (int h = 0; h < shape.heads; ++h) {
    const int kv_head = h / (shape.heads / shape.kv_heads);
    std::vector<double> weights;
    for (const int token : context) {
      double score = 0;
      for (int i = 0; i < d; ++i) {
        score += static_cast<double>(tokens.k(token).values[kv_head * d + i]) * q[h * d + i];
      }
      weights.push_back(score / std::sqrt(static_cast<double>(d)));
    }
    const double top = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - top);
    for (int i = 0; i < d; ++i) {
      double expected = 0;
      double size = 0;  // of what is added: rounding weights is an error of that times 2^-9
      for (std::size_t t = 0; t < context.size(); ++t) {
        const double term = weights[t] / total * tokens.v(context[t]).values[kv_head * d + i];
        expected += term;
        size += std::abs(term);
      }
      const double slack =
          tokens.dtype() == DType::bf16 ? 0.006 * size + 0.005 * std::abs(expected) : 4e-6 * size;
      ASSERT_NEAR(out[h * d + i], expected, slack)
          << context.size() << " positions, head " << h << " lane " << i;
    }
  }
}

class CudaAttention : public testing::TestWithParam<DType> {
 protected:
  /// Runs the step in every way and compares all rows to those decoded alone.
  static void expect_alone_bits(Step& step, const Tokens& tokens, const std::string& what) {
    std::vector<Bytes> expected;
    for (const std::vector<int>& context : step.contexts()) {
      expected.push_back(alone(tokens, context));
    }
    const auto compare = [&](const std::vector<Bytes>& rows, const std::string& how) {
      ASSERT_EQ(rows.size(), expected.size());
      for (std::size_t r = 0; r < rows.size(); ++r) {
        ASSERT_TRUE(rows[r] == expected[r]) << what << ", " << how << ": row " << r << " of "
                                            << step.contexts()[r].size() << " positions";
      }
    };
    compare(step.run(), "as it comes");
    step.block_shared = kLeastBlockShared;
    compare(step.run(), "where blocks have the least shared memory");
    compare(step.run([](AttentionPlannerOptions& options, AttentionGrid&) {
      options.few_blocks = 0;
      options.second_phase_bytes = 0;
    }),
            "sharing much of it");
    step.block_shared = kMostBlockShared;
    // Where there is no room for states of splits, every row folds its own.
    compare(
        step.run([](AttentionPlannerOptions& options, AttentionGrid&) { options.most_slots = 0; }),
        "folding all");
    // A grid so large that blocks of four warps run, where rows are few.
    compare(step.run([](AttentionPlannerOptions&, AttentionGrid& at_least) {
      at_least = {.items = {140, 0}, .narrow = true};
    }),
            "in a large grid");
    compare(step.run([](AttentionPlannerOptions& options, AttentionGrid&) {
      options.few_blocks = 0;
      options.second_phase_bytes = 0;
    }),
            "sharing much");
    compare(step.run([](AttentionPlannerOptions& options, AttentionGrid& at_least) {
      options.few_blocks = 0;
      options.second_phase_bytes = 0;
      options.shared_tiles = 1;
      options.fold_rows = 3;
      at_least = {.items = {3, 2}, .narrow = false};
    }),
            "sharing all");
  }
};

TEST_P(CudaAttention, MatchesFloat64) {
  Random random(1);
  const struct {
    HeadShape shape;
    std::vector<int> lengths;
  } cases[] = {{{14, 2, 64}, {1, 15, 16, 17, 63, 64, 65, 255, 256, 257, 512, 513, 1000, 2100}},
               {{28, 4, 128}, {65, 1030}},
               {{4, 4, 80}, {17, 129}},
               {{8, 1, 256}, {64, 1025}},
               {{2, 2, 16}, {40}},
               {{6, 1, 48}, {200}},
               {{4, 2, 40}, {17, 1030}},
               {{2, 1, 8}, {70}},
               {{3, 1, 104}, {130}},
               {{2, 2, 200}, {65}}};
  for (const auto& [shape, lengths] : cases) {
    Tokens tokens(random, shape, GetParam());
    Step step(tokens, 32, 400);
    for (const int length : lengths) step.add(tokens.add(length - 1), tokens.add(1));
    const std::vector<Bytes> rows = step.run();
    step.block_shared = kLeastBlockShared;
    EXPECT_EQ(step.run(), rows) << shape.head_dim;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      expect_near_float64(tokens, step.contexts()[r], rows[r]);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CudaAttention, ChunksAcrossSplitsHaveTheBitsOfDecoding) {
  Random random(3);
  Tokens tokens(random, {7, 1, 64}, GetParam());
  for (const int before : {1015, 2040}) {
    Step step(tokens, 32, 200);
    step.add(tokens.add(before), tokens.add(14));
    expect_alone_bits(step, tokens, "chunk after " + std::to_string(before));
  }
}

TEST_P(CudaAttention, SequencesOfABatchDoNotMix) {
  Random random(4);
  for (const HeadShape& shape :
       {HeadShape{14, 2, 64}, {28, 4, 128}, {4, 4, 80}, {8, 1, 256}, {16, 1, 96}, {4, 2, 40}}) {
    Tokens tokens(random, shape, GetParam());
    Step step(tokens, 16, 200);
    for (const int length : {1, 17, 64, 150, 65, 16, 128}) {
      step.add(tokens.add(length - 1), tokens.add(1 + length % 4));
    }
    expect_alone_bits(step, tokens, "batch");
  }
}

TEST_P(CudaAttention, SiblingsHaveTheBitsTheyHaveAlone) {
  Random random(5);
  for (const auto& [shape, prompt, block] : {std::tuple{HeadShape{7, 1, 64}, 340, 16},
                                             {HeadShape{7, 1, 64}, 1090, 32},
                                             {HeadShape{2, 2, 64}, 340, 16},
                                             {HeadShape{7, 1, 128}, 1024, 128},
                                             {HeadShape{1, 1, 256}, 400, 48},
                                             {HeadShape{2, 2, 40}, 340, 32}}) {
    Tokens tokens(random, shape, GetParam());
    const std::vector<int> shared = tokens.add(prompt);
    Step step(tokens, block, 300);
    for (int s = 0; s < 6; ++s) {
      std::vector<int> before = shared;
      const std::vector<int> said = tokens.add(s * 23);
      before.insert(before.end(), said.begin(), said.end());
      const int sibling = s == 0 ? -1 : 0;
      if (s == 4) {
        step.add(before, tokens.add(5), {-1, 0, 0, 2, 2}, sibling, prompt);
      } else {
        step.add(before, tokens.add(1 + s % 3), {}, sibling, prompt);
      }
    }
    // A stranger among them.
    step.add(tokens.add(70), tokens.add(1));
    expect_alone_bits(step, tokens, "siblings after " + std::to_string(prompt));
    EXPECT_GT(step.grid.items[1], 2) << "no states were resumed from";
  }
}

TEST_P(CudaAttention, TreesHaveTheBitsOfTheirPaths) {
  Random random(6);
  for (const auto& [base, block, rows] : {std::tuple{0, 16, 9},
                                          {37, 48, 13},
                                          {63, 16, 20},
                                          {64, 32, 12},
                                          {300, 128, 10},
                                          {1020, 16, 9},
                                          {1400, 32, 7}}) {
    Tokens tokens(random, {7, 1, 64}, GetParam());
    Step step(tokens, block, 120);
    std::vector<std::int32_t> parents{-1};
    std::vector<std::int32_t> path{0};
    for (int row = 1; row < rows; ++row) {
      for (int up = random.below(4) - 1; up > 0 && path.size() > 1; --up) path.pop_back();
      parents.push_back(path.back());
      path.push_back(row);
    }
    step.add(tokens.add(base), tokens.add(rows), parents);
    step.add(tokens.add(20), tokens.add(2));
    expect_alone_bits(step, tokens, "tree after " + std::to_string(base));
  }
}

// Blocks at the end of a pool larger than any device.
TEST_P(CudaAttention, LargePools) {
  Random random(8);
  Tokens tokens(random, {2, 1, 64}, GetParam());
  Step step(tokens, 16, 90);
  step.add(tokens.add(1100), tokens.add(1));
  step.add(tokens.add(30), tokens.add(1));
  const std::vector<Bytes> expected = step.run();
  step.first_block = static_cast<std::int32_t>((std::size_t{500} << 30) / step.kv().block_bytes());
  EXPECT_EQ(step.run(), expected);
}

// The last item of a row folds its splits, whichever that is: blocks run forwards in some launches
// and backwards in others. What it counted by is zero again for the next launch.
TEST_P(CudaAttention, WhoeverEndsLastMergesInOrder) {
  Random random(9);
  Tokens tokens(random, {14, 2, 64}, GetParam());
  Step step(tokens, 16, 300);
  step.add(tokens.add(1500), tokens.add(1));
  step.add(tokens.add(254), tokens.add(5));  // rows of one split and of two
  step.add(tokens.add(700), tokens.add(4), {-1, 0, 0, 2});
  const std::vector<Bytes> folded =
      step.run([](AttentionPlannerOptions& options, AttentionGrid&) { options.most_slots = 0; });
  for (int i = 0; i < 6; ++i) {
    const int few = i % 2 == 0 ? 132 : 0;
    EXPECT_EQ(step.run([few](AttentionPlannerOptions& options, AttentionGrid&) {
      options.few_blocks = few;
      options.second_phase_bytes = 0;
      options.shared_tiles = 1;
    }),
              folded)
        << i;
  }
}

std::string name_of_type(const testing::TestParamInfo<DType>& info) { return name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Types, CudaAttention, testing::Values(DType::bf16, DType::f32),
                         name_of_type);

}  // namespace
}  // namespace paceline::kernels::cuda
