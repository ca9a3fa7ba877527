// A tensor-parallel verifier group: what its leader commands, and the members that follow.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/block_transport.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/roles/messages.hpp"
#include "runtime/roles/participant.hpp"

namespace paceline::roles {

/// Where steps and transfers are recorded. Both outlive who has it; null where nothing is.
struct Recorder {
  const Clock* clock = nullptr;
  TelemetrySink* telemetry = nullptr;
  [[nodiscard]] double now() const { return clock != nullptr ? clock->now() : 0; }
};

/// KV of requests on its way between groups, as a verifier sees it.
class KvLink {
 public:
  virtual ~KvLink() = default;
  /// Sends blocks to the other group, or fills them with what that group sends under the same key.
  virtual void move(const MoveKv& command) = 0;
  /// Whether the move ended, and whether it is complete; nothing while it is under way. Once it has
  /// ended it is forgotten.
  [[nodiscard]] virtual std::optional<bool> ended(std::uint64_t key) = 0;
  /// A member has told of its share.
  virtual void heard(const KvMoved& moved) = 0;
};

/// A rank's share of KV that moves: the heads it holds of each block. Groups of different degrees
/// hold different shares, so a rank exchanges heads with as many ranks of the other group as hold
/// any of its own.
class KvShare {
 public:
  /// `index`: of this rank in its group of `tp`. References outlive this.
  KvShare(BlockTransport& transport, const engine::KvMemory& memory, int index, int tp,
          const Recorder& recorder = {});
  /// Gives up what is under way, and waits a few seconds at most. Memory that the transport may
  /// still touch then stays as it is until the process ends.
  ~KvShare();
  KvShare(const KvShare&) = delete;
  KvShare& operator=(const KvShare&) = delete;

  void move(const MoveKv& command);
  /// As KvLink::ended().
  [[nodiscard]] std::optional<bool> ended(std::uint64_t key);
  /// All moves that ended since the last call.
  [[nodiscard]] std::vector<KvMoved> take_ended();

 private:
  /// Whether nothing touches the memory any more. Throws as the transport does.
  bool give_up();

  /// A transfer with one rank of the other group.
  struct Part {
    Ticket ticket;
    TransferRecord record;
  };
  BlockTransport& transport_;
  engine::KvMemory memory_;
  int index_;
  int tp_;
  Recorder recorder_;
  std::map<std::uint64_t, std::vector<Part>> moves_;
};

/// What the leader of a group does together with its members. Commands travel as messages, in
/// order, and only a step has collectives in it, so a member can always be reached.
class Group final : public engine::StepRunner, public KvLink {
 public:
  /// `members`: the group's other ranks, in order. `epoch`: of the placement that made the group.
  /// References outlive this.
  Group(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share,
        const std::vector<int>& members, std::uint32_t epoch);

  std::span<const kernels::Sampled> run(const engine::Step& step) override;
  [[nodiscard]] double forward_seconds() const override { return runner_.forward_seconds(); }
  [[nodiscard]] double sample_seconds() const override { return runner_.sample_seconds(); }
  /// No more commands will come: the members' roles end, or change with the leader's.
  void finish(const std::optional<policy::Placement>& next);
  void move(const MoveKv& command) override;
  void heard(const KvMoved& moved) override;
  [[nodiscard]] std::optional<bool> ended(std::uint64_t key) override;

 private:
  void tell(std::span<const std::byte> bytes);

  Mailbox& mailbox_;
  engine::StepRunner& runner_;
  KvShare& share_;
  std::vector<Address> members_;
  std::uint32_t epoch_;
  bool leads_ = false;  ///< and has told the members
  struct Waiting {
    int members = 0;  ///< that have not ended
    bool complete = true;
  };
  std::map<std::uint64_t, Waiting> moves_;
};

/// Whether a message says that its sender leads the group of that epoch now.
[[nodiscard]] bool leads(const Envelope& envelope, std::uint32_t epoch);

/// Any other rank of a group: follows its leader, once that leads.
class Member final : public Participant {
 public:
  /// `epoch`: of the placement that made the group. References outlive this.
  Member(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share, int leader,
         std::uint32_t epoch, const Recorder& recorder = {});
  Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  /// Seconds in them, by the recorder's clock.
  [[nodiscard]] double busy_seconds() const { return busy_seconds_; }

 private:
  void step(const engine::Step& step);
  void report();

  Mailbox& mailbox_;
  engine::StepRunner& runner_;
  KvShare& share_;
  Address leader_;
  std::uint32_t epoch_;
  bool led_ = false;
  Recorder recorder_;
  std::uint64_t steps_ = 0;
  double busy_seconds_ = 0;
  bool over_ = false;
  std::optional<policy::Placement> next_;
};

}  // namespace paceline::roles
