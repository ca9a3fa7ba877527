// Model scale: seconds from when a rank is told to draft, or to verify, until it has, by model.
//
//   mpirun -n 2 bench_scale MODEL_DIR... [--threads 1] [--repeats 5] [--isa NAME] [--cpu-time]
//
// With --cpu-time, of one thread, what others do on the machine counts less.
// Once with weights that it reads and packs then, and once with those that both ranks packed into
// memory in common beforehand, as a run does. Rank 1 changes, rank 0 waits. The exit code is 1 when
// the two do not draft and generate the same.
#include <fmt/format.h>
#include <mpi.h>

#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/quantile.hpp"
#include "runtime/draft/model_drafter.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/shared_memory.hpp"
#include "runtime/model/weights.hpp"
#include "tests/bench/bench_model.hpp"
#include "tests/bench/machine.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace {

using namespace paceline;

constexpr int kPrompt = 64;  ///< tokens
constexpr int kDraft = 4;
constexpr int kBatch = 16;
constexpr int kChunk = 256;
constexpr int kLongest = 1024;
constexpr int kBlock = 16;
constexpr int kBlocks = kBatch * kLongest / kBlock;

struct Options {
  std::vector<std::string> models;
  int threads = 1;
  int repeats = 5;
  std::string isa = "auto";
  bool cpu_time = false;
};

/// Seconds since being told, of repeats.
struct Times {
  std::vector<double> weights, ready, first;
  void print(const char* what) const {
    fmt::print("  {:<28}{:>12.2f}{:>12.2f}{:>12.2f}\n", what, 1e3 * quantile(weights, 0.5),
               1e3 * quantile(ready, 0.5), 1e3 * quantile(first, 0.5));
  }
};

class Bench {
 public:
  Bench(const fabric::MpiEnvironment& mpi, const Options& options, const std::string& folder)
      : options_(options),
        model_(bench::load_model(folder)),
        backend_(kernels::make_cpu_backend(options.threads, options.isa)) {
    const double begin = now();
    const model::Shard whole = model::shard_of(model_.config, 0, 1);
    if (mpi.rank() == 0)
      memory_ = fabric::SharedMemory::make(
          model::packed_bytes(*backend_, model_.config, whole, model_.compute));
    fabric::SharedMemory::Handle handle = memory_.handle();
    MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (mpi.rank() != 0) memory_ = fabric::SharedMemory::open(handle);
    memory_.allocate(mpi.rank(), mpi.size());
    kept_ = std::make_shared<const model::Weights>(
        *backend_, model_.config, *model_.weights, whole, model_.compute,
        model::SharedPacking{memory_.bytes(), mpi.rank(), mpi.size()});
    mpi.barrier();
    memory_.freeze();
    packing_ = now() - begin;
  }

  /// False: not the same tokens.
  bool run() {
    Times drafting[2];
    Times verifying[2];
    for (int i = 0; i < options_.repeats; ++i) {
      for (const bool mapped : {false, true}) {
        draft(mapped, drafting[mapped ? 1 : 0]);
        verify(mapped, verifying[mapped ? 1 : 0]);
      }
    }
    fmt::print(
        "{} layers, weights {:.1f} MB, packed by two ranks in {:.0f} ms\n"
        "  ms since being told, medians      weights       ready       first\n",
        model_.config.layers, static_cast<double>(kept_->bytes()) / 1e6, 1e3 * packing_);
    drafting[0].print("draft, read and packed");
    drafting[1].print("draft, mapped");
    verifying[0].print("step, read and packed");
    verifying[1].print("step, mapped");
    for (const int requests : {1, kBatch}) {
      // In turns, for the machine may be quicker now and then.
      std::vector<double> own, mapped;
      for (int i = 0; i < options_.repeats; ++i) {
        own.push_back(step(requests, false));
        mapped.push_back(step(requests, true));
      }
      fmt::print("  a step of {:2} requests {:.2f} ms, with weights of its own {:.2f} ms\n",
                 requests, 1e3 * quantile(mapped, 0.5), 1e3 * quantile(own, 0.5));
    }
    std::fflush(stdout);
    return same_;
  }

