// Collectives over real MPI ranks.
#include <bit>
#include <cstring>
#include <vector>

#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "tests/runtime/fabric/collective_data.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;

namespace {

// Ranks that hold sub-trees of 8 parts complete the very tree that one rank would compute.
void check_all_reduce(fabric::MpiGroup& group) {
  constexpr int kParts = 8;
  for (const int count : {1, 7, 4096, 300'000}) {
    const int own = kParts / group.size();
    std::vector<float> values = fabric::test::tree_sum(group.rank() * own, own, 0, count);
    group.all_reduce_tree(values);
    const std::vector<float> expected = fabric::test::tree_sum(0, kParts, 0, count);
    CHECK(std::memcmp(values.data(), expected.data(), count * sizeof(float)) == 0);
  }
}

void check_exchange_rows(fabric::MpiGroup& group) {
  for (const int rows : {0, 1, 3, 64}) {
    const fabric::test::ExchangedRows matrix(group.rank(), group.size(), rows);
    const std::vector<float> expected = matrix.expected();
    std::vector<float> receive(expected.size(), -1);
    group.exchange_rows(matrix.sent(), matrix.columns, matrix.first, receive);
    CHECK(receive == expected);
  }
}

void check_all_gather(fabric::MpiGroup& group) {
  std::vector<int> sizes;
  int total = 0;
  for (int r = 0; r < group.size(); ++r) {
    sizes.push_back(r * 3);
    total += r * 3;
  }
  const std::vector<std::byte> mine(group.rank() * 3, static_cast<std::byte>(group.rank()));
  std::vector<std::byte> all(total);
  group.all_gather(mine, sizes, all);
  int at = 0;
  for (int r = 0; r < group.size(); ++r) {
    for (int i = 0; i < r * 3; ++i) CHECK(all[at++] == static_cast<std::byte>(r));
  }
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
    check_exchange_rows(group);
    check_all_gather(group);
    check_traffic(group);
  }
  const auto facts = mpi.gather_facts();
  CHECK(static_cast<int>(facts.size()) == mpi.size());
  CHECK(facts[mpi.rank()].cores >= 1 && facts[mpi.rank()].sharers >= 1);
  return fabric::test::verdict(mpi);
}
