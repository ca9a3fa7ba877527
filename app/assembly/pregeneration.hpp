// The next step of a resident job. Groups without requests begin it (speculation.pregenerate).
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

/// Finds the next step's request file, or its announcement (StepFolder::upcoming), and reads its
/// prompts. A thread of its own does this, from the first take() on. Keeps the step's texts in a
/// run directory (StepRequest::ahead), and goes on with texts that a killed attempt left there. The
/// file stays: its step reads it again. If the file or its prompts cannot be read, warns. The error
/// is reported when the step itself runs. Leaves out prompts with pictures. Leaves out or shortens
/// responses that do not fit this step's longest sequence. Lives on rank 0.
class UpcomingStep final : public UpcomingRequests {
 public:
  /// `now`: this step's inputs; its model and tokenizer are used. `manifest`: this run's. `wake`:
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

/// A rank's shard of pregenerated texts. If writing fails, warns and writes no more; the run goes
/// on.
class PregeneratedShard final : public TrajectorySink {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// `flush_seconds`: an append() so many seconds after the last write writes all texts.
  PregeneratedShard(const PregeneratedRun& run, int rank, const Clock& clock, double flush_seconds,
                    Warn warn);
  /// Writes the remaining texts.
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
