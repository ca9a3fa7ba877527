// What it takes to move a request's KV to another rank: by transfer, by computing it again, and by
// both at once, split where the cost table says, beside the best of a sweep over splits.
//
//   mpirun -n 2 bench_moves MODEL_DIR [--lengths 64,256,...] [--threads 1] [--repeats 5] [--isa
//   NAME]
//                           [--link BYTES_PER_SECOND] [--latency SECONDS]
//
// Rank 0 holds the KV, rank 1 wants it, through the same classes as in a run. With --link nothing
// arrives sooner than over a link of that bandwidth and latency: within a node sending is nearly
// always best, which tells nothing of the split. The exit code is 1 when a bit of the KV differs
// afterwards.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/costs/cost_measurement.hpp"
#include "runtime/costs/transfer_measurement.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/roles/group.hpp"
#include "tests/bench/bench_model.hpp"
#include "tests/bench/machine.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace {

using namespace paceline;

constexpr int kBlock = 16;
constexpr int kChunk = 256;
constexpr int kBatch = 8;
constexpr int kSweep = 8;  ///< parts that a sequence is split at

struct Options {
  std::string model;
  std::vector<int> lengths{64, 128, 256, 512, 1024, 2048, 4096};
  int threads = 1;
  int repeats = 5;
  std::string isa = "auto";
  double link = 0;  ///< bytes a second; 0: as it is
  double latency = 0;
};

class WallClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return bench::now(); }
};

/// Holds back what has been received until a slower link would have brought it.
class SlowTransport final : public BlockTransport {
 public:
  SlowTransport(BlockTransport& inner, const Options& options) : inner_(inner), options_(options) {}
  void register_memory(std::span<std::byte> region) override { inner_.register_memory(region); }
  void unregister_memory(std::span<std::byte> region) override { inner_.unregister_memory(region); }
  Ticket send(int to, std::uint64_t key,
              std::span<const std::span<const std::byte>> pieces) override {
    return inner_.send(to, key, pieces);
  }
  Ticket receive(int from, std::uint64_t key,
                 std::span<const std::span<std::byte>> pieces) override {
    const Ticket ticket = inner_.receive(from, key, pieces);
    double bytes = 0;
    for (const auto& piece : pieces) bytes += static_cast<double>(piece.size());
    if (options_.link > 0) ready_[ticket] = bench::now() + options_.latency + bytes / options_.link;
    return ticket;
  }
  void refuse(int to, std::uint64_t key) override { inner_.refuse(to, key); }
  [[nodiscard]] TransferState state(Ticket ticket) const override {
    const auto ready = ready_.find(ticket);
    if (ready != ready_.end() && bench::now() < ready->second) return TransferState::pending;
    return inner_.state(ticket);
  }
  [[nodiscard]] std::string failure(Ticket ticket) const override { return inner_.failure(ticket); }
  [[nodiscard]] double seconds(Ticket ticket) const override { return inner_.seconds(ticket); }
  void cancel(Ticket ticket) override { inner_.cancel(ticket); }
  [[nodiscard]] Traffic traffic() const override { return inner_.traffic(); }

 private:
  BlockTransport& inner_;
  const Options& options_;
  std::map<Ticket, double> ready_;
};

/// Nothing wakes it when the slow link's time has come, so that it sleeps for moments.
class BriefMailbox final : public Mailbox {
 public:
  BriefMailbox(Mailbox& inner, bool brief) : inner_(inner), brief_(brief) {}
  void send(Address to, std::span<const std::byte> bytes) override { inner_.send(to, bytes); }
  void flush() override { inner_.flush(); }
  void deliver(std::span<const Address> to) override { inner_.deliver(to); }
  std::optional<Envelope> poll() override { return inner_.poll(); }
  bool wait(double seconds) override {
    return inner_.wait(brief_ ? std::min(seconds, 1e-4) : seconds);
  }
  void wake() override { inner_.wake(); }
  [[nodiscard]] bool full(Address to) const override { return inner_.full(to); }
  [[nodiscard]] Traffic traffic() const override { return inner_.traffic(); }

 private:
  Mailbox& inner_;
  bool brief_;
};

engine::ExecutorLimits limits_of(const Options& o) {
  const int longest = *std::max_element(o.lengths.begin(), o.lengths.end());
  engine::ExecutorLimits limits;
  limits.max_batch = kBatch;
  limits.prefill_chunk = kChunk;
  limits.kv_block = kBlock;
  // The measurement wants sequences of up to 1024 positions for its batch.
  limits.kv_blocks = std::max(static_cast<int>(kv::blocks_for(longest, kBlock)), 70 * kBatch);
  limits.max_position = std::max(longest, 2048) + kBlock;
  return limits;
}

