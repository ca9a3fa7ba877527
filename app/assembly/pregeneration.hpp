// The next step of a resident job, which groups that run dry begin (speculation.pregenerate).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "app/assembly/inputs.hpp"
#include "app/commands/commands.hpp"
#include "io/run/manifest.hpp"
#include "io/run/run_directory.hpp"
#include "io/run/shard_writer.hpp"
#include "io/steps/step_folder.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/upcoming_requests.hpp"

namespace paceline::app {

/// The step that a resident job is at.
struct ResidentStep {
  RunArguments job;    ///< the job's own arguments
  std::string folder;  ///< folder of requests
  std::string name;    ///< name of the step
};

/// Reads the next step's request, or its announcement (StepFolder::upcoming), and prompts on a
/// thread of its own, once requests are first asked for. Keeps its texts in a run directory
/// (StepRequest::ahead). The request stays: its step reads it again. If the directory holds texts
/// of an attempt that was killed, goes on with them. A request or prompts that cannot be read are
/// warned of, and fail their own step. Prompts with pictures are left out. Lives on rank 0.
class UpcomingStep final : public UpcomingRequests {
 public:
  /// `now`: this step's inputs, whose model and tokenizer count. `manifest`: this run's. `wake`:
  /// called by another thread once there are requests. References outlive this.
  UpcomingStep(const ResidentStep& step, const Inputs& now, const io::RunManifest& manifest,
               std::function<void()> wake);
  /// Waits until a file that is being read has been read.
  ~UpcomingStep() override;
  UpcomingStep(const UpcomingStep&) = delete;
  UpcomingStep& operator=(const UpcomingStep&) = delete;

  [[nodiscard]] std::vector<Admission> take(std::size_t most) override;
  [[nodiscard]] const PregeneratedRun& run() const override { return run_; }

 private:
  void search(const std::stop_token& stop);
  void read(const io::StepRequest& request);

  const ResidentStep& step_;
  const Inputs& now_;
  const io::RunManifest& manifest_;
  std::function<void()> wake_;

  std::mutex mutex_;  ///< for the fields below
  std::condition_variable_any stopped_;
  std::vector<Prompt> prompts_;     ///< prompts of the next step
  std::uint64_t seed_ = 0;          ///< seed of the next step
  std::deque<Trajectory> waiting_;  ///< requests not taken yet; siblings are neighbours
  PregeneratedRun run_;
  std::unique_ptr<io::RunDirectory> directory_;
  std::jthread thread_;  ///< last, so that it ends before the rest does
};

/// A rank's shard of pregenerated texts. An error of writing is warned of once, and ends no run.
class PregeneratedShard final : public TrajectorySink {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// `flush_seconds`: most seconds for which a text is only in memory.
  PregeneratedShard(const PregeneratedRun& run, int rank, const Clock& clock, double flush_seconds,
                    Warn warn);
  /// Writes what is left.
  ~PregeneratedShard() override;
  PregeneratedShard(const PregeneratedShard&) = delete;
  PregeneratedShard& operator=(const PregeneratedShard&) = delete;

  void append(const Trajectory& text) override;
  void flush() override;

 private:
  void attempt(const std::function<void()>& write);

  const Clock& clock_;
  double flush_seconds_;
  double flushed_;
  Warn warn_;
  std::unique_ptr<io::ShardWriter> writer_;  ///< null after a failure
};

}  // namespace paceline::app
