// For tests that run as MPI ranks: every rank checks, and any failure fails the job.
#pragma once

#include <cstdio>

#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::fabric::test {

inline int g_failures = 0;

/// Prints the verdict of all ranks; the exit code. Collective.
inline int verdict(const MpiEnvironment& mpi) {
  const int worst = mpi.max_of(g_failures).value;
  if (mpi.rank() == 0)
    std::printf("%s on %d ranks\n", worst == 0 ? "passed" : "FAILED", mpi.size());
  return worst == 0 ? 0 : 1;
}

}  // namespace paceline::fabric::test

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++::paceline::fabric::test::g_failures;                              \
    }                                                                      \
  } while (false)
