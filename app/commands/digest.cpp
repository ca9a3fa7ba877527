#include <fmt/format.h>

#include "app/commands/commands.hpp"
#include "app/terminal/terminal.hpp"
#include "io/run/digest.hpp"

namespace paceline::app {

ExitCode digest(const std::string& path) {
  const io::DigestReport report = io::digest_report(path);
  fmt::print("{}\n", report.hex);
  if (report.trajectories != report.expected) {
    say("paceline: {} of {} trajectories are in the digest, because the run is not complete",
        report.trajectories, report.expected);
  }
  return ExitCode::done;
}

}  // namespace paceline::app
