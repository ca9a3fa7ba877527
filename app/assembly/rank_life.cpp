#include "app/assembly/rank_life.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "app/assembly/chaos.hpp"
#include "app/assembly/conversing.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/make_drafters.hpp"
#include "runtime/core/telemetry_columns.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/roles/drafter_rank.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/spare.hpp"
#include "runtime/roles/verifier.hpp"
#include "runtime/speculation/elastic_memory.hpp"
#include "runtime/speculation/remote_drafter.hpp"

namespace paceline::app {
namespace {

using policy::GroupRanks;

/// Costs that decide how much of a moving request's KV is sent, and how much is computed again.
policy::MoveCosts move_costs(io::MoveKvBy by, const policy::MoveCosts& measured) {
  switch (by) {
    case io::MoveKvBy::transfer:
      return {};
    case io::MoveKvBy::recompute:
      return policy::costs_by_position(1, 1e9);
    case io::MoveKvBy::both:
      return policy::costs_by_position(1, 1);
    case io::MoveKvBy::cost:
      break;
  }
  return measured;
}

policy::MoveCosts measured_moves(const CostTable& costs, const kernels::KvShape& shape) {
  return {costs, static_cast<double>(shape.block_bytes()) / shape.block};
}

/// Limits of a group's batcher. `tp`: number of ranks of the group. `converses`: whether an
/// environment answers turns.
engine::BatcherLimits batcher_limits(const Inputs& inputs, const Plan& plan, int tp,
                                     bool converses) {
  const io::EngineSection& engine = inputs.config.engine;
  return {.max_batch = engine.max_batch,
          .prefill_chunk = engine.prefill_chunk,
          .kv_block = engine.kv_block,
          .kv_blocks = plan.memory.kv.blocks,
          .owners = inputs.owners(tp),
          .context = inputs.target.config.max_position,
          .growth = plan.leases.growth,
          .turn_tokens = converses ? turn_tokens(inputs) : 0,
          // A head needs the target's features of whole prompts. Shared KV would bring none.
          .share_prefixes = read_layers(inputs, plan).empty(),
          .picture_merge =
              inputs.sizes.largest_picture > 0 ? inputs.target.config.vision->tower->merge : 0,
          .picture_rows = kept_picture_rows(inputs)};
}

/// Number of tokens left in a request's lease when the verifier reports that the lease will end.
/// Usually the coordinator answers within a step or two, before these tokens are used up.
std::uint32_t lease_notice(const Inputs& inputs, const Plan& plan) {
  constexpr int kSteps = 4;
  const io::SpeculationSection& speculation = inputs.config.speculation;
  const int most = speculation.drafters.empty() ? 1 : 1 + speculation.max_length;
  return static_cast<std::uint32_t>(std::min(kSteps * most, plan.leases.chunk / 2));
}

/// The group of a rank. If the rank is in no group, the result's leader is -1.
GroupRanks group_of(int rank, const policy::Placement& placement) {
  const int group = placement.group(rank);
  return group >= 0 ? placement.groups[group] : GroupRanks{-1, 0};
}

std::vector<int> members_of(const GroupRanks& group) {
  std::vector<int> members;
  for (int member = 1; member < group.tp; ++member) members.push_back(group.leader + member);
  return members;
}

/// Seconds in which the first draft model among `drafters` drafts a token for each row, by number
/// of rows. Empty if there is none, if no profile has its costs, or if speculation.outcomes is off.
CostCurve draft_calls(const Inputs& inputs, const Plan& plan,
                      std::span<const std::int32_t> drafters) {
  if (!inputs.config.speculation.outcomes) return {};
  const auto model = std::ranges::find_if(
      drafters, [&](std::int32_t d) { return plan.drafters[d].model != nullptr; });
  if (model == drafters.end() || !plan.costs.profile_holds()) return {};
  for (const DrafterCosts& known : plan.costs.profile->drafters) {
    if (known.name == plan.drafters[*model].name) return known.first;
  }
  return {};
}

/// Seed with which a test draws numbers of branches to draft (outcomes.hpp); 0: costs decide.
std::uint64_t outcome_seed(const io::TestSection& test, int rank) {
  return test.shuffles(io::Shuffle::outcomes) ? test.seed * 1000 + rank + 1 : 0;
}

void add(DraftTally& sum, const DraftTally& tally) {
  sum.tried += tally.tried;
  sum.accepted += tally.accepted;
}

}  // namespace

/// One role of the rank, with the objects that the role uses.
class RankLife::Place {
 public:
  virtual ~Place() = default;
  [[nodiscard]] virtual protocol::Participant& role() = 0;
  /// Ends the role and returns its summary.
  virtual RankSummary end() = 0;
  /// Adds the tried and the accepted draft tokens of the role's own drafters to `drafts`, whose
  /// indices are those of RankLife::drafts().
  virtual void count(std::span<DraftTally> /*drafts*/) const {}
};

class RankLife::VerifierPlace final : public Place {
 public:
  VerifierPlace(const Inputs& inputs, const Plan& plan, const policy::Placement& placement,
                const GroupRanks& ranks, RankMachine& machine)
      : inputs_(inputs),
        plan_(plan),
        placement_(placement),
        machine_(machine),
        batcher_(batcher_limits(inputs, plan, ranks.tp, machine.environment() != nullptr),
                 inputs.config.sampling, inputs.ends.stops, inputs.text.tokenizer.get()),
        group_(machine.mailbox(), machine.runner(), machine.kv_share(), members_of(ranks),
               placement.epoch),
        remote_(ranks.leader),
        speculator_(make_speculator(inputs, plan, roster(machine.costs(ranks.tp)),
                                    machine.costs(ranks.tp), machine.clock())),
        memory_(elastic_memory(ranks.leader)),
        verifier_({machine.mailbox(), machine.clock(), batcher_, group_, speculator_.get(),
                   remote_.size() > 0 ? &remote_ : nullptr, siblings_, memory_.get(), recorder_,
                   machine.trajectories(), machine.telemetry(), machine.environment(),
                   [&machine](const PregeneratedRun& run) { return machine.pregenerated(run); }},
                  {.ranks = ranks,
                   .epoch = placement.epoch,
                   .max_batch = inputs.config.engine.max_batch,
                   .kv_block = inputs.config.engine.kv_block,
                   .lease_notice = lease_notice(inputs, plan),
                   .flush_seconds = inputs.config.output.flush_seconds,
                   .costs = move_costs(inputs.config.schedule.move_kv,
                                       measured_moves(machine.costs(ranks.tp), machine.kv().shape)),
                   .vocab = inputs.target.config.vocab,
                   .races = plan.best_of_n.races,
                   .conversations = conversation_limits(inputs)}) {
    machine.mailbox().send(
        Address::coordinator(),
        protocol::encode(protocol::Costs{
            placement.epoch, measured_moves(machine.costs(ranks.tp), machine.kv().shape)}));
  }
  protocol::Participant& role() override { return verifier_; }
  RankSummary end() override {
    group_.finish(verifier_.next());
    remote_.close();
    if (speculator_ != nullptr) machine_.telemetry().acceptance(speculator_->acceptance());
    if (siblings_ != nullptr) {
      std::vector<AcceptanceCell> recalled = siblings_->capabilities().siblings->recalled();
      for (AcceptanceCell& cell : recalled)
        cell.drafter += static_cast<std::uint32_t>(speculator_->roster().size());
      machine_.telemetry().acceptance(recalled);
    }
    RankSummary summary = verifier_.summary();
    machine_.kv_share().account(summary);
    return summary;
  }
  // Skips drafts that drafter ranks made, because these ranks count them.
  void count(std::span<DraftTally> drafts) const override {
    if (speculator_ == nullptr) return;
    for (std::size_t k = 0; k < speculator_->roster().size(); ++k) {
      const speculation::RosterEntry& entry = speculator_->roster()[k];
      if (entry.kind != speculation::DrafterKind::own) continue;
      draft::SiblingLearner* siblings = entry.drafter->capabilities().siblings;
      const bool recalls = siblings != nullptr && siblings->recalls();
      add(recalls ? drafts.back() : drafts[entry.place], speculator_->tallies()[k]);
    }
  }

