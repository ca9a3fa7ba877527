#include "tests/bench/machine.hpp"

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels/backend.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline::bench {
namespace {

/// Runs f(thread) on several new threads at once and returns when all are done. They leave no trace
/// in the caller, whose tile unit is as its kernels have set it up.
template <class F>
void on_threads(int threads, F&& f) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back([&f, t] { f(t); });
  for (std::thread& thread : all) thread.join();
}

volatile float g_sink = 0;

#if defined(__x86_64__)
constexpr long kSteps = 4'000'000;

/// Numbers from -1 to 1, as bf16 pairs and as floats: two tiles of them. Zeros and ones take less
/// power, and a core that has to save it multiplies a fifth to a half more of them.
struct alignas(64) Operands {
  std::uint32_t at[512];
  Operands() {
    std::mt19937 engine(1);
    for (std::uint32_t& word : at) {
      word = 0;
      for (int half = 0; half < 2; ++half) {
        const float x = std::uniform_real_distribution<float>(-1, 1)(engine);
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        word = word << 16 | bits >> 16;
      }
    }
  }
};
const Operands g_operands;

[[gnu::target("avx512f")]] void multiply_add_512() {
  __m512 a[24];
  for (__m512& sum : a) sum = _mm512_set1_ps(0);
  __m512 x = _mm512_load_ps(g_operands.at);
  const __m512 y = _mm512_load_ps(g_operands.at + 16);
  for (long i = 0; i < kSteps; ++i) {
    asm volatile("" : "+v"(x));
#pragma GCC unroll 24
    for (int j = 0; j < 24; ++j) a[j] = _mm512_fmadd_ps(x, y, a[j]);
  }
  for (int j = 1; j < 24; ++j) a[0] = _mm512_add_ps(a[0], a[j]);
  g_sink = g_sink + _mm512_cvtss_f32(a[0]);
}

[[gnu::target("avx512f,avx512bf16")]] void dot_512() {
  __m512 a[24];
  for (__m512& sum : a) sum = _mm512_set1_ps(0);
  __m512i x = _mm512_load_si512(g_operands.at);
  const __m512i y = _mm512_load_si512(g_operands.at + 16);
  for (long i = 0; i < kSteps; ++i) {
    asm volatile("" : "+v"(x));
#pragma GCC unroll 24
    for (int j = 0; j < 24; ++j) a[j] = _mm512_dpbf16_ps(a[j], (__m512bh)x, (__m512bh)y);
  }
  for (int j = 1; j < 24; ++j) a[0] = _mm512_add_ps(a[0], a[j]);
  g_sink = g_sink + _mm512_cvtss_f32(a[0]);
}

/// Independent products of full tiles. The backend has asked the system for the tile unit.
[[gnu::target("amx-tile,amx-bf16")]] void tiles() {
  struct alignas(64) {
    std::uint8_t palette = 1, rest[15] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("ldtilecfg %0" : : "m"(config));  // the intrinsic does not say that it reads
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, g_operands.at, 64);
  _tile_loadd(5, g_operands.at + 256, 64);
  for (long i = 0; i < kSteps; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

[[gnu::target("avx2,fma")]] void multiply_add_256() {
  __m256 a[12];
  for (__m256& sum : a) sum = _mm256_set1_ps(0);
  __m256 x =
      _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(g_operands.at)));
  const __m256 y =
      _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(g_operands.at + 8)));
  for (long i = 0; i < 2 * kSteps; ++i) {
    asm volatile("" : "+x"(x));
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) a[j] = _mm256_fmadd_ps(x, y, a[j]);
  }
  for (int j = 1; j < 12; ++j) a[0] = _mm256_add_ps(a[0], a[j]);
  g_sink = g_sink + _mm256_cvtss_f32(a[0]);
}
#endif

using Line = std::uint64_t [[gnu::vector_size(64)]];

