// Matrix products against float64, and the invariances of kernels/backend.hpp.
#include <utility>

#include "kernels_test_util.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/stored_floats.hpp"

namespace paceline::kernels::test {
namespace {

struct Matrix {
  Matrix(Random& random, int rows, int columns, DType dtype)
      : data(random.normals(static_cast<std::size_t>(rows) * columns), dtype),
        view{dtype, {rows, columns}, data.bytes} {}
  Values data;
  TensorView view;
  [[nodiscard]] MatrixSlice all() const { return {&view, 0, view.shape[0], 0, view.shape[1]}; }
};

std::vector<float> multiply(Backend& backend, const Linear& weight, const Values& in, int rows) {
  Array<std::byte> input(backend, in.bytes);
  Array<float> out(backend, poisoned(static_cast<std::size_t>(rows) * weight.n()));
  operate(backend, [&](Operations& operations) {
    operations.linear(weight, input.data(), rows, out.data());
  });
  return out.values();
}

/// The first `rows` rows of an input.
Values head(const Values& in, int rows, int k) {
  return {std::vector<float>(in.values.begin(), in.values.begin() + rows * k), in.dtype};
}

class LinearTest : public EachBackendAndType {
 protected:
  /// Whether k may be odd.
  [[nodiscard]] bool takes_odd_rows() {
    ModelConfig config;
    config.heads = config.kv_heads = 1;
    config.head_dim = 64;
    config.hidden = config.intermediate = 65;
    return unsupported(backend()->info().name, config).empty();
  }
};

TEST_P(LinearTest, MatchesFloat64AtOddSizes) {
  Random random(1);
  const auto cpu = backend();
  for (const auto& [rows, n, k] : {std::tuple{1, 1, 2},
                                   {3, 31, 6},
                                   {1, 64, 64},
                                   {2, 65, 130},
                                   {5, 97, 34},
                                   {13, 129, 62},
                                   {24, 96, 100},
                                   {37, 33, 96},
                                   {70, 200, 66},
                                   {1, 300, 448},
                                   {8, 70, 450},
                                   {9, 1000, 18},
                                   {1, 40, 1},
                                   {3, 31, 7},
                                   {5, 97, 33},
                                   {14, 65, 129},
                                   {37, 33, 95},
                                   {70, 100, 127}}) {
    if (k % 2 != 0 && !takes_odd_rows()) continue;
    const Matrix weight(random, n, k, dtype());
    const std::vector<float> bias = random.normals(n);
    const Values in(random.normals(static_cast<std::size_t>(rows) * k), dtype());
    const MatrixSlice slice = weight.all();
    for (const bool with_bias : {false, true}) {
      const auto packed = cpu->pack(
          {&slice, 1}, with_bias ? std::span<const float>(bias) : std::span<const float>(), 1,
          dtype());
      EXPECT_EQ(packed->n(), n);
      EXPECT_EQ(packed->k(), k);
      const std::vector<float> out = multiply(*cpu, *packed, in, rows);
      for (int r = 0; r < rows; ++r) {
        for (int j = 0; j < n; ++j) {
          double sum = with_bias ? bias[j] : 0;
          double magnitude = std::abs(sum);
          for (int i = 0; i < k; ++i) {
            const double term =
                static_cast<double>(in.values[r * k + i]) * weight.data.values[j * k + i];
            sum += term;
            magnitude += std::abs(term);
          }
          // Each of the k + 1 additions rounds once, relative to the running sum.
          ASSERT_NEAR(out[r * n + j], sum, (k + 2) * 6e-8 * magnitude)
              << rows << "x" << n << "x" << k << " row " << r << " column " << j;
        }
      }
    }
  }
}

TEST_P(LinearTest, GatedProductsAreTheProductsGated) {
  Random random(11);
  for (const auto& [rows, width, k, threads] : {std::tuple{1, 32, 64, 1},
                                                {1, 160, 64, 2},
                                                {3, 37, 64, 2},
                                                {17, 96, 130, 2},
                                                {33, 64, 66, 3},
                                                {70, 640, 256, 2},
                                                {600, 64, 1000, 2},
                                                {100, 320, 1100, 2},
                                                {40, 96, 1120, 2},
                                                // weights and outputs that caches do not keep
                                                {16, 1056, 512, 2},
                                                {40, 1056, 512, 2},
                                                {530, 1024, 64, 2}}) {
    const auto cpu = backend(threads);
    const Matrix weight(random, 2 * width, k, dtype());
    const std::vector<float> bias = random.normals(2 * width);
    const MatrixSlice slice = weight.all();
    const Values in(random.normals(static_cast<std::size_t>(rows) * k), dtype());
    const std::size_t size = static_cast<std::size_t>(rows) * width;
    for (const bool with_bias : {false, true}) {
      const auto given = with_bias ? std::span<const float>(bias) : std::span<const float>();
      const auto packed = cpu->pack({&slice, 1}, given, 1, dtype());
      const auto pairs = cpu->pack_gate_up({&slice, 1}, given, dtype());
      ASSERT_EQ(pairs->n(), 2 * width);
      Array<std::byte> input(*cpu, in.bytes);
      Array<float> work(*cpu, poisoned(2 * size));
      Array<std::byte> gated(*cpu, poisoned(size, dtype()));
      Array<std::byte> of_pairs(*cpu, poisoned(size, dtype()));
      Array<float> products(*cpu, multiply(*cpu, *packed, in, rows));
      Array<std::byte> expected(*cpu, poisoned(size, dtype()));
      operate(*cpu, [&, rows = rows, width = width](Operations& operations) {
        operations.linear_swiglu(*packed, input.data(), rows, work.data(), dtype(), gated.data());
        operations.linear_swiglu(*pairs, input.data(), rows,
                                 cpu->gates_in_work() ? work.data() : nullptr, dtype(),
                                 of_pairs.data());
        operations.swiglu(products.data(), rows, width, dtype(), expected.data());
      });
      ASSERT_EQ(gated.values(), expected.values())
          << rows << " rows, " << width << " wide, " << threads << " threads";
      ASSERT_EQ(of_pairs.values(), expected.values())
          << rows << " rows, " << width << " wide, " << threads << " threads";
    }
  }
}

TEST_P(LinearTest, RowsDoNotDependOnTheirNumberNorOnThreads) {
  Random random(2);
  // 1,100 and 2 x 1,100: more steps than some instruction sets take at once, which end in the midst
  // of segments.
  for (const auto& [n, k, segments] : {std::tuple{420, 72, 1},
                                       {420, 72, 2},
                                       {420, 71, 1},
                                       {420, 440, 4},
                                       {150, 1100, 1},
                                       {150, 2200, 2},
                                       {150, 2240, 2}}) {
    if (k % 2 != 0 && !takes_odd_rows()) continue;
    const Matrix weight(random, n, k, dtype());
    const MatrixSlice slice = weight.all();
    const Values in(random.normals(150 * k), dtype());
    const auto one = backend(1);
    const auto packed = one->pack({&slice, 1}, {}, segments, dtype());
    const std::vector<float> expected = multiply(*one, *packed, in, 150);
    for (const int threads : {1, 2, 3}) {
      const auto cpu = backend(threads);
      const auto again = cpu->pack({&slice, 1}, {}, segments, dtype());
      for (int rows = 1; rows <= 70; rows += threads == 1 ? 1 : 7) {
        const std::vector<float> out = multiply(*cpu, *again, head(in, rows, k), rows);
        ASSERT_TRUE(same_bits(out, {expected.begin(), expected.begin() + rows * n}))
            << rows << " rows of " << k << ", " << threads << " threads, " << segments
            << " segments";
      }
    }
  }
}

// One process packs, another maps what it packed.
TEST_P(LinearTest, PlacesHoldWhatMatricesOfTheirOwnWould) {
  Random random(3);
  const int n = 70;  // not whole panels
  const int k = 72;
  const Matrix weight(random, n, k, dtype());
  const MatrixSlice slice = weight.all();
  const Values in(random.normals(5 * k), dtype());
  const auto on = backend(2);
  const std::size_t bytes = on->packed_bytes(n, k, dtype());
  const auto own = on->pack({&slice, 1}, {}, 2, dtype());
  if (bytes == 0) GTEST_SKIP() << "memory of its own";
  EXPECT_GE(bytes, own->bytes());
  const auto memory = on->allocate(bytes);
  const std::span<std::byte> place(memory->data(), bytes);
  const auto mapped = on->pack({&slice, 1}, {}, 2, dtype(), {place, false});
  EXPECT_TRUE(
      std::all_of(place.begin(), place.end(), [](std::byte b) { return b == std::byte(); }));
  const auto packed = on->pack({&slice, 1}, {}, 2, dtype(), {place, true});
  const std::vector<float> expected = multiply(*on, *own, in, 5);
  EXPECT_TRUE(same_bits(multiply(*on, *packed, in, 5), expected));
  EXPECT_TRUE(same_bits(multiply(*on, *mapped, in, 5), expected));
  EXPECT_THROW(
      static_cast<void>(on->pack({&slice, 1}, {}, 2, dtype(), {place.first(bytes - 64), true})),
      Error);
}

// Rows of odd width lie side by side, and segments may end in the midst of a step: neighbours leave
// no trace.
TEST_P(LinearTest, RowsDoNotMix) {
  Random random(12);
  const auto on = backend();
  for (const auto& [k, segments] : {std::pair{45, 1}, {528, 2}}) {
    if (k % 2 != 0 && !takes_odd_rows()) continue;
    const Matrix weight(random, 50, k, dtype());
    const MatrixSlice slice = weight.all();
    const auto packed = on->pack({&slice, 1}, {}, segments, dtype());
    for (const int rows : {2, 5, 40}) {
      std::vector<float> values(static_cast<std::size_t>(rows) * k,
                                std::numeric_limits<float>::quiet_NaN());
      for (int row = 0; row < rows; row += 2) {
        const std::vector<float> finite = random.normals(k);
        std::copy(finite.begin(), finite.end(), values.begin() + row * k);
      }
      const std::vector<float> out = multiply(*on, *packed, Values(values, dtype()), rows);
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < 50; ++i) ASSERT_EQ(std::isnan(out[row * 50 + i]), row % 2 == 1) << row;
      }
    }
  }
}