 private:
  speculation::DrafterRoster roster(const CostTable& costs) {
    speculation::DrafterRoster roster = drafter_roster(plan_, &costs);
    for (speculation::RosterEntry& entry : roster) {
      const bool by_all = entry.kind == speculation::DrafterKind::ahead;
      entry.drafter = entry.kind == speculation::DrafterKind::own
                          ? own(entry.place)
                          : remote(by_all ? OptionalIndex() : entry.place);
    }
    return roster;
  }
  std::unique_ptr<draft::Drafter> own(std::int32_t index) {
    std::unique_ptr<draft::Drafter> drafter = machine_.drafter(index);
    if (!plan_.draft_servers.ranks.empty() && drafter->capabilities().siblings != nullptr) {
      auto client = std::make_unique<speculation::DraftClient>(
          std::move(drafter), machine_.mailbox(), machine_.clock(),
          draft_client_options(inputs_, plan_, placement_.epoch, remote_.group()));
      siblings_ = client.get();
      return client;
    }
    if (inputs_.config.speculation.record_stops() == 0) return drafter;
    auto recorder = std::make_unique<speculation::StopRecorder>(
        std::move(drafter), stop_recording(inputs_.config.speculation), machine_.telemetry());
    recorder_ = recorder.get();
    return recorder;
  }
  std::unique_ptr<speculation::ElasticMemory> elastic_memory(int leader) {
    if (plan_.memory.kv_gain == 0) return nullptr;
    return std::make_unique<speculation::ElasticMemory>(
        speculation::ElasticMemoryPorts{machine_.clock(), batcher_, group_, *speculator_,
                                        machine_.telemetry()},
        draft_memory_policy(inputs_.config.test, leader), plan_.memory.kv.blocks,
        plan_.memory.kv_gain);
  }
  std::unique_ptr<draft::Drafter> remote(OptionalIndex method) {
    auto made = std::make_unique<speculation::RemoteDrafter>(
        machine_.mailbox(), machine_.clock(),
        policy::drafters_of(remote_.group(), method, placement_.drafters),
        speculation::RemoteOptions{
            .vocab = inputs_.target.config.vocab,
            .window = plan_.speculation.window_of(method),
            .feature_bytes =
                !method && has_head(plan_, Role::drafter) ? machine_.runner().feature_bytes() : 0,
            .deal = method ? policy::DrafterDeal::by_request : drafter_deal(plan_)},
        [&machine = machine_](const std::string& text) { machine.warn(text); });
    remote_.add(*made, method);
    return made;
  }

