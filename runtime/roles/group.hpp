// A tensor-parallel verifier group: a leader that sends commands, and members that follow them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/kv_share.hpp"
#include "runtime/roles/step_meter.hpp"

namespace paceline::roles {

/// The leader's side of a group. Sends steps and other commands to the members as messages, and
/// does the leader's own share of each. Only steps and ReadRouting have collectives, so no
/// other command makes ranks wait for one another. A command that moves, stores or restores KV has
/// a key that no other command in flight has. Each member reports when its share of such a command
/// has ended (KvMoved).
class Group final : public engine::StepRunner {
 public:
  /// `members`: the group's other ranks, in order. `epoch`: epoch of the placement that made the
  /// group. References outlive this.
  Group(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share,
        const std::vector<int>& members, std::uint32_t epoch);

  engine::StepResult run(const engine::Step& step) override;
  /// Every rank stores, next to its KV, the numbers of the experts to which tokens were routed, so
  /// the leader reads its own copy. But if each rank has the KV of its own requests only, the rank
  /// that owns the KV in `places` sends these numbers to all ranks.
  [[nodiscard]] std::vector<std::int16_t> read_routing(std::span<const kv::Place> places) override;
  /// The leader reads its own copy of the features: every rank has the whole residual stream.
  [[nodiscard]] std::size_t feature_bytes() const override { return runner_.feature_bytes(); }
  void read_features(std::span<const std::int32_t> rows, std::span<std::byte> out) override {
    runner_.read_features(rows, out);
  }
  /// Makes every rank of the group do its share of a command about KV (KvShare::obey()).
  template <typename Command>
  void command(const Command& command) {
    tell(command);
    share_.obey(command);
  }
  /// The leader's own shares that have ended since the last call (KvShare::take_ended()).
  [[nodiscard]] std::vector<protocol::KvMoved> take_ended() { return share_.take_ended(); }
  /// Ends the members' roles. `next`: the placement in which they go on; absent: the run is over.
  void finish(const std::optional<policy::Placement>& next);

 private:
  void tell(const protocol::Message& command);
  void send(std::span<const std::byte> bytes);

  Mailbox& mailbox_;
  engine::StepRunner& runner_;
  KvShare& share_;
  std::vector<Address> members_;
  std::uint32_t epoch_;
  bool leads_ = false;  ///< Lead has been sent to the members
};

/// Whether the envelope has a Lead of this epoch. A Lead is a leader's first message to a member.
[[nodiscard]] bool leads(const Envelope& envelope, std::uint32_t epoch);

/// A member is any rank of a group except the leader. It drops all messages before the leader's
/// Lead, and obeys the leader from then on.
class Member final : public protocol::Participant {
 public:
  /// `epoch`: epoch of the placement that made the group. References outlive this.
  Member(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share, int leader,
         std::uint32_t epoch, const Recorder& recorder = {});
  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_; }
  /// Sums over all steps that compute rows, timed by the recorder's clock (StepMeter::sums).
  [[nodiscard]] const RankSummary& sums() const { return meter_.sums(); }

 private:
  void step(const engine::Step& step);
  void report();

  Mailbox& mailbox_;
  engine::StepRunner& runner_;
  KvShare& share_;
  Address leader_;
  std::uint32_t epoch_;
  bool led_ = false;
  StepMeter meter_;
  bool over_ = false;
  std::optional<policy::Placement> next_;
};

}  // namespace paceline::roles
