// Norm, activation, embedding, gathers and block copies.
#include <numeric>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels_test_util.hpp"
#include "runtime/core/error.hpp"

namespace paceline::kernels::test {
namespace {

/// x after the addition, and the norm; `delta` may be empty.
std::pair<std::vector<float>, std::vector<std::byte>> add_rmsnorm(Backend& backend,
                                                                  const std::vector<float>& x,
                                                                  const std::vector<float>& delta,
                                                                  const std::vector<float>& weight,
                                                                  DType dtype) {
  Array<float> state(backend, x);
  Array<float> added(backend, delta);
  Array<float> scale(backend, weight);
  Array<std::byte> out(backend, poisoned(x.size(), dtype));
  const int width = static_cast<int>(weight.size());
  operate(backend, [&](Operations& operations) {
    operations.add_rmsnorm(state.data(), delta.empty() ? nullptr : added.data(), scale.data(),
                           1e-6F, static_cast<int>(x.size()) / width, width, dtype, out.data());
  });
  return {state.values(), out.values()};
}

class ElementwiseTest : public EachBackendAndType {};

TEST_P(ElementwiseTest, AddRmsNormMatchesFloat64) {
  Random random(1);
  for (const auto& [rows, width] : {std::tuple{1, 16},
                                    {3, 7},
                                    {5, 896},
                                    {2, 131},
                                    {40, 600},
                                    {3, 100},
                                    {2, 5121},
                                    {1, 32768}}) {
    for (const bool with_delta : {false, true}) {
      const float size = width == 100 ? 1e-3F : 3.0F;  // so small that epsilon matters
      const std::vector<float> x = random.normals(rows * width, size);
      const std::vector<float> delta = random.normals(rows * width, size);
      const std::vector<float> weight = random.normals(width);
      const auto [state, out] =
          add_rmsnorm(*backend(2), x, with_delta ? delta : std::vector<float>(), weight, dtype());
      const std::vector<float> result = decode(out, dtype());
      for (int r = 0; r < rows; ++r) {
        double squares = 0;
        for (int i = r * width; i < (r + 1) * width; ++i) {
          ASSERT_EQ(state[i], with_delta ? x[i] + delta[i] : x[i]);
          squares += static_cast<double>(state[i]) * state[i];
        }
        const double scale = 1 / std::sqrt(squares / width + 1e-6);
        for (int i = 0; i < width; ++i) {
          const double expected = state[r * width + i] * scale * weight[i];
          ASSERT_NEAR(result[r * width + i], expected,
                      std::abs(expected) * (unit_roundoff(dtype()) + 2e-6) + 1e-30);
        }
        // Alone, and so at another alignment where the width is odd, the row has the same bits.
        const auto part = [&, r = r, width = width](const std::vector<float>& of) {
          return std::vector<float>(of.begin() + r * width, of.begin() + (r + 1) * width);
        };
        const auto [alone, row] = add_rmsnorm(
            *backend(), part(x), with_delta ? part(delta) : std::vector<float>(), weight, dtype());
        ASSERT_EQ(std::memcmp(row.data(), out.data() + r * row.size(), row.size()), 0);
      }
    }
  }
}

TEST_P(ElementwiseTest, BiasIsAdded) {
  Random random(7);
  const auto on = backend(2);
  for (const auto& [rows, width] : {std::tuple{1, 16}, {3, 7}, {70, 896}}) {
    const std::vector<float> x = random.normals(rows * width);
    const std::vector<float> bias = random.normals(width);
    Array<float> state(*on, x);
    Array<float> added(*on, bias);
    operate(*on, [&, rows = rows, width = width](Operations& operations) {
      operations.add_bias(state.data(), added.data(), rows, width);
    });
    const std::vector<float> out = state.values();
    for (int i = 0; i < rows * width; ++i) ASSERT_EQ(out[i], x[i] + bias[i % width]);
  }
}

TEST_P(ElementwiseTest, ColumnsAreStoredRoundedAndScattered) {
  Random random(8);
  const auto on = backend(2);
  for (const auto& [rows, width, out_width, first] :
       {std::tuple{1, 16, 16, 0}, {3, 7, 20, 5}, {70, 896, 1792, 896}, {5, 64, 192, 64}}) {
    const std::vector<float> x = random.normals(rows * width);
    Array<float> in(*on, x);
    const std::vector<std::byte> before = poisoned(rows * out_width, dtype());
    Array<std::byte> out(*on, before);
    std::vector<std::int32_t> columns(out_width);
    std::iota(columns.begin(), columns.end(), 0);
    for (int i = 0; i < width; ++i) std::swap(columns[i], columns[i + random.below(out_width - i)]);
    columns.resize(width);
    Array<std::int32_t> to(*on, columns);
    Array<float> scattered(*on, std::vector<float>(rows * out_width, -1e30F));
    operate(*on, [&, rows = rows, width = width, out_width = out_width,
                  first = first](Operations& operations) {
      operations.store_columns(in.data(), rows, width, dtype(), out.data(), out_width, first);
      operations.scatter_columns(in.data(), rows, width, to.data(), scattered.data(), out_width);
    });
    const std::vector<std::byte> stored = out.values();
    const std::vector<float> places = scattered.values();
    const Values expected(x, dtype());
    const std::size_t size = size_of(dtype());
    int untouched = 0;
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < out_width; ++i) {
        const bool written = i >= first && i < first + width;
        const std::byte* from = written ? expected.bytes.data() + (r * width + i - first) * size
                                        : before.data() + (r * out_width + i) * size;
        ASSERT_EQ(std::memcmp(stored.data() + (r * out_width + i) * size, from, size), 0)
            << "row " << r << ", column " << i;
        untouched += places[r * out_width + i] == -1e30F ? 1 : 0;
      }
      for (int i = 0; i < width; ++i)
        ASSERT_EQ(places[r * out_width + columns[i]], x[r * width + i]);
    }
    EXPECT_EQ(untouched, rows * (out_width - width));
  }
}

