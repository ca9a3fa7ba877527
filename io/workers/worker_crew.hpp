// Processes of one program that answer lines: a JSON line in, a JSON line out, one at a time each.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/workers/scorer.hpp"
#include "io/workers/worker_process.hpp"
#include "runtime/core/clock.hpp"

namespace paceline::io {

/// What a crew runs.
struct CrewSettings {
  std::string section;               ///< of the configuration, for messages
  std::vector<std::string> command;  ///< program and arguments
  std::int32_t workers = 1;
  double timeout = 60;  ///< seconds for one line
};

/// A worker's line under way, or the last one.
struct CrewLine {
  int worker = 0;
  double asked = 0;  ///< when sending of it began
  double now = 0;
};

/// What a crew's workers are asked, and what becomes of it. Called by the crew's thread alone.
class CrewDesk {
 public:
  virtual ~CrewDesk() = default;
  /// The next line for a worker that is free, with its line feed; nothing: none for now.
  [[nodiscard]] virtual std::optional<std::string> next(int worker) = 0;
  /// The worker's answer, without its line feed. Returns why it is none, or an empty text.
  [[nodiscard]] virtual std::string hear(const CrewLine& line, const std::string& answer) = 0;
  /// The worker's process has ended, or was ended, `asked`: without an answer to its line. `what`
  /// says how. A worker that is given up is not started again.
  virtual void fail(const CrewLine& line, bool asked, ScoreOutcome outcome, const std::string& what,
                    bool given_up) = 0;
  /// All workers are given up.
  virtual void none_left() = 0;
};

/// A thread of the crew's own talks to the workers, and sleeps in between.
///
/// A worker is replaced when it says nothing for the timeout, ends, or gives no valid answer: at
/// once the first time, then after waits that double; after five failures in a row it is given up.
///
/// Descendants of workers end with them, and workers with the crew, or with the process however it
/// ends.
class WorkerCrew {
 public:
  /// References outlive this; the desk is asked from start() on. Throws UsageError when the program
  /// does not exist.
  WorkerCrew(CrewSettings settings, CrewDesk& desk, const Clock& clock);
  /// Calls stop().
  ~WorkerCrew();
  void start();
  /// Has the desk asked again.
  void ring();
  /// Closes the workers' input and gives them a second to end. The desk is asked no more.
  void stop();

 private:
  class Worker;
  void run();
  void tend(double now);
  [[nodiscard]] int wait(double now);
  void listen(Worker& worker, double now);
  void speak(Worker& worker, double now);
  void hear(Worker& worker, const std::string& line, double now);
  void fail(Worker& worker, ScoreOutcome outcome, const std::string& what, double now);
  void dismiss();
  void tell_guard();

  const CrewSettings settings_;
  const std::string program_;
  CrewDesk& desk_;
  const Clock& clock_;
  int bell_;  ///< eventfd that wakes the thread
  std::atomic<bool> stop_ = false;

  // Members of the thread alone.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<WorkerGuard> guard_;
  std::thread thread_;
};

}  // namespace paceline::io
