// How near pictures come to the machine: bench_pictures MODEL_DIR [--threads N] [--isa NAME]
// [--layers N] [--size WIDTHxHEIGHT].
// A MODEL_DIR with a config.json alone (shapes/) gets random weights; --layers: of the decoder, the
// tower is always whole. Measures the tower of a picture of that size, the prefill of a prompt that
// shows it, and sixteen siblings of it, of which one computes it. Shares are of the peak of bf16
// products, measured in the same run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/images/processor.hpp"
#include "runtime/core/quantile.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/model/tower.hpp"
#include "tests/bench/bench_model.hpp"
#include "tests/bench/machine.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace {

using namespace paceline;

constexpr int kBlock = 32;
constexpr int kText = 64;  // tokens of the prompt behind its picture
constexpr int kSiblings = 16;
constexpr int kTokens = 8;  // of a response
constexpr int kRuns = 3;

struct Arguments {
  std::string model;
  std::string isa = "auto";
  int threads = 2;
  int layers = 0;  ///< 0: all
  std::int32_t width = 1024, height = 768;
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
    } else if (argument == "--layers" && has_value) {
      a.layers = std::atoi(argv[++i]);
    } else if (argument == "--size" && has_value) {
      if (std::sscanf(argv[++i], "%dx%d", &a.width, &a.height) != 2) return false;
    } else if (a.model.empty() && argument[0] != '-') {
      a.model = argument;
    } else {
      return false;
    }
  }
  return !a.model.empty() && a.threads >= 1 && a.width >= 1 && a.height >= 1;
}

io::Picture noise(std::int32_t width, std::int32_t height) {
  io::Picture picture{width, height, {}};
  std::uint32_t seed = 1;
  for (std::size_t i = 0; i < std::size_t{3} * width * height; ++i) {
    seed = seed * 1664525U + 1013904223U;
    picture.rgb.push_back(static_cast<std::uint8_t>(seed >> 24));
  }
  return picture;
}

/// Processes the one picture there is, whatever the file.
class Reader final : public PictureReader {
 public:
  Reader(const ImageProcessorConfig& config, io::Picture picture)
      : config_(config), picture_(std::move(picture)) {}
  [[nodiscard]] std::vector<float> patches(std::span<const std::byte> /*file*/,
                                           const PictureGrid& /*grid*/,
                                           const std::string& name) const override {
    return io::patches_of(config_, io::process(config_, picture_, name));
  }

 private:
  ImageProcessorConfig config_;
  io::Picture picture_;
};

/// Multiply-adds of a picture in the tower, as FLOP: of products, and of attention.
std::pair<double, double> tower_flops(const ModelConfig& config, const PictureGrid& grid) {
  const TowerConfig& tower = *config.vision->tower;
  const TowerDescription described = config.family->describe_tower(config);
  const auto rows = static_cast<double>(grid.patches());
  const auto of = [](const Projection& matrix) {
    return 2.0 * static_cast<double>(matrix.elements());
  };
  double products = rows * of(described.patch);
  for (const TowerLayer& layer : described.layers) {
    products += rows * (of(layer.qkv) + of(layer.output));
    if (const auto* gated = std::get_if<GatedMlp>(&layer.mlp)) {
      products += rows * 2.0 * static_cast<double>(gated->elements());
    } else {
      const auto& plain = std::get<PlainMlp>(layer.mlp);
      products += rows * (of(plain.up) + of(plain.down));
    }
  }
  products +=
      rows / (tower.merge * tower.merge) * (of(described.merger.up) + of(described.merger.down));
  double attention = 0;
  for (std::int32_t n = 0; n < tower.layers; ++n) {
    double pairs = rows * rows;
    if (tower.is_windowed(n)) {
      pairs = 0;
      const std::int32_t side = tower.window * tower.merge;
      for (std::int32_t y = 0; y < grid.rows; y += side) {
        for (std::int32_t x = 0; x < grid.columns; x += side) {
          const double patches =
              double{1} * std::min(side, grid.rows - y) * std::min(side, grid.columns - x);
          pairs += patches * patches;
        }
      }
    }
    attention += 4.0 * pairs * tower.width;
  }
  return {products, attention};
}

double prefill_flops(const ModelConfig& c, double tokens) {
  return 2 * tokens *
         (static_cast<double>(layer_elements(describe(c))) +
          c.layers * 2.0 * c.heads * c.head_dim * tokens / 2);
}

void print(const char* name, double rows, double seconds, double flops, double peak) {
  std::printf("%-24s %7.0f  %9.1f  %9.1f  %6.1f %%\n", name, rows, seconds * 1e3,
              flops / seconds / 1e9, 100 * flops / seconds / peak);
}

