// Programs that answer the turns of responses: a JSON line in, a JSON line out
// (environment_line.hpp), off the path of steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/text/tokenizer.hpp"
#include "io/text/turn_encoder.hpp"
#include "io/workers/environment_line.hpp"
#include "io/workers/worker_crew.hpp"
#include "io/workers/worker_settings.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

/// Facts about the run that a pool needs.
struct EnvironmentRun {
  std::int32_t vocabulary = 0;  ///< answers may have ids below this
  std::int32_t context = 0;     ///< an answer must have fewer tokens
  std::function<void()> wake;   ///< called by the crew's thread when an answer has come
  std::function<void(const std::string&)> warn;  ///< called within take()
  /// Tokens that stand for pictures, which no answer may contain.
  std::vector<TokenId> placeholders = {};
};

/// Runs environment.workers processes of the program environment.command; each has one turn at a
/// time. A conversation stays with the worker that had its first turn, the first of those with
/// fewest conversations. A worker may lack earlier turns, because another died or the conversation
/// came from another rank. It is then told these first (`replay`), with their recorded answers.
/// Replaces a worker that fails (WorkerCrew), and tries the turn again, environment.attempts times
/// in all; then the conversation fails. It also fails when a worker says so (`error`), or gives an
/// answer that cannot be encoded, has ids outside the vocabulary or of pictures, or has no room in
/// the context. Failures before the first answer of any worker are not the fault of a conversation:
/// its turn is tried until all workers are given up. Then take() throws, because a resumed run is
/// to sample the unanswered turns again.
class EnvironmentPool final : public Environment, private CrewDesk {
 public:
  /// `scenes`: [prompts] prompt_members(). References outlive this. Throws UsageError if the
  /// program does not exist.
  EnvironmentPool(const EnvironmentSection& settings, std::span<const std::string> scenes,
                  const Tokenizer& tokenizer, TurnEncoder encoder, EnvironmentRun run,
                  const Clock& clock);

  void ask(const Trajectory& response, bool goes_on) override;
  void leave(RequestId id) override;
  /// Throws Error if a turn waits and no worker is left: bad_data if none has ever answered, else
  /// try_again.
  [[nodiscard]] std::vector<EnvironmentReply> take() override;

 private:
  /// A turn to be answered, or a conversation to be closed.
  struct Job {
    Trajectory response;  ///< without log-probabilities
    bool goes_on = true;  ///< another turn may follow
    bool close = false;
    double asked = 0;
    int attempts = 0;  ///< failed attempts so far
  };
  struct Session {
    int worker = 0;
    std::size_t told = 0;  ///< turns that the worker's process knows
  };
  struct Place {
    std::deque<Job> jobs;  ///< the first is under way if the worker is busy
    int sessions = 0;
    bool given_up = false;
  };
  struct Done {
    EnvironmentReply reply;
    std::string error;
  };

  [[nodiscard]] std::optional<std::string> next(int worker) override;
  [[nodiscard]] std::string hear(const CrewLine& line, const std::string& answer) override;
  void fail(const CrewLine& line, bool asked, ScoreOutcome outcome, const std::string& what,
            bool given_up) override;
  void none_left() override;
  void deal_out();
  void assign(Job job);
  void forget(RequestId id);
  [[nodiscard]] std::string encode(const TurnAnswer& answer, TokenId last,
                                   EnvironmentReply& reply) const;
  void finish(const Job& job, EnvironmentReply reply, std::string error);

  const EnvironmentSection settings_;
  std::span<const std::string> scenes_;
  const Tokenizer& tokenizer_;
  TurnEncoder encoder_;
  EnvironmentRun run_;
  const Clock& clock_;

  std::mutex mutex_;  ///< guards the members up to the thread's own
  std::deque<Job> asked_;
  std::vector<Done> done_;
  std::optional<Error> fault_;  ///< set when no worker is left

  // Members used by the crew's thread alone.
  std::map<RequestId, Session> sessions_;
  std::vector<Place> places_;  ///< [workers]
  bool answered_ = false;      ///< some worker has answered
  std::string last_failure_;   ///< last failure of any worker

  int warnings_ = 0;  ///< number of warnings given; used by the caller of take() alone
  WorkerCrew crew_;   ///< last: its thread ends first
};

}  // namespace paceline::io
