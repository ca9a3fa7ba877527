// Sharing of work among threads, where there is enough of it to wake them.
#pragma once

#include <cstdint>

#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels::cpu {

/// Elements below which an elementwise operation is too small to wake the threads.
constexpr std::int64_t kParallelElements = 16384;

/// Calls f(unit) for units 0 .. count - 1; on the threads if the work is at least kParallelElements
/// elements.
template <class F>
void for_each(ThreadPool& pool, int count, std::int64_t elements, F&& f) {
  if (elements < kParallelElements) {
    for (int i = 0; i < count; ++i) f(i);
  } else {
    pool.for_units(count, [&f](int, int unit) { f(unit); });
  }
}

}  // namespace paceline::kernels::cpu
