// Collectives over real MPI ranks.
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/shared_group.hpp"
#include "tests/runtime/fabric/collective_data.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;

namespace {

// Ranks that hold sub-trees of 8 parts complete the very tree that one rank would compute.
void check_all_reduce(TensorParallelGroup& group) {
  constexpr int kParts = 8;
  for (const int count : {1, 7, 4096, 300'000}) {
    const int own = kParts / group.size();
    std::vector<float> values = fabric::test::tree_sum(group.rank() * own, own, 0, count);
    group.all_reduce_tree(values);
    const std::vector<float> expected = fabric::test::tree_sum(0, kParts, 0, count);
    CHECK(std::memcmp(values.data(), expected.data(), count * sizeof(float)) == 0);
  }
}

void check_exchange_rows(TensorParallelGroup& group, std::initializer_list<int> row_counts) {
  for (const int rows : row_counts) {
    const fabric::test::ExchangedRows matrix(group.rank(), group.size(), rows);
    const std::vector<float> expected = matrix.expected();
    std::vector<float> receive(expected.size(), -1);
    group.exchange_rows(matrix.sent(), matrix.columns, matrix.first, receive);
    CHECK(receive == expected);
  }
}

// Rank r has the rows that `share` deals it, from none to all; nobody's come out changed or moved.
void check_gather_rows(TensorParallelGroup& group, const std::function<int(int)>& share,
                       int width) {
  std::vector<int> first{0};
  for (int r = 0; r < group.size(); ++r) first.push_back(first.back() + share(r));
  const auto value = [width](int row, int column) {
    return static_cast<float>(row * width + column) / 3;
  };
  std::vector<float> rows(static_cast<std::size_t>(first.back()) * width, -1);
  std::vector<float> expected(rows.size());
  for (int row = 0; row < first.back(); ++row) {
    const bool mine = row >= first[group.rank()] && row < first[group.rank() + 1];
    for (int column = 0; column < width; ++column) {
      expected[row * width + column] = value(row, column);
      if (mine) rows[row * width + column] = value(row, column);
    }
  }
  group.gather_rows(rows, first);
  CHECK(rows.empty() ||
        std::memcmp(rows.data(), expected.data(), rows.size() * sizeof(float)) == 0);
}

void check_gather_rows(TensorParallelGroup& group) {
  const int last = group.size() - 1;
  check_gather_rows(
      group, [](int) { return 0; }, 8);
  check_gather_rows(
      group, [](int r) { return r; }, 7);
  check_gather_rows(
      group, [last](int r) { return last - r; }, 7);
  check_gather_rows(
      group, [last](int r) { return r == last ? 5 : 0; }, 64);
  check_gather_rows(
      group, [](int r) { return r == 0 ? 3 : 0; }, 64);
  check_gather_rows(
      group, [](int r) { return 100 + 50 * r; }, 4096);
  for (int round = 0; round < 200; ++round)
    check_gather_rows(
        group, [round](int r) { return (round + r) % 3; }, 1 + round % 5);
}

// Rank r gives r times `unit` bytes.
void check_all_gather(TensorParallelGroup& group, int unit) {
  std::vector<int> sizes(group.size());
  for (int r = 0; r < group.size(); ++r) sizes[r] = r * unit;
  const auto given = [](int rank, int i) { return static_cast<std::byte>(rank + i / 7); };
  std::vector<std::byte> mine(sizes[group.rank()]);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = given(group.rank(), static_cast<int>(i));
  std::vector<std::byte> all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  group.all_gather(mine, sizes, all);
  std::size_t at = 0;
  std::size_t wrong = 0;
  for (int r = 0; r < group.size(); ++r) {
    for (int i = 0; i < sizes[r]; ++i) wrong += all[at++] != given(r, i) ? 1 : 0;
  }
  CHECK(wrong == 0);
}

// Ranks come late in turn, some by so much that the others sleep; nobody gets what another gave
// before or after.
void check_late_ranks(TensorParallelGroup& group) {
  std::size_t wrong = 0;
  for (int round = 0; round < 2000; ++round) {
    if (round % 100 == 0 && round / 100 % group.size() == group.rank())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::vector<float> values(1 + round % 5, static_cast<float>(round + group.rank()));
    group.all_reduce_tree(values);
    const int ranks = group.size();
    const auto expected = static_cast<float>(round * ranks + ranks * (ranks - 1) / 2);
    for (const float v : values) wrong += v != expected ? 1 : 0;
  }
  CHECK(wrong == 0);
}

// After one of each of the above.
void check_traffic(const fabric::MpiGroup& group) {
  const auto ranks = static_cast<std::uint64_t>(group.size());
  const auto me = static_cast<std::uint64_t>(group.rank());
  const std::uint64_t rounds = std::bit_width(ranks) - 1;
  std::uint64_t bytes = rounds * (1 + 7 + 4096 + 300'000) * sizeof(float);
  for (const std::uint64_t rows : {0, 1, 3, 64}) {
    const std::uint64_t mine = rows * (me + 1) / ranks - rows * me / ranks;
    bytes += (rows - mine) * (64 + me) * sizeof(float);
  }
  bytes += 3 * me * (ranks - 1);
  CHECK(group.traffic().bytes == bytes);
  CHECK(group.traffic().sum_seconds > 0 && group.traffic().exchange_seconds > 0);
  const GroupTraffic none = group.traffic() - group.traffic();
  CHECK(none.bytes == 0 && none.sum_seconds == 0 && none.exchange_seconds == 0);
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  {
    fabric::MpiGroup group(MPI_COMM_WORLD);
    check_all_reduce(group);
    check_exchange_rows(group, {0, 1, 3, 64});
    check_all_gather(group, 3);
    check_traffic(group);
    check_gather_rows(group);
    check_late_ranks(group);
  }
  {
    const auto group = fabric::SharedGroup::make(MPI_COMM_WORLD);
    CHECK(group != nullptr);
    if (group != nullptr) {
      check_all_reduce(*group);
      check_exchange_rows(*group, {0, 1, 3, 64, 20'000});
      check_all_gather(*group, 3);
      check_all_gather(*group, 1'300'000);
      check_gather_rows(*group);
      check_late_ranks(*group);
      CHECK(group->traffic().sum_seconds > 0 && group->traffic().exchange_seconds > 0);
    }
  }
  const auto facts = mpi.gather_facts();
  CHECK(static_cast<int>(facts.size()) == mpi.size());
  CHECK(facts[mpi.rank()].cores >= 1 && facts[mpi.rank()].sharers >= 1);
  return fabric::test::verdict(mpi);
}
