#include "io/workers/worker_crew.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

namespace paceline::io {
namespace {

constexpr int kMostFailures = 5;     // of one worker in a row
constexpr double kFirstPause = 0.1;  // seconds before the second restart; doubles each time
constexpr double kLongestPause = 5;  // limit of the pause
constexpr double kGrace = 1;         // seconds that workers have to end on their own
constexpr int kLastMoments = 100;    // milliseconds from closing its output to the end of a process
constexpr std::size_t kLongestLine = std::size_t{1} << 20;  // bytes of an answer
constexpr double kNever = std::numeric_limits<double>::infinity();

int milliseconds_until(double moment, double now) {
  if (moment == kNever) return -1;
  return static_cast<int>(std::ceil(std::clamp(moment - now, 0.0, 3600.0) * 1000));
}

}  // namespace

/// A worker's place in the crew: its process, if there is one, and the line that it is to answer.
class WorkerCrew::Worker {
 public:
  explicit Worker(int number) : index(number) {}
  int index;
  std::unique_ptr<WorkerProcess> process;
  bool busy = false;     ///< an answer is awaited
  std::string out;       ///< the line
  std::size_t sent = 0;  ///< bytes of the line
  std::string in;        ///< the answer so far
  double asked = 0;      ///< when sending of the line began
  int failures = 0;      ///< failures in a row
  double start = 0;      ///< when the next process may be started

  [[nodiscard]] bool given_up() const { return failures >= kMostFailures; }
  [[nodiscard]] bool speaks() const { return busy && sent < out.size(); }
};

WorkerCrew::WorkerCrew(CrewSettings settings, CrewDesk& desk, const Clock& clock)
    : settings_(std::move(settings)),
      program_(find_program(settings_.command.front(), settings_.section)),
      desk_(desk),
      clock_(clock),
      bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (bell_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  for (int i = 0; i < settings_.workers; ++i) workers_.push_back(std::make_unique<Worker>(i));
}

WorkerCrew::~WorkerCrew() {
  stop();
  ::close(bell_);
}

void WorkerCrew::start() {
  thread_ = std::thread([this] { run(); });
}

void WorkerCrew::ring() { ::eventfd_write(bell_, 1); }

void WorkerCrew::stop() {
  stop_ = true;
  ring();
  if (thread_.joinable()) thread_.join();
}

/// Main function of the thread.
void WorkerCrew::run() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals go to the rank; SIGPIPE to nobody
  guard_ = std::make_unique<WorkerGuard>();
  while (!stop_) {
    tend(clock_.now());
    if (wait(clock_.now()) < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "poll");
  }
  dismiss();
}

/// Starts processes, hands out lines, and ends workers that take too long.
void WorkerCrew::tend(double now) {
  for (const auto& worker : workers_) {
    if (worker->busy && now >= worker->asked + settings_.timeout) {
      fail(
          *worker, ScoreOutcome::timed_out,
          fmt::format("said nothing for {:g} s ({}.timeout)", settings_.timeout, settings_.section),
          now);
    }
    if (!worker->process && !worker->given_up() && now >= worker->start) {
      try {
        worker->process =
            std::make_unique<WorkerProcess>(program_, settings_.command, guard_.get());
      } catch (const std::system_error& error) {
        fail(*worker, ScoreOutcome::died, error.what(), now);
      }
    }
    if (!worker->process || worker->busy) continue;
    std::optional<std::string> line = desk_.next(worker->index);
    if (!line) continue;
    worker->busy = true;
    worker->out = std::move(*line);
    worker->sent = 0;
    worker->asked = now;
    speak(*worker, now);
  }
  if (std::ranges::all_of(workers_, [](const auto& w) { return w->given_up(); })) desk_.none_left();
}

