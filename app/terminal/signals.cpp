#include "app/terminal/signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string_view>

#include "app/terminal/terminal.hpp"
#include "runtime/core/error.hpp"

namespace paceline::app {
namespace {

// A request to stop may reach a rank twice, from the launcher and from Slurm. Signals less than
// about this many seconds after the first signal belong to the same request.
constexpr long kSameRequestSeconds = 2;

std::atomic<long> g_first{0};  // monotonic second of the first signal, plus 1; 0: no signal
std::atomic<int> g_rank{0};
static_assert(std::atomic<long>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int) {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  long none = 0;
  if (g_first.compare_exchange_strong(none, now.tv_sec + 1)) return;
  if (now.tv_sec + 1 - none >= kSameRequestSeconds) _exit(static_cast<int>(ExitCode::try_again));
}

// Removes a hexadecimal number from the front of `text`, and returns its value.
std::uintptr_t take_hex(std::string_view& text) {
  std::uintptr_t value = 0;
  while (!text.empty()) {
    const char c = text.front();
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    value = value * 16 + static_cast<std::uintptr_t>(digit);
    text.remove_prefix(1);
  }
  return value;
}

// The path in a line of /proc/self/maps, if the line's range contains the address; else empty.
std::string_view path_of_mapping(std::string_view line, std::uintptr_t address) {
  const std::uintptr_t begin = take_hex(line);
  if (!line.starts_with('-')) return {};
  line.remove_prefix(1);
  const std::uintptr_t end = take_hex(line);
  const std::size_t slash = line.find('/');
  if (address < begin || address >= end || slash == std::string_view::npos) return {};
  return line.substr(slash);
}

// The file that is mapped at the address; empty: there is none. This function runs in a signal
// handler, so it uses only system calls and its own memory.
std::string_view file_mapped_at(const void* address) {
  static char lines[8192];  // room for the longest path and the start of its line
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return {};
  std::size_t kept = 0;
  ssize_t got = 0;
  while ((got = ::read(maps, lines + kept, sizeof lines - kept)) > 0) {
    const std::string_view text(lines, kept + static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string_view::npos;) {
      const std::string_view path = path_of_mapping(text.substr(begin, end - begin),
                                                    reinterpret_cast<std::uintptr_t>(address));
      if (!path.empty()) {
        ::close(maps);
        return path;
      }
      begin = end + 1;
    }
    kept = text.size() - begin;
    std::memmove(lines, lines + begin, kept);
  }
  ::close(maps);
  return {};
}

// Handles SIGBUS, which comes if memory is mapped but the bytes of its file cannot be read.
void on_bus_error(int signal, siginfo_t* info, void*) {
  static std::atomic_flag taken = ATOMIC_FLAG_INIT;
  if (taken.test_and_set()) {
    while (true) ::pause();  // another thread reports the error
  }
  const std::string_view path = file_mapped_at(info->si_addr);
  if (path.empty()) {  // no file is mapped: a bug. The fault recurs, and ends the process
    std::signal(signal, SIG_DFL);
    return;
  }
  // A file that all ranks read fails on all of them, and one message is enough. So ranks above 0
  // wait up to two seconds for the signal that the launcher sends after rank 0 has printed the
  // message and ended.
  const timespec moment = {.tv_sec = 0, .tv_nsec = 50'000'000};
  const bool stopping = g_first.load() != 0;
  for (int i = 0; g_rank.load() > 0 && i < 40; ++i) {
    ::nanosleep(&moment, nullptr);
    if (!stopping && g_first.load() != 0) _exit(static_cast<int>(ExitCode::io));
  }
  write_from_handler("paceline: ");
  write_from_handler(path);
  write_from_handler(
      ": cannot be read any more: it was cut short while in use, or its disk is full or failing\n");
  _exit(static_cast<int>(ExitCode::io));
}

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // the run must go on when the reader of its output has ended
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the file size limit then fails, with a message
}

void end_at_signals() {
  std::signal(SIGUSR1, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (stop_signalled()) _exit(static_cast<int>(ExitCode::try_again));
}

void know_rank(int rank) { g_rank.store(rank); }

bool stop_signalled() { return g_first.load() != 0; }

}  // namespace paceline::app
