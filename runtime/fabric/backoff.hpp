// Waiting, by polling, for events that cannot wake the thread.
#pragma once

namespace paceline::fabric {

/// Backoff between polls: the first calls return at once, the next yield the processor, then the
/// thread sleeps, longer each time up to `max_sleep_us` microseconds. With more ranks than cores a
/// busy poll costs milliseconds for each message, and a yield microseconds. A sleep costs nothing
/// where there is nothing to do.
class Backoff {
 public:
  explicit Backoff(int max_sleep_us = 500) : max_sleep_us_(max_sleep_us) {}
  void pause();
  void reset() { calls_ = 0; }

 private:
  int max_sleep_us_;
  int calls_ = 0;
};

}  // namespace paceline::fabric
