// How near whole decoding comes to the machine: bench_engine MODEL_DIR [--threads N] [--isa NAME]
// [--backend cpu|cuda].
// Runs the engine as a verifier does (batcher, executor, sampling at temperature 1) and reports
// tokens/s, the share of the memory bandwidth (weights + KV bytes over time; of copies on a device)
// and of the cpu's bf16 dot peak, both measured in the same run. Each figure is the median of
// several.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "kernels/gpus.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "tests/bench/machine.hpp"

namespace {

using namespace paceline;

struct Bench {
  kernels::Backend& backend;
  const ModelConfig& config;
  const io::Checkpoint& weights;
  bench::Machine machine;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// Multiply-adds of one token, as FLOP: every weight once, and attention over `context` positions.
double flops_per_token(const ModelConfig& c, double context, bool head) {
  const double q = static_cast<double>(c.heads) * c.head_dim;
  const double kv = static_cast<double>(c.kv_heads) * c.head_dim;
  const double layer = (2 * q + 2 * kv) * c.hidden + 3.0 * c.hidden * c.intermediate;
  return 2 * (c.layers * (layer + 2 * q * context) +
              (head ? static_cast<double>(c.vocab) * c.hidden : 0));
}

std::vector<TokenId> random_prompt(int tokens, int vocab, unsigned seed) {
  std::vector<TokenId> prompt;
  for (int i = 0; i < tokens; ++i) {
    seed = seed * 1664525U + 1013904223U;
    prompt.push_back(static_cast<TokenId>((seed >> 8) % vocab));
  }
  return prompt;
}

/// `batch` requests decode together from a context of `prompt` tokens. Seconds: median step.
void decode(const Bench& b, engine::Executor& executor, int batch, int prompt, int blocks) {
  SamplingParams sampling;
  sampling.max_tokens = 512;
  engine::Batcher batcher({.max_batch = batch,
                           .prefill_chunk = 512,
                           .kv_block = 16,
                           .kv_blocks = blocks,
                           .context = 1024},
                          sampling, {}, nullptr);
  for (int i = 0; i < batch; ++i) {
    engine::Admission request;
    request.trajectory.id = {static_cast<std::uint32_t>(i), 0};
    request.prompt = random_prompt(prompt, b.config.vocab, i + 1);
    request.noise = {static_cast<std::uint64_t>(i), 7};
    if (!batcher.admit(request)) {
      std::fprintf(stderr, "the KV pool is too small for batch %d\n", batch);
      std::exit(1);
    }
  }
  std::vector<double> seconds;
  std::vector<double> sampling_seconds;
  double context = 0;
  const double start = bench::now();
  while (seconds.size() < 7 || (bench::now() - start < 4 && seconds.size() < 100)) {
    const engine::Step& plan = batcher.plan();
    const bool counts = batcher.counts().prefill_tokens == 0;
    const double before = bench::now();
    const auto sampled = executor.run(plan);
    const double after = bench::now();
    if (counts) {
      seconds.push_back(after - before);
      sampling_seconds.push_back(executor.sample_seconds());
      context = plan.parts[0].first_position + 1;
    }
    (void)batcher.commit(sampled);
  }
  const double time = median(seconds);
  const double kv_bytes =
      2.0 * b.config.layers * b.config.kv_heads * b.config.head_dim * 2 * context * batch;
  const double bytes = static_cast<double>(executor.weight_bytes()) + kv_bytes;
  const double flops = batch * flops_per_token(b.config, context, true);
  std::printf("decode %4d  %9.2f  %9.1f  %8.1f  %8.1f  %6.1f %%  %6.1f %%  %6.1f %%\n", batch,
              time * 1e3, batch / time, bytes / time / 1e9, flops / time / 1e9,
              100 * bytes / time / b.machine.bandwidth, 100 * flops / time / b.machine.dot,
              100 * median(sampling_seconds) / time);
}

void prefill(const Bench& b, engine::Executor& executor, int tokens, int blocks) {
  SamplingParams sampling;
  sampling.max_tokens = 1;
  std::vector<double> seconds;
  for (int run = 0; run < 5; ++run) {
    engine::Batcher batcher({.max_batch = 1,
                             .prefill_chunk = 512,
                             .kv_block = 16,
                             .kv_blocks = blocks,
                             .context = 1024},
                            sampling, {}, nullptr);
    engine::Admission request;
    request.prompt = random_prompt(tokens, b.config.vocab, run);
    (void)batcher.admit(request);
    const double before = bench::now();
    while (batcher.active() > 0) (void)batcher.commit(executor.run(batcher.plan()));
    seconds.push_back(bench::now() - before);
  }
  const double time = median(seconds);
  const double flops =
      tokens * flops_per_token(b.config, tokens / 2.0, false) + flops_per_token(b.config, 0, true);
  std::printf("prefill %3d %9.2f  %9.1f  %8s  %8.1f  %8s  %6.1f %%\n", tokens, time * 1e3,
              tokens / time, "", flops / time / 1e9, "", 100 * flops / time / b.machine.dot);
}

}  // namespace

int main(int argc, char** argv) {
  std::string model;
  std::string isa = "auto";
  int threads = 2;
  bool device = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--threads" && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else if (argument == "--isa" && i + 1 < argc) {
      isa = argv[++i];
    } else if (argument == "--backend" && i + 1 < argc) {
      device = std::string(argv[++i]) == "cuda";
    } else if (model.empty() && argument[0] != '-') {
      model = argument;
    } else {
      model.clear();
      break;
    }
  }
  if (model.empty() || threads < 1) {
    std::fprintf(stderr,
                 "usage: bench_engine MODEL_DIR [--threads N] [--isa NAME] [--backend cpu|cuda]\n");
    return 64;
  }
  const ModelConfig config = io::load_model_config(model);
  const io::Checkpoint weights(model);
  const auto backend =
      device ? kernels::make_cuda_backend(0) : kernels::make_cpu_backend(threads, isa);
  const auto measure = [&] {
    if (!device) return bench::measure_machine(threads);
    return bench::Machine{.bandwidth = bench::copy_bandwidth(*backend)};
  };
  const Bench b{*backend, config, weights, measure()};
  std::printf(
      "instruction set %s, %d threads; bf16 dot peak %.1f GFLOP/s, fp32 multiply-add peak %.1f "
      "GFLOP/s, "
      "memory read %.1f GB/s\n",
      backend->info().isa.c_str(), threads, b.machine.dot / 1e9, b.machine.multiply_add / 1e9,
      b.machine.bandwidth / 1e9);

  constexpr int kBlocks = 64 * 40;
  fabric::SingleRankGroup group;
  engine::Executor executor(*backend, config, weights, group, DType::bf16, {}, {},
                            {.max_batch = 64,
                             .prefill_chunk = 512,
                             .kv_block = 16,
                             .kv_blocks = kBlocks,
                             .max_position = 1024});
  std::printf("weights %.1f MB, KV pool %.1f MB, activations %.1f MB\n\n",
              static_cast<double>(executor.weight_bytes()) / 1e6,
              static_cast<double>(executor.kv_bytes()) / 1e6,
              static_cast<double>(executor.activation_bytes()) / 1e6);
  std::printf(
      "             ms/step   tokens/s      GB/s   GFLOP/s  of bandw.  of dot peak  sampling\n");
  for (const int batch : {1, 2, 4, 8, 16, 32, 64}) decode(b, executor, batch, 64, kBlocks);
  prefill(b, executor, 512, kBlocks);
  const bench::Machine again = measure();
  std::printf("\nat the end of the run: bf16 dot peak %.1f GFLOP/s, memory read %.1f GB/s\n",
              again.dot / 1e9, again.bandwidth / 1e9);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("peak RSS %.1f MB\n", static_cast<double>(usage.ru_maxrss) * 1024 / 1e6);
  return 0;
}
