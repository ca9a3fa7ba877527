#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "app/commands/commands.hpp"
#include "app/run_report/pictured.hpp"
#include "app/run_report/reports.hpp"
#include "app/run_report/trace.hpp"
#include "app/terminal/terminal.hpp"
#include "io/hdf5/atomic_file.hpp"
#include "io/run/stored_run.hpp"
#include "io/steps/step_folder.hpp"
#include "io/telemetry/telemetry_reader.hpp"

namespace paceline::app {
namespace fs = std::filesystem;

namespace {

/// A run's directory. `path`: the directory itself, or a file in it, such as telemetry.h5.
fs::path directory_of(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Throws UsageError if the report would overwrite a file of the run at `run`.
void refuse_overwriting(const ReportArguments& arguments, const std::string& run) {
  const fs::path directory = directory_of(run);
  for (const std::string& output : {arguments.html, arguments.trace}) {
    for (const fs::path& file : {fs::path(run), directory, directory / "run.json",
                                 directory / "telemetry.h5", directory / "trajectories.h5"}) {
      std::error_code ignored;
      if (!output.empty() && fs::equivalent(output, file, ignored))
        throw UsageError(output + " belongs to the run itself: choose another file");
    }
  }
}

/// The runs at `path`. If `path` is the folder of a resident job (`paceline rollout --watch`), the
/// runs are the job's steps, in order. Otherwise `path` is the only run.
std::vector<std::string> runs_of(const std::string& path) {
  std::error_code ignored;
  const auto holds_run = [&](const fs::path& folder) {
    return fs::exists(folder / "run.json", ignored) ||
           fs::exists(folder / "telemetry.h5", ignored) ||
           fs::exists(folder / "trajectories.h5", ignored);
  };
  if (!fs::is_directory(path, ignored) || holds_run(path)) return {path};
  std::vector<std::string> steps;
  for (fs::directory_iterator it(path, ignored), end; it != end; it.increment(ignored)) {
    const bool ahead = it->path().extension() == io::kAhead;  // pregenerated texts, not a step
    if (!ahead && it->is_directory(ignored) && holds_run(it->path()))
      steps.push_back(it->path().filename().string());
  }
  std::sort(steps.begin(), steps.end(), io::step_before);
  for (std::string& step : steps) step = (fs::path(path) / step).string();
  return steps.empty() ? std::vector<std::string>{path} : steps;
}

/// Adds reward statistics of the run at `path` and, if `shows` is set, its prompts with pictures.
/// Adds nothing for a simulation, which has no responses. If responses are unreadable, warns.
void take_responses(const std::string& path, double threshold, bool shows, NamedRun& into) {
  const fs::path directory = directory_of(path);
  if (!fs::exists(directory / "run.json") && !fs::exists(directory / "trajectories.h5")) return;
  try {
    const io::StoredRun run = io::open_stored_run(directory.string());
    for (const std::string& warning : run.warnings) say("warning: {}", warning);
    std::vector<RewardedResponse> responses;
    responses.reserve(run.finished.size());
    for (const io::StoredResponse& entry : run.finished)
      responses.push_back({entry.id(), entry.length, entry.reward});
    RewardFigures figures = reward_figures(responses, threshold);
    figures.complete = run.complete;
    figures.expected = io::ResponseOrder(run.manifest).size();
    figures.weight_version = run.manifest.weight_version;
    if (const auto& choice = run.manifest.choice; choice && run.complete)
      figures.choice = {choice->prompts, run.manifest.prompts, choice->dropped};
    if (figures.choice) into.figures.kept = run.manifest.choice->kept;
    into.rewards = std::move(figures);
    if (shows) into.pictured = pictured_prompts(run);
  } catch (const IoError& error) {
    say("warning: {}: {} left out", error.what(),
        into.rewards ? "the run's pictures are" : "the run's rewards are");
  }
}

}  // namespace

ExitCode report(const ReportArguments& arguments) {
  constexpr int kBins = 240;  // bins of a time line; each is about 3 SVG units wide in a plot
  std::vector<std::string> paths;
  for (const std::string& path : arguments.runs) {
    for (std::string& run : runs_of(path)) paths.push_back(std::move(run));
  }
  if (!arguments.trace.empty() && paths.size() > 1)
    throw UsageError("--trace: expected one run, found " + std::to_string(paths.size()));
  for (const std::string& path : paths) refuse_overwriting(arguments, path);
  if (!arguments.html.empty() && arguments.html == arguments.trace)
    throw UsageError("--html and --trace: both are " + arguments.html);
  std::vector<NamedRun> runs;
  for (const std::string& path : paths) {
    std::vector<std::string> warnings;
    const RecordedTelemetry run = io::read_telemetry(path, &warnings);
    for (const std::string& warning : warnings) say("warning: {}", warning);
    if (!arguments.trace.empty()) io::write_whole(arguments.trace, trace_of(run));
    runs.push_back({path, figures_of(run, kBins)});
    take_responses(path, arguments.pass, !arguments.html.empty(), runs.back());
  }
  if (!arguments.html.empty()) io::write_whole(arguments.html, html_of(runs));
  fmt::print("{}", arguments.json ? json_of(runs) : text_of(runs));
  return ExitCode::done;
}

}  // namespace paceline::app
