// How fast a rank's part of the KV pool is, beside its memory and its disk.
//   bench_kv_pool DIRECTORY [--size BYTES] [--block BYTES] [--memory BYTES] [--repeats N]
// DIRECTORY: on the disk to measure. size: of all that is stored (2e9); block: a rank's share of a
// KV block (196608: 16 positions of Qwen2.5-0.5B); memory: of the memory tier (size / 8).
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/quantile.hpp"
#include "runtime/kv/host_tiers.hpp"
#include "runtime/kv/store.hpp"
#include "tests/bench/machine.hpp"

namespace {

using namespace paceline;
using bench::now;

constexpr std::size_t kPiece = std::size_t{4} << 20;  // as the product reads and writes

struct Options {
  std::string directory;
  std::size_t size = 2'000'000'000;
  std::size_t block = 196'608;
  std::size_t memory = 0;
  int repeats = 3;
};

// ---- The disk by itself, as dd would measure it.

enum class Way { direct, cached, mapped };

struct Rates {
  double write = 0, read = 0;  ///< bytes a second
};

/// Writes the file from one end to the other and reads it back. What is cached reaches the disk
/// within the time, and has left the cache before it is read.
Rates raw(const Options& options, Way way) {
  const int fd = open(options.directory.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (fd < 0) throw std::runtime_error("no file can be made in " + options.directory);
  if (way == Way::direct && fcntl(fd, F_SETFL, O_DIRECT) != 0) {
    close(fd);
    return {};
  }
  const std::size_t pieces = options.size / kPiece;
  const auto bytes = static_cast<double>(pieces * kPiece);
  if (ftruncate(fd, static_cast<off_t>(pieces * kPiece)) != 0) throw std::runtime_error("truncate");
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, kPiece));
  std::memset(memory, 1, kPiece);
  std::byte* map = nullptr;
  if (way == Way::mapped)
    map = static_cast<std::byte*>(
        mmap(nullptr, pieces * kPiece, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  const auto each = [&](bool writes) {
    const double start = now();
    for (std::size_t i = 0; i < pieces; ++i) {
      const auto at = static_cast<off_t>(i * kPiece);
      ssize_t done = kPiece;
      if (map != nullptr && writes) std::memcpy(map + at, memory, kPiece);
      if (map != nullptr && !writes) std::memcpy(memory, map + at, kPiece);
      if (map == nullptr)
        done = writes ? pwrite(fd, memory, kPiece, at) : pread(fd, memory, kPiece, at);
      if (done != kPiece) throw std::runtime_error("the disk does not take it all");
    }
    if (writes && way != Way::direct) fdatasync(fd);
    return bytes / (now() - start);
  };
  Rates rates;
  rates.write = each(true);
  if (map != nullptr) madvise(map, pieces * kPiece, MADV_DONTNEED);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  rates.read = each(false);
  if (map != nullptr) munmap(map, pieces * kPiece);
  std::free(memory);
  close(fd);
  return rates;
}

// ---- The pool.

class Pool {
 public:
  Pool(const Options& options, std::size_t memory, bool disk)
      : tiers_({.block_bytes = options.block,
                .units = blocks(options, memory),
                .directory = disk ? std::optional(options.directory) : std::nullopt,
                .outside = {},
                .wake = [this] { wake(); }}),
        store_(tiers_,
               {blocks(options, memory), disk ? blocks(options, 2 * options.size) : 0,
                std::max(1, blocks(options, kPiece))},
               [](const std::string& text) { std::printf("  warning: %s\n", text.c_str()); }) {}

  /// Seconds until it has ended.
  double wait(kv::Store::Ticket ticket) {
    const double start = now();
    for (;;) {
      store_.settle();
      if (const std::optional<bool> done = store_.ended(ticket)) {
        if (!*done) throw std::runtime_error("the pool has lost something");
        return now() - start;
      }
      sleep(1);
    }
  }
  /// Lets the pool go on by itself for so long.
  void idle(double seconds) {
    for (const double end = now() + seconds; now() < end;) {
      sleep(end - now());
      store_.settle();
    }
  }
  kv::Store& store() { return store_; }

 private:
  static std::int32_t blocks(const Options& options, std::size_t bytes) {
    return static_cast<std::int32_t>(bytes / kv::HostTiers::stride(options.block));
  }
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }
  void sleep(double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [this] { return std::exchange(woken_, false); });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  kv::HostTiers tiers_;
  kv::Store store_;
};

/// Requests' KV, of 32 MB each.
struct Requests {
  explicit Requests(const Options& options)
      : blocks(std::max<std::size_t>(1, (std::size_t{32} << 20) / options.block)),
        count(options.size / (blocks * options.block)),
        memory(blocks * options.block, std::byte{7}),
        bytes(static_cast<double>(memory.size())) {
    for (std::size_t i = 0; i < memory.size(); i += 8) memory[i] = static_cast<std::byte>(i >> 12);
  }
  std::vector<std::byte*> places(const Options& options) {
    std::vector<std::byte*> at;
    for (std::size_t b = 0; b < blocks; ++b) at.push_back(&memory[b * options.block]);
    return at;
  }
  std::size_t blocks, count;
  std::vector<std::byte> memory;
  double bytes;  ///< of one
};

Rates in_memory(const Options& options, Requests& requests) {
  Pool pool(options, 2 * requests.memory.size(), false);
  pool.wait(pool.store().put(1, 0, requests.places(options)));  // its memory is new
  Rates best;
  for (int i = 0; i < 5; ++i) {
    best.write = std::max(
        best.write, requests.bytes / pool.wait(pool.store().put(1, 0, requests.places(options))));
    best.read = std::max(
        best.read, requests.bytes / pool.wait(pool.store().get(1, 0, requests.places(options))));
  }
  return best;
}

Rates through_disk(const Options& options, Requests& requests) {
  Pool pool(options, options.memory, true);
  Rates rates;
  double start = now();
  for (std::size_t key = 0; key < requests.count; ++key)
    pool.wait(pool.store().put(key, 0, requests.places(options)));
  rates.write =
      static_cast<double>(pool.store().counts().went_down * options.block) / (now() - start);
  start = now();
  const std::uint64_t before = pool.store().counts().from_disk;
  // What came last went down first, and lies there in one piece.
  for (std::size_t key = requests.count; key-- > 0;)
    pool.wait(pool.store().get(key, 0, requests.places(options)));
  rates.read = static_cast<double>((pool.store().counts().from_disk - before) * options.block) /
               (now() - start);
  return rates;
}

/// Requests are taken one after the other in the order that was foreseen, some time apart: how long
/// each waits, and how much of it had come up by then.
void foreseen(const Options& options, Requests& requests, double apart, bool tell) {
  Pool pool(options, options.memory, true);
  for (std::size_t key = 0; key < requests.count; ++key)
    pool.wait(pool.store().put(key, 0, requests.places(options)));
  pool.idle(0.5);
  std::vector<kv::Store::Key> order;
  for (std::size_t key = requests.count; key-- > 0;) order.push_back(key);
  std::vector<double> waits;
  const kv::StoreCounts before = pool.store().counts();
  while (!order.empty()) {
    if (tell) pool.store().need(order);
    pool.idle(apart);
    waits.push_back(pool.wait(pool.store().get(order.front(), 0, requests.places(options))));
    pool.store().drop(order.front());
    order.erase(order.begin());
  }
  const kv::StoreCounts& after = pool.store().counts();
  const auto from_disk = static_cast<double>(after.from_disk - before.from_disk);
  const auto hits = static_cast<double>(after.foreseen - before.foreseen);
  std::printf(
      "  every %4.0f ms, %-12s waits %6.1f ms median, %6.1f longest; of what had gone down, "
      "%3.0f %% was up again\n",
      apart * 1e3, tell ? "foreseen:" : "not foreseen:", quantile(waits, 0.5) * 1e3,
      *std::max_element(waits.begin(), waits.end()) * 1e3,
      hits + from_disk > 0 ? 100 * hits / (hits + from_disk) : 0);
}

Options parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    if (!name.starts_with("--")) {
      options.directory = name;
      continue;
    }
    if (++i == count) throw std::runtime_error(name + " wants a value");
    const auto value = static_cast<std::size_t>(std::atof(arguments[i]));
    if (name == "--size") options.size = value;
    if (name == "--block") options.block = value;
    if (name == "--memory") options.memory = value;
    if (name == "--repeats") options.repeats = static_cast<int>(value);
  }
  if (options.directory.empty()) throw std::runtime_error("expected a directory on the disk");
  if (options.memory == 0) options.memory = options.size / 8;
  return options;
}

