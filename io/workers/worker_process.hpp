// A program that is talked to through its standard input and output.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

namespace paceline::io {

/// Where the program of a command is: the name itself where it has a slash, else in PATH. Throws
/// UsageError when it is not there or cannot be executed.
[[nodiscard]] std::string find_program(const std::string& name);

/// This process's environment ("NAME=value") for workers: behind what PYTHONPATH names comes the
/// folder of Python that is installed beside this program, if any, so that `python3 -m
/// score_worker` is found wherever it is.
[[nodiscard]] std::vector<std::string> worker_environment();

class WorkerGuard;

/// It has a process group of its own, and of this process nothing but the standard streams, of
/// which standard error is this process's. Used by the thread that started it.
class WorkerProcess {
 public:
  /// `program`: find_program() of the command's first word. With a guard, which is told of it, the
  /// process is killed when this thread ends, by kill -9 even; without it outlives the thread.
  /// Throws std::system_error when the system cannot start it.
  WorkerProcess(const std::string& program, std::span<const std::string> command,
                const WorkerGuard* guard);
  /// end(), unless it was called.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// To write to and to read from, without blocking. Writing to a worker that has ended raises
  /// SIGPIPE, which the caller blocks or ignores.
  [[nodiscard]] int input() const { return input_; }
  [[nodiscard]] int output() const { return output_; }
  /// Of its process group.
  [[nodiscard]] pid_t group() const { return pid_; }
  /// It reads an end of file, upon which it should end.
  void close_input();
  /// Kills it with all of its process group, after so many milliseconds in which it may end by
  /// itself. How it ended, as "exited with code 3".
  std::string end(int milliseconds = 0);

 private:
  int input_ = -1;
  int output_ = -1;
  pid_t pid_ = -1;
};

/// Ends what workers have started themselves, where this process ends without doing so: by kill -9,
/// say. It is a shell, which waits for this process's end.
class WorkerGuard {
 public:
  /// Throws std::system_error.
  WorkerGuard();
  /// There is nothing to end any more.
  ~WorkerGuard();
  /// The process groups that are to be ended, from now on. Those of new workers come by themselves.
  void watch(std::span<const pid_t> groups);

 private:
  friend class WorkerProcess;
  WorkerProcess shell_;
};

}  // namespace paceline::io