class Bench {
 public:
  Bench(const fabric::MpiEnvironment& mpi, const Options& options, Mailbox& mailbox,
        BlockTransport& transport)
      : mpi_(mpi),
        options_(options),
        mailbox_(mailbox),
        model_(bench::load_model(options.model)),
        backend_(kernels::make_cpu_backend(options.threads, options.isa)),
        executor_(
            *backend_,
            model::load_weights(*backend_, model_.config, *model_.weights, alone_, model_.compute),
            alone_, {}, {}, limits_of(options)),
        share_(transport, executor_.kv_memory(), 0, 1) {}

  /// False: some KV was not the same afterwards.
  bool run() {
    measure();
    say("positions      KB  transfer ms  recompute ms | by the table: computed  foretold ms       "
        "ms "
        "| best of the sweep: computed       ms | table / best");
    for (const int length : options_.lengths) measure(length);
    return same_;
  }

 private:
  void measure() {
    MeasuredEngine engine{executor_, limits_of(options_), model_.config.vocab, {}, 1};
    const CostMeasurement measured = measure_costs(engine, clock_, {});
    costs_.table = measured.table;
    TransferEnd end;
    end.share = &share_;
    end.block_bytes = static_cast<double>(executor_.kv_memory().shape.block_bytes());
    end.peer = {1 - mpi_.rank(), 1};
    end.receives = receives();
    end.blocks = limits_of(options_).kv_blocks;
    costs_.table.transfer =
        measure_transfers(end, mailbox_, clock_, 0.5, [](std::span<double> values) {
          MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE,
                        MPI_SUM, MPI_COMM_WORLD);
        });
    costs_.position_bytes = end.block_bytes / kBlock;
    const TransferCosts& transfer = costs_.table.transfer.value();
    say("{}, {} threads, {}: KV {:.0f} bytes a position; measured: transfers {:.3f} GB/s after "
        "{:.2f} "
        "ms, prefill of {} rows {:.1f} ms",
        backend_->info().isa, options_.threads,
        options_.link > 0 ? fmt::format("as over {:.3f} GB/s", options_.link * 1e-9)
                          : "links as they are",
        costs_.position_bytes, transfer.bandwidth * 1e-9, transfer.latency * 1e3,
        costs_.table.prefill.points().back().rows,
        costs_.table.prefill.points().back().seconds * 1e3);
  }

  void measure(int length) {
    give_table(length);
    if (!receives()) compute(0, length);
    int chosen = policy::split_move(costs_, length, 0, kBlock).first;
    MPI_Bcast(&chosen, 1, MPI_INT, 1, MPI_COMM_WORLD);
    chosen = std::min(chosen, length);
    // From all sent to all computed, and the table's choice.
    std::vector<int> splits;
    for (int i = 0; i <= kSweep; ++i) splits.push_back(length * i / kSweep / kBlock * kBlock);
    const auto swept = std::find(splits.begin(), splits.end(), chosen) - splits.begin();
    if (swept > kSweep) splits.push_back(chosen);
    std::vector<std::vector<double>> times(splits.size());
    std::vector<std::size_t> order(splits.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int repeat = 0; repeat <= options_.repeats; ++repeat) {
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
      for (const std::size_t at : order) {
        const double seconds = move(length, splits[at]);
        if (repeat > 0) times[at].push_back(seconds);
      }
    }
    if (!receives()) return;
    std::vector<double> medians;
    for (const std::vector<double>& t : times) medians.push_back(quantile(t, 0.5));
    const auto best =
        std::min_element(medians.begin(), medians.begin() + kSweep + 1) - medians.begin();
    say("{:9} {:7.0f} {:12.3f} {:13.3f} | {:22.0f} % {:12.3f} {:8.3f} | {:26.0f} % {:8.3f} | "
        "{:.2f}",
        length, length * costs_.position_bytes * 1e-3, medians[0] * 1e3, medians[kSweep] * 1e3,
        100.0 * chosen / length, policy::split_move(costs_, length, 0, kBlock).seconds * 1e3,
        medians[swept] * 1e3, 100.0 * splits[best] / length, medians[best] * 1e3,
        medians[swept] / medians[best]);
  }

  [[nodiscard]] bool receives() const { return mpi_.rank() == 1; }

  /// The sequence lies in the pool's first blocks.
  void give_table(int length) {
    engine::Step step;
    const auto blocks = static_cast<std::int32_t>(kv::blocks_for(length, kBlock));
    for (std::int32_t b = 0; b < blocks; ++b) step.kv.edits.push_back({0, b, b});
    static_cast<void>(executor_.run(step));
  }

  void compute(int from, int end) {
    engine::Step step;
    for (; from < end; from += kChunk) {
      step.clear();
      const int rows = std::min(kChunk, end - from);
      for (int r = 0; r < rows; ++r)
        step.tokens.push_back((7 + 13 * (from + r) % 101) % model_.config.vocab);
      engine::StepPart part;
      part.rows = rows;
      part.first_position = from;
      step.parts.push_back(part);
      static_cast<void>(executor_.run(step));
    }
  }

  /// Seconds until rank 1 has all KV, of which the part before `first` is computed.
  double move(int length, int first) {
    const auto memory = executor_.kv_memory();
    const auto blocks = static_cast<std::int32_t>(kv::blocks_for(length, kBlock));
    const std::span<std::byte> bytes =
        memory.bytes.subspan(0, static_cast<std::size_t>(blocks) * memory.shape.block_bytes());
    if (receives()) std::memset(bytes.data(), 0xFF, bytes.size());
    protocol::MoveKv command{++key_, {1 - mpi_.rank(), 1}, receives() ? 0 : 1, {}};
    command.blocks.resize(std::max(0, blocks - first / kBlock));
    std::iota(command.blocks.begin(), command.blocks.end(), first / kBlock);
    mpi_.barrier();  // without spinning, for the other may compute for long
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = bench::now();
    if (!command.blocks.empty()) share_.obey(command);
    if (receives()) compute(0, std::min(first, length));
    while (!command.blocks.empty() && !share_.ended(key_)) mailbox_.wait(0.1);
    const double seconds = bench::now() - begin;
    check(bytes);
    return seconds;
  }

  /// Positions are whole blocks, so that every byte counts.
  void check(std::span<const std::byte> bytes) {
    std::uint64_t hash = 1469598103934665603U;
    for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, 8);
      hash = (hash ^ word) * 1099511628211U;
    }
    std::uint64_t theirs = hash;
    MPI_Bcast(&theirs, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    same_ = same_ && theirs == hash;
  }

  template <typename... T>
  void say(fmt::format_string<T...> format, T&&... values) const {
    if (!receives()) return;
    fmt::print("{}\n", fmt::format(format, std::forward<T>(values)...));
    std::fflush(stdout);
  }

  const fabric::MpiEnvironment& mpi_;
  const Options& options_;
  Mailbox& mailbox_;
  WallClock clock_;
  bench::BenchModel model_;
  std::unique_ptr<kernels::Backend> backend_;
  fabric::SingleRankGroup alone_;
  engine::Executor executor_;
  roles::KvShare share_;
  policy::MoveCosts costs_;
  std::uint64_t key_ = 0;
  std::mt19937 random_{1};  ///< the same on both ranks
  bool same_ = true;
};

