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

// Parses the remaining time of a job as squeue prints it: [D-]HH:MM:SS or MM:SS.
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

// Returns the remaining time of a job as squeue prints it, which may be a word ("UNLIMITED",
// "INVALID"). Returns an empty text if squeue is absent or fails.
std::string squeue_time_left(const std::string& job) {
  for (const char c : job) {
    if (c < '0' || c > '9') return "";
  }
  FILE* pipe =
      popen(fmt::format("squeue --noheader --format=%L --jobs={} 2>/dev/null", job).c_str(), "r");
  if (pipe == nullptr) return "";
  char line[64] = {};
  const bool read = std::fgets(line, sizeof line, pipe) != nullptr;
  pclose(pipe);
  return read ? line : "";
}

TimeLimit slurm_limit(const std::string& job) {
  constexpr const char* kOrigin = "Slurm's time limit";
  if (const char* end = std::getenv("SLURM_JOB_END_TIME")) {  // Unix time
    const auto seconds = parse_number<std::int64_t>(end);
    const auto left = static_cast<double>(seconds.value_or(0) - std::time(nullptr));
    // This job is running, so a time in the past is outdated or was inherited from another job.
    if (left > 0) return {left, kOrigin};
  }
  const std::string text = squeue_time_left(job);
  if (const std::optional<double> left = parse_time_left(text)) return {left, kOrigin};
  const bool unlimited = text.find("UNLIMITED") != std::string::npos;
  return {std::nullopt, unlimited ? "Slurm gives this job no limit"
                                  : "Slurm does not say how long this job may run"};
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
  if (job == nullptr)
    return {std::nullopt, "limits.wall_clock is not set, and this is no Slurm job"};
  return slurm_limit(job);
}

}  // namespace paceline::app
