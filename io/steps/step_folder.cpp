#include "io/steps/step_folder.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRequest = ".yaml";
constexpr const char* kUpcoming = ".upcoming";
constexpr const char* kPart = ".part";
constexpr const char* kError = ".error";

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The digits from `at` on, without leading zeros; moves `at` past them.
std::string number(const std::string& text, std::size_t& at) {
  while (at < text.size() && text[at] == '0') ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

void put_in_place(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    throw IoError(from.string() + ": cannot rename it to " + to.string() + ": " + error.message());
}

}  // namespace

bool step_before(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string m = number(a, i);
      const std::string n = number(b, j);
      if (m.size() != n.size()) return m.size() < n.size();
      if (m != n) return m < n;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  const bool a_ends = i == a.size();
  const bool b_ends = j == b.size();
  return a_ends && b_ends ? a < b : a_ends;  // for names like 01 and 1
}

bool remove_texts(const std::string& directory) {
  std::error_code error;
  const fs::path path(directory);
  if (!fs::exists(path / "run.json", error) || fs::exists(path / "trajectories.h5", error))
    return false;
  fs::remove_all(path, error);
  return !error;
}

StepFolder::StepFolder(std::string path) : path_(std::move(path)) {
  std::error_code error;
  if (!fs::is_directory(path_, error))
    throw UsageError(path_ + ": --watch expects a folder, found " +
                     (fs::exists(path_, error) ? "something else" : "none"));
}

std::optional<StepRequest> StepFolder::next() const { return first("", kRequest); }

std::optional<StepRequest> StepFolder::upcoming(const std::string& now) const {
  if (std::optional<StepRequest> request = first(now, kRequest)) return request;
  return first(now, kUpcoming);
}

std::optional<StepRequest> StepFolder::first(const std::string& but,
                                             const std::string& ending) const {
  std::set<std::string> there;
  std::error_code error;
  std::error_code unknown;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    // Reading a pipe would wait for somebody to write to it.
    const bool no_file = it->is_directory(unknown) || it->is_fifo(unknown);
    if (it->path().extension() != ending || !no_file) there.insert(it->path().filename().string());
  }
  if (error) throw IoError(path_ + ": cannot be listed: " + error.message());
  std::optional<std::string> first;
  for (const std::string& file : there) {
    if (!file.ends_with(ending) || file.starts_with('.')) continue;
    const std::string name = file.substr(0, file.size() - ending.size());
    if (name.empty() || name == but || there.contains(name) || there.contains(name + kError))
      continue;
    if (!first || step_before(name, *first)) first = name;
  }
  if (!first) return std::nullopt;
  const std::string path = (fs::path(path_) / *first).string();
  return StepRequest{*first, path + ending, path + kPart, path + kAhead};
}

bool StepFolder::closed() const {
  std::error_code error;
  return fs::exists(fs::path(path_) / "stop", error);
}

void StepFolder::remove_announced(const StepRequest& step) const {
  std::error_code ignored;
  fs::remove(fs::path(path_) / (step.name + kUpcoming), ignored);
  remove_texts((fs::path(path_) / (step.name + kAhead)).string());
}

void StepFolder::require_place(const StepRequest& step) const {
  std::error_code error;
  if (fs::exists(step.part, error) && !fs::is_directory(step.part, error))
    throw UsageError(step.part + ": expected the step's output directory, or none, found a file");
}

void StepFolder::meet(const StepRequest& step) const {
  remove_announced(step);
  put_in_place(step.part, fs::path(path_) / step.name);
}

void StepFolder::refuse(const StepRequest& step, const std::string& why, bool begun) const {
  std::error_code error;
  if (!begun) fs::remove_all(step.part, error);
  remove_announced(step);
  const fs::path path = fs::path(path_) / (step.name + kError);
  const fs::path written = fs::path(path_) / ("." + step.name + kError);
  std::ofstream file(written);
  file << why << '\n';
  file.close();
  if (!file) throw IoError(written.string() + ": cannot be written");
  put_in_place(written, path);
}

}  // namespace paceline::io