  const Inputs& inputs_;
  const Plan& plan_;
  const policy::Placement& placement_;
  RankMachine& machine_;
  engine::Batcher batcher_;
  roles::Group group_;
  speculation::RemoteDrafters remote_;
  speculation::DraftClient* siblings_ = nullptr;
  speculation::StopRecorder* recorder_ = nullptr;
  std::unique_ptr<speculation::Speculator> speculator_;
  std::unique_ptr<speculation::ElasticMemory> memory_;  ///< null: draft models lend no memory
  roles::Verifier verifier_;
};

class RankLife::MemberPlace final : public Place {
 public:
  MemberPlace(const policy::Placement& placement, const GroupRanks& ranks, RankMachine& machine)
      : machine_(machine),
        member_(machine.mailbox(), machine.runner(), machine.kv_share(), ranks.leader,
                placement.epoch, {&machine.clock(), &machine.telemetry()}) {}
  protocol::Participant& role() override { return member_; }
  RankSummary end() override {
    RankSummary summary = member_.sums();
    machine_.kv_share().account(summary);
    return summary;
  }

 private:
  RankMachine& machine_;
  roles::Member member_;
};

class RankLife::DrafterPlace final : public Place {
 public:
  DrafterPlace(const Inputs& inputs, const Plan& plan, const policy::Placement& placement, int rank,
               RankMachine& machine)
      : misbehaving_(misbehaving(inputs.config.test, inputs.config.test.faults.drafters,
                                 machine.mailbox(), [&machine](double s) { machine.sleep(s); })),
        own_(own_drafters(plan, Role::drafter, placement.drafter(rank))),
        drafter_(misbehaving_ ? *misbehaving_ : machine.mailbox(), machine.clock(),
                 drafters(machine), machine.telemetry(),
                 {.place = *placement.drafter(rank),
                  .window = plan.speculation.window_of(placement.drafter(rank)->method),
                  .max_batch = inputs.config.engine.max_batch,
                  .calls = draft_calls(inputs, plan, own_),
                  .shuffle = outcome_seed(inputs.config.test, rank),
                  .features = inputs.target.compute}) {}
  protocol::Participant& role() override { return drafter_; }
  RankSummary end() override { return drafter_.summary(); }
  void count(std::span<DraftTally> drafts) const override {
    for (std::size_t k = 0; k < own_.size(); ++k) add(drafts[own_[k]], drafter_.tallies()[k]);
  }

