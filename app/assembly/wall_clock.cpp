#include "app/assembly/wall_clock.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "runtime/core/parse_number.hpp"
#include "runtime/core/stopwatch.hpp"

namespace paceline::app {
namespace {

// squeue prints the time left as [D-]HH:MM:SS or MM:SS, or a word ("UNLIMITED", "INVALID").
std::optional<double> parse_time_left(const std::string& text) {
  double days = 0;
  std::string clock = text;
  if (const std::size_t dash = text.find('-'); dash != std::string::npos) {
    days = std::atof(text.substr(0, dash).c_str());
    clock = text.substr(dash + 1);
  }
  int a = 0;
  int b = 0;
  int c = 0;
  const int fields = std::sscanf(clock.c_str(), "%d:%d:%d", &a, &b, &c);
  if (fields == 3) return days * 86400 + a * 3600 + b * 60 + c;
  if (fields == 2) return days * 86400 + a * 60 + b;
  return std::nullopt;
}

std::optional<double> slurm_time_left(const std::string& job) {
  if (const char* end = std::getenv("SLURM_JOB_END_TIME")) {  // Unix time
    const auto seconds = parse_number<std::int64_t>(end);
    const auto left = static_cast<double>(seconds.value_or(0) - std::time(nullptr));
    // This job is running, so a time in the past must belong to another job.
    if (left > 0) return left;
  }
  for (const char c : job) {
    if (c < '0' || c > '9') return std::nullopt;
  }
  FILE* pipe =
      popen(fmt::format("squeue --noheader --format=%L --jobs={} 2>/dev/null", job).c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  char line[64] = {};
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  return read ? parse_time_left(line) : std::nullopt;
}

}  // namespace

SteadyClock::SteadyClock() : start_(steady_seconds()) {}
double SteadyClock::now() const { return steady_seconds() - start_; }

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TimeLimit time_limit(std::optional<double> setting) {
  if (setting) return {setting, "limits.wall_clock"};
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) return {std::nullopt, "no limit set, and not under Slurm"};
  const std::optional<double> left = slurm_time_left(job);
  return {left, left ? "Slurm's time limit" : "Slurm gives this job no limit"};
}

}  // namespace paceline::app