/// Level of cache that prefetches go to.
enum class Level { first, second };
constexpr Level kLevels[] = {Level::first, Level::second};

// Reads [data, data + bytes) in whole cache lines, from `streams` places in turn, each prefetched
// `ahead` bytes before it is needed, as a good kernel reads its weights. A plain loop, and one word
// at a time, would understate the bandwidth and flatter the shares of it; so would one level, for a
// core can have more lines under way to the one than to the other.
#if defined(__x86_64__)
[[gnu::target_clones("avx512f", "avx2", "default")]]
#endif
void read_all(const std::byte* data, std::size_t bytes, int streams, std::ptrdiff_t ahead,
              Level level) {
  Line sums[4] = {};
  const std::size_t part = bytes / streams;
  for (std::size_t i = 0; i + 256 <= part; i += 256) {
    for (int stream = 0; stream < streams; ++stream) {
      const std::byte* at = data + stream * part + i;
      for (int line = 0; line < 4; ++line) {
        if (level == Level::first) {
          __builtin_prefetch(at + 64 * line + ahead, 0, 3);
        } else {
          __builtin_prefetch(at + 64 * line + ahead, 0, 2);
        }
        Line words;
        std::memcpy(&words, at + 64 * line, sizeof words);
        sums[line] ^= words;
      }
    }
  }
  sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
  g_sink = g_sink + static_cast<float>(sums[0][0]);
}

constexpr std::size_t kBytes = std::size_t{1} << 30;  // far past any cache

std::unique_ptr<kernels::Buffer> written_memory() {
  auto buffer = kernels::make_cpu_backend(1)->allocate(kBytes);
  std::memset(buffer->data(), 1, kBytes);
  return buffer;
}

}  // namespace

Machine measure_machine(int threads, const std::string& isa) {
  Machine machine;
#if defined(__x86_64__)
  const auto rate = [threads](void (*f)(), double flops) {
    return threads * flops * kSteps / best_time([&] { on_threads(threads, [f](int) { f(); }); });
  };
  if (__builtin_cpu_supports("avx512f")) {
    machine.multiply_add = rate(multiply_add_512, 24 * 32);
  } else if (__builtin_cpu_supports("avx2")) {
    machine.multiply_add = rate(multiply_add_256, 24 * 16);
  }
  machine.products = isa == "amx_bf16"      ? rate(tiles, 4 * 2 * 16 * 16 * 32)
                     : isa == "avx512_bf16" ? rate(dot_512, 24 * 64)
                                            : machine.multiply_add;
#endif
  const auto buffer = written_memory();
  const std::size_t part = kBytes / threads;
  for (const int streams : {1, 2, 4}) {  // the best of several ways to read it
    for (const std::ptrdiff_t ahead : {512, 1024, 4096, 8192}) {
      for (const Level level : kLevels) {
        const double time = best_time([&] {
          on_threads(threads, [&](int t) {
            read_all(buffer->data() + part * t, part, streams, ahead, level);
          });
        });
        machine.bandwidth = std::max(machine.bandwidth, static_cast<double>(kBytes) / time);
      }
    }
  }
  return machine;
}

double measure_pieces(int threads, std::size_t bytes) {
  const auto buffer = written_memory();
  std::vector<std::size_t> order(kBytes / bytes);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  double most = 0;
  const std::size_t part = order.size() / threads;
  for (const int pieces : {1, 2, 4}) {  // ahead
    for (const Level level : kLevels) {
      const double time = best_time([&] {
        on_threads(threads, [&](int t) {
          for (std::size_t i = part * t; i + pieces < part * (t + 1); ++i) {
            const std::byte* at = buffer->data() + order[i] * bytes;
            read_all(at, bytes, 1, buffer->data() + order[i + pieces] * bytes - at, level);
          }
        });
      });
      most = std::max(most, static_cast<double>(part * threads * bytes) / time);
    }
  }
  return most;
}

}  // namespace paceline::bench
