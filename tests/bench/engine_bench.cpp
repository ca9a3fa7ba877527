// How near whole decoding comes to the machine: bench_engine MODEL_DIR [--threads N] [--isa NAME]
// [--backend cpu|cuda] [--context N] [--given] [--batch N].
// A MODEL_DIR with a config.json alone (shapes/) gets random weights. Runs the engine as a verifier
// does (batcher, executor, sampling at temperature 1) and reports tokens/s, the share of the memory
// bandwidth (weights + KV bytes over time; of copies on a device; of experts those that the step's
// rows chose) and of the peak of bf16 products (by cuBLAS on a device), both measured in the same
// run. "Of the bound": of the time that bytes take, KV's in the pieces that it lies in, or
// operations, if those take longer. Each figure is the median of several: decoding, of requests
// with prompts of their own and of siblings, steps that verify drafts, prefill, and scoring of
// given responses. On a device also the time that a step takes beside what the device is busy for.
// --given: prompts' KV is made up instead of computed, which takes as long to attend to; reading 64
// prompts of 16,384 tokens would take hours.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gpus.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/engine/packed_prefill.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/model/sharding.hpp"
#include "tests/bench/bench_model.hpp"
#include "tests/bench/machine.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace {

using namespace paceline;

/// What is measured, and the sizes that it needs.
struct Sizes {
  std::vector<int> batches;
  std::vector<int> prefills;  ///< tokens
  int verify = 4;             ///< draft tokens a request, where drafts are verified
  int verify_batch = 0;       ///< requests that are
  int context = 64;           ///< tokens that decoding begins with
  int prefill_chunk = 512;
  int max_tokens = 512;  ///< of a response
  bool given = false;    ///< KV of prompts is not computed

  [[nodiscard]] int max_batch() const { return batches.back(); }
  [[nodiscard]] int longest() const {
    return std::max(prefills.back(), context + max_tokens) + kBlock;
  }
  [[nodiscard]] int kv_blocks() const {  // for the largest batch at its longest, and its prompts
    return std::max(max_batch() * (kv::blocks_for(context + max_tokens, kBlock) + 4),
                    2 * kv::blocks_for(prefills.back(), kBlock) + 2);
  }
  [[nodiscard]] engine::BatcherLimits batcher(int batch) const {
    return {.max_batch = batch,
            .prefill_chunk = prefill_chunk,
            .kv_block = kBlock,
            .kv_blocks = kv_blocks(),
            .context = longest()};
  }
  static constexpr int kBlock = 32;
};

/// Siblings that decode, beside a batch of as many different ones.
constexpr int kOfOnePrompt = 16;

Sizes cpu_sizes(int context) {
  Sizes sizes{.batches = {1, 2, 4, 8, 16, 32, 64},
              .prefills = {512, 4096},
              .verify_batch = 16,
              .context = context};
  if (context > sizes.prefills.back()) sizes.prefills.push_back(context);
  return sizes;
}
// Responses as long as steps are counted, so that a large model leaves room for their KV.
Sizes device_sizes(int context) {
  Sizes sizes{.batches = {1, 8, 32, 128, 256},
              .prefills = {512, 4096},
              .context = context,
              .prefill_chunk = 4096};
  sizes.verify_batch = sizes.max_batch();
  sizes.max_tokens = 192 + sizes.max_batch() * context / sizes.prefill_chunk;
  return sizes;
}

struct Bench {
  kernels::Backend& backend;
  const ModelConfig& config;
  Sizes sizes;
  bench::Machine machine;
  double pieces;  ///< bytes/s of KV, which is read block by block
  bool device;
};