TEST_P(LinearTest, SegmentsOfRanksJoinIntoTheSingleRankResult) {
  Random random(3);
  const int n = 100;
  const int k = 8 * 22;
  const int rows = 7;
  const Matrix weight(random, n, k, dtype());
  const std::vector<float> input = random.normals(rows * k);
  const Values in(input, dtype());
  const auto cpu = backend();
  const MatrixSlice all = weight.all();
  const int segments = 8;
  const auto whole = cpu->pack({&all, 1}, {}, segments, dtype());
  const std::vector<float> expected = multiply(*cpu, *whole, in, rows);
  for (const int ranks : {2, 4, 8}) {
    const int width = k / ranks;
    std::vector<std::vector<float>> partial;
    for (int rank = 0; rank < ranks; ++rank) {
      const MatrixSlice slice = {&weight.view, 0, n, rank * width, width};
      const auto packed = cpu->pack({&slice, 1}, {}, segments / ranks, dtype());
      std::vector<float> part;
      for (int r = 0; r < rows; ++r) {
        part.insert(part.end(), input.begin() + r * k + rank * width,
                    input.begin() + r * k + (rank + 1) * width);
      }
      partial.push_back(multiply(*cpu, *packed, Values(part, dtype()), rows));
    }
    for (int step = 1; step < ranks; step *= 2) {
      for (int rank = 0; rank < ranks; rank += 2 * step) {
        for (std::size_t i = 0; i < expected.size(); ++i)
          partial[rank][i] += partial[rank + step][i];
      }
    }
    EXPECT_TRUE(same_bits(partial[0], expected)) << ranks << " ranks";
  }
}

