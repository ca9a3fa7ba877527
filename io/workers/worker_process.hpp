// A program driven through its standard input and output.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace paceline::io {

/// Path of a command's program: the name itself if it has a slash, else looked up in PATH. If it
/// does not exist or cannot be executed, throws UsageError naming the section of the configuration.
[[nodiscard]] std::string find_program(const std::string& name, const std::string& section);

/// Environment ("NAME=value") of workers: this process's. If a Python folder is installed next to
/// this program, it is appended to PYTHONPATH, so that `python3 -m score_worker` finds it.
[[nodiscard]] std::vector<std::string> worker_environment();

class WorkerGuard;

/// A process with its own process group. It inherits only the standard streams; its standard error
/// is this process's. Used by the thread that started it.
class WorkerProcess {
 public:
  /// `program`: from find_program(), for the command's first word. `guard`: null, or told of the
  /// process; then the process is killed when this thread ends, even by kill -9. Without a guard it
  /// outlives the thread. Throws std::system_error if the system cannot start it.
  WorkerProcess(const std::string& program, std::span<const std::string> command,
                const WorkerGuard* guard);
  /// Calls end(), unless that was called.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Descriptors to write to and to read from, without blocking. Writing to a worker that has ended
  /// raises SIGPIPE, which the caller must block or ignore.
  [[nodiscard]] int input() const { return input_; }
  [[nodiscard]] int output() const { return output_; }
  /// The process group of the process.
  [[nodiscard]] pid_t group() const { return pid_; }
  /// Closes the process's input; at the end of file it should end.
  void close_input();
  /// Kills the process with its whole process group, after waiting this many milliseconds for it to
  /// end on its own. Returns how it ended, as "exited with code 3".
  std::string end(int milliseconds = 0);

 private:
  int input_ = -1;
  int output_ = -1;
  pid_t pid_ = -1;
};

/// Ends descendants of workers if this process cannot, for example after kill -9. It is a shell
/// that waits until this process ends.
class WorkerGuard {
 public:
  /// Throws std::system_error.
  WorkerGuard();
  /// Closes the guard, when there is nothing left for it to end.
  ~WorkerGuard();
  /// Replaces the process groups to be ended. Groups of new workers are added by those.
  void watch(std::span<const pid_t> groups);

 private:
  friend class WorkerProcess;
  WorkerProcess shell_;
};

}  // namespace paceline::io