bool read_arguments(int argc, char** argv, Options& o) {
  const std::map<std::string, std::function<void(const std::string&)>> known{
      {"--lengths",
       [&](const std::string& list) {
         o.lengths.clear();
         std::stringstream stream(list);
         for (std::string item; std::getline(stream, item, ',');)
           o.lengths.push_back(std::max(1, std::stoi(item) / kBlock) * kBlock);
       }},
      {"--threads", [&](const std::string& v) { o.threads = std::stoi(v); }},
      {"--repeats", [&](const std::string& v) { o.repeats = std::max(1, std::stoi(v)); }},
      {"--isa", [&](const std::string& v) { o.isa = v; }},
      {"--link", [&](const std::string& v) { o.link = std::stod(v); }},
      {"--latency", [&](const std::string& v) { o.latency = std::stod(v); }}};
  for (int i = 1; i < argc; ++i) {
    const auto option = known.find(argv[i]);
    if (option != known.end() && i + 1 < argc) {
      option->second(argv[++i]);
    } else if (argv[i][0] != '-' && o.model.empty()) {
      o.model = argv[i];
    } else {
      return false;
    }
  }
  return !o.model.empty() && !o.lengths.empty();
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  Options options;
  if (!read_arguments(argc, argv, options) || mpi.size() != 2) {
    if (mpi.rank() == 0)
      fmt::print(stderr,
                 "usage: mpirun -n 2 bench_moves MODEL_DIR [--lengths N,N,...] [--threads N] "
                 "[--repeats N] [--isa NAME] [--link BYTES_PER_SECOND] [--latency SECONDS]\n");
    return 64;
  }
  bool same = false;
  fabric::UcxFabric network(mpi, std::vector{Address::Port::role});
  network.connect();
  {
    SlowTransport transport(network.blocks(), options);
    BriefMailbox mailbox(network.mailbox(Address::Port::role), options.link > 0);
    same = Bench(mpi, options, mailbox, transport).run();
  }
  network.close();
  if (!same) fmt::print("rank {}: KV differs\n", mpi.rank());
  return same ? 0 : 1;
}