// Ranks have some of the features each, and all of K: it may be cut, but for all of them alike.
TEST_P(LinearTest, FeaturesOfRanksAreThoseOfOne) {
  Random random(14);
  const int n = 48;
  const int rows = 9;
  for (const int k : {96, 3072}) {
    const Matrix weight(random, n, k, dtype());
    const Values in(random.normals(rows * k), dtype());
    const auto on = backend();
    const MatrixSlice all = weight.all();
    const auto whole = on->pack({&all, 1}, {}, kAnySegments, dtype());
    const std::vector<float> expected = multiply(*on, *whole, in, rows);
    for (const int count : {1, 2, 8}) {
      EXPECT_TRUE(same_bits(multiply(*on, *whole, head(in, count, k), count),
                            {expected.begin(), expected.begin() + count * n}));
    }
    const int width = n / 4;
    for (int rank = 0; rank < 4; ++rank) {
      const MatrixSlice slice = {&weight.view, rank * width, width, 0, k};
      const auto packed = on->pack({&slice, 1}, {}, kAnySegments, dtype());
      const std::vector<float> part = multiply(*on, *packed, in, rows);
      for (int r = 0; r < rows; ++r) {
        for (int j = 0; j < width; ++j)
          ASSERT_EQ(part[r * width + j], expected[r * n + rank * width + j]) << k << " " << rank;
      }
    }
  }
}

