// Pregeneration (speculation.pregenerate): groups that have run out of requests begin the responses
// of a resident job's next training step. That step then drafts from these texts.
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

/// The present step of a resident job (`paceline rollout --watch`).
struct ResidentStep {
  RunArguments job;    ///< arguments with which the job was started
  std::string folder;  ///< folder of --watch (io/steps/step_folder.hpp)
  std::string name;
};

/// Finds the next step's request file, or its announcement (StepFolder::upcoming), and reads the
/// step's prompts. The first take() starts a thread for this search. Pregenerated texts go to a run
/// directory (StepRequest::ahead). Texts that an earlier job left there are continued if they have
/// the same manifest. The file stays, because the next step needs it. If the file or the prompts
/// cannot be read, this class only warns, because the next step reports errors of its request.
/// Prompts with pictures are left out. A prompt and its response may together be as long as the
/// present step's longest sequence; pairs of this length or more are left out. Lives on rank 0.
class UpcomingStep final : public UpcomingRequests {
 public:
  /// `now`, `manifest`: inputs and manifest of the present step. `wake`: called by the search
  /// thread when it has read the next step's requests. References must outlive this object.
  UpcomingStep(const ResidentStep& step, const Inputs& now, const io::RunManifest& manifest,
               std::function<void()> wake);
  /// If the search thread is reading a file, waits until it has finished.
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

  std::mutex mutex_;  ///< guards the fields below
  std::condition_variable_any stopped_;
  std::vector<Prompt> prompts_;     ///< prompts of the next step
  std::uint64_t seed_ = 0;          ///< seed of the next step
  std::deque<Trajectory> waiting_;  ///< responses for take() to return, prompt by prompt
  PregeneratedRun run_;
  std::unique_ptr<io::RunDirectory> directory_;
  std::jthread thread_;  ///< the last member, so it is joined before others are destroyed
};

/// A rank's shard of pregenerated texts. If writing fails, warns and writes no more; the run goes
/// on.
class PregeneratedShard final : public TrajectorySink {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// `flush_seconds`: append() flushes if this number of seconds has passed since the last flush.
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
