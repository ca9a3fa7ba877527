// What the fabric does between ranks, beside the same over MPI. Run under mpirun; messages and
// blocks go between ranks 0 and 1, a ring through all, and all ranks sum as a tensor-parallel
// group.
//
//   mpirun -n 2 bench_fabric [--no-failure-detection] [--blocks-only | --sums-only]
#include <fmt/format.h>
#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/quantile.hpp"
#include "runtime/fabric/backoff.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/shared_group.hpp"
#include "runtime/fabric/ucx_fabric.hpp"

using namespace paceline;

namespace {

constexpr int kRepeats = 5;
constexpr std::size_t kSmall = 64;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// One way to send messages and blocks.
struct Way {
  std::string name;
  std::function<void(int to, std::span<const std::byte>)> send;
  std::function<void()> flush;
  std::function<std::size_t()> receive;  ///< waits for a message; its size
  std::function<void(double)> idle;      ///< waits so long for a message that does not come
  /// Rank 0's memory to rank 1's, in pieces.
  std::function<void(std::span<std::byte> memory, std::size_t piece)> move;
};

class Bench {
 public:
  Bench(const fabric::MpiEnvironment& mpi, Way way) : mpi_(mpi), way_(std::move(way)) {}

  void run(bool blocks_only) {
    if (!blocks_only) messages();
    blocks();
    if (!blocks_only) idle();
  }