// The same of gates and ups, of which a rank has its own and packs them as if there were no others.
TEST_P(LinearTest, GatesAndUpsOfRanksAreThoseOfOne) {
  Random random(15);
  const int width = 64;  // whole panels of a CPU, as are the halves, but not the quarters
  const int k = 3072;
  const int most = 40;
  // The second half of k takes back what the first half adds: what is left are roundings and a bias
  // as small, so that another order of additions shows after rounding to bf16 too.
  const auto twice = [&random](int rows, float sign) {
    std::vector<float> values;
    for (int row = 0; row < rows; ++row) {
      const std::vector<float> half = random.normals(k / 2);
      values.insert(values.end(), half.begin(), half.end());
      for (const float x : half) values.push_back(sign * x);
    }
    return values;
  };
  const Values data(twice(2 * width, 1), dtype());
  const TensorView view{dtype(), {2 * width, k}, data.bytes};
  const std::vector<float> bias = random.normals(2 * width, 1e-5F);
  const Values in(twice(most, -1), dtype());
  const auto on = backend();
  // Gates [first, first + count) and their ups.
  const auto gated = [&](int first, int count, int rows) {
    const std::vector<MatrixSlice> slices = {{&view, first, count, 0, k},
                                             {&view, width + first, count, 0, k}};
    std::vector<float> own(bias.begin() + first, bias.begin() + first + count);
    own.insert(own.end(), bias.begin() + width + first, bias.begin() + width + first + count);
    const auto packed = on->pack_gate_up(slices, own, dtype());
    const std::size_t size = static_cast<std::size_t>(rows) * count;
    Array<std::byte> input(*on, head(in, rows, k).bytes);
    Array<float> work(*on, poisoned(2 * size));
    Array<std::byte> out(*on, poisoned(size, dtype()));
    operate(*on, [&](Operations& operations) {
      operations.linear_swiglu(*packed, input.data(), rows,
                               on->gates_in_work() ? work.data() : nullptr, dtype(), out.data());
    });
    return decode(out.values(), dtype());
  };
  for (const int rows : {1, most}) {
    const std::vector<float> whole = gated(0, width, rows);
    for (const float x : whole) ASSERT_FALSE(std::isnan(x)) << rows << " rows";
    for (const int ranks : {2, 4}) {
      const int share = width / ranks;
      std::vector<float> joined(whole.size());
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<float> part = gated(rank * share, share, rows);
        for (int r = 0; r < rows; ++r) {
          std::copy(part.begin() + r * share, part.begin() + (r + 1) * share,
                    joined.begin() + r * width + rank * share);
        }
      }
      EXPECT_TRUE(same_bits(joined, whole)) << rows << " rows, " << ranks << " ranks";
    }
  }
}

TEST_P(LinearTest, StacksSlicesAndConverts) {
  Random random(4);
  const DType other = dtype() == DType::bf16 ? DType::f32 : DType::bf16;
  const int k = 48;
  const Matrix a(random, 40, 60, dtype());
  const Matrix b(random, 30, k, other);
  const std::vector<MatrixSlice> slices = {{&a.view, 5, 20, 7, k}, {&b.view, 1, 9, 0, k}};
  const auto cpu = backend();
  const auto packed = cpu->pack(slices, {}, 1, dtype());
  ASSERT_EQ(packed->n(), 29);
  // The identity reads the weights back.
  std::vector<float> identity(static_cast<std::size_t>(k) * k);
  for (int i = 0; i < k; ++i) identity[i * k + i] = 1.0F;
  const std::vector<float> out = multiply(*cpu, *packed, Values(identity, dtype()), k);
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < 20; ++j) {
      ASSERT_EQ(out[i * 29 + j], a.data.values[(5 + j) * 60 + 7 + i]);
    }
    for (int j = 0; j < 9; ++j) {
      const float stored = b.data.values[(1 + j) * k + i];
      ASSERT_EQ(out[i * 29 + 20 + j], Values({stored}, dtype()).values[0]);
    }
  }
}

TEST_P(LinearTest, RefusesWhatItCannotPack) {
  Random random(5);
  const Matrix weight(random, 4, 24, dtype());
  const auto cpu = backend();
  const MatrixSlice all = weight.all();
  EXPECT_THROW(static_cast<void>(cpu->pack({&all, 1}, {}, 3, dtype())), Error);
  EXPECT_THROW(static_cast<void>(cpu->pack({&all, 1}, {}, 8, dtype())), Error);  // odd segments
  const MatrixSlice outside = {&weight.view, 2, 3, 0, 24};
  EXPECT_THROW(static_cast<void>(cpu->pack({&outside, 1}, {}, 1, dtype())), Error);
}

