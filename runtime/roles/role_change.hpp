// A change of roles under way, from one placement of ranks to the next.
#pragma once

#include <set>
#include <vector>

#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/request_table.hpp"
#include "runtime/roles/known_group.hpp"

namespace paceline::roles {

/// Ranks change roles in three steps. First, groups that are to end get no more leases. Their
/// requests go to groups that stay, or back to the request table if no group stays (drain()).
/// Second, every rank that changes is told its new place, takes it and confirms it. A verifier that
/// stays confirms that it takes no more drafts from ranks that stop drafting (tell(), took()).
/// Third, when all these ranks have confirmed, the next placement is in force (done()).
///
/// This class says which messages are due; the coordinator sends them.
class RoleChange {
 public:
  RoleChange(const policy::Placement& now, policy::Placement next);

  /// Whether some rank has another place in the next placement.
  [[nodiscard]] bool needed() const { return !changing_.empty(); }
  [[nodiscard]] const policy::Placement& next() const { return next_; }
  /// Whether the present group of `leader` ends with this change.
  [[nodiscard]] bool ends(int leader) const { return changing_.contains(leader); }

  struct Drain {
    std::vector<policy::RequestMove> moves;  ///< moves to be commanded
    bool done = false;                       ///< groups that end hold no request, and will get none
  };
  [[nodiscard]] Drain drain(const policy::RequestTable& requests) const;

  struct Telling {
    int rank = 0;
    policy::Placement placement;
  };
  /// Returns the placements to send: to ranks that change and to leaders that stay. Present members
  /// of groups are left out: each gets the placement from its present leader. After the call,
  /// awaits() is true for ranks that change (members included) and for leaders that stay.
  [[nodiscard]] std::vector<Telling> tell();
  [[nodiscard]] bool told() const { return told_; }
  /// Whether tell() has been called and the rank has yet to confirm.
  [[nodiscard]] bool awaits(int rank) const { return told_ && awaited_.contains(rank); }
  /// Notes that an awaited rank has confirmed.
  void took(int rank) { awaited_.erase(rank); }
  [[nodiscard]] bool done() const { return told_ && awaited_.empty(); }

  /// Whether tell() has been called and `epoch` is the next placement's. A new group may report
  /// with this epoch while other ranks have yet to confirm.
  [[nodiscard]] bool begins(std::uint32_t epoch) const { return told_ && epoch == next_.epoch; }
  /// The groups that the next placement adds.
  [[nodiscard]] KnownGroups& new_groups() { return new_groups_; }

 private:
  policy::Placement now_;
  policy::Placement next_;
  std::set<int> changing_;  ///< ranks whose place differs in `next_`
  std::set<int> awaited_;
  bool told_ = false;
  KnownGroups new_groups_;
};

}  // namespace paceline::roles
