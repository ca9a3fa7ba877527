// The threads of a CPU backend and how they share work.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace paceline::kernels::cpu {

/// Runs f(thread) on `threads` threads; with one, on the caller without entering OpenMP. f must not
/// throw. OpenMP may provide fewer threads, so every share of work must be open to every thread.
template <class F>
void parallel(int threads, F&& f) {
  if (threads == 1) {
    f(0);
    return;
  }
#pragma omp parallel num_threads(threads)
  f(omp_get_thread_num());
}

/// Units 0 .. count - 1, cut into one contiguous range a thread. A thread works through its own
/// range, the same one for the same count every time, so that memory it touched first is near it;
/// then it helps the others. Which thread runs a unit never enters a result.
class WorkShares {
 public:
  explicit WorkShares(int threads)
      : threads_(threads), ranges_(std::make_unique<Range[]>(static_cast<std::size_t>(threads))) {}

  /// Before the parallel region. With several passes every unit is run once in each, and a thread
  /// finishes its own units of a pass before the next.
  void reset(int count, int passes = 1) {
    for (int t = 0; t < threads_; ++t) {
      Range& range = ranges_[t];
      range.first = begin_of(t, count);
      range.units = begin_of(t + 1, count) - range.first;
      range.end = range.units * passes;
      range.next.store(0, std::memory_order_relaxed);
    }
  }

  /// Calls f(unit, pass) until nothing is left.
  template <class F>
  void run_passes(int thread, F&& f) {
    for (int i = 0; i < threads_; ++i) {
      Range& range = ranges_[(thread + i) % threads_];
      for (;;) {
        const int at = range.next.fetch_add(1, std::memory_order_relaxed);
        if (at >= range.end) break;
        f(range.first + at % range.units, at / range.units);
      }
    }
  }

  /// Calls f(unit) until nothing is left.
  template <class F>
  void run(int thread, F&& f) {
    run_passes(thread, [&f](int unit, int) { f(unit); });
  }

 private:
  [[nodiscard]] int begin_of(int thread, int count) const {
    return static_cast<int>(static_cast<long long>(count) * thread / threads_);
  }

  struct alignas(64) Range {
    std::atomic<int> next{0};
    int first = 0;
    int units = 0;
    int end = 0;
  };
  int threads_;
  std::unique_ptr<Range[]> ranges_;  ///< [threads]
};

}  // namespace paceline::kernels::cpu
