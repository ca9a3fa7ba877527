// `paceline simulate`: runs the roles and policies of a run in virtual time, on modelled machines.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands/commands.hpp"
#include "app/simulation/lower_bounds.hpp"
#include "app/simulation/simulated_job.hpp"
#include "app/simulation/simulation_setup.hpp"
#include "app/terminal/terminal.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/role.hpp"

namespace paceline::app {
namespace {

/// The results of one simulation: a row of the printed table.
struct Row {
  std::string name;
  double seconds = 0;  ///< virtual seconds of all attempts (start and resume) together
  double tail = 0;     ///< virtual seconds in which the last attempt's final 10 % of responses end
  std::uint64_t tokens = 0;
  std::vector<double> busy;  ///< [group leaders, drafters] busy share in the last attempt; -1: none
  std::size_t moves = 0, races = 0;
  std::size_t attempts = 0, role_changes = 0;
  LowerBounds bounds;
  std::string digest;
  SimulatedAttempt last;
};

double busy_share(const SimulatedAttempt& attempt, Role role) {
  double sum = 0;
  int ranks = 0;
  for (const RankSummary& s : attempt.summaries) {
    if (s.role != static_cast<std::uint32_t>(role)) continue;
    sum += s.busy_seconds;
    ++ranks;
  }
  return ranks == 0 || attempt.seconds == 0 ? -1 : sum / (ranks * attempt.seconds);
}

/// Removes a simulation's telemetry shards. Other files in the folder stay, because they may be the
/// user's.
void remove_shards(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path shards = fs::path(path) / "shards";
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(shards, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("telemetry-") && name.ends_with(".h5")) old.push_back(entry.path());
  }
  for (const fs::path& file : old) fs::remove(file, ignored);
  fs::remove(shards, ignored);  // fails if the folder holds other files
}

/// Makes the directory, and removes an earlier simulation's telemetry. Throws UsageError if the
/// directory holds a real run.
void open_directory(const std::string& path) {
  namespace fs = std::filesystem;
  for (const char* of_run : {"run.json", "trajectories.h5"}) {
    if (fs::exists(fs::path(path) / of_run))
      throw UsageError(path + ": holds a run; name another directory for a simulation (--output)");
  }
  remove_shards(path);
  std::error_code error;
  fs::remove(fs::path(path) / "telemetry.h5", error);
  fs::create_directories(fs::path(path) / "shards", error);
  if (error) throw IoError(path + ": cannot be made: " + error.message());
}

void close_directory(const std::string& path) {
  const std::string roles[] = {name_of(Role::verifier), name_of(Role::verifier_member),
                               name_of(Role::drafter), name_of(Role::spare)};
  for (const std::string& warning : io::write_telemetry(path, roles).warnings)
    say("warning: {}", warning);
  remove_shards(path);
}

Row run(const SimulationSetup& simulation, std::string name) {
  const Inputs& inputs = simulation.inputs;
  Row row;
  row.name = std::move(name);
  Finished finished;
  const std::string& output = inputs.config.output.directory;
  if (!output.empty()) open_directory(output);
  for (std::uint32_t attempt = 0; !row.last.complete; ++attempt) {
    row.last = run_attempt(simulation, attempt, finished);
    row.seconds += row.last.seconds;
    row.moves += row.last.progress.moves;
    row.races += row.last.progress.races;
    row.role_changes += row.last.progress.placements;
    ++row.attempts;
    if (!row.last.complete && attempt > 0)
      throw Error(ExitCode::internal, "a simulated job that was resumed did not end");
  }
  if (finished.size() != inputs.sizes.responses)
    throw Error(ExitCode::internal, fmt::format("{} of {} responses were written", finished.size(),
                                                inputs.sizes.responses));
  TrajectoryDigest digest;
  for (const auto& [id, trajectory] : finished) {
    const Prompt& prompt = inputs.prompts.prompts[id.prompt];
    digest.add(prompt.uid, prompt.tokens, trajectory);
    row.tokens += trajectory.tokens.size();
  }
  row.digest = digest.hex();
  row.bounds = lower_bounds(simulation);
  const std::vector<double>& ends = row.last.ends;
  if (ends.size() >= 10) row.tail = ends.back() - ends[ends.size() * 9 / 10 - 1];
  for (const Role role : {Role::verifier, Role::drafter})
    row.busy.push_back(busy_share(row.last, role));
  if (!output.empty()) close_directory(output);
  return row;
}

std::string percent(double share) { return share < 0 ? "-" : fmt::format("{:.1f}", 100 * share); }

void print(const std::vector<Row>& rows) {
  std::size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  fmt::print(
      "{:{}}  rollout s  tokens/s    tail s  busy, %: verifiers  drafters   moves   races  "
      "digest\n",
      "", width);
  for (const Row& row : rows) {
    fmt::print("{:{}}  {:9.3f} {:9.0f} {:9.3f} {:>19} {:>9} {:7} {:7}  {}\n", row.name, width,
               row.seconds, static_cast<double>(row.tokens) / row.seconds, row.tail,
               percent(row.busy[0]), percent(row.busy[1]), row.moves, row.races, row.digest);
  }
}

/// Prints attempts, role changes, real time, the coordinator's load and the lower bounds. Uses
/// stderr, because stdout must not vary between simulations of a configuration, but real time does.
void account(const Row& row) {
  const SimulatedAttempt& a = row.last;
  say("{}{}, {}; last attempt: {:.2f} s of real time, {} events ({:.0f} a second); coordinator: {} "
      "messages, {:.1f} us of CPU time per message, {:.2f} % of the simulated time, longest event "
      "{:.0f} us",
      row.name.empty() ? "" : row.name + ": ", counted(row.attempts, "attempt"),
      counted(row.role_changes, "change of roles", "changes of roles"), a.wall_seconds, a.turns,
      static_cast<double>(a.turns) / a.wall_seconds, a.coordinator_messages,
      1e6 * a.coordinator_seconds / std::max(1.0, static_cast<double>(a.coordinator_messages)),
      100 * a.coordinator_seconds / std::max(1e-9, a.seconds), 1e6 * a.coordinator_longest);
  say("  {}", lower_bounds_text(row.bounds, row.seconds));
}

/// Splits "key=a,b,c" into "key=a", "key=b", "key=c". A comma inside [] or {} does not split.
std::vector<std::string> settings_of(const std::string& sweep) {
  const std::size_t equals = sweep.find('=');
  if (equals == std::string::npos || equals + 1 == sweep.size())
    throw UsageError(fmt::format("--sweep {}: expected SECTION.KEY=VALUE,VALUE,...", sweep));
  const std::string key = sweep.substr(0, equals + 1);
  std::vector<std::string> settings{key};
  int depth = 0;
  for (const char c : sweep.substr(equals + 1)) {
    depth += (c == '[' || c == '{') ? 1 : (c == ']' || c == '}') ? -1 : 0;
    if (c == ',' && depth == 0) {
      settings.push_back(key);
    } else {
      settings.back() += c;
    }
  }
  return settings;
}

/// The directory for the telemetry of one value of a sweep. The name begins with the value's
/// number, so that a shell lists the directories in the order of the values.
std::string directory_of(const std::string& output, std::size_t number,
                         const std::string& setting) {
  constexpr std::size_t kMost = 100;  // characters
  std::string name = fmt::format("{:02}-{}", number + 1, setting.substr(0, kMost));
  for (char& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("-_.=,").find(c) != std::string_view::npos;
    if (!plain) c = '_';
  }
  return (std::filesystem::path(output) / name).string();
}

void say_written(const std::string& output) {
  if (!output.empty()) say("{}: telemetry, for `paceline report`", output);
}

}  // namespace