/// The part of all experts that rows chose, whose ids these are: [rows, layers, chosen].
double used_experts(const ModelConfig& c, std::span<const std::int16_t> ids) {
  if (!c.experts || ids.empty()) return 0;
  const int width = c.routing_width();
  const int layers = width / c.experts->chosen;
  std::vector<bool> used(static_cast<std::size_t>(layers) * c.experts->routed);
  for (std::size_t i = 0; i < ids.size(); ++i)
    used[i % width / c.experts->chosen * c.experts->routed + ids[i]] = true;
  return static_cast<double>(std::ranges::count(used, true)) / static_cast<double>(used.size());
}

/// Bytes of the weights that a step reads whose rows use this part of all experts.
double step_weight_bytes(const ModelConfig& c, double all, double used) {
  return all -
         static_cast<double>(expert_elements(describe(c))) * size_of(DType::bf16) * (1 - used);
}

/// Multiply-adds of a row's attention to one position, in one layer.
double attention_elements(const ModelConfig& c) {
  return c.latent ? c.heads * (2.0 * c.latent->kv_rank + c.latent->rope)
                  : 2.0 * c.heads * c.head_dim;
}

/// Multiply-adds of one token, as FLOP: every weight that it uses once, and attention over
/// `context` positions.
double flops_per_token(const ModelConfig& c, double context, bool head) {
  const ModelDescription model = describe(c);
  const double unused =
      c.experts ? 1 - static_cast<double>(c.experts->chosen) / c.experts->routed : 0;
  const double weights = static_cast<double>(layer_elements(model)) -
                         unused * static_cast<double>(expert_elements(model));
  return 2 * (weights + c.layers * attention_elements(c) * context +
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

/// bf16 from -1 to 1 wherever KV may be: memory never written would be one page of zeros.
void make_up_kv(std::span<std::byte> kv) {
  std::uint32_t seed = 1;
  for (std::size_t i = 0; i + 2 <= kv.size(); i += 2) {
    seed = seed * 1664525U + 1013904223U;
    const float value = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31F;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const auto upper = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(&kv[i], &upper, sizeof upper);
  }
}

/// What a step takes: the wall's time, of it sampling, and beside what the backend was busy for.
struct StepTimes {
  std::vector<double> all, sampling, outside;
};

void print(const Bench& b, const char* name, int size, const StepTimes& times, double tokens,
           double weight_bytes, double kv_bytes, double flops) {
  const double time = quantile(times.all, 0.5);
  const double bytes = weight_bytes + kv_bytes;
  const double bound = std::max(weight_bytes / b.machine.bandwidth + kv_bytes / b.pieces,
                                flops / b.machine.products);
  std::printf("%s %4d  %9.2f  %9.1f  %8.1f  %8.1f  %6.1f %%  %6.1f %%  %6.1f %%  %6.1f %%", name,
              size, time * 1e3, tokens / time, bytes / time / 1e9, flops / time / 1e9,
              100 * bytes / time / b.machine.bandwidth, 100 * flops / time / b.machine.products,
              100 * bound / time, 100 * quantile(times.sampling, 0.5) / time);
  if (b.device) std::printf("  %9.1f us", quantile(times.outside, 0.5) * 1e6);
  std::printf("\n");
}

/// `batch` requests decode together, each with a draft of `drafted` tokens that are not likely to
/// be accepted; `siblings` of them have one prompt.
void decode(const Bench& b, engine::Executor& executor, int batch, int drafted, int siblings = 1) {
  SamplingParams sampling;
  sampling.max_tokens = b.sizes.max_tokens;
  engine::Batcher batcher(b.sizes.batcher(batch), sampling, {}, nullptr);
  for (int i = 0; i < batch; ++i) {
    Admission request;
    request.trajectory.id = {static_cast<std::uint32_t>(i / siblings),
                             static_cast<std::uint32_t>(i % siblings)};
    request.prompt = random_prompt(b.sizes.context, b.config.vocab, i / siblings + 1);
    request.noise = {static_cast<std::uint64_t>(i), 7};
    const RequestId id = request.trajectory.id;
    if (!batcher.admit(request)) throw std::logic_error("the KV pool is too small");
    const engine::Arrival kv{batcher.own_from(id), b.sizes.context - 1};
    if (b.sizes.given && kv.first < kv.end) {
      batcher.expect(id, kv);
      batcher.arrived(id, true);
    }
  }
  const std::vector<TokenId> draft = random_prompt(drafted, b.config.vocab, 1);
  std::vector<std::int32_t> chain;
  for (int i = 0; i < drafted; ++i) chain.push_back(i - 1);
  std::vector<engine::DraftTree> drafts;
  engine::BlockTables tables;
  std::vector<kv::Place> places;  // of a step's rows
  std::vector<double> used;       // parts of all experts, by step
  StepTimes times;
  double context = 0;
  double start = bench::now();  // when all prompts have been read
  while (batcher.active() == batch &&
         (times.all.size() < 7 || (bench::now() - start < 4 && times.all.size() < 100))) {
    const double before = bench::now();
    drafts.clear();
    if (drafted > 0) drafts.assign(batcher.decoding().size(), {draft, chain});
    const engine::Step& plan = batcher.plan(drafts);
    const bool counts = batcher.counts().prefill_tokens == 0;
    const int first_position = plan.parts[0].first_position;
    tables.apply(plan.kv.edits);
    places.clear();
    for (const engine::StepPart& part : plan.parts) {
      for (int at = part.first_position; counts && at < part.first_position + part.rows; ++at)
        places.push_back({tables.of(part.sequence)[at / Sizes::kBlock], at % Sizes::kBlock});
    }
    const engine::StepResult result = executor.run(plan);
    (void)batcher.commit(result);
    if (!counts) {
      start = bench::now();
      continue;
    }
    const double seconds = bench::now() - before;
    times.all.push_back(seconds);
    times.sampling.push_back(result.sample_seconds);
    times.outside.push_back(seconds - b.backend.busy_seconds());
    if (b.config.experts) used.push_back(used_experts(b.config, executor.read_routing(places)));
    context = first_position + 1;
  }
  if (times.all.empty()) throw std::logic_error("responses end before the last prompt is read");
  // Siblings have the whole blocks of the prompt in common, and read them once.
  const int in_common = siblings > 1 ? (b.sizes.context - 1) / Sizes::kBlock * Sizes::kBlock : 0;
  const double positions = batch * (context - in_common) + batch / siblings * in_common;
  const double kv_bytes = 2.0 * b.config.layers * b.config.kv_width() * positions;
  const double tokens = static_cast<double>(batch) * (1 + drafted);
  const char* name = drafted > 0 ? "verify" : siblings > 1 ? "shared" : "decode";
  print(b, name, batch, times, tokens,
        step_weight_bytes(b.config, static_cast<double>(executor.weight_bytes()),
                          used.empty() ? 0 : quantile(used, 0.5)),
        kv_bytes, tokens * flops_per_token(b.config, context, true));
}

void prefill(const Bench& b, engine::Executor& executor, int tokens) {
  SamplingParams sampling;
  sampling.max_tokens = 1;
  std::vector<double> seconds;
  for (int run = 0; run < (tokens > 8192 ? 1 : tokens > 2048 ? 3 : 5); ++run) {
    engine::Batcher batcher(b.sizes.batcher(1), sampling, {}, nullptr);
    Admission request;
    request.prompt = random_prompt(tokens, b.config.vocab, run);
    (void)batcher.admit(request);
    const double before = bench::now();
    while (batcher.active() > 0) (void)batcher.commit(executor.run(batcher.plan()));
    seconds.push_back(bench::now() - before);
  }
  const double time = quantile(seconds, 0.5);
  const double flops =
      tokens * flops_per_token(b.config, tokens / 2.0, false) + flops_per_token(b.config, 0, true);
  // So many tokens use all experts, and each chunk of them reads the weights anew.
  const int chunks = (tokens + b.sizes.prefill_chunk - 1) / b.sizes.prefill_chunk;
  const double bytes = static_cast<double>(executor.weight_bytes()) * chunks;
  const double bound = std::max(bytes / b.machine.bandwidth, flops / b.machine.products);
  std::printf("prefill %5d %7.2f  %9.1f  %8.1f  %8.1f  %6.1f %%  %6.1f %%  %6.1f %%\n", tokens,
              time * 1e3, tokens / time, bytes / time / 1e9, flops / time / 1e9,
              100 * bytes / time / b.machine.bandwidth, 100 * flops / time / b.machine.products,
              100 * bound / time);
}

/// Siblings are scored as `paceline score` does it: every row of a response has logits.
void score(const Bench& b, const std::shared_ptr<const model::Weights>& weights,
           TensorParallelGroup& group) {
  constexpr int kRows = 256;  // engine.prefill_chunk by default
  constexpr int kSiblings = 4;
  constexpr int kPrompt = 64;
  constexpr int kResponse = 128;
  constexpr int kBlocks = kSiblings * (kv::blocks_for(kPrompt + kResponse, Sizes::kBlock) + 1);
  engine::Executor executor(b.backend, weights, group, {}, {},
                            {.max_batch = kRows,
                             .prefill_chunk = 0,
                             .kv_block = Sizes::kBlock,
                             .kv_blocks = kBlocks,
                             .max_position = kPrompt + kResponse});
  const std::vector<TokenId> prompt = random_prompt(kPrompt, b.config.vocab, 1);
  std::vector<std::vector<TokenId>> responses;
  for (int i = 0; i < kSiblings; ++i)
    responses.push_back(random_prompt(kResponse, b.config.vocab, i + 2));
  std::vector<double> seconds;
  for (int run = 0; run < 5; ++run) {
    std::vector<engine::GivenResponse> given;
    for (int i = 0; i < kSiblings; ++i)
      given.push_back({{0, static_cast<std::uint32_t>(i)}, prompt, responses[i]});
    engine::PackedPrefill prefill(
        {.max_batch = kSiblings, .rows = kRows, .kv_block = Sizes::kBlock, .kv_blocks = kBlocks}, 0,
        std::move(given));
    const double before = bench::now();
    for (const engine::Step* step = &prefill.plan(); !step->empty(); step = &prefill.plan())
      (void)prefill.commit(executor.run(*step));
    seconds.push_back(bench::now() - before);
  }
  const double time = quantile(seconds, 0.5);
  constexpr double kTokens = kSiblings * kResponse;
  const double flops = (kPrompt - 1) * flops_per_token(b.config, kPrompt / 2.0, false) +
                       kTokens * flops_per_token(b.config, kPrompt + kResponse / 2.0, true);
  std::printf("score   %3d %9.2f  %9.1f  %8s  %8.1f  %8s  %6.1f %%\n", kSiblings * kResponse,
              time * 1e3, kTokens / time, "", flops / time / 1e9, "",
              100 * flops / time / b.machine.products);
}

struct Arguments {
  std::string model;
  std::string isa = "auto";
  int threads = 2;
  bool device = false;
  int context = 64;
  bool given = false;
  int batch = 0;  ///< decoding of this one alone; 0: all
};

/// False on bad usage.
bool read_arguments(int argc, char** argv, Arguments& a) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--threads" && has_value) {
      a.threads = std::atoi(argv[++i]);
    } else if (argument == "--isa" && has_value) {
      a.isa = argv[++i];
    } else if (argument == "--context" && has_value) {
      a.context = std::atoi(argv[++i]);
    } else if (argument == "--batch" && has_value) {
      a.batch = std::atoi(argv[++i]);
    } else if (argument == "--given") {
      a.given = true;
    } else if (argument == "--backend" && has_value) {
      a.device = std::string(argv[++i]) == "cuda";
    } else if (a.model.empty() && argument[0] != '-') {
      a.model = argument;
    } else {
      return false;
    }
  }
  return !a.model.empty() && a.threads >= 1 && a.context >= 1 && !(a.given && a.device);
}

