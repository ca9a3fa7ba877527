// Runs the roles of a rank one after another, in a real job or a simulated one.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "app/assembly/plan.hpp"
#include "app/assembly/rank_machine.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::app {

/// The life of one rank. The rank begins with its role in the layout, takes each role that the
/// coordinator gives it later, and sends its summary when the run is over.
class RankLife final : public protocol::Participant {
 public:
  /// References must outlive this object.
  RankLife(const Inputs& inputs, const Plan& plan, int rank, RankMachine& machine);
  ~RankLife() override;

  protocol::Turn turn() override;
  /// Whether the rank has sent its summary.
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] const policy::Placement& placement() const { return placement_; }
  /// [drafters + 1] Tried and accepted tokens of the rank's own drafters in ended roles, by index
  /// in Plan::drafters. A role's suffix drafter counts in the last element instead if it had
  /// responses of earlier steps for most drafts.
  [[nodiscard]] std::span<const DraftTally> drafts() const { return drafts_; }

 private:
  class Place;
  class VerifierPlace;
  class MemberPlace;
  class DrafterPlace;
  class SparePlace;
  [[nodiscard]] std::unique_ptr<Place> make_place();
  void begin();
  void take(policy::Placement placement);
  void record_role(double start, double loading);
  void end();

  const Inputs& inputs_;
  const Plan& plan_;
  int rank_;
  RankMachine& machine_;
  policy::Placement placement_;
  std::unique_ptr<Place> place_;
  double began_ = 0;
  RankSummary summary_;
  std::vector<DraftTally> drafts_;
  bool over_ = false;
};

}  // namespace paceline::app
