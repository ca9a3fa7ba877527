#include "runtime/draft/worker_pool.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::draft {
namespace {

constexpr int kGrain = 16;  // items taken at a time; fewer than this are not worth a wake-up

}  // namespace

WorkerPool::WorkerPool(int threads) {
  if (threads < 1) throw std::invalid_argument("threads of a worker pool");
  for (int t = 1; t < threads; ++t) others_.emplace_back([this, t] { serve(t); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : others_) thread.join();
}

void WorkerPool::run(int items, const std::function<void(int, int)>& work) {
  work_ = &work;
  items_ = items;
  next_ = 0;
  const bool alone = others_.empty() || items <= kGrain;
  if (!alone) {
    {
      const std::lock_guard lock(mutex_);
      ++round_;
      busy_ = static_cast<int>(others_.size());
    }
    wake_.notify_all();
  }
  take_items(0);
  if (!alone) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }
}

void WorkerPool::take_items(int thread) noexcept {
  for (;;) {
    const int first = next_.fetch_add(kGrain);
    if (first >= items_) return;
    const int last = std::min(first + kGrain, items_);
    for (int i = first; i < last; ++i) (*work_)(thread, i);
  }
}

void WorkerPool::serve(int thread) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || round_ != seen; });
    if (stopping_) return;
    seen = round_;
    lock.unlock();
    take_items(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace paceline::draft