TEST_P(ElementwiseTest, SwigluMatchesFloat64) {
  Random random(2);
  for (const auto& [rows, width] : {std::tuple{1, 16}, {3, 37}, {2, 4864}, {9, 2050}}) {
    std::vector<float> gate_up = random.normals(2 * rows * width, 4.0F);
    for (const float extreme : {-200.0F, -88.0F, -20.0F, 0.0F, 20.0F, 100.0F, 1e30F}) {
      gate_up[random.below(width)] = extreme;
    }
    const auto on = backend(2);
    Array<float> in(*on, gate_up);
    Array<std::byte> out(*on, poisoned(rows * width, dtype()));
    operate(*on, [&, rows = rows, width = width](Operations& operations) {
      operations.swiglu(in.data(), rows, width, dtype(), out.data());
    });
    const std::vector<float> result = decode(out.values(), dtype());
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < width; ++i) {
        const double gate = gate_up[r * 2 * width + i];
        const double expected = gate / (1 + std::exp(-gate)) * gate_up[r * 2 * width + width + i];
        ASSERT_NEAR(result[r * width + i], expected,
                    std::abs(expected) * (unit_roundoff(dtype()) + 1e-6) + 1e-34)
            << "gate " << gate;
      }
    }
  }
}

// Ranks that have a part of the rows each, copied or read from a head packed of them: their sum is
// the row, sign of zero included.
TEST_P(ElementwiseTest, PartsOfAnEmbeddingTableAddUpToItsRows) {
  Random random(8);
  constexpr int kVocab = 150;
  for (const int width : {24, 1030}) {
    std::vector<float> stored = random.normals(kVocab * width);
    for (std::size_t i = 0; i < stored.size(); i += 7) stored[i] = i % 2 == 0 ? 0.0F : -0.0F;
    const Values table(stored, dtype());
    const TensorView view = {dtype(), {kVocab, width}, table.bytes};
    const std::vector<TokenId> tokens = {63, 0, 149, 64, 127, 128, 64};
    const int rows = static_cast<int>(tokens.size());
    const std::int32_t block = 0;
    const Segment segment = {0, rows, 0, &block};
    const auto on = backend(2);
    const int padded = on->padded({rows, 1}).rows;
    for (const DType compute :
         {DType::bf16, DType::f32}) {  // fp32 rows are copied beside bf16 heads
      for (const bool tied : {false, true}) {
        std::vector<float> sum(tokens.size() * width, -0.0F);
        for (const auto& [first, last] : {std::pair{0, 64}, {64, 128}, {128, kVocab}}) {
          const MatrixSlice slice = {&view, first, last - first, 0, width};
          const auto head = tied ? on->pack({&slice, 1}, {}, 1, compute) : nullptr;
          const auto embedding = on->embedding(slice, head.get());
          Array<float> out(*on, poisoned(static_cast<std::size_t>(padded) * width));
          operate(*on, {tokens, {&segment, 1}, {}, 0, {}, nullptr, kVocab, rows},
                  [&](Operations& operations) { operations.embed(*embedding, out.data()); });
          const std::vector<float> part = out.values();
          for (std::size_t i = 0; i < sum.size(); ++i) {
            const TokenId token = tokens[i / width];
            const bool nothing = part[i] == 0 && std::signbit(part[i]);
            ASSERT_TRUE((token >= first && token < last) || nothing);
            sum[i] += part[i];
          }
        }
        for (std::size_t i = 0; i < sum.size(); ++i) {
          const float expected = table.values[tokens[i / width] * width + i % width];
          ASSERT_EQ(std::bit_cast<std::uint32_t>(sum[i]), std::bit_cast<std::uint32_t>(expected));
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, EmbeddingsStoredInFp8) {
  Random random(31);
  const ScaledMatrix table(random, 140, 264, DType::f32);
  const std::vector<TokenId> tokens = {3, 0, 139, 128};
  const auto on = backend(2);
  const int padded = on->padded({4, 1}).rows;
  Array<float> out(*on, poisoned(static_cast<std::size_t>(padded) * 264));
  const std::int32_t block = 0;
  const Segment segment = {0, 4, 0, &block};
  const auto embedding = on->embedding(whole(table.view));
  operate(*on, {tokens, {&segment, 1}, {}, 0, {}, nullptr, 140, 4},
          [&](Operations& operations) { operations.embed(*embedding, out.data()); });
  const std::vector<float> values = out.values();
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    for (int i = 0; i < 264; ++i) ASSERT_EQ(values[r * 264 + i], table.at(tokens[r], i));
  }
}

TEST_P(ElementwiseTest, EmbedGatherAndCopyMoveBits) {
  Random random(3);
  const Values table(random.normals(20 * 24), dtype());
  const TensorView view = {dtype(), {20, 24}, table.bytes};
  const std::vector<TokenId> tokens = {3, 0, 19, 3};
  const auto cpu = backend(2);
  Array<float> embedded(*cpu, poisoned(tokens.size() * 24));
  const std::vector<std::int32_t> index = {0, 2, 2};
  const std::vector<std::int32_t> blocks = {0};
  const Segment segment = {0, 4, 0, blocks.data()};
  const auto embedding = cpu->embedding(whole(view));
  const PassRows pass = cpu->padded({4, 3});
  ASSERT_EQ(pass.rows, 4);
  ASSERT_GE(pass.logit_rows, 3);
  Array<float> gathers(*cpu, poisoned(static_cast<std::size_t>(pass.logit_rows) * 24));
  operate(*cpu, {tokens, {&segment, 1}, index, 0, {}, nullptr, 20, 4}, [&](Operations& operations) {
    EXPECT_EQ(operations.rows(), pass);
    operations.embed(*embedding, embedded.data());
    operations.gather_rows(reinterpret_cast<const std::byte*>(embedded.data()), 24 * 4,
                           reinterpret_cast<std::byte*>(gathers.data()));
  });
  const std::vector<float> out = embedded.values();
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    for (int i = 0; i < 24; ++i) ASSERT_EQ(out[r * 24 + i], table.values[tokens[r] * 24 + i]);
  }
  const std::vector<float> gathered = gathers.values();
  for (std::size_t r = 0; r < index.size(); ++r) {
    for (int i = 0; i < 24; ++i) ASSERT_EQ(gathered[r * 24 + i], out[index[r] * 24 + i]);
  }
  const KvShape kv = {.layers = 3, .kv_heads = 2, .head_dim = 16, .block = 32, .dtype = dtype()};
  const auto cache = cpu->allocate(5 * kv.block_bytes());
  std::vector<std::byte> before(cache->size(), std::byte{1});
  cpu->read(cache->data(), before);
  EXPECT_EQ(before, std::vector<std::byte>(cache->size())) << "memory is not zero when made";
  for (std::size_t i = 0; i < before.size(); ++i)
    before[i] = static_cast<std::byte>(i * 7 + i / kv.block_bytes());
  cpu->write(cache->data(), before);
  const std::vector<Backend::BlockCopy> copies = {{0, 3}, {2, 4}};
  cpu->copy_blocks(kv, cache->data(), copies);
  std::vector<std::byte> after(cache->size());
  cpu->read(cache->data(), after);
  const int source[5] = {0, 1, 2, 0, 2};
  for (int b = 0; b < 5; ++b) {
    EXPECT_EQ(std::memcmp(after.data() + b * kv.block_bytes(),
                          before.data() + source[b] * kv.block_bytes(), kv.block_bytes()),
              0);
  }
}

// Rows of two sequences, in blocks of their own, and moves of some of them.
TEST_P(ElementwiseTest, ExpertsAreKeptWithTheirPositionsAndMoveWithThem) {
  const auto cpu = backend();
  constexpr int kChosen = 3;
  const KvShape kv = {.layers = 1,
                      .kv_heads = 1,
                      .head_dim = 16,
                      .block = 16,
                      .dtype = dtype(),
                      .routed = 2 * kChosen};
  EXPECT_EQ(kv.block_bytes() % 64, 0U);
  const auto cache = cpu->allocate(4 * kv.block_bytes());
  const std::vector<std::int32_t> blocks = {3, 1, 2};
  const std::vector<TokenId> tokens(9, 0);
  const Segment segments[] = {{0, 5, 14, blocks.data()}, {5, 4, 0, blocks.data() + 2}};
  std::vector<std::int32_t> ids;
  for (int i = 0; i < cpu->padded({9, 0}).rows * kChosen; ++i) ids.push_back(1000 - 7 * i);
  Array<std::int32_t> choices(*cpu, ids);
  operate(*cpu, {tokens, segments, {}, 0, kv, cache->data(), 1, 64}, [&](Operations& operations) {
    operations.store_experts({kChosen, choices.data(), nullptr}, kChosen);
  });
  std::vector<std::byte> bytes(cache->size());
  const auto at = [&](int block, int slot) {
    cpu->read(cache->data(), bytes);
    std::vector<std::int16_t> experts(kv.routed);
    std::memcpy(experts.data(),
                bytes.data() + block * kv.block_bytes() + kv.routing_offset() +
                    slot * kv.routed * sizeof(std::int16_t),
                kv.routed * sizeof(std::int16_t));
    return experts;
  };
  const auto of_row = [&](int row) {
    std::vector<std::int16_t> experts(kChosen, 0);
    for (int i = 0; i < kChosen; ++i)
      experts.push_back(static_cast<std::int16_t>(ids[row * kChosen + i]));
    return experts;
  };
  EXPECT_EQ(at(3, 14), of_row(0));
  EXPECT_EQ(at(3, 15), of_row(1));
  EXPECT_EQ(at(1, 2), of_row(4));
  EXPECT_EQ(at(2, 3), of_row(8));
  EXPECT_EQ(at(2, 4), std::vector<std::int16_t>(kv.routed, 0));
  const std::vector<Backend::SlotMove> moves = {{1, 2, 1, 0}, {2, 3, 1, 1}, {1, 1, 2, 0}};
  cpu->move_slots(kv, cache->data(), moves);
  EXPECT_EQ(at(1, 0), of_row(4));
  EXPECT_EQ(at(1, 1), of_row(8));
  EXPECT_EQ(at(2, 0), of_row(8));
  EXPECT_EQ(at(1, 2), of_row(4));
}

TEST_P(ElementwiseTest, BatchesThatCannotBeAreRefused) {
  const auto cpu = backend();
  const std::vector<std::int32_t> blocks = {0, 1};
  const std::vector<std::int32_t> later = {-1, 0, 3, 0, 1};  // row 2 follows row 3
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5};
  const std::vector<std::int32_t> last = {4};
  const auto begin = [&](const Segment& segment, int vocab, int positions,
                         std::span<const std::int32_t> logit_rows) {
    cpu->begin({tokens, {&segment, 1}, logit_rows, 0, {}, nullptr, vocab, positions});
  };
  const Segment chain = {0, 5, 11, blocks.data()};
  EXPECT_NO_THROW(begin(chain, 6, 16, last));
  EXPECT_THROW(begin(chain, 5, 16, last), Error) << "token";
  EXPECT_THROW(begin(chain, 6, 15, last), Error) << "position";
  EXPECT_THROW(begin({0, 5, -1, blocks.data()}, 6, 16, last), Error) << "position";
  EXPECT_THROW(begin({0, 4, 11, blocks.data()}, 6, 16, last), Error) << "rows";
  EXPECT_THROW(begin({1, 5, 11, blocks.data()}, 6, 16, last), Error) << "rows";
  EXPECT_THROW(begin(chain, 6, 16, std::vector<std::int32_t>{5}), Error) << "logit rows";
  EXPECT_THROW(begin({0, 5, 11, blocks.data(), later.data()}, 6, 16, last), Error) << "tree";
  // Rows of a tree may lie past the positions, as long as none stands there.
  const std::vector<std::int32_t> star = {-1, 0, 0, 0, 0};
  EXPECT_NO_THROW(begin({0, 5, 11, blocks.data(), star.data()}, 6, 13, last));
}

PACELINE_EACH_BACKEND_AND_TYPE(ElementwiseTest);

class MathTest : public EachIsa {};

TEST_P(MathTest, ExpLogAndGumbelAreAccurate) {
  const cpu::KernelTable& kernels = cpu::kernel_table(GetParam().c_str());
  Random random(4);
  float x[16];
  std::uint32_t bits[16];
  float exp_x[16];
  float log_x[16];
  float gumbel[16];
  for (int round = 0; round < 20000; ++round) {
    for (int i = 0; i < 16; ++i) {
      x[i] = static_cast<float>((random.uniform() - 0.5) * 175);
      bits[i] = random.bits();
      if (round % 3 == 1) bits[i] >>= random.below(32);
      if (round % 3 == 2) bits[i] = ~(bits[i] >> random.below(32));
    }
    if (round == 0) {
      const float special[] = {0.0F, -0.0F, -87.5F, -1e30F,
                               -std::numeric_limits<float>::infinity()};
      std::copy(std::begin(special), std::end(special), x);
      const std::uint32_t ends[] = {0, 1, 0xFFFFFFFFU, 0xFFFFFFFEU, 0x7FFFFFFFU, 0x80000000U};
      std::copy(std::begin(ends), std::end(ends), bits);
    }
    kernels.math16(x, bits, exp_x, log_x, gumbel);
    for (int i = 0; i < 16; ++i) {
      const double e = x[i] < -87.3F ? 0 : std::exp(static_cast<double>(x[i]));
      ASSERT_NEAR(exp_x[i], e, e * 2.5e-7) << x[i];
      const double w = (bits[i] + 0.5) / 4294967296.0;
      const double g = -std::log(
          w > 0.5 ? -std::log1p(-(4294967296.0 - bits[i] - 0.5) / 4294967296.0) : -std::log(w));
      ASSERT_NEAR(gumbel[i], g, 3e-7 + std::abs(g) * 2.5e-7) << bits[i];
      ASSERT_LT(gumbel[i], 22.9F);
    }
    for (float& value : x) value = std::exp(value);
    kernels.math16(x, bits, exp_x, log_x, gumbel);
    for (int i = 0; i < 16; ++i) {
      if (!(x[i] > 1.2e-38F && x[i] < 1e38F)) continue;
      const double l = std::log(static_cast<double>(x[i]));
      ASSERT_NEAR(log_x[i], l, std::abs(l) * 2.5e-7 + 1e-8) << x[i];
    }
  }
}

TEST_P(MathTest, ExpIsExactWhereAttentionNeedsIt) {
  const cpu::KernelTable& kernels = cpu::kernel_table(GetParam().c_str());
  const float infinity = std::numeric_limits<float>::infinity();
  float x[16] = {0.0F, -0.0F, -infinity, -88.0F, std::numeric_limits<float>::quiet_NaN()};
  const std::uint32_t bits[16] = {};
  float exp_x[16];
  float log_x[16];
  float gumbel[16];
  kernels.math16(x, bits, exp_x, log_x, gumbel);
  EXPECT_EQ(exp_x[0], 1.0F);
  EXPECT_EQ(exp_x[1], 1.0F);
  EXPECT_EQ(exp_x[2], 0.0F);
  EXPECT_EQ(exp_x[3], 0.0F);
  EXPECT_TRUE(std::isnan(exp_x[4]));
}

PACELINE_EACH_ISA(MathTest);

}  // namespace
}  // namespace paceline::kernels::test
