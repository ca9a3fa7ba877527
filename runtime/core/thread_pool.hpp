// Threads that share out the units of a job, for a CPU backend and for drafters.
//
// A small pool is used instead of OpenMP's fork and join. A parallel region of OpenMP ends only
// when every thread has come by, so on a shared machine (virtual CPUs that are taken away, more
// ranks than cores) one late thread holds up every operation. Here an operation ends when its units
// are done, and a late thread finds nothing left to do. Idle threads spin for some microseconds,
// which spans the gaps between the operations of a step, and then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace paceline {

class ThreadPool {
 public:
  /// `threads` includes the caller: with one, nothing is started and work runs as plain calls.
  /// Throws std::invalid_argument on less than one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return size_; }

  /// Calls f(thread, unit) once for every unit in [0, count), and returns when all are done. Each
  /// thread begins with its own contiguous range, and then helps the others. The range is always
  /// the same for the same count, so that memory which a thread touched first stays in its NUMA
  /// domain. A result must not depend on which thread runs a unit. f must not throw. One caller at
  /// a time; any number with a pool of one thread. If there are at most `alone` units, the caller
  /// runs them all: they are not worth waking a thread.
  template <class F>
  void for_units(int count, F&& f, int alone = 1) {
    if (count <= alone) {
      for (int unit = 0; unit < count; ++unit) f(0, unit);
      return;
    }
    for_passes(count, 1, [&f](int thread, int unit, int) { f(thread, unit); });
  }

  /// Calls f(thread, unit, pass) once for every unit in each of several passes. A thread begins all
  /// its own units of a pass before its units of the next pass.
  template <class F>
  void for_passes(int count, int passes, F&& f) {
    if (size_ == 1) {
      for (int pass = 0; pass < passes; ++pass) {
        for (int unit = 0; unit < count; ++unit) f(0, unit, pass);
      }
      return;
    }
    share(count, passes);
    using Function = std::remove_reference_t<F>;
    run([](void* context, ThreadPool& pool,
           int thread) { pool.take_all(thread, *static_cast<Function*>(context)); },
        &f);
  }

 private:
  using Job = void (*)(void* context, ThreadPool& pool, int thread);
  struct alignas(64) Range {
    std::atomic<int> next{0};
    int first = 0;
    int units = 0;
    int end = 0;  ///< units * passes
  };

  void share(int count, int passes);
  void run(Job job, void* context);
  void work(int thread);

  template <class F>
  void take_all(int thread, F& f) {
    for (int i = 0; i < size_; ++i) {
      Range& range = ranges_[(thread + i) % size_];
      for (;;) {
        const int at = range.next.fetch_add(1, std::memory_order_relaxed);
        if (at >= range.end) break;
        f(thread, range.first + at % range.units, at / range.units);
      }
    }
  }

  int size_;
  std::unique_ptr<Range[]> ranges_;  ///< [size]
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::uint32_t> generation_{0};  ///< number of the last job; threads sleep on it
  /// Upper half: generation of the open job, kClosed when none is open. Lower half: number of
  /// threads that work on it.
  std::atomic<std::uint64_t> gate_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;  ///< [size - 1]
};

}  // namespace paceline
