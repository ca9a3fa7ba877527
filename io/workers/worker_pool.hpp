// Programs that score responses: a JSON line in, a JSON line out (worker_line.hpp), off the path of
// steps. Seer, section 5: rewards are computed while other responses are still generated.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "io/workers/reward_settings.hpp"
#include "io/workers/scorer.hpp"
#include "io/workers/worker_process.hpp"
#include "runtime/core/clock.hpp"

namespace paceline::io {

/// Runs reward.workers processes of the program reward.command, each with one response at a time. A
/// thread of the pool's own talks to them, and sleeps in between.
///
/// A worker is replaced when it says nothing for reward.timeout, ends, or gives no valid answer: at
/// once the first time, then after waits that double; after five failures in a row it is given up.
/// The response is tried again, reward.attempts times in all. An error is a valid answer, and the
/// worker stays. With no worker left all responses are given up.
///
/// Descendants of workers end with them, and workers with the pool, or with the process however it
/// ends.
class WorkerPool final : public Scorer {
 public:
  /// `subjects`: [prompts] (ground_truth.hpp). All outlive this. Throws UsageError when the program
  /// does not exist.
  WorkerPool(const RewardSection& settings, std::span<const std::string> subjects,
             const Tokenizer& tokenizer, const Clock& clock);
  /// Closes the workers' input and gives them a second to end. Unscored responses are dropped.
  ~WorkerPool() override;

  void submit(const Trajectory& response) override;
  [[nodiscard]] std::vector<Score> take() override;
  [[nodiscard]] std::size_t pending() const override;
  [[nodiscard]] Trouble trouble() const override;

 private:
  class Worker;
  struct Job {
    Trajectory response;  ///< without log-probabilities
    int attempts = 0;     ///< failed attempts
  };
  void run();
  void tend(double now);
  [[nodiscard]] int wait(double now);
  void listen(Worker& worker, double now);
  void speak(Worker& worker, double now);
  void hear(Worker& worker, const std::string& line, double now);
  void fail(Worker& worker, ScoreOutcome outcome, const std::string& what, double now);
  void finish(Job job, Score score);
  void give_up_all();
  void dismiss();
  void tell_guard();

  const RewardSection settings_;
  const std::string program_;
  std::span<const std::string> subjects_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  int bell_;  ///< eventfd that wakes the thread

  mutable std::mutex mutex_;  ///< guards the members below, down to the thread's own
  std::deque<Job> queue_;
  std::vector<Score> done_;
  std::size_t in_flight_ = 0;
  Trouble trouble_;
  bool stop_ = false;

  // Members of the thread alone.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<WorkerGuard> guard_;
  std::thread thread_;
};

}  // namespace paceline::io
