// Experts against float64, and the invariances of kernels/backend.hpp.
#include <algorithm>
#include <functional>
#include <numeric>

#include "kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

/// Experts of one shape with their stored matrices, gates before ups.
struct Experts {
  Experts(Random& random, int count, int hidden_size, int width_of_each, DType type)
      : hidden(hidden_size), width(width_of_each), dtype(type) {
    const auto matrix = [&](int rows, int columns) {
      const float spread = 1 / std::sqrt(static_cast<float>(columns));
      return Values(random.normals(static_cast<std::size_t>(rows) * columns, spread), dtype);
    };
    for (int i = 0; i < count; ++i) {
      gate_up.push_back(matrix(2 * width, hidden));
      down.push_back(matrix(hidden, width));
    }
  }

  /// Experts [first, first + count) as a rank has them.
  [[nodiscard]] ExpertBank bank(Backend& backend, int first, int count, int segments) const {
    ExpertBank made;
    made.first = first;
    made.segments = segments;
    for (int i = first; i < first + count; ++i) {
      const TensorView gates{dtype, {2 * width, hidden}, gate_up[i].bytes};
      const TensorView downs{dtype, {hidden, width}, down[i].bytes};
      const MatrixSlice gate = whole(gates);
      const MatrixSlice back = whole(downs);
      made.experts.push_back(
          {backend.pack_gate_up({&gate, 1}, {}, dtype), backend.pack({&back, 1}, {}, 1, dtype)});
    }
    return made;
  }

  /// One expert's result of a row in float64, with the rounding of what lies between the products.
  [[nodiscard]] std::vector<double> apply(int expert, const float* in) const {
    std::vector<float> between(width);
    for (int i = 0; i < width; ++i) {
      const double gate = dot(gate_up[expert], i, in, hidden);
      const double up = dot(gate_up[expert], width + i, in, hidden);
      between[i] = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
    }
    const Values rounded(between, dtype);
    std::vector<double> out(hidden);
    for (int i = 0; i < hidden; ++i) out[i] = dot(down[expert], i, rounded.values.data(), width);
    return out;
  }
  static double dot(const Values& matrix, int row, const float* x, int k) {
    double sum = 0;
    for (int i = 0; i < k; ++i) sum += static_cast<double>(matrix.values[row * k + i]) * x[i];
    return sum;
  }

  int hidden, width;
  DType dtype;
  std::vector<Values> gate_up, down;
};

