// A rank that is killed: the others' calls say which, and where it ran; transfers with it fail. Two
// processes without MPI, which would end the job itself.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/core/error.hpp"
#include "runtime/fabric/ucx_block_transport.hpp"
#include "runtime/fabric/ucx_mailbox.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;
using namespace paceline::fabric;

namespace {

constexpr std::uint64_t kRun = 7;
constexpr std::uint64_t kLeft =
    1;  ///< key of a transfer that only the one that stays takes part in
constexpr std::uint64_t kMade = 2;      ///< and of one that is made before
constexpr std::uint64_t kUnderWay = 3;  ///< and of one that is under way then
constexpr std::size_t kMuch = std::size_t{256} << 20;

/// To the other process and from it.
struct Pipes {
  int out, in;
};

void put(const Pipes& pipes, const std::vector<std::byte>& bytes) {
  const std::size_t size = bytes.size();
  if (write(pipes.out, &size, sizeof size) != sizeof size ||
      write(pipes.out, bytes.data(), size) != static_cast<ssize_t>(size)) {
    std::abort();
  }
}

std::vector<std::byte> get(const Pipes& pipes) {
  std::size_t size = 0;
  if (read(pipes.in, &size, sizeof size) != sizeof size) std::abort();
  std::vector<std::byte> bytes(size);
  if (read(pipes.in, bytes.data(), size) != static_cast<ssize_t>(size)) std::abort();
  return bytes;
}

struct End {
  End(int rank, const Pipes& pipes)
      : context(2, true),
        mailbox(context, {rank, Address::Port::role}, {}),
        blocks(context, rank, mailbox) {
    mailbox.on_lost([this](int lost, const std::string& why) { blocks.lose(lost, why); });
    put(pipes, mailbox.worker().address());
    put(pipes, blocks.worker().address());
    std::vector<std::byte> box[2];
    std::vector<std::byte> transport[2];
    box[1 - rank] = get(pipes);
    transport[1 - rank] = get(pipes);
    box[rank] = mailbox.worker().address();
    transport[rank] = blocks.worker().address();
    mailbox.open(kRun, {{{0, Address::Port::role}, "host0", box[0]},
                        {{1, Address::Port::role}, "host1", box[1]}});
    blocks.open(kRun, {{"host0", transport[0]}, {"host1", transport[1]}});
  }
  UcxContext context;
  UcxMailbox mailbox;
  UcxBlockTransport blocks;
};

void end_transfer(End& end, Ticket ticket) {
  while (end.blocks.state(ticket) == TransferState::pending) end.mailbox.wait(1);
}

[[noreturn]] void die(const Pipes& pipes) {
  End end(1, pipes);
  std::vector<std::byte> memory(1 << 20);
  const std::span<const std::byte> piece = memory;
  end_transfer(end, end.blocks.send(0, kMade, {&piece, 1}));
  end.mailbox.send({0, Address::Port::role}, {});
  while (true) {
    end.mailbox.wait(1);
    if (!end.mailbox.poll()) continue;
    std::vector<std::byte> much(kMuch);
    const std::span<const std::byte> all = much;
    std::ignore = end.blocks.send(0, kUnderWay, {&all, 1});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    raise(SIGKILL);
  }
}

void survive(const Pipes& pipes) {
  End end(0, pipes);
  std::vector<std::byte> memory(1 << 20);
  const std::span<std::byte> piece = memory;
  end_transfer(end, end.blocks.receive(1, kMade, {&piece, 1}));
  const Ticket left = end.blocks.receive(1, kLeft, {&piece, 1});
  std::vector<std::byte> much(kMuch);
  const std::span<std::byte> all = much;
  const Ticket under_way = end.blocks.receive(1, kUnderWay, {&all, 1});
  while (!end.mailbox.poll()) end.mailbox.wait(1);
  end.mailbox.send({1, Address::Port::role}, {});  // which is the end of it
  std::string said;
  try {
    while (true) {
      end.mailbox.wait(1);
      std::ignore = end.mailbox.poll();
    }
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::internal);
    said = error.what();
  }
  std::printf("%s\n", said.c_str());
  CHECK(said.find("lost rank 1 on host1") != std::string::npos);
  const auto pending = [&](Ticket ticket) {
    return end.blocks.state(ticket) == TransferState::pending;
  };
  while (pending(left) || pending(under_way))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::printf("%s\n", end.blocks.failure(left).c_str());
  CHECK(end.blocks.state(left) == TransferState::failed);
  // Of a fast machine it may have come whole.
  std::printf("the transfer that was under way: %s\n", end.blocks.failure(under_way).c_str());
  CHECK(end.blocks.failure(left).find("rank 1 on host1") != std::string::npos);
}

}  // namespace

int main() {
  setenv("UCX_KEEPALIVE_INTERVAL", "500ms", 0);  // how soon shared memory looks after its peers
  int there[2];
  int back[2];
  if (pipe(there) != 0 || pipe(back) != 0) return 1;
  // As a launcher would, for shared memory finds a process that nobody has waited for still there.
  std::signal(SIGCHLD, SIG_IGN);
  const pid_t child = fork();  // before UCX has any thread
  if (child == 0) die({back[1], there[0]});
  survive({there[1], back[0]});
  return test::g_failures == 0 ? 0 : 1;
}