/// Sleeps until a worker or the rank has news, or until the next deadline.
int WorkerCrew::wait(double now) {
  std::vector<pollfd> descriptors{{bell_, POLLIN, 0}};
  std::vector<Worker*> whose{nullptr};
  double next = kNever;
  for (const auto& worker : workers_) {
    if (!worker->process) {
      if (!worker->given_up()) next = std::min(next, worker->start);
      continue;
    }
    if (worker->busy) next = std::min(next, worker->asked + settings_.timeout);
    descriptors.push_back({worker->process->output(), POLLIN, 0});
    whose.push_back(worker.get());
    if (!worker->speaks()) continue;
    descriptors.push_back({worker->process->input(), POLLOUT, 0});
    whose.push_back(worker.get());
  }
  const int ready = ::poll(descriptors.data(), descriptors.size(), milliseconds_until(next, now));
  if (ready <= 0) return ready;
  eventfd_t rung = 0;
  ::eventfd_read(bell_, &rung);
  const double then = clock_.now();
  for (std::size_t i = 1; i < descriptors.size(); ++i) {
    Worker& worker = *whose[i];
    if (descriptors[i].revents == 0 || !worker.process) continue;
    if (descriptors[i].events == POLLOUT) {
      speak(worker, then);
    } else {
      listen(worker, then);
    }
  }
  return ready;
}

void WorkerCrew::speak(Worker& worker, double now) {
  while (worker.speaks()) {
    const ssize_t wrote = ::write(worker.process->input(), worker.out.data() + worker.sent,
                                  worker.out.size() - worker.sent);
    if (wrote >= 0) {
      worker.sent += static_cast<std::size_t>(wrote);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {  // EPIPE: the worker has ended, or has closed its input
      fail(worker, ScoreOutcome::died, "", now);
      return;
    }
  }
}

void WorkerCrew::listen(Worker& worker, double now) {
  std::array<char, 4096> buffer;
  const ssize_t count = ::read(worker.process->output(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    fail(worker, ScoreOutcome::died, "", now);
    return;
  }
  worker.in.append(buffer.data(), static_cast<std::size_t>(count));
  while (worker.process) {
    const std::size_t end = worker.in.find('\n');
    if (end == std::string::npos) break;
    const std::string line = worker.in.substr(0, end);
    worker.in.erase(0, end + 1);
    hear(worker, line, now);
  }
  if (worker.in.size() > kLongestLine)
    fail(worker, ScoreOutcome::garbage, "wrote a line longer than 1 MiB", now);
}

void WorkerCrew::hear(Worker& worker, const std::string& line, double now) {
  if (!worker.busy) {
    fail(worker, ScoreOutcome::garbage, "wrote '" + line.substr(0, 80) + "' unasked", now);
    return;
  }
  const std::string wrong = desk_.hear({worker.index, worker.asked, now}, line);
  if (!wrong.empty()) {
    fail(worker, ScoreOutcome::garbage, "wrote " + wrong, now);
    return;
  }
  worker.failures = 0;
  worker.busy = false;
}

/// Ends a worker's process. `what`: text about the failure; empty: the process ended on its own.
void WorkerCrew::fail(Worker& worker, ScoreOutcome outcome, const std::string& what, double now) {
  std::string ended = "did not start";
  if (worker.process) ended = worker.process->end(what.empty() ? kLastMoments : 0);
  worker.process.reset();
  tell_guard();
  worker.in.clear();
  ++worker.failures;
  // No pause after the first failure, which may have been the line's or the node's fault.
  worker.start =
      now + (worker.failures == 1
                 ? 0
                 : std::min(kLongestPause, kFirstPause * std::exp2(worker.failures - 2)));
  desk_.fail({worker.index, worker.asked, now}, std::exchange(worker.busy, false), outcome,
             what.empty() ? ended : what, worker.given_up());
  ring();  // the desk may have a line for a worker asked before
}

void WorkerCrew::dismiss() {
  for (const auto& worker : workers_) {
    if (worker->process) worker->process->close_input();
  }
  const double until = clock_.now() + kGrace;
  for (const auto& worker : workers_) {
    // A worker that has ended has closed its output.
    while (worker->process) {
      pollfd output{worker->process->output(), POLLIN, 0};
      const int left = milliseconds_until(until, clock_.now());
      if (left <= 0 || ::poll(&output, 1, left) <= 0) break;
      std::array<char, 4096> buffer;
      if (::read(output.fd, buffer.data(), buffer.size()) <= 0) break;
    }
    worker->process.reset();
  }
  guard_.reset();
}

void WorkerCrew::tell_guard() {
  std::vector<pid_t> groups;
  for (const auto& worker : workers_) {
    if (worker->process) groups.push_back(worker->process->group());
  }
  guard_->watch(groups);
}

}  // namespace paceline::io