struct Choices {
  Choices(Random& random, int rows, int experts, int of_each) : chosen(of_each) {
    std::vector<std::int32_t> all(experts);
    std::iota(all.begin(), all.end(), 0);
    for (int r = 0; r < rows; ++r) {
      for (int i = 0; i < chosen; ++i) std::swap(all[i], all[i + random.below(experts - i)]);
      std::sort(all.begin(), all.begin() + chosen);
      ids.insert(ids.end(), all.begin(), all.begin() + chosen);
      for (int i = 0; i < chosen; ++i) weights.push_back(static_cast<float>(random.uniform()));
    }
  }
  int chosen;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

/// Rows [first, first + rows) of a batch by a bank.
std::vector<float> compute(Backend& backend, const ExpertBank& bank, const Experts& experts,
                           const Values& in, const Choices& choices, int first, int rows) {
  const std::size_t row_bytes = experts.hidden * size_of(experts.dtype);
  const auto part = [&](const auto& all, std::size_t of_row) {
    return std::vector(all.begin() + first * of_row, all.begin() + (first + rows) * of_row);
  };
  Array<std::byte> input(backend, part(in.bytes, row_bytes));
  Array<std::int32_t> ids(backend, part(choices.ids, choices.chosen));
  Array<float> weights(backend, part(choices.weights, choices.chosen));
  Array<std::byte> work(backend, std::vector<std::byte>(
                                     rows * backend.expert_row_bytes(experts.hidden, experts.width,
                                                                     choices.chosen, experts.dtype),
                                     std::byte{0xFF}));
  Array<float> out(backend, poisoned(static_cast<std::size_t>(rows) * experts.hidden));
  operate(backend, [&](Operations& operations) {
    operations.experts(bank, {choices.chosen, ids.data(), weights.data()}, input.data(), rows,
                       experts.dtype, work.data(), out.data());
  });
  return out.values();
}

class ExpertsTest : public EachBackendAndType {};

TEST_P(ExpertsTest, MatchFloat64) {
  Random random(21);
  for (const auto& [rows, hidden, width, count, chosen] : {std::tuple{1, 64, 32, 4, 2},
                                                           {5, 96, 64, 8, 3},
                                                           {3, 62, 38, 6, 6},
                                                           {3, 62, 37, 6, 6},
                                                           {70, 66, 96, 3, 2},
                                                           {70, 65, 96, 3, 2},
                                                           {150, 64, 288, 4, 3},
                                                           {16, 128, 31, 16, 1}}) {
    const auto cpu = backend(2);
    if (hidden % 2 != 0 || width % 2 != 0) {
      if (cpu->info().name == "cuda") continue;  // unsupported() refuses them
    }
    const Experts experts(random, count, hidden, width, dtype());
    const Values in(random.normals(static_cast<std::size_t>(rows) * hidden), dtype());
    const Choices choices(random, rows, count, chosen);
    const std::vector<float> out =
        compute(*cpu, experts.bank(*cpu, 0, count, 1), experts, in, choices, 0, rows);
    // Sums of products are of about unit size, and their rounding between the products is at most
    // that of one more ulp.
    const double tolerance = dtype() == DType::bf16 ? 0.03 : 2e-5;
    for (int r = 0; r < rows; ++r) {
      std::vector<double> expected(hidden);
      for (int i = 0; i < chosen; ++i) {
        const int at = r * chosen + i;
        const std::vector<double> result =
            experts.apply(choices.ids[at], in.values.data() + r * hidden);
        for (int c = 0; c < hidden; ++c) expected[c] += choices.weights[at] * result[c];
      }
      for (int c = 0; c < hidden; ++c)
        ASSERT_NEAR(out[r * hidden + c], expected[c], tolerance) << rows << " rows, row " << r;
    }
  }
}

TEST_P(ExpertsTest, RowsDoNotDependOnTheirNumberNorOnThreads) {
  Random random(22);
  for (const auto& [hidden, width] : {std::pair{96, 64}, {70, 40}}) {
    constexpr int kRows = 90;
    const Experts experts(random, 8, hidden, width, dtype());
    const Values in(random.normals(kRows * hidden), dtype());
    const Choices choices(random, kRows, 8, 3);
    const auto alone = backend(1);
    const ExpertBank bank = experts.bank(*alone, 0, 8, 4);
    const std::vector<float> all = compute(*alone, bank, experts, in, choices, 0, kRows);
    const auto three = backend(3);
    const ExpertBank shared = experts.bank(*three, 0, 8, 4);
    EXPECT_TRUE(same_bits(compute(*three, shared, experts, in, choices, 0, kRows), all));
    for (const int rows : {1, 2, 7, 40}) {
      for (int first = 0; first + rows <= kRows; first += rows) {
        const std::vector<float> some = compute(*three, shared, experts, in, choices, first, rows);
        const std::vector<float> expected(all.begin() + first * hidden,
                                          all.begin() + (first + rows) * hidden);
        ASSERT_TRUE(same_bits(some, expected)) << rows << " rows from " << first;
      }
    }
  }
}

TEST_P(ExpertsTest, BanksOfRanksCompleteTheTreeOfOne) {
  Random random(23);
  constexpr int kRows = 33;
  constexpr int kHidden = 64;
  const Experts experts(random, 16, kHidden, 32, dtype());
  const Values in(random.normals(kRows * kHidden), dtype());
  const Choices choices(random, kRows, 16, 5);
  const auto cpu = backend(2);
  const auto part = [&](int first, int count, int segments) {
    return compute(*cpu, experts.bank(*cpu, first, count, segments), experts, in, choices, 0,
                   kRows);
  };
  const auto add = [](std::vector<float> a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  const std::vector<float> all = part(0, 16, 4);
  EXPECT_TRUE(same_bits(add(part(0, 8, 2), part(8, 8, 2)), all));
  EXPECT_TRUE(
      same_bits(add(add(part(0, 4, 1), part(4, 4, 1)), add(part(8, 4, 1), part(12, 4, 1))), all));
}

TEST_P(ExpertsTest, RowsThatNoExpertOfTheBankServesAreZero) {
  Random random(24);
  const Experts experts(random, 8, 64, 32, dtype());
  const Values in(random.normals(64 * 3), dtype());
  Choices choices(random, 3, 4, 2);  // experts 0 to 3
  const auto cpu = backend(2);
  const std::vector<float> out =
      compute(*cpu, experts.bank(*cpu, 4, 4, 2), experts, in, choices, 0, 3);
  EXPECT_TRUE(same_bits(out, std::vector<float>(out.size())));
}

PACELINE_EACH_BACKEND_AND_TYPE(ExpertsTest);

class ChoosingExperts : public EachBackend {
 protected:
  struct Chosen {
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
  };
  /// `given`: ids that are not to be chosen; empty: none.
  [[nodiscard]] Chosen choose(const std::vector<float>& logits, int experts, int chosen,
                              bool normalised, int threads = 1,
                              const std::vector<std::int32_t>& given = {}) const {
    const auto cpu = backend(threads);
    const int rows = static_cast<int>(logits.size()) / experts;
    Array<float> in(*cpu, logits);
    Array<std::int32_t> ids(*cpu,
                            given.empty() ? std::vector<std::int32_t>(rows * chosen, -1) : given);
    Array<float> weights(*cpu, poisoned(rows * chosen));
    operate(*cpu, [&](Operations& operations) {
      operations.choose_experts(in.data(), rows, {.experts = experts, .normalised = normalised},
                                {chosen, ids.data(), weights.data(), !given.empty()});
    });
    return {ids.values(), weights.values()};
  }
};

TEST_P(ChoosingExperts, TakesTheLargestAndOfEqualOnesTheLowest) {
  EXPECT_EQ(choose({0, 3, 1, 3, 3, -1}, 6, 2, true).ids, (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(choose({2, 2, 2, 2}, 4, 3, true).ids, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(choose({0.5F, -2, 7}, 3, 1, false).ids, (std::vector<std::int32_t>{2}));
  EXPECT_EQ(choose({5, 4, 3}, 3, 3, false).ids, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST_P(ChoosingExperts, WeightsAreTheSoftmaxOfAllOrOfTheChosen) {
  Random random(31);
  for (const auto& [experts, chosen] : {std::pair{8, 2}, {128, 8}, {5, 5}, {3, 1}}) {
    constexpr int kRows = 300;
    const std::vector<float> logits = random.normals(kRows * experts, 3.0F);
    for (const bool normalised : {false, true}) {
      const Chosen made = choose(logits, experts, chosen, normalised, 2);
      for (int r = 0; r < kRows; ++r) {
        const float* row = logits.data() + r * experts;
        std::vector<int> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
        std::sort(order.begin(), order.begin() + chosen);
        double total = 0;
        for (int i = 0; i < (normalised ? chosen : experts); ++i) total += std::exp(row[order[i]]);
        for (int i = 0; i < chosen; ++i) {
          ASSERT_EQ(made.ids[r * chosen + i], order[i]);
          ASSERT_NEAR(made.weights[r * chosen + i] * total / std::exp(row[order[i]]), 1, 2e-6);
        }
      }
    }
  }
}

TEST_P(ChoosingExperts, SigmoidsOfTheBestGroups) {
  Random random(33);
  struct Case {
    int experts, groups, chosen_groups, chosen;
    bool normalised;
  };
  constexpr int kRows = 200;
  for (const Case& c : {Case{8, 4, 2, 3, true}, Case{8, 1, 1, 2, false}, Case{64, 8, 3, 6, true},
                        Case{12, 3, 1, 4, false}, Case{384, 1, 1, 8, true}}) {
    std::vector<float> logits = random.normals(kRows * c.experts, 2.0F);
    const std::vector<float> correction = random.normals(c.experts, 0.3F);
    const auto on = backend(2);
    Array<float> in(*on, logits);
    Array<float> added(*on, correction);
    Array<std::int32_t> ids(*on, std::vector<std::int32_t>(kRows * c.chosen, -1));
    Array<float> weights(*on, poisoned(kRows * c.chosen));
    operate(*on, [&](Operations& operations) {
      operations.choose_experts(in.data(), kRows,
                                {.experts = c.experts,
                                 .normalised = c.normalised,
                                 .sigmoid = true,
                                 .correction = added.data(),
                                 .groups = c.groups,
                                 .chosen_groups = c.chosen_groups,
                                 .scale = 2.5F},
                                {c.chosen, ids.data(), weights.data()});
    });
    const std::vector<std::int32_t> made = ids.values();
    const std::vector<float> factors = weights.values();
    const int size = c.experts / c.groups;
    for (int r = 0; r < kRows; ++r) {
      std::vector<double> scores(c.experts);
      for (int i = 0; i < c.experts; ++i)
        scores[i] = 1 / (1 + std::exp(-static_cast<double>(logits[r * c.experts + i])));
      const auto key = [&](int i) { return scores[i] + correction[i]; };
      std::vector<std::pair<double, int>> groups;
      for (int g = 0; g < c.groups; ++g) {
        std::vector<double> keys;
        for (int i = g * size; i < (g + 1) * size; ++i) keys.push_back(key(i));
        std::partial_sort(keys.begin(), keys.begin() + 2, keys.end(), std::greater{});
        groups.emplace_back(-(keys[0] + keys[1]), g);
      }
      std::sort(groups.begin(), groups.end());
      std::vector<std::pair<double, int>> experts;
      for (int g = 0; g < c.chosen_groups; ++g) {
        for (int i = 0; i < size; ++i) {
          const int id = groups[g].second * size + i;
          experts.emplace_back(-key(id), id);
        }
      }
      std::sort(experts.begin(), experts.end());
      std::vector<int> expected;
      double total = 0;
      for (int i = 0; i < c.chosen; ++i) {
        expected.push_back(experts[i].second);
        total += scores[experts[i].second];
      }
      std::sort(expected.begin(), expected.end());
      for (int i = 0; i < c.chosen; ++i) {
        ASSERT_EQ(made[r * c.chosen + i], expected[i]) << "row " << r;
        const double weight = 2.5 * scores[expected[i]] / (c.normalised ? total : 1);
        ASSERT_NEAR(factors[r * c.chosen + i], weight, 3e-6);
      }
    }
  }
}

// Those of a router with other weights, or its own.
TEST_P(ChoosingExperts, GivenOnesAreWeighedAlone) {
  Random random(33);
  for (const auto& [experts, chosen] : {std::pair{8, 2}, {128, 8}, {40, 3}}) {
    constexpr int kRows = 60;
    const std::vector<float> logits = random.normals(kRows * experts, 3.0F);
    const std::vector<float> others = random.normals(kRows * experts, 3.0F);
    for (const bool normalised : {false, true}) {
      const Chosen own = choose(logits, experts, chosen, normalised);
      const Chosen again = choose(logits, experts, chosen, normalised, 2, own.ids);
      EXPECT_EQ(again.ids, own.ids);
      EXPECT_TRUE(same_bits(again.weights, own.weights));
      const std::vector<std::int32_t> given = choose(others, experts, chosen, normalised).ids;
      const Chosen replayed = choose(logits, experts, chosen, normalised, 1, given);
      EXPECT_EQ(replayed.ids, given);
      for (int r = 0; r < kRows; ++r) {
        const float* row = logits.data() + r * experts;
        double total = 0;
        for (int i = 0; i < (normalised ? chosen : experts); ++i)
          total += std::exp(row[normalised ? given[r * chosen + i] : i]);
        for (int i = r * chosen; i < (r + 1) * chosen; ++i)
          ASSERT_NEAR(replayed.weights[i] * total / std::exp(row[given[i]]), 1, 2e-6);
      }
    }
  }
}

TEST_P(ChoosingExperts, SigmoidsOfWhatIsNoNumberMakeNanOfTheirRowAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto on = backend(1);
  Array<float> in(*on, std::vector<float>{nan, 1, 2, 3, 0, 1, 2, 3});
  Array<std::int32_t> ids(*on, std::vector<std::int32_t>(4, -1));
  Array<float> weights(*on, poisoned(4));
  operate(*on, [&](Operations& operations) {
    operations.choose_experts(in.data(), 2, {.experts = 4, .sigmoid = true},
                              {2, ids.data(), weights.data()});
  });
  EXPECT_EQ(ids.values(), (std::vector<std::int32_t>{2, 3, 2, 3}));
  EXPECT_TRUE(std::isnan(weights.values()[0]) && std::isnan(weights.values()[1]));
  EXPECT_FALSE(std::isnan(weights.values()[2]) || std::isnan(weights.values()[3]));
}

TEST_P(ChoosingExperts, ValuesThatAreNotFiniteMakeNanOfTheirRowAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const bool normalised : {false, true}) {
    const Chosen made = choose({nan, 1, 2, 3, 0, 1, 2, 3, infinity, 1, 2, 3}, 4, 2, normalised);
    EXPECT_EQ(made.ids[0], 2);
    EXPECT_EQ(made.ids[1], 3);
    EXPECT_TRUE(std::isnan(made.weights[0]) && std::isnan(made.weights[1]));
    EXPECT_FALSE(std::isnan(made.weights[2]) || std::isnan(made.weights[3]));
    EXPECT_TRUE(std::isnan(made.weights[4]));
  }
}

TEST_P(ChoosingExperts, GatedSumsMatchFloat64) {
  Random random(32);
  constexpr int kRows = 5;
  constexpr int kWidth = 37;
  const std::vector<float> x = random.normals(kRows * kWidth);
  const std::vector<float> delta = random.normals(kRows * kWidth);
  const std::vector<float> gates = {-200, -1.5F, 0, 2, 200};
  const auto cpu = backend(2);
  Array<float> sum(*cpu, x);
  Array<float> added(*cpu, delta);
  Array<float> by(*cpu, gates);
  operate(*cpu, [&](Operations& operations) {
    operations.add_gated(sum.data(), added.data(), by.data(), kRows, kWidth);
  });
  Array<float> plain(*cpu, x);
  operate(*cpu, [&](Operations& operations) {
    operations.add_gated(plain.data(), added.data(), nullptr, kRows, kWidth);
  });
  for (int i = 0; i < kRows * kWidth; ++i) EXPECT_EQ(plain.values()[i], x[i] + delta[i]);
  for (int i = 0; i < kRows * kWidth; ++i) {
    const double scale = 1 / (1 + std::exp(-static_cast<double>(gates[i / kWidth])));
    EXPECT_NEAR(sum.values()[i], x[i] + scale * delta[i], 1e-6);
  }
}

PACELINE_EACH_BACKEND(ChoosingExperts);

}  // namespace
}  // namespace paceline::kernels::test
