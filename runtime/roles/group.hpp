// A tensor-parallel verifier group: what its leader commands, and the members that follow.
#pragma once

#include <cstdint>
#include <map>
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

/// KV of requests on its way between groups, or into the group's store and out of it, as a verifier
/// sees it. A key names one thing under way at a time.
class KvLink {
 public:
  virtual ~KvLink() = default;
  /// Sends blocks to the other group, or fills them with what that group sends under the same key.
  virtual void move(const MoveKv& command) = 0;
  /// Puts blocks into the store. Incomplete: there was no room, and nothing is stored under that
  /// key.
  virtual void store(const StoreKv& command) = 0;
  /// Fills blocks with what is stored. Incomplete: some of it is not there, or has been damaged;
  /// what the blocks hold is undefined then.
  virtual void restore(const RestoreKv& command) = 0;
  /// What is stored under the key is not needed any more. What is under way with it ends
  /// incomplete, or has ended.
  virtual void drop(std::uint64_t key) = 0;
  /// What is stored will be needed in this order, as ForeseeKv.
  virtual void foresee(std::span<const std::uint64_t> keys) = 0;
  /// Learns what of that has ended, and starts what follows: to be called whenever there was reason
  /// to wake.
  virtual void settle() = 0;
  /// Whether what was commanded under that key ended, and whether it is complete; nothing while it
  /// is under way. Once it has ended it is forgotten.
  [[nodiscard]] virtual std::optional<bool> ended(std::uint64_t key) = 0;
  /// A member has told of its share.
  virtual void heard(const KvMoved& moved) = 0;
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
  [[nodiscard]] std::span<const TokenId> kept_ids() const override { return runner_.kept_ids(); }
  /// A leader has the whole residual stream, as every rank of its group.
  [[nodiscard]] std::size_t feature_bytes() const override { return runner_.feature_bytes(); }
  void read_features(std::span<const std::int32_t> rows, std::span<std::byte> out) override {
    runner_.read_features(rows, out);
  }
  [[nodiscard]] double forward_seconds() const override { return runner_.forward_seconds(); }
  [[nodiscard]] double sample_seconds() const override { return runner_.sample_seconds(); }
  [[nodiscard]] GroupTraffic traffic() const override { return runner_.traffic(); }
  /// No more commands will come: the members' roles end, or change with the leader's.
  void finish(const std::optional<policy::Placement>& next);
  void move(const MoveKv& command) override;
  void store(const StoreKv& command) override;
  void restore(const RestoreKv& command) override;
  void drop(std::uint64_t key) override;
  void foresee(std::span<const std::uint64_t> keys) override;
  void settle() override { share_.settle(); }
  void heard(const KvMoved& moved) override;
  [[nodiscard]] std::optional<bool> ended(std::uint64_t key) override;

 private:
  void tell(std::span<const std::byte> bytes);
  void begin(std::uint64_t key, const Message& command);

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
  std::map<std::uint64_t, Waiting> under_way_;
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
  /// Over all steps, by the recorder's clock (StepMeter::sums).
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
