#include "runtime/core/thread_pool.hpp"

#include <stdexcept>

namespace paceline {
namespace {

/// Rounds of spinning before a thread sleeps or yields: some tens of microseconds.
constexpr int kSpins = 1000;
/// Generations count from 1 and skip 0.
constexpr std::uint64_t kClosed = 0;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

int at_least_one(int threads) {
  if (threads < 1) throw std::invalid_argument("threads of a pool");
  return threads;
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : size_(at_least_one(threads)),
      ranges_(std::make_unique<Range[]>(static_cast<std::size_t>(threads))),
      gate_(kClosed) {
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  for (int t = 1; t < threads; ++t) threads_.emplace_back([this, t] { work(t); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::share(int count, int passes) {
  for (int t = 0; t < size_; ++t) {
    Range& range = ranges_[t];
    range.first = static_cast<int>(static_cast<long long>(count) * t / size_);
    range.units = static_cast<int>(static_cast<long long>(count) * (t + 1) / size_) - range.first;
    range.end = range.units * passes;
    range.next.store(0, std::memory_order_relaxed);
  }
}

void ThreadPool::run(Job job, void* context) {
  job_ = job;
  context_ = context;
  std::uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  if (generation == kClosed) ++generation;
  // The gate opens with the job's data visible to entering threads.
  gate_.store(std::uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation);
  generation_.notify_all();

  job(context, *this, 0);

  // All units are taken. No thread enters any more; threads inside finish their current unit.
  std::uint64_t gate = gate_.fetch_and(0xFFFFFFFFU, std::memory_order_acq_rel);
  for (int spins = 0; (gate & 0xFFFFFFFFU) != 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();  // the awaited thread may have no CPU
    }
    gate = gate_.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t generation = generation_.load(std::memory_order_acquire);
    for (int spins = 0; generation == seen && spins < kSpins; ++spins) {
      pause();
      generation = generation_.load(std::memory_order_acquire);
    }
    if (generation == seen) {
      generation_.wait(seen);
      continue;
    }
    if (stop_.load(std::memory_order_relaxed)) return;
    seen = generation;
    std::uint64_t gate = gate_.load(std::memory_order_relaxed);
    bool entered = false;
    while (!entered && gate >> 32 == generation) {
      entered = gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire,
                                            std::memory_order_relaxed);
    }
    if (!entered) continue;  // too late
    job_(context_, *this, thread);
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace paceline
