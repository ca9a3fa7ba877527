// The verifier leads a group of ranks, which generates responses to the requests leased to it.
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

/// The objects that a verifier works with. References outlive it.
struct VerifierPorts {
  Mailbox& mailbox;
  const Clock& clock;
  engine::Batcher& batcher;
  Group& group;  ///< runs the steps
  /// Makes drafts. Null: plain decoding without drafts.
  speculation::Speculator* speculator;
  /// The speculator's drafters that use drafter ranks. Null: there are never drafter ranks.
  speculation::RemoteDrafters* remote;
  /// The speculator's drafter that uses draft servers. Null: there are no draft servers.
  speculation::DraftClient* siblings;
  /// Resizes the pool of KV blocks. Null: its size never changes.
  speculation::ElasticMemory* memory;
  /// The speculator's drafter that records training data for RADAR. Null: nothing is recorded.
  speculation::StopRecorder* recorder;
  TrajectorySink& trajectories;
  TelemetrySink& telemetry;
  /// Answers the turns of conversations. Null: each response is a single turn.
  Environment* environment = nullptr;
  /// Opens the sink for responses to the next training step's prompts.
  Pregeneration::Open pregenerated = {};
};

struct VerifierOptions {
  policy::GroupRanks ranks;  ///< ranks of the verifier's group
  std::uint32_t epoch = 0;   ///< epoch of the placement that made the group
  std::int32_t max_batch = 64;
  std::int32_t kv_block = 16;
  /// A lease is reported as about to end when it has at most this number of response tokens left.
  std::uint32_t lease_notice = 0;
  /// Seconds between two flushes of finished responses. An idle verifier flushes at once.
  double flush_seconds = 5;
  policy::MoveCosts costs;  ///< decide how much of an arriving request's KV is transferred
  std::int32_t vocab = 0;
  bool races = false;  ///< best-of-N is in use, so statuses name the drafter of each request
  ConversationLimits conversations = {};
};

/// In each turn the verifier applies messages, hands over requests that are to move, takes requests
/// into the batch, resizes the pool of KV blocks, runs one step and reports the responses that
/// ended. A step begins with drafts, if there are any, from the same rank (coupled speculation) or
/// from drafter ranks (decoupled). The coordinator counts a response as finished only when it is on
/// disk.
///
/// If responses are conversations, a request leaves the batch after each turn, and waits here for
/// the environment's answer (conversations.hpp). Its trajectory is written with each answer, so
/// that a resumed run does not ask for an answer again. The request does not move while it waits.
///
/// A verifier that is to take another role goes on until other groups have pulled or declined the
/// KV of requests that left. A verifier that holds requests is not given another role.
///
/// A request that moves to another group is offered to that group's verifier, which holds the
/// request from the offer on, pulls part of the KV, computes the rest, and then decodes.
///
/// In a race (races.hpp) the holder of a request offers a copy to another verifier, the racer. The
/// racer has the copy in its batch like any other request, but does not write or report its
/// response. The racer gives the race up when requests that it holds need the room.
///
/// While no request of this training step is in the batch or waits for room, the verifier runs
/// requests of the next step that the coordinator sends (pregeneration.hpp). When a request of this
/// training step arrives, the next step's requests leave the batch after at most one decoding step.
/// Statuses and step records do not include the next step's requests.
class Verifier final : public protocol::Participant {
 public:
  Verifier(const VerifierPorts& ports, const VerifierOptions& options);

  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_; }
  /// Totals so far; the caller fills in rank, role and memory.
  [[nodiscard]] RankSummary summary() const;

 private:
  /// A request that has no place in the batch yet.
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
  void hand_in(const Trajectory& partial);
  void let_go();
  void let_race();
  void join(protocol::Offer offer);
  void give_up(RequestId id);
  void end_race(RequestId id);
  void remove_given_up();
  [[nodiscard]] bool make_way(RequestId id);
  [[nodiscard]] bool holds(RequestId id) const;
  [[nodiscard]] std::vector<RequestLength> held() const;
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
  std::uint64_t pregenerated_told_ = 0;      ///< Pregenerated::requests as last sent
  std::vector<protocol::Move> moves_asked_;  ///< moves commanded, but not made yet
  std::vector<protocol::Race> races_asked_;  ///< races commanded, but not offered yet
  std::vector<RequestId> given_up_;          ///< requests in the batch whose races were given up
  protocol::Status status_;                  ///< the next status to send
  std::vector<RequestId> unflushed_;         ///< requests whose ended responses are not on disk yet
  bool recorded_ = false;                    ///< some appended answers are not on disk yet
  double last_flush_ = 0;
  double last_status_ = 0;
  bool changed_ = true;  ///< `status_` has news to send
  bool stop_asked_ = false;
  bool over_ = false;
  std::uint32_t heard_of_ = 0;             ///< epoch of the last placement received
  std::optional<policy::Placement> next_;  ///< placement in which this rank has another place
  StepMeter meter_;
  std::uint64_t moved_ = 0;                         ///< RankSummary::moved
  std::uint64_t preempted_ = 0;                     ///< RankSummary::preempted
  std::uint64_t raced_ = 0;                         ///< RankSummary::raced
  std::vector<std::span<const TokenId>> foretold_;  ///< [decoding] Races::foretold()
};

}  // namespace paceline::roles
