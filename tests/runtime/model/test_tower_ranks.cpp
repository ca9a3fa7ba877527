// Towers whose ranks divide a picture's rows, on the small random checkpoints of
// tests/models/parity_pictures.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstring>
#include <random>
#include <thread>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/tower.hpp"
#include "runtime/model/tower_order.hpp"
#include "tests/runtime/model/parity_fixtures.hpp"

namespace paceline {
namespace {

/// The ranks of a group as threads: gathering of rows alone.
class ThreadRank final : public TensorParallelGroup {
 public:
  struct Shared {
    explicit Shared(int ranks) : meeting(ranks), rows(ranks) {}
    std::barrier<> meeting;
    std::vector<float*> rows;
  };
  ThreadRank(int rank, Shared& shared) : rank_(rank), shared_(shared) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(shared_.rows.size()); }
  void gather_rows(std::span<float> rows, std::span<const int> first_row) override {
    const std::size_t width = rows.size() / first_row.back();
    shared_.rows[rank_] = rows.data();
    shared_.meeting.arrive_and_wait();
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const std::size_t first = first_row[r] * width;
      std::copy(shared_.rows[r] + first, shared_.rows[r] + first_row[r + 1] * width,
                rows.data() + first);
    }
    shared_.meeting.arrive_and_wait();
    ++gathered;
  }
  void all_reduce_tree(std::span<float>) override { FAIL() << "sums over ranks"; }
  void exchange_rows(std::span<const float>, std::span<const int>, std::span<const int>,
                     std::span<float>) override {}
  void all_gather(std::span<const std::byte>, std::span<const int>, std::span<std::byte>) override {
  }
  int gathered = 0;

 private:
  int rank_;
  Shared& shared_;
};

class TowerRanks : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    config_ = io::load_model_config(model::families(), GetParam());
    source_ = std::make_unique<io::Checkpoint>(GetParam());
  }

  [[nodiscard]] std::vector<float> patches_of(const PictureGrid& grid) const {
    std::mt19937 random(grid.rows * 100 + grid.columns);
    std::normal_distribution<float> normal;
    std::vector<float> patches(grid.patches() * config_.vision->tower->patch_elements());
    for (float& value : patches) value = normal(random);
    return patches;
  }

  [[nodiscard]] std::vector<float> computed(TensorParallelGroup& group, const PictureGrid& grid,
                                            DType compute) const {
    const auto backend = kernels::make_cpu_backend(1);
    model::Tower tower(*backend,
                       std::make_shared<model::TowerWeights>(*backend, config_, *source_, compute),
                       group);
    return tower.compute(patches_of(grid), grid);
  }

  ModelConfig config_;
  std::unique_ptr<io::Checkpoint> source_;
};

TEST_P(TowerRanks, NumberOfRanksDoesNotShow) {
  int whole = 1;  // all results, at the end
  for (std::int32_t n = 0; n < config_.vision->tower->layers; ++n)
    whole += config_.vision->tower->is_windowed(n) ? 0 : 1;
  const std::int32_t merge = config_.vision->tower->merge;
  for (const auto& [rows, columns] : {std::array{1, 1}, {2, 2}, {3, 5}, {17, 23}}) {
    const PictureGrid grid{rows * merge, columns * merge};
    for (const DType compute : {DType::f32, DType::bf16}) {
      fabric::SingleRankGroup alone;
      const std::vector<float> expected = computed(alone, grid, compute);
      for (const int ranks : {2, 4, 8}) {
        ThreadRank::Shared shared(ranks);
        std::vector<std::vector<float>> found(ranks);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) {
          threads.emplace_back([&, rank] {
            ThreadRank group(rank, shared);
            found[rank] = computed(group, grid, compute);
            EXPECT_EQ(group.gathered, whole);  // windows are nobody else's
          });
        }
        for (std::thread& thread : threads) thread.join();
        for (const std::vector<float>& made : found) {
          ASSERT_EQ(made.size(), expected.size());
          EXPECT_EQ(std::memcmp(made.data(), expected.data(), made.size() * sizeof(float)), 0)
              << grid.rows << " x " << grid.columns << " on " << ranks << " ranks";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, TowerRanks,
                         testing::ValuesIn(test::fixtures("parity_pictures")),
                         [](const auto& made) {
                           std::string name = made.param.filename().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(TowerOrder, SharesAreEvenAndBeginWithBlocksAndWindows) {
  constexpr int kBlock = 16;
  for (const std::int32_t window : {0, 2, 4}) {
    TowerConfig config;
    config.window = window;
    for (const PictureGrid grid : {PictureGrid{54, 74}, {2, 2}, {2, 80}, {38, 26}}) {
      const model::TowerOrder order = model::tower_order(config, grid);
      const auto results = static_cast<int>(grid.patches() / 4);
      ASSERT_EQ(std::ssize(order.results), results);
      for (const int ranks : {1, 2, 4, 8}) {
        const std::vector<int> first = model::deal_results(config, order, kBlock, ranks);
        ASSERT_EQ(std::ssize(first), ranks + 1);
        EXPECT_EQ(first.front(), 0);
        EXPECT_EQ(first.back(), results);
        int most = 0;
        for (int r = 0; r < ranks; ++r) {
          most = std::max(most, first[r + 1] - first[r]);
          EXPECT_LE(first[r], first[r + 1]);
          EXPECT_TRUE(first[r] * 4 % kBlock == 0 || first[r] == results);
          const auto begins = [&](const model::TowerStretch& w) {
            return w.first_row == first[r] * 4;
          };
          EXPECT_TRUE(window == 0 || first[r] == results ||
                      std::ranges::any_of(order.windows, begins));
        }
        // Rows of windows of an odd number of results begin between blocks.
        const int side = std::max(window, 1);
        const int between = window == 2 ? 2 * side * grid.columns / 2 : 4 * side * side;
        EXPECT_LE(most, results / ranks + between);
      }
    }
  }
}

}  // namespace
}  // namespace paceline
