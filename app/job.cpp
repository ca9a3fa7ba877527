#include "app/job.hpp"

#include <cstdio>
#include <cstdlib>

#include "app/terminal.hpp"

namespace paceline::app {

void together(const fabric::MpiEnvironment& mpi, const std::function<void()>& step) {
  int code = 0;
  std::string message;
  try {
    step();
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
    message = error.what();
  } catch (const std::exception& error) {
    code = static_cast<int>(ExitCode::internal);
    message = fmt::format("internal fault: {}", error.what());
  }
  const auto worst = mpi.max_of(code);
  if (worst.value == 0) return;
  throw JobEnded{static_cast<ExitCode>(worst.value), worst.rank == mpi.rank() ? message : ""};
}

void abort_job(const fabric::MpiEnvironment& mpi, ExitCode code, const std::string& message) {
  say("paceline: rank {}: {}", mpi.rank(), message);
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::abort();
}

}  // namespace paceline::app
