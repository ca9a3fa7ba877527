#include "io/hdf5/library_mutex.hpp"

#include <utility>

namespace paceline::io::h5 {

void LibraryMutex::lock() {
  if (owned()) {
    ++depth_;
    return;
  }
  std::unique_lock guard(mutex_);
  const std::uint64_t place = arrivals_++;
  next_.wait(guard, [&] { return leaves_ == place; });
  owner_ = std::this_thread::get_id();
  depth_ = 1;
}

void LibraryMutex::unlock() {
  if (--depth_ > 0) return;
  owner_ = std::thread::id();
  {
    const std::lock_guard guard(mutex_);
    ++leaves_;
  }
  next_.notify_all();
}

void LibraryMutex::give_way() {
  if (!owned() || !wanted()) return;
  const int depth = std::exchange(depth_, 1);
  unlock();
  lock();
  depth_ = depth;
}

bool LibraryMutex::wanted() {
  const std::lock_guard guard(mutex_);
  return arrivals_ - leaves_ > 1;
}

}  // namespace paceline::io::h5
