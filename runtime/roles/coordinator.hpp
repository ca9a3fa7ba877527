// The coordinator holds the request table and the placement of ranks, and commands verifier groups.
// A lease gives a request to a group until the response has a given length. A scheduler chooses
// leases, moves of requests, races and changes of roles (explained in protocol/messages.hpp). The
// coordinator also finds out when the run is over. It is a state machine without a clock: it
// receives and sends messages, and its caller handles time and signals.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/upcoming_requests.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/dynamic_sampling.hpp"
#include "runtime/policy/schedule/request_table.hpp"
#include "runtime/policy/schedule/scheduler.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/known_group.hpp"
#include "runtime/roles/role_change.hpp"

namespace paceline::roles {

/// The run's progress, by the groups' last reports. Each request is counted in exactly one of
/// `finished`, `unflushed`, `active`, `partial` and `waiting`. With dynamic sampling, requests that
/// have yet to begin are not counted.
struct Progress {
  std::size_t total = 0;     ///< requests of the run, including requests finished before a resume
  std::size_t finished = 0;  ///< responses on disk
  std::size_t finished_before = 0;  ///< part of `finished`: responses on disk at the last resume
  std::size_t unflushed = 0;        ///< responses that have ended, but are not on disk yet
  std::size_t active = 0;           ///< requests in a batch
  std::size_t partial = 0;          ///< unfinished requests that were handed in at a stop
  std::size_t waiting = 0;          ///< all other requests: not leased, or not in a batch
  int loading = 0;                  ///< groups that have yet to send their first report
  std::size_t moves = 0;            ///< moves of a request from one group to another
  std::size_t races = 0;            ///< races that have begun
  std::size_t placements = 0;       ///< completed changes of roles
  std::uint64_t tokens = 0;         ///< response tokens generated since the start or resume
  std::uint64_t nonsense = 0;  ///< dropped messages, for instance invalid ones of a drafter rank
};

struct CoordinatorOptions {
  std::uint64_t seed = 1;  ///< noise seed for prompts that have no seed of their own
  policy::LeaseTerms terms{.max_tokens = 1024};  ///< limits of responses; KV that a lease needs
  /// Picture files of the prompts; null if no prompt has pictures. Outlives the coordinator.
  PictureSource* pictures = nullptr;
  /// Dynamic sampling, which decides from rewards which prompts begin and when the run is over. It
  /// knows the rewards from before a resume. Null: all requests run. Outlives the coordinator.
  policy::DynamicSampling* sampling = nullptr;
  /// Source of the next training step's requests, which idle groups run in advance. Null: idle
  /// groups wait. Outlives the coordinator.
  UpcomingRequests* upcoming = nullptr;
};

class Coordinator final : public protocol::Participant {
 public:
  /// `work`: requests to generate. With dynamic sampling, the requests of a prompt must be
  /// adjacent, and prompts begin in the order of `work`. `order`: the order in which requests are
  /// leased. `prompts`: indexed by RequestId::prompt. `already_finished`: number of requests that
  /// finished before a resume. References and prompts outlive this.
  Coordinator(Mailbox& mailbox, policy::Scheduler& scheduler, policy::Placement placement,
              std::vector<Trajectory> work, std::unique_ptr<policy::RequestOrder> order,
              std::span<const Prompt> prompts, const CoordinatorOptions& options,
              std::size_t already_finished);

  /// Applies the messages that have arrived, but at most a fixed number of them.
  protocol::Turn turn() override;
  /// Asks all groups to hand in their unfinished requests. Idempotent.
  void stop();
  /// Whether all ranks have sent their summaries. A summary is a rank's last message.
  [[nodiscard]] bool over() const override {
    return summaries_.size() == static_cast<std::size_t>(placement_.ranks);
  }
  /// Whether all requests are finished or, with dynamic sampling, whether no more are needed.
  [[nodiscard]] bool complete() const {
    return options_.sampling != nullptr ? options_.sampling->over() : requests_.complete();
  }
  [[nodiscard]] Progress progress() const;
  [[nodiscard]] const std::vector<RankSummary>& summaries() const { return summaries_; }

  /// A counter for the watchdog: it grows with every message that shows progress.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  /// [ranks] Number of messages received from each rank.
  [[nodiscard]] std::span<const std::uint64_t> heard() const { return heard_; }
  [[nodiscard]] const policy::Placement& placement() const { return placement_; }
  /// Ranks for whose messages the run might wait. Before Finish is sent: leaders of groups, and
  /// ranks that have yet to confirm a new place. After it: ranks that have yet to send a summary.
  [[nodiscard]] std::vector<int> awaited() const;

 private:
  [[nodiscard]] bool take(const Envelope& envelope);
  [[nodiscard]] Role role_of(int rank) const;
  void on(int from, protocol::Status status);
  void on(int from, protocol::Returned returned);
  void on(int from, const protocol::Ready& ready);
  void on(const protocol::Rewarded& told);
  void add_work();
  [[nodiscard]] bool takes_place(int rank, const protocol::Ready& ready) const;
  [[nodiscard]] bool begins(std::uint32_t epoch) const { return change_ && change_->begins(epoch); }
  [[nodiscard]] bool ends(int leader) const { return change_ && change_->ends(leader); }
  [[nodiscard]] KnownGroup& group_of(int leader, std::uint32_t epoch);
  void describe_groups();
  void describe(const KnownGroup& group);
  void settle(KnownGroup& group, protocol::Status status);
  void end_leases(KnownGroup& group);
  void lease_to_any();
  void lease_to_idle();
  void lease_due(KnownGroup& group);
  void lease_to(KnownGroup& group, const policy::LeaseOrder& order);
  [[nodiscard]] std::vector<PictureBytes> files_of(std::uint32_t prompt);
  void move_some();
  void move(const policy::RequestMove& move);
  void race(const policy::RaceOrder& order);
  void change_some();
  void pregenerate();
  void forget_stored(int leader);
  void foresee();
  void drain();
  void adopt();
  void save_returned();
  void finish_when_idle();
  void send(int rank, const protocol::Message& message);

  Mailbox& mailbox_;
  policy::Scheduler& scheduler_;
  policy::Placement placement_;
  std::span<const Prompt> prompts_;
  CoordinatorOptions options_;
  policy::RequestTable requests_;
  KnownGroups groups_;
  std::optional<RoleChange> change_;
  /// The scheduler's view of the run. A report updates only the entry of the group that sent it: to
  /// rebuild all entries would take too long with a thousand groups that report every few steps.
  policy::RunState run_;
  std::vector<Trajectory> unbegun_;  ///< requests held back by dynamic sampling, in reverse order
  std::set<int> verifiers_;          ///< leaders of all present and past groups
  std::size_t unforeseen_ = 0;       ///< reports that foresee() has counted since it last acted
  std::size_t placements_ = 0;       ///< completed changes of roles
  std::uint64_t tokens_before_ = 0;  ///< response tokens made by groups that no longer exist
  bool stopping_ = false;
  bool finish_sent_ = false;
  std::uint64_t changes_ = 0;
  std::uint64_t nonsense_ = 0;        ///< Progress::nonsense
  std::vector<std::uint64_t> heard_;  ///< [ranks] messages received
  std::vector<RankSummary> summaries_;
  std::set<int> reported_;  ///< ranks whose summaries have come
};

}  // namespace paceline::roles