void bench_model(const Arguments& a) {
  const bench::BenchModel model = bench::load_model(a.model);
  const auto backend =
      a.device ? kernels::make_cuda_backend(0) : kernels::make_cpu_backend(a.threads, a.isa);
  const auto measure = [&] {
    return a.device ? bench::measure_device()
                    : bench::measure_machine(a.threads, backend->info().isa);
  };
  Sizes sizes = a.device ? device_sizes(a.context) : cpu_sizes(a.context);
  sizes.given = a.given;
  if (a.batch > 0) sizes.batches = {a.batch};
  const bench::Machine machine = measure();
  const std::size_t piece =
      model::kv_shape(model.config, 1, Sizes::kBlock, DType::bf16).layer_bytes();
  const double pieces = a.device ? machine.bandwidth : bench::measure_pieces(a.threads, piece);
  const Bench b{*backend, model.config, sizes, machine, pieces, a.device};
  if (a.device) {
    std::printf("instruction set %s; bf16 product peak %.1f GFLOP/s, copies %.1f GB/s\n",
                backend->info().isa.c_str(), b.machine.products / 1e9, b.machine.bandwidth / 1e9);
  } else {
    std::printf(
        "instruction set %s, %d threads; bf16 product peak %.1f GFLOP/s, memory read %.1f GB/s, in "
        "pieces of KV %.1f GB/s\n",
        backend->info().isa.c_str(), a.threads, b.machine.products / 1e9, b.machine.bandwidth / 1e9,
        b.pieces / 1e9);
  }

  fabric::SingleRankGroup group;
  const auto weights =
      model::load_weights(*backend, model.config, *model.weights, group, DType::bf16);
  engine::Executor executor(*backend, weights, group, {}, {},
                            {.max_batch = sizes.max_batch(),
                             .max_draft = sizes.verify,
                             .prefill_chunk = sizes.prefill_chunk,
                             .kv_block = Sizes::kBlock,
                             .kv_blocks = sizes.kv_blocks(),
                             .max_position = sizes.longest(),
                             .keep_routing = model.config.experts.has_value()});
  if (a.given) make_up_kv(executor.kv_memory().bytes);
  std::printf("weights %.1f MB, KV pool %.1f MB, activations %.1f MB\n\n",
              static_cast<double>(executor.weight_bytes()) / 1e6,
              static_cast<double>(executor.kv_bytes()) / 1e6,
              static_cast<double>(executor.activation_bytes()) / 1e6);
  std::printf(
      "             ms/step   tokens/s      GB/s   GFLOP/s  of bandw.  of peak  of bound  "
      "sampling%s\n",
      a.device ? "  outside kernels" : "");
  for (const int batch : sizes.batches) decode(b, executor, batch, 0);
  if (std::ranges::find(sizes.batches, kOfOnePrompt) != sizes.batches.end())
    decode(b, executor, kOfOnePrompt, 0, kOfOnePrompt);
  if (a.batch > 0) return;
  std::printf("with drafts of %d tokens:\n", sizes.verify);
  decode(b, executor, sizes.verify_batch, sizes.verify);
  for (const int tokens : sizes.prefills) prefill(b, executor, tokens);
  score(b, weights, group);
  const bench::Machine again = measure();
  std::printf("\nat the end of the run: bf16 product peak %.1f GFLOP/s, %s %.1f GB/s\n",
              again.products / 1e9, a.device ? "copies" : "memory read", again.bandwidth / 1e9);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("peak RSS %.1f MB\n", static_cast<double>(usage.ru_maxrss) * 1024 / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Arguments arguments;
  if (!read_arguments(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: bench_engine MODEL_DIR [--threads N] [--isa NAME] [--backend cpu|cuda] "
                 "[--context N] [--given] [--batch N]\n");
    return 64;
  }
  try {
    bench_model(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
