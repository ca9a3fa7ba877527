// Collectives and mailboxes over real MPI ranks. Not GoogleTest: every rank checks, and any failure
// fails the job.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/fabric/backoff.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/mpi_mailbox.hpp"

using namespace paceline;

namespace {

int g_failures = 0;
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++g_failures;                                                        \
    }                                                                      \
  } while (false)

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

void check_gather_and_broadcast(fabric::MpiGroup& group) {
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
  std::vector<std::byte> news(1000, static_cast<std::byte>(group.rank() == 0 ? 42 : 0));
  group.broadcast(news);
  CHECK(news[999] == std::byte{42});
}

// Everybody writes to everybody's two ports; order per sender holds.
void check_mailboxes(const fabric::MpiEnvironment& mpi) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  {
    fabric::MpiMailbox role(comm, fabric::Address::Port::role);
    fabric::MpiMailbox other(comm, fabric::Address::Port::coordinator);
    constexpr int kMessages = 200;
    for (int i = 0; i < kMessages; ++i) {
      for (int to = 0; to < mpi.size(); ++to) {
        std::vector<std::byte> bytes(i * 37 + 1, static_cast<std::byte>(i));
        role.send({to, fabric::Address::Port::role}, bytes);
        if (i == 0) other.send({to, fabric::Address::Port::coordinator}, {});
      }
    }
    std::vector<int> seen(mpi.size(), 0);
    int others = 0;
    fabric::Backoff backoff;
    for (int missing = mpi.size() * (kMessages + 1); missing > 0; backoff.pause()) {
      while (const auto e = role.poll()) {
        const int i = seen[e->from]++;
        CHECK(static_cast<int>(e->bytes.size()) == i * 37 + 1 &&
              e->bytes[0] == static_cast<std::byte>(i));
        --missing;
      }
      while (const auto e = other.poll()) {
        CHECK(e->bytes.empty());
        ++others;
        --missing;
      }
    }
    CHECK(others == mpi.size());
    role.drain();
    other.drain();
    mpi.barrier();
  }
  MPI_Comm_free(&comm);
}

// A mailbox ends at once though nobody will ever take what it sent: a job that faults must end.
void check_abandoned_sends(const fabric::MpiEnvironment& mpi) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  {
    fabric::MpiMailbox mailbox(comm, fabric::Address::Port::role);
    const std::vector<std::byte> large(std::size_t{4} << 20);  // sent by rendezvous
    mailbox.send({mpi.rank(), fabric::Address::Port::role}, large);
  }
  MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  {
    fabric::MpiGroup group(MPI_COMM_WORLD);
    check_all_reduce(group);
    check_exchange_rows(group);
    check_gather_and_broadcast(group);
  }
  check_mailboxes(mpi);
  check_abandoned_sends(mpi);
  const auto facts = mpi.gather_facts();
  CHECK(static_cast<int>(facts.size()) == mpi.size());
  CHECK(facts[mpi.rank()].cores >= 1 && facts[mpi.rank()].sharers >= 1);
  const int worst = mpi.max_of(g_failures).value;
  if (mpi.rank() == 0)
    std::printf("%s on %d ranks\n", worst == 0 ? "passed" : "FAILED", mpi.size());
  return worst == 0 ? 0 : 1;
}
