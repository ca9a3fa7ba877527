// How near the CPU kernels come to the machine: bench_kernels [--threads N] [--isa NAME] [--quick].
// Peaks and bandwidth are measured in the same run. Times are the best of several runs. The bound
// of attention is the larger of its bytes over the bandwidth and its operations over the peak.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/backend.hpp"
#include "tests/bench/machine.hpp"
#include "tests/kernels/test_backends.hpp"

namespace {

using namespace paceline;
using namespace paceline::kernels;

using bench::best_time;
using bench::Machine;
using bench::measure_machine;
using test::operate;

std::vector<std::byte> random_bf16(std::size_t n, std::uint32_t seed) {
  std::vector<std::byte> out(n * 2);
  std::uint32_t state = seed * 2654435761U + 1;
  for (std::size_t i = 0; i < n; ++i) {
    state = state * 1664525U + 1013904223U;
    const float x = (static_cast<float>(state >> 8) / 16777216.0F - 0.5F) * 0.1F;
    std::uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(out.data() + 2 * i, &half, 2);
  }
  return out;
}

/// A projection of Qwen2.5-0.5B and how often a step uses it.
struct Shape {
  const char* name;
  int n, k, count;
};
constexpr Shape kShapes[] = {{"qkv", 1152, 896, 24},
                             {"o", 896, 896, 24},
                             {"gate_up", 9728, 896, 24},
                             {"down", 896, 4864, 24},
                             {"lm_head", 151936, 896, 1}};

/// Several copies of a weight, so that it comes from memory as it does within a model.
std::vector<std::unique_ptr<Linear>> copies_of(Backend& cpu, const Shape& shape, int segments) {
  const std::size_t elements = static_cast<std::size_t>(shape.n) * shape.k;
  const std::vector<std::byte> data = random_bf16(elements, 1);
  const TensorView view = {DType::bf16, {shape.n, shape.k}, data};
  const MatrixSlice slice = {&view, 0, shape.n, 0, shape.k};
  std::vector<std::unique_ptr<Linear>> out;
  const std::size_t enough = std::size_t{400} << 20;
  do {
    out.push_back(cpu.pack({&slice, 1}, {}, segments, DType::bf16));
  } while (out.size() * elements * 2 < enough);
  return out;
}

void bench_products(Backend& cpu, const Machine& machine, bool quick) {
  std::vector<int> batches = {1, 2, 4, 8, 16, 32, 64, 512};
  if (!quick) batches.insert(batches.end(), {3, 6, 12, 13, 24, 25, 48});
  std::vector<double> total(batches.size());
  std::vector<double> flops(batches.size());
  std::printf(
      "\nproducts, bf16 weights       M     us/call   GFLOP/s    GB/s   of the peak  "
      "of bandwidth\n");
  for (const Shape& shape : kShapes) {
    const auto weights = copies_of(cpu, shape, 1);
    for (std::size_t b = 0; b < batches.size(); ++b) {
      const int rows = batches[b];
      const std::vector<std::byte> in = random_bf16(static_cast<std::size_t>(rows) * shape.k, 2);
      std::vector<float> out(static_cast<std::size_t>(rows) * shape.n);
      std::size_t next = 0;
      // A round over all copies is one run, so that none is still in a cache.
      const double round = best_time(
          [&] {
            operate(cpu, [&](Operations& operations) {
              for (std::size_t i = 0; i < weights.size(); ++i) {
                operations.linear(*weights[next++ % weights.size()], in.data(), rows, out.data());
              }
            });
          },
          2);
      const double time = round / static_cast<double>(weights.size());
      const double work = 2.0 * rows * shape.n * shape.k;
      const double bytes = 2.0 * shape.n * shape.k;
      std::printf("%-10s %6d x %-6d %5d %11.1f %9.1f %7.1f %8.0f %% %12.0f %%\n", shape.name,
                  shape.n, shape.k, rows, time * 1e6, work / time / 1e9, bytes / time / 1e9,
                  100 * work / time / machine.products, 100 * bytes / time / machine.bandwidth);
      // Prefill samples the last row only.
      const bool head = std::strcmp(shape.name, "lm_head") == 0;
      if (rows == 512 && head) continue;
      total[b] += time * shape.count;
      flops[b] += work * shape.count;
    }
  }
  std::printf("\nall products of Qwen2.5-0.5B   M   ms/step   tokens/s   GFLOP/s   of the peak\n");
  for (std::size_t b = 0; b < batches.size(); ++b) {
    std::printf("%32d %9.2f %10.1f %9.1f %11.0f %%\n", batches[b], total[b] * 1e3,
                batches[b] / total[b], flops[b] / total[b] / 1e9,
                machine.products > 0 ? 100 * flops[b] / total[b] / machine.products : 0.0);
  }
  std::printf("\nprice of segments (down)       M    S=1 us    S=2 us   more\n");
  const auto one = copies_of(cpu, kShapes[3], 1);
  const auto two = copies_of(cpu, kShapes[3], 2);
  for (const int rows : {1, 8, 64}) {
    const std::vector<std::byte> in = random_bf16(static_cast<std::size_t>(rows) * 4864, 2);
    std::vector<float> out(static_cast<std::size_t>(rows) * 896);
    const auto time = [&](const std::vector<std::unique_ptr<Linear>>& weights) {
      return best_time([&] {
               operate(cpu, [&](Operations& operations) {
                 for (const auto& weight : weights)
                   operations.linear(*weight, in.data(), rows, out.data());
               });
             }) /
             static_cast<double>(weights.size());
    };
    const double t1 = time(one);
    const double t2 = time(two);
    std::printf("%32d %9.1f %9.1f %6.1f %%\n", rows, t1 * 1e6, t2 * 1e6, 100 * (t2 / t1 - 1));
  }
}

/// Rows that attend: `sequences` of `rows` rows each at the end of `context` positions, of which
/// `siblings` neighbours have the first `shared` in common.
struct Attention {
  const char* name;
  int sequences, rows, context;
  int siblings = 1, shared = 0;
};
constexpr Attention kAttentions[] = {
    {"prefill", 1, 512, 512},
    {"decode", 1, 1, 512},
    {"decode", 1, 1, 2048},
    {"decode", 1, 1, 8192},
    {"decode", 1, 1, 16384},
    {"decode", 4, 1, 2048},
    {"decode", 16, 1, 512},
    {"decode", 16, 1, 2048},
    {"decode", 16, 1, 8192},
    {"decode", 64, 1, 64},
    {"decode", 64, 1, 512},
    {"decode", 64, 1, 2048},
    {"decode", 64, 1, 8192},
    {"verify", 1, 5, 2048},
    {"verify", 16, 5, 512},
    {"verify", 16, 5, 2048},
    {"verify", 64, 5, 2048},
    {"siblings", 16, 1, 2560, 16, 2048},
    {"siblings", 64, 1, 2560, 16, 2048},
    {"siblings", 64, 1, 8192, 8, 2048},
    {"siblings", 16, 5, 2560, 16, 2048},
};

void bench_attention(Backend& cpu, const Machine& machine, const QkvParams& params) {
  // Of a pool, so that none of it stays in a cache: there are third-level ones of 300 MB.
  constexpr std::size_t kLeast = std::size_t{768} << 20;
  constexpr std::size_t kMost = std::size_t{3} << 30;
  const int d = params.head_dim;
  constexpr int kBlock = 32;
  const std::size_t piece = KvShape{1, params.kv_heads, d, kBlock}.layer_bytes();
  const double pieces = bench::measure_pieces(cpu.info().threads, piece);
  std::printf(
      "\nattention, %d heads of %d, %d kv heads: a layer; pieces of %zu bytes %.1f GB/s\n"
      "rows             context  in common        us   GFLOP/s    GB/s   of the bound\n",
      params.heads, d, params.kv_heads, piece, pieces / 1e9);
  for (const Attention& c : kAttentions) {
    KvShape kv = {.layers = 1, .kv_heads = params.kv_heads, .head_dim = d, .block = kBlock};
    const int blocks = (c.context + kv.block - 1) / kv.block;
    const int shared = c.shared / kv.block;
    const int pool = c.sequences / c.siblings * (shared + c.siblings * (blocks - shared));
    const std::size_t bytes = pool * kv.layer_bytes();
    if (bytes > kMost) continue;
    // As many layers as it takes, computed one after the other.
    kv.layers = static_cast<int>((kLeast + bytes - 1) / bytes);
    const auto cache = cpu.allocate(pool * kv.block_bytes());
    const std::vector<std::byte> data = random_bf16(std::size_t{1} << 20, 3);
    for (std::size_t at = 0; at < cache->size(); at += data.size())
      std::memcpy(cache->data() + at, data.data(), std::min(data.size(), cache->size() - at));
    std::vector<std::int32_t> places(pool);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), std::mt19937(1));
    auto place = places.begin();
    std::vector<std::int32_t> table;  // [sequences][blocks]
    std::vector<Segment> segments;
    double work = 0;
    for (int s = 0; s < c.sequences; ++s) {
      const auto first = static_cast<std::ptrdiff_t>(table.size()) - blocks;  // of the one before
      for (int b = 0; b < blocks; ++b)
        table.push_back(s % c.siblings > 0 && b < shared ? table[first + b] : *place++);
      segments.push_back({s * c.rows, c.rows, c.context - c.rows});
      for (int r = 0; r < c.rows; ++r)
        work += 4.0 * params.heads * d * (c.context - c.rows + r + 1);
    }
    for (int s = 0; s < c.sequences; ++s)
      segments[s].blocks = table.data() + static_cast<std::ptrdiff_t>(s) * blocks;
    const std::size_t rows = static_cast<std::size_t>(c.sequences) * c.rows;
    const std::vector<std::byte> q = random_bf16(rows * params.heads * d, 4);
    std::vector<std::byte> out(q.size());
    const std::vector<TokenId> tokens(rows, 0);
    const Batch batch = {tokens, segments, {}, params.heads, kv, cache->data(), 1, c.context};
    double time = 0;
    operate(cpu, batch, [&](Operations& operations) {
      time = best_time([&] {
               for (int layer = 0; layer < kv.layers; ++layer)
                 operations.attention(params, layer, q.data(), out.data());
             }) /
             kv.layers;
    });
    const double bound = std::max(work / machine.products, static_cast<double>(bytes) / pieces);
    std::printf("%-9s%2d x %-3d %8d %10d %9.1f %9.1f %7.1f %12.0f %%\n", c.name, c.sequences,
                c.rows, c.context, c.shared, time * 1e6, work / time / 1e9,
                static_cast<double>(bytes) / time / 1e9, 100 * bound / time);
  }
}