// Rounded once, to the type that is computed in; no finite one is past what bf16 holds.
TEST_P(LinearTest, WeightsStoredInFp16) {
  constexpr int k = 8;
  std::vector<std::uint16_t> bits = {0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x0001, 0x83FF,
                                     0x3555, 0x8000, 0x3C01, 0x3BFF, 0x0400, 0x7801,
                                     0x5640, 0xD640, 0x2E66, 0x0000};
  const TensorView view{DType::f16, {2, k}, std::as_bytes(std::span(bits))};
  const MatrixSlice all{&view, 0, 2, 0, k};
  const auto on = backend();
  const auto packed = on->pack({&all, 1}, {}, 1, dtype());
  std::vector<float> identity(k * k);
  for (int i = 0; i < k; ++i) identity[i * k + i] = 1.0F;
  const std::vector<float> out = multiply(*on, *packed, Values(identity, dtype()), k);
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < k; ++i)
      EXPECT_EQ(out[i * 2 + row], Values({f16_to_float(bits[row * k + i])}, dtype()).values[0]);
  }
  for (const auto& [bad, what] : {std::pair{0x7C00, "inf"}, {0xFC00, "-inf"}, {0x7C01, "nan"}}) {
    bits[k + 3] = static_cast<std::uint16_t>(bad);
    try {
      static_cast<void>(on->pack({&all, 1}, {}, 1, dtype()));
      ADD_FAILURE() << what;
    } catch (const UnusableWeight& found) {
      EXPECT_EQ(found.place.row, 1);
      EXPECT_EQ(found.place.column, 3);
      EXPECT_EQ(found.what(), std::string("expected a finite number, found ") + what);
    }
  }
}

// By blocks of the whole matrix, wherever the slices begin.
TEST_P(LinearTest, WeightsStoredInFp8) {
  Random random(29);
  for (const DType scale_dtype : {DType::f32, DType::bf16}) {
    const ScaledMatrix matrix(random, 140, 300, scale_dtype);
    const Matrix plain(random, 2, 20, DType::bf16);
    constexpr int k = 20;
    const std::vector<MatrixSlice> slices = {
        {&matrix.view, 100, 40, 120, k}, {&plain.view, 0, 2, 0, k}, {&matrix.view, 3, 1, 250, k}};
    const auto on = backend(2);
    const auto packed = on->pack(slices, {}, 1, dtype());
    ASSERT_EQ(packed->n(), 43);
    std::vector<float> identity(k * k);
    for (int i = 0; i < k; ++i) identity[i * k + i] = 1.0F;
    const std::vector<float> out = multiply(*on, *packed, Values(identity, dtype()), k);
    for (int i = 0; i < k; ++i) {
      for (int row = 0; row < 40; ++row)
        ASSERT_EQ(out[i * 43 + row], matrix.at(100 + row, 120 + i)) << row << ' ' << i;
      for (int row = 0; row < 2; ++row)
        ASSERT_EQ(out[i * 43 + 40 + row], plain.data.values[row * k + i]);
      ASSERT_EQ(out[i * 43 + 42], matrix.at(3, 250 + i)) << i;
    }
  }
}

TEST_P(LinearTest, Fp8WeightsThatAreNotFiniteAreFound) {
  Random random(30);
  const auto on = backend(2);
  ScaledMatrix matrix(random, 140, 300, DType::f32);
  const MatrixSlice part{&matrix.view, 1, 138, 2, 296};
  const auto expect_found = [&](std::int64_t row, std::int64_t column, const std::string& what) {
    try {
      static_cast<void>(on->pack({&part, 1}, {}, 1, dtype()));
      ADD_FAILURE() << what;
    } catch (const UnusableWeight& found) {
      EXPECT_EQ(found.place.row, row);
      EXPECT_EQ(found.place.column, column);
      EXPECT_EQ(found.what(), "expected a finite number, found " + what);
    }
    EXPECT_THROW(require_usable(part, dtype()), UnusableWeight);
  };
  // What is outside of the part does not matter.
  for (const int at : {5, 300 + 1, 300 + 298, 139 * 300 + 7}) matrix.codes[at] = 0x7F;
  EXPECT_NO_THROW(static_cast<void>(on->pack({&part, 1}, {}, 1, dtype())));
  EXPECT_NO_THROW(require_usable(part, dtype()));
  for (const auto& [row, column, code] :
       {std::tuple{1, 2, 0x7F}, {138, 297, 0xFF}, {130, 129, 0x7F}, {64, 255, 0xFF}}) {
    const auto stored =
        std::exchange(matrix.codes[row * 300 + column], static_cast<std::uint8_t>(code));
    expect_found(row, column, "nan");
    matrix.codes[row * 300 + column] = stored;
  }
  // A scale that is too large for one code only.
  std::vector<float> scales = matrix.scales.values;
  matrix.scales_view.bytes = std::as_bytes(std::span(scales));
  for (int row = 128; row < 140; ++row) {
    for (int column = 128; column < 256; ++column) matrix.codes[row * 300 + column] = 0x38;  // 1
  }
  scales[4] = 0x1p126F;
  EXPECT_NO_THROW(static_cast<void>(on->pack({&part, 1}, {}, 1, dtype())));
  matrix.codes[133 * 300 + 200] = 0xC8;  // -4
  expect_found(133, 200, "-inf");
  scales[4] = std::numeric_limits<float>::infinity();
  expect_found(128, 128, "inf");
}