 private:
  [[nodiscard]] std::vector<std::unique_ptr<draft::Drafter>> drafters(RankMachine& machine) const {
    std::vector<std::unique_ptr<draft::Drafter>> drafters;
    for (const std::int32_t d : own_) drafters.push_back(machine.drafter(d));
    return drafters;
  }

  std::unique_ptr<Mailbox> misbehaving_;  ///< null unless a test replaces the machine's mailbox
  std::vector<std::int32_t> own_;
  roles::DrafterRank drafter_;
};

class RankLife::SparePlace final : public Place {
 public:
  SparePlace(int rank, RankMachine& machine) : spare_(machine.mailbox(), rank) {}
  protocol::Participant& role() override { return spare_; }
  RankSummary end() override { return {}; }

 private:
  roles::Spare spare_;
};

RankLife::RankLife(const Inputs& inputs, const Plan& plan, int rank, RankMachine& machine)
    : inputs_(inputs),
      plan_(plan),
      rank_(rank),
      machine_(machine),
      placement_(plan.layout.placement),
      drafts_(plan.drafters.size() + 1) {}

RankLife::~RankLife() = default;

std::unique_ptr<RankLife::Place> RankLife::make_place() {
  const GroupRanks group = group_of(rank_, placement_);
  switch (placement_.role(rank_)) {
    case Role::verifier:
      return std::make_unique<VerifierPlace>(inputs_, plan_, placement_, group, machine_);
    case Role::verifier_member:
      return std::make_unique<MemberPlace>(placement_, group, machine_);
    case Role::drafter:
      return std::make_unique<DrafterPlace>(inputs_, plan_, placement_, rank_, machine_);
    case Role::spare:
      break;
  }
  return std::make_unique<SparePlace>(rank_, machine_);
}

protocol::Turn RankLife::turn() {
  if (place_ == nullptr) begin();
  protocol::Participant& role = place_->role();
  if (!role.over()) return role.turn();
  add(summary_, place_->end());
  place_->count(drafts_);
  std::optional<policy::Placement> next = role.next();
  place_.reset();
  if (next) {
    take(std::move(*next));
  } else {
    end();
  }
  return {true};
}

void RankLife::begin() {
  began_ = machine_.clock().now();
  record_role(0, machine_.loading_seconds());
  place_ = make_place();
}

void RankLife::take(policy::Placement placement) {
  const double start = machine_.clock().now();
  const double loading = machine_.loading_seconds();  // seconds for earlier roles
  placement_ = std::move(placement);
  machine_.take(placement_);
  machine_.mailbox().send(Address::coordinator(),
                          protocol::encode(protocol::Ready{placement_.epoch}));
  record_role(start, machine_.loading_seconds() - loading);
  place_ = make_place();
}

void RankLife::record_role(double start, double loading) {
  const GroupRanks group = group_of(rank_, placement_);
  machine_.telemetry().role({.start = start,
                             .preparing = machine_.clock().now() - start,
                             .loading = loading,
                             .role = static_cast<std::uint32_t>(placement_.role(rank_)),
                             .epoch = placement_.epoch,
                             .leader = group.leader,
                             .tp = static_cast<std::uint32_t>(group.tp)});
}

void RankLife::end() {
  machine_.close();
  const GroupRanks group = group_of(rank_, placement_);
  summary_.rank = static_cast<std::uint32_t>(rank_);
  summary_.role = static_cast<std::uint32_t>(placement_.role(rank_));
  summary_.leader = group.leader;
  summary_.tp = static_cast<std::uint32_t>(group.tp);
  summary_.idle_seconds = machine_.clock().now() - began_ - summary_.busy_seconds;
  machine_.account(summary_);
  machine_.telemetry().summary(summary_);
  machine_.mailbox().send(Address::coordinator(), protocol::encode(protocol::Summary{summary_}));
  over_ = true;
}

}  // namespace paceline::app