void bench_rest(Backend& cpu) {
  std::printf("\nother operations                                       us\n");
  const int rows = 64;
  std::vector<float> x(rows * 9728, 0.5F);
  std::vector<float> weight(9728, 1.0F);
  std::vector<std::byte> out(x.size() * 4);
  const auto print = [](const char* name, double time) {
    std::printf("%-48s %9.1f\n", name, time * 1e6);
  };
  for (const int m : {1, 64}) {
    std::printf("rows %d\n", m);
    const QkvParams params = {.heads = 14, .kv_heads = 2, .head_dim = 64};
    const KvShape kv = {
        .layers = 1, .kv_heads = 2, .head_dim = 64, .block = 16, .dtype = DType::bf16};
    const auto cache = cpu.allocate(64 * kv.block_bytes());
    const std::vector<float> table(64 * 64, 0.5F);
    std::vector<std::int32_t> blocks(64);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::vector<Segment> segments;
    for (int i = 0; i < m; ++i) segments.push_back({i, 1, 3, blocks.data() + i});
    const std::vector<TokenId> tokens(m, 0);
    const Batch batch = {tokens, segments, {}, params.heads, kv, cache->data(), 1, 64};
    operate(cpu, batch, [&](Operations& operations) {
      print("  add_rmsnorm 896", best_time([&] {
              operations.add_rmsnorm(x.data(), x.data() + x.size() / 2, weight.data(), 1e-6F, m,
                                     896, DType::bf16, out.data());
            }));
      print("  swiglu 4864",
            best_time([&] { operations.swiglu(x.data(), m, 4864, DType::bf16, out.data()); }));
      print("  rope_and_store", best_time([&] {
              operations.rope_and_store(params, {table.data(), 64, 64}, 0, x.data(), out.data());
            }));
    });
  }
  const int vocab = 151936;
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 2.5F);
  std::vector<float> logits(static_cast<std::size_t>(16) * vocab);
  for (float& l : logits) l = normal(engine);
  for (int i = 0; i < 16 * 30; ++i) logits[engine() % logits.size()] += 12;
  std::vector<SampleRow> sample_rows(16);
  for (std::size_t i = 0; i < sample_rows.size(); ++i) sample_rows[i].noise = {i, 1};
  std::vector<Sampled> sampled(16);
  std::printf("sampler, vocabulary 151936: us a row\n");
  struct Case {
    const char* name;
    float temperature;
    int top_k;
    float top_p, min_p;
  };
  for (const Case& c : {Case{"  temperature 1", 1, 0, 1, 0},
                        {"  greedy", 0, 0, 1, 0},
                        {"  top-k 50", 1, 50, 1, 0},
                        {"  top-p 0.95", 1, 0, 0.95F, 0},
                        {"  top-p 0.999", 1, 0, 0.999F, 0},
                        {"  min-p 0.05", 1, 0, 1, 0.05F},
                        {"  top-k 20, top-p 0.9", 0.7F, 20, 0.9F, 0}}) {
    for (SampleRow& row : sample_rows) {
      row.temperature = c.temperature;
      row.top_k = c.top_k;
      row.top_p = c.top_p;
      row.min_p = c.min_p;
    }
    for (const std::size_t m : {1, 16}) {
      const double time = best_time([&] {
        cpu.sample(logits.data(), vocab, vocab, std::span(sample_rows).first(m),
                   std::span(sampled).first(m));
      });
      std::printf("%-30s rows %-12zu %9.1f\n", c.name, m, time * 1e6 / static_cast<double>(m));
    }
  }
  for (SampleRow& row : sample_rows) {
    row = {};
    row.noise = {static_cast<std::uint64_t>(&row - sample_rows.data()), 1};
  }
  std::vector<Ranked> ranked(16 * kMaxRanked);
  for (const int count : {1, 2, 4, kMaxRanked}) {
    const double time = best_time([&] {
      cpu.rank(logits.data(), vocab, vocab, sample_rows, count,
               std::span(ranked).first(static_cast<std::size_t>(16) * count));
    });
    std::printf("  the best %-19d rows %-12d %9.1f\n", count, 16, time * 1e6 / 16);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string isa = "auto";
  bool quick = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      quick = true;
    } else if (i + 1 < argc && argument == "--threads") {
      threads = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && argument == "--isa") {
      isa = argv[++i];
    } else if (i + 1 < argc && argument == "--only") {
      only = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: bench_kernels [--threads N] [--isa NAME] [--quick] "
                   "[--only products|attention|rest]\n");
      return 64;
    }
  }
  const auto cpu = make_cpu_backend(threads, isa);
  std::printf("instruction set %s, %d threads\n", cpu->info().isa.c_str(), threads);
  const Machine machine = measure_machine(threads, cpu->info().isa);
  std::printf(
      "fp32 multiply-add peak %.1f GFLOP/s, bf16 product peak %.1f GFLOP/s, memory read %.1f "
      "GB/s\n",
      machine.multiply_add / 1e9, machine.products / 1e9, machine.bandwidth / 1e9);
  if (only.empty() || only == "products") bench_products(*cpu, machine, quick);
  if (only.empty() || only == "attention") {
    // Of Qwen2.5-0.5B and 7B, Llama 3 8B and Llama 2 7B.
    for (const auto& [heads, kv_heads, head_dim] :
         {std::tuple{14, 2, 64}, {28, 4, 128}, {32, 8, 128}, {32, 32, 128}}) {
      bench_attention(*cpu, machine, {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim});
    }
  }
  if (only.empty() || only == "rest") bench_rest(*cpu);
  return 0;
}