TEST_P(LinearTest, WeightsThatAreNotFiniteAreFound) {
  Random random(13);
  const float infinity = std::numeric_limits<float>::infinity();
  const auto on = backend(2);
  for (const DType stored : {DType::bf16, DType::f32}) {
    std::vector<float> values = random.normals(80 * 30);
    // As large and as small as they get.
    const float largest = dtype() == DType::f32 && stored == DType::f32 ? 3.4028234e38F : 3.38e38F;
    for (int i = 0; i < 80; ++i) {
      values[i * 30 + i % 30] = i % 2 == 0 ? largest : -largest;
      values[i * 30 + (i + 7) % 30] = 1e-45F;
    }
    // Rows 10 to 69 and 2 to 6 of columns 3 to 22: what is outside does not matter.
    values[9 * 30 + 5] = values[1 * 30 + 5] = values[70 * 30] = infinity;
    values[40 * 30 + 2] = values[40 * 30 + 23] = infinity;
    const auto place = [&]() -> std::tuple<std::size_t, std::int64_t, std::int64_t, std::string> {
      const Values data(values, stored);
      const TensorView view{stored, {80, 30}, data.bytes};
      const std::vector<MatrixSlice> slices = {{&view, 10, 60, 3, 20}, {&view, 2, 5, 3, 20}};
      try {
        static_cast<void>(on->pack(slices, {}, 1, dtype()));
      } catch (const UnusableWeight& bad) {
        return {bad.place.slice, bad.place.row, bad.place.column, bad.what()};
      }
      return {9, 0, 0, ""};
    };
    using Found = decltype(place());
    EXPECT_EQ(place(), Found(9, 0, 0, ""));
    for (const auto& [slice, row, column] :
         {std::tuple{0, 10, 3}, {0, 69, 22}, {0, 45, 6}, {1, 2, 22}, {1, 6, 21}, {1, 4, 19}}) {
      for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
        float& value = values[row * 30 + column];
        const float before = std::exchange(value, bad);
        const std::string what = std::isnan(bad) ? "nan" : bad > 0 ? "inf" : "-inf";
        EXPECT_EQ(place(), Found(slice, row, column, "expected a finite number, found " + what));
        // The first row of the first slice that has one, whichever thread finds one first.
        const float last = std::exchange(values[6 * 30 + 22], infinity);
        const auto first = place();
        EXPECT_EQ(std::get<1>(first), row);
        EXPECT_EQ(std::get<2>(first), column);
        values[6 * 30 + 22] = last;
        value = before;
      }
    }
    if (stored == DType::f32 && dtype() == DType::bf16) {
      values[20 * 30 + 4] = -3.4e38F;
      EXPECT_EQ(place(), Found(0, 20, 4, "expected a number that bf16 holds, found -3.4e+38"));
    }
  }
}

PACELINE_EACH_BACKEND_AND_TYPE(LinearTest);

TEST(CpuBackendTest, NamesTheInstructionSetsOnOffer) {
  EXPECT_EQ(make_cpu_backend(1)->info().isa, supported_cpu_isas().front());
  try {
    static_cast<void>(make_cpu_backend(1, "sse9"));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("portable"), std::string::npos) << error.what();
  }
  EXPECT_THROW(static_cast<void>(make_cpu_backend(0)), UsageError);
}

}  // namespace
}  // namespace paceline::kernels::test
