#include "app/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <ctime>

#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

// One request to stop may reach a rank twice, from the launcher and from the scheduler.
constexpr long kSameRequestSeconds = 2;

std::atomic<long> g_first{0};  // monotonic second of the first signal, 0: none
static_assert(std::atomic<long>::is_always_lock_free);

void on_signal(int) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  long none = 0;
  if (g_first.compare_exchange_strong(none, now.tv_sec + 1)) return;
  if (now.tv_sec + 1 - none >= kSameRequestSeconds) _exit(static_cast<int>(ExitCode::try_again));
}

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // a closed terminal must not end the run
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is a failed write, with a message
}

bool stop_signalled() { return g_first.load() != 0; }

}  // namespace paceline::app