 private:
  [[nodiscard]] double now() const {
    if (!options_.cpu_time) return bench::now();
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  std::shared_ptr<const model::Weights> weights(bool mapped) {
    if (mapped) return kept_;
    return model::load_weights(*backend_, model_.config, *model_.weights, alone_, model_.compute);
  }
  [[nodiscard]] std::vector<TokenId> prompt(int index) const {
    std::vector<TokenId> tokens(kPrompt);
    for (int i = 0; i < kPrompt; ++i) tokens[i] = (7 + 13 * (i + index)) % model_.config.vocab;
    return tokens;
  }

  void draft(bool mapped, Times& times) {
    const double told = now();
    const auto loaded = weights(mapped);
    times.weights.push_back(now() - told);
    draft::ModelDrafterOptions options;
    options.vocab = model_.config.vocab;
    options.kv_block = kBlock;
    options.kv_blocks = kBlocks;
    options.max_position = kLongest;
    options.prefill_chunk = kChunk;
    draft::ModelDrafter drafter(
        *backend_, [&] { return loaded; }, alone_, {}, {}, options);
    times.ready.push_back(now() - told);
    drafter.start({{0, 0}, prompt(0), {}, {1, 1}}, 0);
    TokenId tokens[kDraft];
    std::int32_t parents[kDraft];
    float scores[kDraft];
    draft::DraftSlot slot{{0, 0}, {kDraft, kDraft, 1}, {tokens, parents, scores}};
    drafter.propose({&slot, 1}, 0, nullptr);
    times.first.push_back(now() - told);
    check({tokens, tokens + slot.count}, drafted_);
  }

  engine::Executor executor(bool mapped, Times& times) {
    const double told = now();
    auto loaded = weights(mapped);
    times.weights.push_back(now() - told);
    return {*backend_, std::move(loaded), alone_, {}, {}, limits()};
  }

  void verify(bool mapped, Times& times) {
    const double told = now();
    engine::Executor made = executor(mapped, times);
    times.ready.push_back(now() - told);
    engine::Batcher batcher = filled(1);
    const auto sampled = made.run(batcher.plan()).sampled;
    times.first.push_back(now() - told);
    check({sampled[0].token}, generated_);
  }

  /// Median seconds of a step that only decodes.
  double step(int requests, bool mapped) {
    Times unused;
    engine::Executor made = executor(mapped, unused);
    engine::Batcher batcher = filled(requests);
    std::vector<double> seconds;
    while (seconds.size() < 20) {
      const double begin = now();
      const engine::Step& plan = batcher.plan();
      const bool counts = batcher.counts().prefill_tokens == 0;
      (void)batcher.commit(made.run(plan));
      if (counts) seconds.push_back(now() - begin);
    }
    return quantile(seconds, 0.5);
  }

  [[nodiscard]] engine::Batcher filled(int requests) const {
    SamplingParams sampling;
    sampling.max_tokens = kLongest / 2;
    engine::Batcher batcher({.max_batch = kBatch,
                             .prefill_chunk = kChunk,
                             .kv_block = kBlock,
                             .kv_blocks = kBlocks,
                             .context = kLongest},
                            sampling, {}, nullptr);
    for (int i = 0; i < requests; ++i) {
      Admission request;
      request.trajectory.id = {static_cast<std::uint32_t>(i), 0};
      request.prompt = prompt(i);
      request.noise = {1, static_cast<std::uint64_t>(i)};
      if (!batcher.admit(request)) throw std::logic_error("the KV pool is too small");
    }
    return batcher;
  }

  static engine::ExecutorLimits limits() {
    return {.max_batch = kBatch,
            .max_draft = kDraft,
            .prefill_chunk = kChunk,
            .kv_block = kBlock,
            .kv_blocks = kBlocks,
            .max_position = kLongest};
  }

  void check(const std::vector<TokenId>& tokens, std::vector<TokenId>& expected) {
    if (expected.empty()) expected = tokens;
    same_ = same_ && !tokens.empty() && tokens == expected;
  }

  const Options& options_;
  bench::BenchModel model_;
  std::unique_ptr<kernels::Backend> backend_;
  fabric::SingleRankGroup alone_;
  fabric::SharedMemory memory_;
  std::shared_ptr<const model::Weights> kept_;
  double packing_ = 0;
  std::vector<TokenId> drafted_, generated_;
  bool same_ = true;
};

bool read_arguments(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--cpu-time") {
      o.cpu_time = true;
    } else if (word[0] != '-') {
      o.models.push_back(word);
    } else if (i + 1 == argc) {
      return false;
    } else if (word == "--threads") {
      o.threads = std::stoi(argv[++i]);
    } else if (word == "--repeats") {
      o.repeats = std::stoi(argv[++i]);
    } else if (word == "--isa") {
      o.isa = argv[++i];
    } else {
      return false;
    }
  }
  return !o.models.empty();
}

}  // namespace

int main(int argc, char** argv) {
  const fabric::MpiEnvironment mpi(&argc, &argv);
  Options options;
  if (!read_arguments(argc, argv, options) || mpi.size() != 2) {
    if (mpi.rank() == 0)
      fmt::print(stderr,
                 "usage: mpirun -n 2 bench_scale MODEL_DIR... [--threads N] [--repeats N] "
                 "[--isa NAME] [--cpu-time]\n");
    return 64;
  }
  bool same = true;
  for (const std::string& folder : options.models) {
    Bench bench(mpi, options, folder);
    if (mpi.rank() == 1) {
      fmt::print("{}: ", folder);
      same = bench.run() && same;
    }
    mpi.barrier();
  }
  if (!same) fmt::print("not the same tokens\n");
  return same ? 0 : 1;
}