void bench_pictures(const Arguments& a) {
  bench::BenchModel model = bench::load_model(a.model);
  if (!model.config.vision || !model.config.vision->tower)
    throw std::logic_error(a.model + " reads no pictures");
  if (a.layers > 0) model = bench::first_layers(model.config, a.layers);
  const ModelConfig& config = model.config;
  const TowerConfig& tower_config = *config.vision->tower;
  const auto backend = kernels::make_cpu_backend(a.threads, a.isa);
  const bench::Machine machine = bench::measure_machine(a.threads, backend->info().isa);
  std::printf("instruction set %s, %d threads; bf16 product peak %.1f GFLOP/s\n",
              backend->info().isa.c_str(), a.threads, machine.products / 1e9);

  ImageProcessorConfig processor;
  processor.patch = tower_config.patch;
  processor.temporal_patch = tower_config.temporal_patch;
  processor.merge = tower_config.merge;
  const PictureGrid grid = io::grid_of(processor, a.width, a.height, "picture");
  const auto rows = static_cast<std::int32_t>(grid.patches() / (processor.merge * processor.merge));
  const auto reader = std::make_shared<Reader>(processor, noise(a.width, a.height));
  const auto tower =
      std::make_shared<model::TowerWeights>(*backend, config, *model.weights, DType::bf16);
  fabric::SingleRankGroup group;
  const auto weights = model::load_weights(*backend, config, *model.weights, group, DType::bf16);
  std::printf(
      "%d x %d pixels: %d x %d patches, %d rows; tower %.1f MB, decoder of %d layers %.1f "
      "MB\n\n                            rows         ms    GFLOP/s  of peak\n",
      a.width, a.height, grid.rows, grid.columns, rows, static_cast<double>(tower->bytes()) / 1e6,
      config.layers, static_cast<double>(weights->bytes()) / 1e6);

  std::vector<double> reading;
  std::vector<double> computing;
  for (int run = 0; run < kRuns; ++run) {
    double before = bench::now();
    const std::vector<float> patches = reader->patches({}, grid, "picture");
    reading.push_back(bench::now() - before);
    model::Tower computes(*backend, tower, group);
    before = bench::now();
    (void)computes.compute(patches, grid);
    computing.push_back(bench::now() - before);
  }
  const auto [products, attention] = tower_flops(config, grid);
  print("tower", static_cast<double>(grid.patches()), quantile(computing, 0.5),
        products + attention, machine.products);
  std::printf("  of its operations attention's are %.0f %%; resizing and patches take %.1f ms\n",
              100 * attention / (products + attention), quantile(reading, 0.5) * 1e3);

  const int prompt = 1 + rows + kText;
  const int kv_blocks = kSiblings * (kv::blocks_for(prompt + kTokens, kBlock) + 1);
  SamplingParams sampling;
  sampling.max_tokens = kTokens;
  sampling.masked = config.vision->placeholders();
  engine::Executor executor(*backend, weights, group, sampling, {},
                            {.max_batch = kSiblings,
                             .prefill_chunk = 512,
                             .kv_block = kBlock,
                             .kv_blocks = kv_blocks,
                             .max_position = prompt + kTokens + kBlock},
                            {tower, reader});
  const auto bytes = std::make_shared<const std::vector<std::byte>>(1);
  std::uint64_t number = 0;  // each run has a picture of its own
  const auto run = [&](int siblings) {
    engine::Batcher batcher({.max_batch = kSiblings,
                             .prefill_chunk = 512,
                             .kv_block = kBlock,
                             .kv_blocks = kv_blocks,
                             .context = prompt + kTokens + kBlock,
                             .picture_merge = processor.merge,
                             .picture_rows = 2L * rows},
                            sampling, {}, nullptr);
    ++number;
    for (int i = 0; i < siblings; ++i) {
      Admission request;
      request.trajectory.id = {0, static_cast<std::uint32_t>(i)};
      request.prompt.assign(prompt, 1);
      std::fill_n(request.prompt.begin() + 1, rows, config.vision->image_token);
      request.noise = {static_cast<std::uint64_t>(i), 7};
      request.pictures = {{{number, 0}, grid, 1}};
      request.files = {bytes};
      if (!batcher.admit(request)) throw std::logic_error("the KV pool is too small");
    }
    struct {
      double tower = 0, prefill = 0, decoding = 0;
      unsigned pictures = 0;
    } sums;
    while (batcher.active() > 0) {
      const double before = bench::now();
      const engine::Step& plan = batcher.plan();
      const bool reads = batcher.counts().prefill_tokens > 0;
      sums.pictures += batcher.counts().pictures;
      const engine::StepResult result = executor.run(plan);
      (void)batcher.commit(result);
      const double seconds = bench::now() - before - result.picture_seconds;
      sums.tower += result.picture_seconds;
      (reads ? sums.prefill : sums.decoding) += seconds;
    }
    return sums;
  };
  std::vector<double> towers;
  std::vector<double> prefills;
  for (int i = 0; i < kRuns; ++i) {
    const auto alone = run(1);
    towers.push_back(alone.tower);
    prefills.push_back(alone.prefill);
  }
  const double tower_seconds = quantile(towers, 0.5);
  const double prefill_seconds = quantile(prefills, 0.5);
  const double flops = prefill_flops(config, prompt);
  print("prefill", prompt, prefill_seconds, flops, machine.products);
  print("picture and prefill", prompt, tower_seconds + prefill_seconds,
        flops + products + attention, machine.products);
  const auto siblings = run(kSiblings);
  std::printf("%d siblings: %u picture computed in %.1f ms, all prefill %.1f ms\n", kSiblings,
              siblings.pictures, siblings.tower * 1e3, siblings.prefill * 1e3);
  const bench::Machine again = bench::measure_machine(a.threads, backend->info().isa);
  std::printf("at the end of the run: bf16 product peak %.1f GFLOP/s\n", again.products / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Arguments arguments;
  if (!read_arguments(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: bench_pictures MODEL_DIR [--threads N] [--isa NAME] [--layers N] [--size "
                 "WIDTHxHEIGHT]\n");
    return 64;
  }
  try {
    bench_pictures(arguments);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