void print(const char* what, const Rates& rates, const Rates& own) {
  std::printf("  %-34s write %7.0f MB/s, read %7.0f MB/s", what, rates.write / 1e6,
              rates.read / 1e6);
  if (own.write > 0)
    std::printf("  (%.2f and %.2f of the disk's own)", rates.write / own.write,
                rates.read / own.read);
  std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const Options options = parse(count, arguments);
    Requests requests(options);
    std::printf("%zu requests of %.1f MB in blocks of %zu bytes, %.0f MB of memory\n",
                requests.count, requests.bytes / 1e6, options.block,
                static_cast<double>(options.memory) / 1e6);
    print("memory tier", in_memory(options, requests), {});
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      const Rates own = raw(options, Way::direct);
      if (own.write == 0)
        std::printf("  the file system reads and writes through its cache alone\n");
      print("disk, past the cache (O_DIRECT)", own, {});
      print("disk, through the cache", raw(options, Way::cached), own);
      print("disk, mapped", raw(options, Way::mapped), own);
      print("the pool", through_disk(options, requests), own);
    }
    const Rates own = raw(options, Way::direct);
    const double one = requests.bytes / (own.read > 0 ? own.read : 1e9);
    for (const double apart : {0.5 * one, 1.5 * one, 3 * one}) {
      foreseen(options, requests, apart, false);
      foreseen(options, requests, apart, true);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_kv_pool: %s\n", error.what());
    return 1;
  }
  return 0;
}
