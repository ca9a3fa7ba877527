#include "app/terminal/progress_printer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "app/terminal/run_log.hpp"
#include "app/terminal/terminal.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

/// The time, in seconds, at which the next line is due after a line at `now`.
double next_line(double now) {
  for (const double at : {1.0, 2.0, 5.0}) {
    if (now < at) return at;
  }
  return (std::floor(now / 10) + 1) * 10;
}

/// The counts of requests as text. Each request of the run is in exactly one count.
std::string counts_text(const roles::Progress& progress) {
  std::string text = fmt::format("{}/{} finished", progress.finished, progress.total);
  if (progress.unflushed > 0) text += fmt::format(", {} not on disk yet", progress.unflushed);
  text += fmt::format(", {} active", progress.active);
  if (progress.partial > 0) text += fmt::format(", {} partial", progress.partial);
  return text + fmt::format(", {} waiting", progress.waiting);
}

/// A line of the first `parts` that fit the terminal's width. If room is left, a bar comes first.
std::string bar_line(double done, std::vector<std::string> parts) {
  const auto columns = static_cast<std::size_t>(std::max(1, terminal_columns() - 1));
  const auto joined = [&] { return fmt::format("{}", fmt::join(parts, ", ")); };
  while (parts.size() > 1 && joined().size() > columns) parts.pop_back();
  std::string text = joined().substr(0, columns);
  constexpr std::size_t kLeast = 8;
  constexpr std::size_t kMost = 24;
  if (text.size() + kLeast + 3 > columns) return text;
  const auto width = static_cast<int>(std::min(kMost, columns - text.size() - 3));
  const int filled = std::clamp(static_cast<int>(done * width), 0, width);
  return fmt::format("[{:#<{}}{:.<{}}] {}", "", filled, "", width - filled, text);
}

}  // namespace

ProgressPrinter::ProgressPrinter() : terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressPrinter::update(double now, const roles::Progress& progress) {
  left_ = time_left_.look(now, {.finished = progress.finished - progress.finished_before,
                                .active = progress.active,
                                .left = progress.total - progress.finished,
                                .tokens = progress.tokens});
  const bool draws = terminal_ && now >= next_draw_;
  const bool adds = now >= next_line_;
  if (!draws && !adds) return;
  const std::vector<std::string> text = parts(now, progress);
  if (draws) {
    next_draw_ = now + 0.25;
    draw_bar(progress, text);
  }
  if (adds) {
    next_line_ = next_line(now);
    add_line(text);
  }
}

std::vector<std::string> ProgressPrinter::parts(double now, const roles::Progress& progress) {
  if (now - last_rate_time_ > 0.5) {
    rate_ = static_cast<double>(progress.tokens - last_tokens_) / (now - last_rate_time_);
    last_rate_time_ = now;
    last_tokens_ = progress.tokens;
  }
  std::string first = counts_text(progress);
  if (progress.loading > 0) first = "loading weights: " + first;
  if (stopping_) first = "stopping: " + first;
  std::vector<std::string> parts{first};
  if (progress.tokens > 0) parts.push_back(fmt::format("{:.0f} tokens/s", rate_));
  if (left_ && !stopping_) parts.push_back("ETA " + duration_text(*left_));
  parts.push_back(duration_text(now) + " elapsed");
  return parts;
}

void ProgressPrinter::draw_bar(const roles::Progress& progress,
                               std::vector<std::string> parts) const {
  const double done = static_cast<double>(progress.finished) /
                      static_cast<double>(std::max<std::size_t>(1, progress.total));
  draw("\r" + bar_line(done, std::move(parts)) + "\x1b[K");
}

/// Writes a line to the log and, if there is no bar on stderr, also to stderr.
void ProgressPrinter::add_line(const std::vector<std::string>& parts) const {
  const std::string line = fmt::format("{}\n", fmt::join(parts, ", "));
  if (!terminal_) draw(line);
  keep_in_log(line);
}

void ProgressPrinter::stopping(const std::string& why) {
  stopping_ = true;
  if (terminal_) draw("\r\x1b[K");
  say("{}: stopping after the current step", why);
}

void ProgressPrinter::end(double now, const roles::Progress& progress) {
  left_.reset();
  const std::vector<std::string> text = parts(now, progress);
  if (terminal_) {
    draw_bar(progress, text);
    draw("\n");
  }
  add_line(text);
}

}  // namespace paceline::app
