// Mailboxes and block transfers between real MPI ranks, through the whole fabric.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fabric/ucx_fabric.hpp"
#include "tests/runtime/fabric/rank_check.hpp"

using namespace paceline;
using Port = Address::Port;

namespace {

constexpr Port kPorts[] = {Port::role, Port::coordinator};

std::byte byte_of(int from, int number) { return static_cast<std::byte>(from * 31 + number); }

// Everybody writes to everybody's two ports, itself included, small and large; each mailbox in a
// thread of its own. Order per sender holds.
void check_order(const fabric::MpiEnvironment& mpi) {
  fabric::UcxFabric network(mpi, kPorts);
  network.connect();
  constexpr int kMessages = 200;
  const auto size_of = [](int i) {
    return static_cast<std::size_t>(i % 50 == 49 ? 300'000 : i * 37);
  };
  const auto exchange = [&](Port port) {
    Mailbox& mailbox = network.mailbox(port);
    for (int i = 0; i < kMessages; ++i) {
      for (int to = 0; to < mpi.size(); ++to) {
        mailbox.send({to, port}, std::vector<std::byte>(size_of(i), byte_of(mpi.rank(), i)));
      }
    }
    std::vector<int> seen(static_cast<std::size_t>(mpi.size()), 0);
    for (int missing = mpi.size() * kMessages; missing > 0;) {
      mailbox.wait(10);
      while (const auto e = mailbox.poll()) {
        const int i = seen[e->from.rank]++;
        CHECK(e->bytes.size() == size_of(i));
        CHECK(e->bytes.empty() || (e->bytes.front() == byte_of(e->from.rank, i) &&
                                   e->bytes.back() == byte_of(e->from.rank, i)));
        --missing;
      }
    }
    CHECK(mailbox.traffic().messages == static_cast<std::uint64_t>(mpi.size()) * kMessages);
    CHECK(mailbox.traffic().batches < mailbox.traffic().messages);
  };
  std::atomic<bool> done{false};
  std::thread second([&] {
    exchange(Port::coordinator);
    done = true;
    network.mailbox(Port::role).wake();
  });
  exchange(Port::role);
  while (!done) network.mailbox(Port::role).wait(10);  // others may still need what is queued here
  second.join();
  network.close();
}

// Who only ever flushes is heard too, although his connections have yet to be made.
void check_flush(const fabric::MpiEnvironment& mpi) {
  fabric::UcxFabric network(mpi, std::span(kPorts).first(1));
  network.connect();
  Mailbox& mailbox = network.mailbox(Port::role);
  if (mpi.rank() != 0) mailbox.send({0, Port::role}, {});
  for (int missing = mpi.size() - 1; mpi.rank() == 0 && missing > 0;) {
    mailbox.wait(10);
    while (mailbox.poll()) --missing;
  }
  mpi.barrier([&] { mailbox.flush(); });
  network.close();
}

// Everybody sends far more than the windows hold before it reads anything: nothing deadlocks, and
// producers are told.
void check_backpressure(const fabric::MpiEnvironment& mpi) {
  fabric::UcxFabric network(mpi, std::span(kPorts).first(1), {.mailbox = {.window = 4096}});
  network.connect();
  Mailbox& mailbox = network.mailbox(Port::role);
  constexpr int kMessages = 1000;
  for (int i = 0; i < kMessages; ++i) {
    for (int to = 0; to < mpi.size(); ++to)
      mailbox.send({to, Port::role}, std::vector<std::byte>(100, byte_of(mpi.rank(), i)));
  }
  mailbox.flush();
  for (int to = 0; to < mpi.size(); ++to)
    CHECK(mailbox.full({to, Port::role}) == (to != mpi.rank()));
  CHECK(mpi.size() == 1 || mailbox.traffic().queued > 900);
  std::vector<int> seen(static_cast<std::size_t>(mpi.size()), 0);
  for (int missing = mpi.size() * kMessages; missing > 0; --missing) {
    std::optional<Envelope> e = mailbox.poll();
    for (; !e; e = mailbox.poll()) mailbox.wait(10);
    CHECK(e->bytes.size() == 100 && e->bytes[0] == byte_of(e->from.rank, seen[e->from.rank]++));
  }
  while (mailbox.traffic().queued > 0) mailbox.wait(0.01);
  CHECK(mpi.size() == 1 || mailbox.traffic().stalls >= 10);
  CHECK(mailbox.traffic().most_queued <= static_cast<std::uint64_t>(mpi.size()) * kMessages);
  network.close();
}

// Every pair of ranks exchanges blocks, differently cut at the two ends, posted in any order.
void check_blocks(const fabric::MpiEnvironment& mpi) {
  fabric::UcxFabric network(mpi, std::span(kPorts).first(1));
  network.connect();
  Mailbox& mailbox = network.mailbox(Port::role);
  BlockTransport& blocks = network.blocks();
  constexpr int kTransfers = 6;
  constexpr std::size_t kSmallest = 60'000;
  std::mt19937 random(static_cast<unsigned>(mpi.rank()));
  const auto pattern = [](int from, int to, int i) { return byte_of(from * 7 + to, i); };
  const auto total = [](int i) { return kSmallest << i; };

  struct Posted {
    int peer, number;
    bool sends;
    std::vector<std::byte> memory;
    Ticket ticket = 0;
  };
  std::vector<Posted> posted;
  for (int peer = 0; peer < mpi.size(); ++peer) {
    for (int i = 0; i < kTransfers; ++i) {
      posted.push_back(
          {peer, i, true, std::vector<std::byte>(total(i), pattern(mpi.rank(), peer, i))});
      posted.push_back({peer, i, false, std::vector<std::byte>(total(i))});
    }
  }
  std::shuffle(posted.begin(), posted.end(), random);
  for (Posted& p : posted) {
    if (p.number % 2 == 0) blocks.register_memory(p.memory);
    const std::size_t piece = p.memory.size() / (p.sends ? 6 : 10);
    std::vector<std::span<std::byte>> pieces;
    for (std::size_t at = 0; at < p.memory.size(); at += piece)
      pieces.push_back(std::span(p.memory).subspan(at, std::min(piece, p.memory.size() - at)));
    const std::vector<std::span<const std::byte>> constant(pieces.begin(), pieces.end());
    p.ticket = p.sends ? blocks.send(p.peer, p.number, constant)
                       : blocks.receive(p.peer, p.number, pieces);
  }
  while (blocks.traffic().pending > 0) mailbox.wait(10);
  for (Posted& p : posted) {
    CHECK(blocks.state(p.ticket) == TransferState::done);
    const std::byte expected =
        p.sends ? pattern(mpi.rank(), p.peer, p.number) : pattern(p.peer, mpi.rank(), p.number);
    CHECK(
        std::all_of(p.memory.begin(), p.memory.end(), [&](std::byte b) { return b == expected; }));
    if (p.number % 2 == 0) blocks.unregister_memory(p.memory);
  }
  CHECK(blocks.traffic().failed == 0);
  CHECK(blocks.traffic().sent == static_cast<std::uint64_t>(mpi.size()) * kTransfers);
  network.close();
}

// A fabric left without close(), as by an exception, waits for nobody, and nobody else is hurt by
// it.
void check_leaving(const fabric::MpiEnvironment& mpi) {
  fabric::UcxFabric network(mpi, std::span(kPorts).first(1));
  network.connect();
  if (mpi.rank() == 1) return;
  for (int to = 0; to < mpi.size(); ++to)
    network.mailbox(Port::role).send({to, Port::role}, std::vector<std::byte>(1'000'000));
  std::vector<std::byte> memory(1 << 20);
  const std::span<const std::byte> piece = memory;
  std::ignore = network.blocks().send((mpi.rank() + 1) % mpi.size(), 1, {&piece, 1});
  for (int i = 0; i < 10; ++i) network.mailbox(Port::role).wait(0.001);
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  check_order(mpi);
  check_flush(mpi);
  check_backpressure(mpi);
  check_blocks(mpi);
  mpi.barrier();
  check_leaving(mpi);
  mpi.barrier();
  return fabric::test::verdict(mpi);
}
