#include "app/commands/watch.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "app/assembly/communicator.hpp"
#include "app/assembly/inputs.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/wall_clock.hpp"
#include "app/terminal/pulse.hpp"
#include "app/terminal/signals.hpp"
#include "app/terminal/terminal.hpp"
#include "io/steps/step_folder.hpp"

namespace paceline::app {
namespace {

/// Pause between looks at the folder. It is short compared with a step, but spares the file system.
constexpr std::chrono::milliseconds kPause(20);
/// Pause between two polls by a rank that waits for the other ranks.
constexpr std::chrono::milliseconds kPoll(2);

/// An event that a rank has seen. Rank 0 looks at the folder, and any rank may get a signal to
/// stop. All ranks act on the greatest of their values.
enum class Sight : std::uint8_t { nothing, request, closed, stop, fault };

/// Waits until some rank sees an event, and returns the event. `folder`: set on rank 0 only.
/// `request`: gets the new request on rank 0. Collective; throws as together() does.
Sight wait(const fabric::MpiEnvironment& mpi, const std::optional<io::StepFolder>& folder,
           std::optional<io::StepRequest>& request) {
  const SteadyClock clock;
  // Slurm's time limit can end the job between steps, limits.wall_clock only during a step.
  const TimeLimit limit = time_limit({});
  while (true) {
    auto sight = Sight::nothing;
    std::exception_ptr fault;
    if (folder) {
      try {
        const PulsingLoop pulse;  // if the file system hangs, rank 0's pulse stops
        request = folder->next();
        sight = request ? Sight::request : folder->closed() ? Sight::closed : Sight::nothing;
      } catch (...) {
        fault = std::current_exception();
        sight = Sight::fault;
      }
      const bool late = limit.seconds && clock.now() > *limit.seconds - 30;
      if (late) sight = std::max(sight, Sight::stop);
    }
    if (stop_signalled()) sight = std::max(sight, Sight::stop);
    sight = static_cast<Sight>(mpi.idle_max_of(static_cast<int>(sight), kPoll).value);
    if (sight == Sight::fault) {
      together(mpi, [&] {
        if (fault) std::rethrow_exception(fault);
      });
    }
    if (sight != Sight::nothing) return sight;
    std::this_thread::sleep_for(kPause);
  }
}

bool of_the_request(ExitCode code) { return code == ExitCode::usage || code == ExitCode::bad_data; }

/// Throws UsageError if a request sets none of the keys on which a response's text most depends.
/// The request is then probably half written, or asks for the same responses again. Throws as
/// read_config() does if the configuration is wrong.
void require_subject(const RunArguments& of_step, const io::StepRequest& step) {
  (void)read_config(of_step, io::Purpose::run);
  constexpr std::array<std::string_view, 5> kSubjects{"model.path", "model.weight_version",
                                                      "prompts.path", "sampling.seed",
                                                      "sampling.temperature"};
  const std::vector<std::string> keys = io::keys_in_file(step.request);
  const bool has_one = std::ranges::any_of(kSubjects, [&](std::string_view subject) {
    return std::ranges::find(keys, subject) != keys.end();
  });
  if (has_one) return;
  throw UsageError(
      step.request +
      ": expected weights (model.path or model.weight_version), prompts (prompts.path) or "
      "sampling (sampling.seed or sampling.temperature), found " +
      (keys.empty() ? "an empty request; write it under another name, and rename it"
                    : "none of them: the same responses might be generated again"));
}

/// Returns the function for set_last_words(). If a rank aborts the job because of the request's
/// configuration or data, the function refuses the request, so that a new job skips the request.
std::function<void(const Fault&)> refusal(const std::string& path, const io::StepRequest& step) {
  return [path, step](const Fault& fault) {
    if (!of_the_request(fault.code)) return;
    try {
      io::StepFolder(path).refuse(step, fault.message, true);
    } catch (const Error&) {  // ignored: the user has been told of the fault, which matters more
    }
  };
}

}  // namespace

void watch(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
           const std::string& path, const RunStep& run) {
  const bool first = mpi.rank() == 0;
  std::optional<io::StepFolder> folder;
  together(mpi, [&] {
    if (first) folder.emplace(path);
  });
  if (first) say("waiting for requests in {}", path);
  while (true) {
    std::optional<io::StepRequest> request;
    switch (wait(mpi, folder, request)) {
      case Sight::closed:
        return;
      case Sight::stop:
        together(mpi, [&] {
          if (first)
            throw Error(ExitCode::try_again,
                        "stopped between two steps: run the same command again to continue");
        });
        break;
      default:
        break;
    }
    io::StepRequest step = request.value_or(io::StepRequest{});
    broadcast(mpi, step.name, step.request, step.part);
    RunArguments of_step = arguments;
    of_step.overrides.push_back("@" + step.request);
    of_step.output = step.part;
    of_step.resume = true;
    const bool begun = first && std::filesystem::exists(step.part);
    if (first) say("step {}", step.name);
    set_last_words(refusal(path, step));
    bool generated = false;
    try {
      together(mpi, [&] {
        if (!first) return;
        folder->require_place(step);
        require_subject(of_step, step);
      });
      run(of_step, {arguments, path, step.name}, generated);
    } catch (const JobEnded& ended) {
      set_last_words({});
      if (!of_the_request(ended.code)) throw;
      together(mpi, [&] {
        // The step's output stays if an earlier job began it, or if only rewards are missing.
        if (first) folder->refuse(step, ended.message, begun || generated);
      });
      continue;
    }
    set_last_words({});
    together(mpi, [&] {
      if (first) folder->meet(step);
    });
  }
}

}  // namespace paceline::app
