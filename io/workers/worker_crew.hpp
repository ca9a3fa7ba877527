// Processes of one program that answer lines: each reads a JSON line and writes one, in turn.
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

/// The program that a crew runs.
struct CrewSettings {
  std::string section;               ///< section of the configuration, for messages
  std::vector<std::string> command;  ///< program and arguments
  std::int32_t workers = 1;
  double timeout = 60;  ///< seconds for one line
};

/// The line that a worker is answering, or answered last.
struct CrewLine {
  int worker = 0;
  double asked = 0;  ///< when sending of the line began
  double now = 0;
};

/// The source of workers' lines and the receiver of their answers. Only the crew's thread calls it.
class CrewDesk {
 public:
  virtual ~CrewDesk() = default;
  /// The next line for a worker that is free, with its line feed; nullopt: none for now.
  [[nodiscard]] virtual std::optional<std::string> next(int worker) = 0;
  /// Takes the worker's answer, without its line feed. Returns why it is not valid, else "".
  [[nodiscard]] virtual std::string hear(const CrewLine& line, const std::string& answer) = 0;
  /// Told that a worker's process has ended, or was ended. `asked`: its line has no answer. `what`:
  /// how it ended. `given_up`: the worker is not started again.
  virtual void fail(const CrewLine& line, bool asked, ScoreOutcome outcome, const std::string& what,
                    bool given_up) = 0;
  /// Told that all workers are given up.
  virtual void none_left() = 0;
};

/// Workers, and a thread that talks to them and sleeps in between.
///
/// A worker is replaced when it says nothing for the timeout, ends, or gives no valid answer: at
/// once the first time, then after waits that double. After five failures in a row it is given up.
///
/// Descendants of workers end with them. Workers end with the crew, or with the process, however it
/// ends.
class WorkerCrew {
 public:
  /// References outlive this; the desk is called from start() on. Throws UsageError if the program
  /// does not exist.
  WorkerCrew(CrewSettings settings, CrewDesk& desk, const Clock& clock);
  /// Calls stop().
  ~WorkerCrew();
  void start();
  /// Makes the thread ask the desk for lines again.
  void ring();
  /// Closes the workers' input and gives them a second to end. Afterwards the desk is not called.
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

  // Members used by the thread alone.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<WorkerGuard> guard_;
  std::thread thread_;
};

}  // namespace paceline::io
