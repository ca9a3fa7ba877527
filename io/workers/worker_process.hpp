// A program driven through its standard input and output.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace paceline::io {

/// Path of a command's program: the name itself where it has a slash, else found in PATH. Throws
/// UsageError when it does not exist or cannot be executed, naming the section of the
/// configuration.
[[nodiscard]] std::string find_program(const std::string& name, const std::string& section);

/// Environment ("NAME=value") of workers: this process's, with the folder of Python that is
/// installed beside this program, if any, appended to PYTHONPATH, so that `python3 -m score_worker`
/// finds it.
[[nodiscard]] std::vector<std::string> worker_environment();

class WorkerGuard;

/// A process with its own process group; it inherits only the standard streams, and standard error
/// is this process's. Used by the thread that started it.
class WorkerProcess {
 public:
  /// `program`: find_program() of the command's first word. With a guard, which is told of it, the
  /// process is killed when this thread ends, even by kill -9; without one it outlives the thread.
  /// Throws std::system_error when the system cannot start it.
  WorkerProcess(const std::string& program, std::span<const std::string> command,
                const WorkerGuard* guard);
  /// Calls end(), unless it was called.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Descriptors to write to and to read from, without blocking. Writing to a worker that has ended
  /// raises SIGPIPE, which the caller blocks or ignores.
  [[nodiscard]] int input() const { return input_; }
  [[nodiscard]] int output() const { return output_; }
  /// Its process group.
  [[nodiscard]] pid_t group() const { return pid_; }
  /// Sends it an end of file, at which it should end.
  void close_input();
  /// Kills it with its whole process group, after so many milliseconds in which it may end by
  /// itself. Returns how it ended, as "exited with code 3".
  std::string end(int milliseconds = 0);

 private:
  int input_ = -1;
  int output_ = -1;
  pid_t pid_ = -1;
};

/// Ends descendants of workers where this process cannot, as after kill -9. It is a shell that
/// waits for this process's end.
class WorkerGuard {
 public:
  /// Throws std::system_error.
  WorkerGuard();
  /// Closes the guard once there is nothing left to end.
  ~WorkerGuard();
  /// Replaces the process groups that are to be ended. Groups of new workers add themselves.
  void watch(std::span<const pid_t> groups);

 private:
  friend class WorkerProcess;
  WorkerProcess shell_;
};

}  // namespace paceline::io