ExitCode simulate(const SimulateArguments& arguments) {
  std::vector<Row> rows;
  if (arguments.sweep.empty()) {
    const SimulationSetup simulation =
        prepare_simulation(read_config(arguments.run, io::Purpose::simulation));
    say("{}", simulation_text(simulation));
    if (simulation.inputs.config.prompts.enough)
      say("prompts.enough is not modelled, because there are no rewards: all prompts get "
          "responses");
    rows.push_back(run(simulation, ""));
    account(rows.back());
    say_written(simulation.inputs.config.output.directory);
  } else {
    const std::vector<std::string> settings = settings_of(arguments.sweep);
    std::vector<io::RunConfig> configs;
    // All configurations are read first, so that errors in them show before hours of simulation.
    for (std::size_t i = 0; i < settings.size(); ++i) {
      RunArguments swept = arguments.run;
      swept.overrides.push_back(settings[i]);
      if (!swept.output.empty()) swept.output = directory_of(swept.output, i, settings[i]);
      configs.push_back(read_config(swept, io::Purpose::simulation));
      // Without --output a sweep writes nothing, because all values would share output.directory.
      if (swept.output.empty()) configs.back().output.directory.clear();
    }
    for (std::size_t i = 0; i < settings.size(); ++i) {
      const SimulationSetup simulation = prepare_simulation(configs[i]);
      rows.push_back(run(simulation, settings[i]));
      account(rows.back());
      say_written(simulation.inputs.config.output.directory);
    }
  }
  print(rows);
  return ExitCode::done;
}

}  // namespace paceline::app
