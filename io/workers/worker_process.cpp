#include "io/workers/worker_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "runtime/core/descriptor.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::system_error(error, std::generic_category(), what);
}

bool is_program(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

/// A pipe whose ends are not standard streams, even if these are closed.
struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe", errno);
    read = beyond_standard(Descriptor(ends[0]));
    write = beyond_standard(Descriptor(ends[1]));
  }
  static Descriptor beyond_standard(Descriptor fd) {
    if (fd.get() > STDERR_FILENO) return fd;
    return Descriptor(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  }
  Descriptor read;
  Descriptor write;
};

/// Tells the guard of this process group, before there can be descendants in it.
void announce(int guard) {
  char text[16];
  std::size_t at = sizeof text;
  text[--at] = '\n';
  for (pid_t rest = ::getpid(); rest > 0; rest /= 10)
    text[--at] = static_cast<char>('0' + rest % 10);
  text[--at] = '+';
  (void)!::write(guard, text + at, sizeof text - at);
}

/// Arguments for starting a process.
struct Start {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input;
  int output;
  int guard;  ///< -1: no guard
};

/// Runs in the child until it executes the program. It makes only system calls, for the child
/// shares the memory of the parent, whose other threads go on.
[[noreturn]] void become(const Start& how, pid_t parent, volatile int& error) {
  ::setpgid(0, 0);
  if (how.guard >= 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // the parent died before the death signal was set
    announce(how.guard);
  }
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &usual, nullptr);
  ::dup2(how.input, STDIN_FILENO);
  ::dup2(how.output, STDOUT_FILENO);
  if (::close_range(STDERR_FILENO + 1, ~0U, 0) != 0) {  // a kernel before 5.9
    constexpr int kMost = 4096;
    for (int fd = STDERR_FILENO + 1; fd < kMost; ++fd) ::close(fd);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(how.program, how.arguments, how.environment);
  error = errno;
  ::_exit(127);
}

/// Starts a process by vfork(). fork() would copy the page tables of all weights, and disturb
/// memory that is registered with a network card.
pid_t start(const Start& how, volatile int& error) {
  const pid_t parent = ::getpid();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler may run in the child
  const pid_t child = ::vfork();
  if (child == 0) become(how, parent, error);
  if (child < 0) error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return child;
}

}  // namespace

std::string find_program(const std::string& name, const std::string& section) {
  if (name.find('/') != std::string::npos) {
    if (is_program(name)) return name;
    throw UsageError(section + ".command: " + name + " is not there, or no program");
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::string found = std::string(rest.substr(0, end)) + "/" + name;
    if (end > 0 && is_program(found)) return found;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  throw UsageError(section + ".command: no program '" + name +
                   "' in PATH (one beside the configuration begins with ./)");
}

std::vector<std::string> worker_environment() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none);
  const std::filesystem::path python =
      (program.parent_path() / PACELINE_PYTHON_FOLDER).lexically_normal();
  if (none || !std::filesystem::is_directory(python, none)) return all;
  const std::string name = "PYTHONPATH=";
  const auto set = std::find_if(all.begin(), all.end(),
                                [&](const std::string& text) { return text.starts_with(name); });
  if (set == all.end()) {
    all.push_back(name + python.string());
  } else {
    *set += (set->size() == name.size() ? "" : ":") + python.string();
  }
  return all;
}

WorkerProcess::WorkerProcess(const std::string& program, std::span<const std::string> command,
                             const WorkerGuard* guard) {
  std::vector<std::string> words(command.begin(), command.end());
  std::vector<std::string> variables = worker_environment();
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
  };
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> environment = pointers(variables);
  Pipe to;
  Pipe from;
  volatile int error = 0;
  const pid_t child = start({program.c_str(), arguments.data(), environment.data(), to.read.get(),
                             from.write.get(), guard != nullptr ? guard->shell_.input() : -1},
                            error);
  if (error != 0) {
    if (child > 0) ::waitpid(child, nullptr, 0);
    fail("cannot start " + program, error);
  }
  pid_ = child;
  input_ = to.write.release();
  output_ = from.read.release();
  ::fcntl(input_, F_SETFL, O_NONBLOCK);
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
}

WorkerProcess::~WorkerProcess() { (void)end(); }

void WorkerProcess::close_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

std::string WorkerProcess::end(int milliseconds) {
  if (pid_ < 0) return "";
  close_input();
  ::close(std::exchange(output_, -1));
  int status = 0;
  bool ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
  for (; !ended && milliseconds > 0; --milliseconds) {
    const timespec moment = {.tv_sec = 0, .tv_nsec = 1'000'000};
    ::nanosleep(&moment, nullptr);
    ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
  }
  const bool alone = ended;
  ::kill(-pid_, SIGKILL);  // always, to end the rest of its group
  while (!ended) ended = ::waitpid(pid_, &status, 0) == pid_ || errno != EINTR;
  pid_ = -1;
  if (!alone) return "closed its output";
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "exited with code " + std::to_string(WEXITSTATUS(status));
}

namespace {

// A line "+GROUP" adds a group; any other line replaces all groups. End of file means that this
// process has ended.
const std::string kGuardScript =
    "while read -r line; do case $line in +*) groups=\"$groups -${line#+}\";; *) groups=$line;; "
    "esac; done; [ -z \"$groups\" ] || kill -9 $groups 2>/dev/null";

}  // namespace

WorkerGuard::WorkerGuard()
    : shell_("/bin/sh", std::vector<std::string>{"sh", "-c", kGuardScript}, nullptr) {}

WorkerGuard::~WorkerGuard() { watch({}); }

void WorkerGuard::watch(std::span<const pid_t> groups) {
  std::string line;
  for (const pid_t group : groups) line += "-" + std::to_string(group) + " ";
  line += "\n";
  // The shell reads at once. If it does not, the workers themselves still die with this process.
  (void)!::write(shell_.input(), line.data(), line.size());
}

}  // namespace paceline::io
