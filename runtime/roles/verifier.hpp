// The verifier: leads a group that generates the responses leased to it.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/policy/schedule/move_split.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/conversations.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/kv_exchange.hpp"
#include "runtime/roles/pregeneration.hpp"
#include "runtime/roles/races.hpp"
#include "runtime/roles/step_meter.hpp"
#include "runtime/speculation/draft_client.hpp"
#include "runtime/speculation/elastic_memory.hpp"
#include "runtime/speculation/remote_drafter.hpp"
#include "runtime/speculation/speculator.hpp"
#include "runtime/speculation/stop_recorder.hpp"

namespace paceline::roles {

/// The objects that a verifier works with. All references outlive it.
struct VerifierPorts {
  Mailbox& mailbox;
  const Clock& clock;
  engine::Batcher& batcher;
  Group& group;    ///< runs the steps
  KvShare& share;  ///< this rank's share of the group's KV
  /// Null: plain decoding.
  speculation::Speculator* speculator;
  /// The drafter ranks among the speculator's drafters; null: no rank ever drafts.
  speculation::RemoteDrafters* remote;
  /// One of the speculator's drafters; null: there are no draft servers.
  speculation::DraftClient* siblings;
  /// Null: the number of KV blocks never changes.
  speculation::ElasticMemory* memory;
  /// One of the speculator's drafters; null: nothing is recorded.
  speculation::StopRecorder* recorder;
  TrajectorySink& trajectories;
  TelemetrySink& telemetry;
  /// Null: responses are of one turn.
  Environment* environment = nullptr;
  /// Opens the place for responses to the next step's prompts.
  Pregeneration::Open pregenerated = {};
};

struct VerifierOptions {
  policy::GroupRanks ranks;  ///< ranks of the verifier's group
  std::uint32_t epoch = 0;   ///< epoch of the placement that made the group
  std::int32_t max_batch = 64;
  std::int32_t kv_block = 16;
  /// Response tokens before a lease's end at which the coordinator is told that the end is near.
  std::uint32_t lease_notice = 0;
  /// Finished responses are flushed at least this often (and before any idling).
  double flush_seconds = 5;
  policy::MoveCosts costs;  ///< decide how much of an arriving request's KV to transfer
  std::int32_t vocab = 0;
  bool races = false;  ///< best-of-N: statuses tell which drafters draft for requests
  ConversationLimits conversations = {};
};

/// A turn is: apply messages, let requests go, take requests in, resize the pool of KV blocks, run
/// one step, report the responses that ended. A step begins with drafts where there are any, made
/// on the same rank (coupled speculation) or by drafter ranks (decoupled). The coordinator counts a
/// response as finished only once it is on disk.
///
/// Where responses are conversations, a response leaves the batch after each turn, and waits here
/// for the environment's answer (conversations.hpp). Its trajectory is written with each answer,
/// so that a resumed run does not ask for an answer again. A move waits for the answer.
///
/// A rank that is to take another role goes on until the KV of requests that left has been pulled
/// or declined. The coordinator ensures that the rank holds no request by then.
///
/// A request that is to move is offered to its new verifier, which holds it from then on. The new
/// verifier pulls part of the KV, computes the rest, and decodes once it has both.
///
/// For a race, a copy of the request is offered to a racer, and the request stays (races.hpp). The
/// racer has the request in its batch like any other, but neither writes nor reports it. The racer
/// gives the request up when requests that it holds need the room.
///
/// While the verifier has no request of this step it begins those of the next step that the
/// coordinator sends (pregeneration.hpp). It drops them as it takes a request in, stops or ends, so
/// that a request waits for one of their steps at most. Reports and telemetry of this step do not
/// count them.
class Verifier final : public protocol::Participant {
 public:
  Verifier(const VerifierPorts& ports, const VerifierOptions& options);

  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_; }
  /// Totals so far; the caller fills in rank, role and memory.
  [[nodiscard]] RankSummary summary() const;

 private:
  /// A request without a place in the batch yet.
  struct Waiting {
    Admission request;
    policy::KeptKv kv;
  };
  struct KnownPrompt {
    std::vector<TokenId> tokens;
    std::vector<PromptPicture> pictures;
    std::vector<PictureBytes> files;  ///< [pictures]
  };
  void receive();
  void take(const Envelope& envelope);
  void accept(protocol::Lease lease);
  void accept(protocol::Offer offer);
  void enqueue(Admission request, const policy::KeptKv& kv, OptionalIndex method = {});
  [[nodiscard]] std::deque<Waiting>::iterator waiting(RequestId id);
  void become(policy::Placement placement);
  void renew(const protocol::Renew& renew);
  void stop();
  void let_go();
  void let_race();
  void join(protocol::Offer offer);
  void give_up(RequestId id);
  void end_race(RequestId id);
  void remove_given_up();
  [[nodiscard]] bool make_way(RequestId id);
  [[nodiscard]] bool holds(RequestId id) const;
  [[nodiscard]] std::vector<RunningRequest> held() const;
  void admit();
  void step();
  void finish(const Trajectory& done);
  void end_turns();
  void go_on();
  void announce();
  void publish(bool force);
  void event(RequestId id, RequestEventKind kind, std::size_t tokens);

  VerifierPorts ports_;
  VerifierOptions options_;
  std::map<std::uint32_t, KnownPrompt> prompts_;  ///< all prompts received, by index
  std::deque<Waiting> waiting_;
  KvExchange kv_;
  Races races_;
  Conversations conversations_;
  Pregeneration upcoming_;
  std::uint64_t pregenerated_told_ = 0;      ///< Pregenerated::requests, as last sent
  std::vector<protocol::Move> moves_asked_;  ///< ordered, not yet made
  std::vector<protocol::Race> races_asked_;  ///< ordered, not yet offered
  std::vector<RequestId> given_up_;          ///< requests no longer raced for, still in the batch
  protocol::Status status_;                  ///< the next status to send
  std::vector<RequestId> unflushed_;         ///< requests whose ended responses are not on disk yet
  bool recorded_ = false;                    ///< answers were appended that are not on disk yet
  double last_flush_ = 0;
  double last_status_ = 0;
  bool changed_ = true;  ///< room or activity changed since the last status
  bool stop_asked_ = false;
  bool over_ = false;
  std::uint32_t heard_of_ = 0;             ///< epoch of the last placement received
  std::optional<policy::Placement> next_;  ///< placement in which this rank has another place
  StepMeter meter_;
  std::uint64_t moved_ = 0;                         ///< RankSummary::moved
  std::uint64_t preempted_ = 0;                     ///< RankSummary::preempted
  std::uint64_t raced_ = 0;                         ///< RankSummary::raced
  std::vector<std::span<const TokenId>> foretold_;  ///< [decoding] tokens that races foretell
};

}  // namespace paceline::roles
