// Memory that real MPI ranks of a node have in common.
#include "runtime/fabric/shared_memory.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>

#include "runtime/core/error.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;
using fabric::SharedMemory;

namespace {

constexpr std::size_t kBytes = (std::size_t{5} << 20) + 123;

std::string refusal(const SharedMemory::Handle& handle) {
  try {
    (void)SharedMemory::open(handle);
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

/// What each rank writes, all read; and nobody writes any more once it is frozen.
void check_sharing(const fabric::MpiEnvironment& mpi) {
  SharedMemory memory;
  if (mpi.rank() == 0) memory = SharedMemory::make(kBytes);
  SharedMemory::Handle handle = memory.handle();
  MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, MPI_COMM_WORLD);
  if (mpi.rank() != 0) memory = SharedMemory::open(handle);
  CHECK(memory.bytes().size() == kBytes);
  CHECK(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % (2 << 20) == 0);
  memory.allocate(mpi.rank(), mpi.size());
  mpi.barrier();
  for (std::size_t i = mpi.rank(); i < kBytes; i += mpi.size()) {
    CHECK(memory.bytes()[i] == std::byte());
    memory.bytes()[i] = static_cast<std::byte>(i * 7 + 1);
  }
  mpi.barrier();
  memory.freeze();
  bool same = true;
  for (std::size_t i = 0; i < kBytes; ++i)
    same = same && memory.bytes()[i] == static_cast<std::byte>(i * 7 + 1);
  CHECK(same);

  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    memory.bytes()[0] = std::byte();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);

  // A moved one is the same memory; one that is gone cannot be found.
  SharedMemory moved(std::move(memory));
  CHECK(moved.bytes().size() == kBytes && memory.bytes().empty());
  mpi.barrier();
  if (mpi.rank() == 0) moved = SharedMemory();
  mpi.barrier();
  CHECK(!refusal(handle).empty());
  if (mpi.rank() != 0) CHECK(moved.bytes()[kBytes - 1] == static_cast<std::byte>(kBytes * 7 - 6));
}

/// Handles that are not one's, and of processes that were killed.
void check_refusals() {
  const SharedMemory memory = SharedMemory::make(100);
  SharedMemory::Handle other = memory.handle();
  CHECK(refusal(other).empty());
  other.token ^= 1;
  CHECK(!refusal(other).empty());
  other = memory.handle();
  other.descriptor = 1 << 20;
  CHECK(!refusal(other).empty());

  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const SharedMemory own = SharedMemory::make(100);
    const SharedMemory::Handle handle = own.handle();
    (void)!write(pipe_ends[1], &handle, sizeof handle);
    for (;;) pause();
  }
  SharedMemory::Handle handle;
  CHECK(read(pipe_ends[0], &handle, sizeof handle) == sizeof handle);
  CHECK(refusal(handle).empty());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(!refusal(handle).empty());
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  CHECK(mpi.gather_facts()[mpi.rank()].shares_memory == 1);
  check_sharing(mpi);
  check_refusals();
  return fabric::test::verdict(mpi);
}
