#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "app/commands.hpp"
#include "app/run_report/html.hpp"
#include "app/run_report/text.hpp"
#include "app/run_report/trace.hpp"
#include "app/terminal.hpp"
#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/telemetry_reader.hpp"

namespace paceline::app {

namespace {

/// What is written is none of the run's own files.
void require_others(const ReportArguments& arguments, const std::string& run) {
  for (const std::string& output : {arguments.html, arguments.trace}) {
    for (const char* name : {".", "run.json", "telemetry.h5", "trajectories.h5"}) {
      std::error_code ignored;
      const std::string file = (std::filesystem::path(run) / name).string();
      if (!output.empty() && std::filesystem::equivalent(output, file, ignored))
        throw UsageError(output + " is of the run itself: choose another file");
    }
  }
}

}  // namespace

ExitCode report(const ReportArguments& arguments) {
  constexpr int kBins = 240;  // of time lines: three units of a picture 800 wide
  if (!arguments.trace.empty() && arguments.runs.size() > 1)
    throw UsageError("--trace: expected one run, found " + std::to_string(arguments.runs.size()));
  for (const std::string& path : arguments.runs) require_others(arguments, path);
  if (!arguments.html.empty() && arguments.html == arguments.trace)
    throw UsageError("--html and --trace: both are " + arguments.html);
  std::vector<NamedRun> runs;
  for (const std::string& path : arguments.runs) {
    const RecordedTelemetry run = io::read_telemetry(path);
    if (!arguments.trace.empty()) io::write_whole(arguments.trace, trace_of(run));
    runs.push_back({path, figures_of(run, kBins)});
  }
  if (!arguments.html.empty()) io::write_whole(arguments.html, html_of(runs));
  fmt::print("{}", text_of(runs));
  return ExitCode::done;
}

}  // namespace paceline::app
