// Real MPI ranks of a node that wait for one another.
#include "runtime/fabric/rendezvous.hpp"

#include <chrono>
#include <thread>

#include "runtime/core/stopwatch.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;
using fabric::Rendezvous;

namespace {

constexpr double kLong = 60;  ///< seconds; nobody waits as long in a test that passes

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Nobody passes a place before the last rank has come to it.
void check_waiting(const fabric::MpiEnvironment& mpi) {
  const auto rendezvous = Rendezvous::make(true);
  CHECK(rendezvous != nullptr);
  for (std::uint64_t place = 1; place <= 20; ++place) {
    const bool late = static_cast<int>(place) % mpi.size() == mpi.rank();
    if (late) sleep(0.005);
    const double came = steady_seconds();
    rendezvous->come(place, kLong);
    const double passed = steady_seconds();
    double last = 0;  // the steady clock is the same for all ranks of a node
    for (const double other : mpi.all_values(came)) last = std::max(last, other);
    CHECK(passed >= last);
  }
}

/// A rank waits neither for one that is ahead, nor for one that does not work or has left.
void check_not_waiting(const fabric::MpiEnvironment& mpi) {
  const bool works = mpi.rank() == 0 || mpi.rank() % 2 == 1;
  auto rendezvous = Rendezvous::make(works);
  const double begin = steady_seconds();
  if (!works) {
    sleep(0.2);
  } else if (mpi.rank() == 0) {
    for (std::uint64_t place = 1; place <= 10; ++place) rendezvous->come(place, kLong);
    rendezvous.reset();
  } else {
    for (std::uint64_t place = 5; place <= 20; place += 5) rendezvous->come(place, kLong);
    rendezvous.reset();
  }
  CHECK(steady_seconds() - begin < kLong);
  mpi.barrier();
}

/// A rank that never comes is not waited for longer than asked.
void check_patience(const fabric::MpiEnvironment& mpi) {
  const auto rendezvous = Rendezvous::make(true);
  mpi.barrier();
  if (mpi.rank() == 0) {
    const double begin = steady_seconds();
    rendezvous->come(1, 0.02);
    CHECK(steady_seconds() - begin < kLong);
    CHECK(mpi.size() == 1 || steady_seconds() - begin >= 0.02);
  }
  mpi.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  check_waiting(mpi);
  check_not_waiting(mpi);
  check_patience(mpi);
  return fabric::test::verdict(mpi);
}
