// What a verifier without work in this training step does for the next one (BubbleSpec).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/upcoming_requests.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"

namespace paceline::roles {

/// Generates responses to the next training step's prompts with the present weights, but with the
/// next step's noise and sampling. The next step drafts from these texts; they never become its
/// responses. Requests of the next step use the verifier's batch, but never together with requests
/// of this step: the verifier calls drop() before it takes in a request of this step. Requests of
/// the next step have no drafts. Not thread-safe.
class Pregeneration {
 public:
  /// Opens the sink for the responses. Returns null if they are not kept.
  using Open = std::function<TrajectorySink*(const PregeneratedRun&)>;

  /// References outlive this.
  Pregeneration(engine::Batcher& batcher, engine::StepRunner& runner, const Clock& clock, Open open)
      : batcher_(batcher), runner_(runner), clock_(clock), open_(std::move(open)) {}

  /// Adds requests from UpcomingRequests::take(). The sink is opened with the first call's `run`.
  void take(const PregeneratedRun& run, std::vector<Admission> requests);
  /// Whether the requests in the batch are of the next training step.
  [[nodiscard]] bool running() const { return !running_.empty(); }
  /// Whether the request with this id in the batch is of the next training step.
  [[nodiscard]] static bool owns(RequestId id) { return (id.prompt & kUpcoming) != 0; }
  /// Takes in waiting requests and runs one step of the batch, which must have no request of this
  /// training step. Returns false if no request runs.
  bool step();
  /// Takes the requests out of the batch. They go on when step() is called again.
  void drop();
  /// Takes the requests out of the batch, and saves the unfinished texts. No step() may follow.
  void end();

  /// Number of requests that have ended, or do not fit even in an empty batch.
  [[nodiscard]] std::uint64_t done() const { return done_; }
  /// Number of KV blocks that were free when the batch was last empty; valid while running().
  [[nodiscard]] std::int32_t blocks_free() const { return blocks_free_; }
  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }  ///< generated so far
  [[nodiscard]] double seconds() const { return seconds_; }       ///< spent in step()

 private:
  /// A bit that is set in the prompt index of requests of the next training step. Real prompt
  /// indices are smaller.
  static constexpr std::uint32_t kUpcoming = 0x80000000U;
  void admit();
  Admission leave(RequestId id);
  void keep(const Trajectory& response);

  engine::Batcher& batcher_;
  engine::StepRunner& runner_;
  const Clock& clock_;
  Open open_;
  TrajectorySink* sink_ = nullptr;
  bool opened_ = false;
  std::deque<Admission> waiting_;
  std::map<RequestId, Admission> running_;  ///< requests in the batch, without their trajectories
  bool full_ = false;                       ///< there was no room, and no request has left since
  std::int32_t blocks_free_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace paceline::roles
