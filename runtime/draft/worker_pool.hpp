// A few threads that share out the items of a batch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace paceline::draft {

/// The calling thread works too, so one thread means no others. Used by one thread.
class WorkerPool {
 public:
  /// threads >= 1. Throws std::invalid_argument.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(others_.size()) + 1; }
  /// Calls work(thread, item) once for each item in [0, items), in any order, thread in
  /// [0, threads()); returns when all are done. `work` must not throw: that ends the program.
  void run(int items, const std::function<void(int thread, int item)>& work);

 private:
  void serve(int thread);
  void take_items(int thread) noexcept;

  const std::function<void(int, int)>* work_ = nullptr;
  int items_ = 0;
  std::atomic<int> next_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::uint64_t round_ = 0;
  int busy_ = 0;  ///< of others_, in this round
  bool stopping_ = false;
  std::vector<std::thread> others_;
};

}  // namespace paceline::draft
