// Collectives over real MPI ranks.
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;

namespace {

// The same numbers on every rank: part p of a sum over `parts` parts.
std::vector<float> part(int p, int count) {
  std::mt19937 random(p);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 20));
  return values;
}

std::vector<float> tree_sum(int first, int parts, int count) {
  if (parts == 1) return part(first, count);
  std::vector<float> left = tree_sum(first, parts / 2, count);
  const std::vector<float> right = tree_sum(first + parts / 2, parts / 2, count);
  for (int i = 0; i < count; ++i) left[i] += right[i];
  return left;
}

// Ranks that hold sub-trees of 8 parts complete the very tree that one rank would compute.
void check_all_reduce(fabric::MpiGroup& group) {
  constexpr int kParts = 8;
  for (const int count : {1, 7, 4096, 300'000}) {
    const int own = kParts / group.size();
    std::vector<float> values = tree_sum(group.rank() * own, own, count);
    group.all_reduce_tree(values);
    const std::vector<float> expected = tree_sum(0, kParts, count);
    CHECK(std::memcmp(values.data(), expected.data(), count * sizeof(float)) == 0);
  }
}

void check_exchange_rows(fabric::MpiGroup& group) {
  const int ranks = group.size();
  for (const int rows : {0, 1, 3, 64}) {
    std::vector<int> columns;
    std::vector<int> first{0};
    int width = 0;
    for (int r = 0; r < ranks; ++r) {
      columns.push_back(64 + r);
      width += columns.back();
      first.push_back(rows * (r + 1) / ranks);
    }
    int before = 0;
    for (int r = 0; r < group.rank(); ++r) before += columns[r];
    const int mine = columns[group.rank()];
    std::vector<float> send(static_cast<std::size_t>(rows) * mine);
    for (int row = 0; row < rows; ++row) {
      for (int c = 0; c < mine; ++c)
        send[row * mine + c] = static_cast<float>(row * 1000 + before + c);
    }
    const int my_rows = first[group.rank() + 1] - first[group.rank()];
    std::vector<float> receive(static_cast<std::size_t>(my_rows) * width, -1);
    group.exchange_rows(send, columns, first, receive);
    for (int i = 0; i < my_rows; ++i) {
      for (int c = 0; c < width; ++c) {
        CHECK(receive[i * width + c] == static_cast<float>((first[group.rank()] + i) * 1000 + c));
      }
    }
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
