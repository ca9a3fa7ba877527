// A verifier's work for the next step while this step has none for its group (BubbleSpec).
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

/// Generates responses to the next step's prompts with today's weights, under the next step's noise
/// and sampling. They are history for the next step's drafts, never its responses. These requests
/// share the verifier's batch, but are never in it together with requests of this step: the
/// verifier calls drop() before it takes one in. Nobody drafts for them. Not thread-safe.
class Pregeneration {
 public:
  /// Opens the place for responses of the next step; null: they are not kept.
  using Open = std::function<TrajectorySink*(const PregeneratedRun&)>;

  /// References outlive this.
  Pregeneration(engine::Batcher& batcher, engine::StepRunner& runner, const Clock& clock, Open open)
      : batcher_(batcher), runner_(runner), clock_(clock), open_(std::move(open)) {}

  /// Takes in requests (UpcomingRequests::take()).
  void take(const PregeneratedRun& run, std::vector<Admission> requests);
  /// Whether the batch is of the next step's requests.
  [[nodiscard]] bool running() const { return !running_.empty(); }
  /// Whether the request is one of the next step's, as the batch names them.
  [[nodiscard]] static bool owns(RequestId id) { return (id.prompt & kUpcoming) != 0; }
  /// Runs one step of the requests. Requires that no request of this step is in the batch. Returns
  /// false if there is nothing to do.
  bool step();
  /// Takes the requests out of the batch. They go on when step() is called again.
  void drop();
  /// Takes the requests out of the batch, and keeps the texts of all begun ones. No step() follows.
  void end();

  /// Number of requests that have ended, or for which there was no room.
  [[nodiscard]] std::uint64_t done() const { return done_; }
  /// Free KV blocks when the batch was last empty; meaningful while running().
  [[nodiscard]] std::int32_t blocks_free() const { return blocks_free_; }
  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }  ///< generated so far
  [[nodiscard]] double seconds() const { return seconds_; }       ///< spent on it

 private:
  /// Set in a prompt's index while the request is in the batch: indices of this step's prompts are
  /// smaller.
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
  std::map<RequestId, Admission> running_;  ///< requests in the batch, without their responses
  bool full_ = false;                       ///< no room since the last request left the batch
  std::int32_t blocks_free_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace paceline::roles
