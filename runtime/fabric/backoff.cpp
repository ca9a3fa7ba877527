#include "runtime/fabric/backoff.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace paceline::fabric {

void Backoff::pause() {
  constexpr int kSpins = 64;
  constexpr int kYields = 2000;  // a few milliseconds: longer than a step of a small model
  ++calls_;
  if (calls_ <= kSpins) return;
  if (calls_ <= kSpins + kYields) {
    sched_yield();
    return;
  }
  const int sleep_us = std::min(max_sleep_us_, (calls_ - kSpins - kYields) * 10);
  std::this_thread::sleep_for(std::chrono::microseconds(sleep_us));
}

}  // namespace paceline::fabric