 private:
  void messages() {
    const std::vector<std::byte> message(kSmall);
    const bool pair = mpi_.rank() < 2;
    print(
        "64-byte round trip", "us", 1e6,
        [&](int trips) {
          for (int i = 0; pair && i < trips; ++i) {
            if (mpi_.rank() == 0) send(1, message);
            way_.receive();
            if (mpi_.rank() == 1) send(0, message);
          }
        },
        2000);
    print(
        "64-byte messages, one way, flushed at the end", "us each", 1e6,
        [&](int count) {
          if (mpi_.rank() == 0) {
            for (int i = 0; i < count; ++i) way_.send(1, message);
            way_.flush();
            way_.receive();
          } else if (mpi_.rank() == 1) {
            for (int i = 0; i < count; ++i) way_.receive();
            send(0, message);
          }
        },
        100'000);
    print(
        fmt::format("64-byte hop in a ring of {}", mpi_.size()), "us", 1e6 / mpi_.size(),
        [&](int rounds) {
          for (int i = 0; i < rounds; ++i) {
            if (mpi_.rank() == 0) send(1 % mpi_.size(), message);
            way_.receive();
            if (mpi_.rank() != 0) send((mpi_.rank() + 1) % mpi_.size(), message);
          }
        },
        500);
  }
  void blocks() {
    const bool pair = mpi_.rank() < 2;
    std::vector<std::byte> memory(std::size_t{64} << 20, std::byte{1});
    for (const std::size_t piece :
         {std::size_t{64} << 10, std::size_t{256} << 10, std::size_t{1} << 20}) {
      const double cpu_before = cpu_seconds();
      const double seconds = time(
          [&](int) {
            if (pair) way_.move(memory, piece);
          },
          1);
      const double cpu = all(cpu_seconds() - cpu_before) / (kRepeats + 1);
      const double gigabytes = static_cast<double>(memory.size()) * 1e-9;
      say("blocks of {} KiB: {:.2f} GB/s, {:.3f} s of CPU a GB, both ends together", piece >> 10,
          gigabytes / seconds, cpu / gigabytes);
    }
  }
  void idle() {
    const double before = cpu_seconds();
    way_.idle(2);
    const double mine = (cpu_seconds() - before) / 2;
    std::vector<double> shares(static_cast<std::size_t>(mpi_.size()));
    MPI_Allgather(&mine, 1, MPI_DOUBLE, shares.data(), 1, MPI_DOUBLE, MPI_COMM_WORLD);
    say("an idle rank: {:.2f} % of a core (the most of {})",
        100 * *std::max_element(shares.begin(), shares.end()), mpi_.size());
  }

  void send(int to, std::span<const std::byte> message) {
    way_.send(to, message);
    way_.flush();
  }
  /// The sum over ranks.
  static double all(double mine) {
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
  }
  /// Median seconds of rank 0.
  double time(const std::function<void(int)>& work, int count) {
    std::vector<double> seconds;
    for (int i = 0; i <= kRepeats; ++i) {
      mpi_.barrier();
      const double start = now();
      work(count);
      if (i > 0) seconds.push_back(now() - start);  // the first connects
    }
    return quantile(seconds, 0.5) / count;
  }
  void print(const std::string& what, const char* unit, double scale,
             const std::function<void(int)>& work, int count) {
    const double seconds = time(work, count);
    say("{}: {:.2f} {}", what, seconds * scale, unit);
  }
  template <typename... T>
  void say(fmt::format_string<T...> format, T&&... values) const {
    if (mpi_.rank() == 0)
      fmt::print("{:4} {}\n", way_.name, fmt::format(format, std::forward<T>(values)...));
  }

  const fabric::MpiEnvironment& mpi_;
  Way way_;
};

Way over_ucx(const fabric::MpiEnvironment& mpi, fabric::UcxFabric& network) {
  Mailbox& mailbox = network.mailbox(Address::Port::role);
  BlockTransport& blocks = network.blocks();
  return {
      .name = "UCX",
      .send =
          [&](int to, auto bytes) {
            mailbox.send({to, Address::Port::role}, bytes);
          },
      .flush = [&] { mailbox.flush(); },
      .receive =
          [&] {
            std::optional<Envelope> e;
            while (!(e = mailbox.poll())) mailbox.wait(1);
            return e->bytes.size();
          },
      .idle = [&](double seconds) { mailbox.wait(seconds); },
      .move =
          [&, key = std::uint64_t{0}](std::span<std::byte> memory, std::size_t piece) mutable {
            std::vector<std::span<std::byte>> pieces;
            for (std::size_t at = 0; at < memory.size(); at += piece)
              pieces.push_back(memory.subspan(at, piece));
            const std::vector<std::span<const std::byte>> constant(pieces.begin(), pieces.end());
            const Ticket ticket =
                mpi.rank() == 0 ? blocks.send(1, key, constant) : blocks.receive(0, key, pieces);
            ++key;
            while (blocks.state(ticket) == TransferState::pending) mailbox.wait(1);
          },
  };
}

/// As a mailbox over MPI would: sends that do not block, and a receiver that probes and yields.
Way over_mpi(const fabric::MpiEnvironment& mpi, std::vector<MPI_Request>& sends,
             std::vector<std::byte>& received) {
  const auto probe = [](int& there, MPI_Status& status) {
    MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &there, &status);
  };
  const auto settle = [&sends] {
    MPI_Waitall(static_cast<int>(sends.size()), sends.data(), MPI_STATUSES_IGNORE);
    sends.clear();
  };
  return {
      .name = "MPI",
      .send =
          [&, settle](int to, auto bytes) {
            if (sends.size() == 1000) settle();
            MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, 1, MPI_COMM_WORLD,
                      &sends.emplace_back());
          },
      .flush = settle,
      .receive =
          [&, probe] {
            fabric::Backoff backoff;
            int there = 0;
            MPI_Status status;
            for (probe(there, status); there == 0; probe(there, status)) backoff.pause();
            int size = 0;
            MPI_Get_count(&status, MPI_BYTE, &size);
            received.resize(static_cast<std::size_t>(size));
            MPI_Recv(received.data(), size, MPI_BYTE, status.MPI_SOURCE, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            return received.size();
          },
      .idle =
          [probe](double seconds) {
            fabric::Backoff backoff;
            int there = 0;
            MPI_Status status;
            for (const double end = now() + seconds; now() < end; backoff.pause())
              probe(there, status);
          },
      .move =
          [&](std::span<std::byte> memory, std::size_t piece) {
            std::vector<MPI_Request> requests;
            for (std::size_t at = 0; at < memory.size(); at += piece) {
              MPI_Request& request = requests.emplace_back();
              if (mpi.rank() == 0) {
                MPI_Isend(memory.data() + at, static_cast<int>(piece), MPI_BYTE, 1, 2,
                          MPI_COMM_WORLD, &request);
              } else {
                MPI_Irecv(memory.data() + at, static_cast<int>(piece), MPI_BYTE, 0, 2,
                          MPI_COMM_WORLD, &request);
              }
            }
            MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
          },
  };
}

/// Sums over all ranks, both ways in turn: microseconds a sum.
void sums(const fabric::MpiEnvironment& mpi) {
  fabric::MpiGroup over_mpi(MPI_COMM_WORLD);
  const std::unique_ptr<fabric::SharedGroup> shared = fabric::SharedGroup::make(MPI_COMM_WORLD);
  for (const int count : {896, 4096, 16 * 4096, 512 * 4096}) {
    std::vector<float> values(count, 1.0F);
    const int repeats = std::max(10, 4'000'000 / (count + 4000));
    const auto time = [&](TensorParallelGroup& group) {
      group.all_reduce_tree(values);
      mpi.barrier();
      const double start = now();
      for (int i = 0; i < repeats; ++i) {
        std::fill(values.begin(), values.end(), 1.0F);
        group.all_reduce_tree(values);
      }
      return 1e6 * (now() - start) / repeats;
    };
    std::vector<double> mpi_us, shared_us;
    for (int i = 0; i < kRepeats; ++i) {
      mpi_us.push_back(time(over_mpi));
      if (shared) shared_us.push_back(time(*shared));
    }
    if (mpi.rank() != 0) continue;
    fmt::print("sum of {:>8} values over {} ranks, us: MPI {:>9.1f}", count, mpi.size(),
               quantile(mpi_us, 0.5));
    if (shared) fmt::print(", shared memory {:>9.1f}", quantile(shared_us, 0.5));
    fmt::print("\n");
  }
}

void print_copy(const fabric::MpiEnvironment& mpi) {
  if (mpi.rank() != 0) return;
  const std::vector<std::byte> from(std::size_t{64} << 20, std::byte{1});
  std::vector<std::byte> to(from.size());
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    const double start = now();
    std::memcpy(to.data(), from.data(), from.size());
    if (i > 0) seconds.push_back(now() - start);
  }
  fmt::print("     a memory copy of 64 MiB: {:.2f} GB/s\n",
             static_cast<double>(from.size()) / quantile(seconds, 0.5) * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  if (mpi.size() < 2) {
    fmt::print("bench_fabric needs two ranks or more: mpirun -n 2 ...\n");
    return 64;
  }
  print_copy(mpi);
  mpi.barrier();
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const auto given = [&](std::string_view name) {
    return std::find(arguments.begin(), arguments.end(), name) != arguments.end();
  };
  if (!given("--blocks-only")) sums(mpi);
  if (given("--sums-only")) return 0;
  const bool blocks_only = given("--blocks-only");
  {
    const bool detect = !given("--no-failure-detection");
    fabric::UcxFabric network(mpi, std::vector{Address::Port::role},
                              {.mailbox = {}, .detect_failures = detect});
    network.connect();
    Bench(mpi, over_ucx(mpi, network)).run(blocks_only);
    network.close();
  }
  std::vector<MPI_Request> sends;
  std::vector<std::byte> received;
  Bench(mpi, over_mpi(mpi, sends, received)).run(blocks_only);
  return 0;
}
