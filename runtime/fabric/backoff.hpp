// Polling for events that cannot wake us.
#pragma once

namespace paceline::fabric {

/// Backoff between polls: the first calls return at once, the next yield the processor, then the
/// thread sleeps, longer each time up to `max_sleep` microseconds. With more ranks than cores a
/// busy poll costs milliseconds a message, a yield microseconds; with nothing to do a sleep costs
/// nothing.
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
