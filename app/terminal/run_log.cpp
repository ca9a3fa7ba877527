#include "app/terminal/run_log.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <system_error>

namespace paceline::app {
namespace {

std::atomic<int> g_file{-1};
static_assert(std::atomic<int>::is_always_lock_free);

/// State of a log whose file is not open yet.
struct Waiting {
  std::mutex mutex;
  bool keeps = false;
  std::string text;
  std::string path;  ///< file to open when there is text for it; empty: not known yet
};
Waiting& waiting() {
  static Waiting all;
  return all;
}

void append(int file, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// Opens the log. On failure returns -1 and sets errno. Refuses a symbolic link, because a run
/// writes nothing outside its own directory.
int open_log(const std::string& path) noexcept {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool ends_within_a_line(int file) noexcept {
  const off_t size = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  return size > 0 && ::pread(file, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

RunLog::RunLog() {
  Waiting& w = waiting();
  const std::lock_guard guard(w.mutex);
  w.keeps = true;
  w.text.clear();
  w.path.clear();
}

RunLog::~RunLog() {
  Waiting& w = waiting();
  const std::lock_guard guard(w.mutex);
  w.keeps = false;
  const int file = g_file.exchange(-1);
  if (file < 0) return;
  if (leads_) append(file, "== ended " + now_text() + "\n");
  ::close(file);
}

std::string RunLog::open(const std::string& directory, const std::string& heading) {
  Waiting& w = waiting();
  const std::lock_guard guard(w.mutex);
  const std::string path = (std::filesystem::path(directory) / kRunLogName).string();
  const int file = open_log(path);
  if (file < 0) {
    w.keeps = false;
    return path + ": " + std::generic_category().message(errno);
  }
  leads_ = true;
  append(file, (ends_within_a_line(file) ? "\n" : "") + heading + "\n" + w.text);
  w.text.clear();
  g_file.store(file);
  return "";
}

void RunLog::join(const std::string& directory) {
  {
    Waiting& w = waiting();
    const std::lock_guard guard(w.mutex);
    w.path = (std::filesystem::path(directory) / kRunLogName).string();
  }
  keep_in_log("");  // opens the file and writes the text kept so far, if there is any
}

void keep_in_log(std::string_view text) noexcept {
  try {
    if (const int file = g_file.load(); file >= 0) return append(file, text);
    Waiting& w = waiting();
    const std::lock_guard guard(w.mutex);
    // Another thread may have opened the file while this one waited for the lock.
    if (const int file = g_file.load(); file >= 0) return append(file, text);
    if (!w.keeps) return;
    w.text += text;
    if (w.path.empty() || w.text.empty()) return;
    const int file = open_log(w.path);
    if (file < 0) {
      w.keeps = false;
      return;
    }
    append(file, w.text);
    w.text.clear();
    g_file.store(file);
  } catch (...) {  // no memory: the text is lost
  }
}

void keep_in_open_log(std::string_view text) noexcept {
  if (const int file = g_file.load(); file >= 0) append(file, text);
}

std::string now_text() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
}

}  // namespace paceline::app
