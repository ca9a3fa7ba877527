// A change of roles under way: from one placement of ranks to the next.
#pragma once

#include <set>
#include <vector>

#include "runtime/policy/place/placement.hpp"
#include "runtime/policy/schedule/request_table.hpp"
#include "runtime/roles/known_group.hpp"

namespace paceline::roles {

/// Ranks change roles in three steps. The groups that are to end are leased nothing more, and their
/// requests go to groups that stay, or back to the table where none does (drain). Then every rank
/// that changes is told its new place, takes it, and says so, and verifiers that stay part from
/// drafters that end (tell, took). Once all have (done), the next placement holds.
///
/// Says what is to be sent; the coordinator sends it.
class RoleChange {
 public:
  RoleChange(const policy::Placement& now, policy::Placement next);

  /// Some rank has another place.
  [[nodiscard]] bool needed() const { return !changing_.empty(); }
  [[nodiscard]] const policy::Placement& next() const { return next_; }
  /// Whether this group of now has no place in the next placement.
  [[nodiscard]] bool ends(int leader) const { return changing_.contains(leader); }

  struct Drain {
    std::vector<policy::RequestMove> moves;  ///< to be made
    bool done = false;  ///< nothing is held by groups that end, or on its way to them
  };
  [[nodiscard]] Drain drain(const policy::RequestTable& requests) const;

  struct Telling {
    int rank = 0;
    policy::Placement placement;
  };
  /// What ranks are to be told, members by their leaders. From then on they are awaited.
  [[nodiscard]] std::vector<Telling> tell();
  [[nodiscard]] bool told() const { return told_; }
  /// The rank has yet to say that it has taken its place, or parted from drafters that end.
  [[nodiscard]] bool awaits(int rank) const { return told_ && awaited_.contains(rank); }
  /// Of a rank that is awaited: it has.
  void took(int rank) { awaited_.erase(rank); }
  [[nodiscard]] bool done() const { return told_ && awaited_.empty(); }

  /// Whether a group of that epoch is to come: it may report before all ranks have their places.
  [[nodiscard]] bool begins(std::uint32_t epoch) const { return told_ && epoch == next_.epoch; }
  /// Groups that the next placement makes.
  [[nodiscard]] KnownGroups& new_groups() { return new_groups_; }

 private:
  policy::Placement now_;
  policy::Placement next_;
  std::set<int> changing_;  ///< ranks whose place is another one
  std::set<int> awaited_;
  bool told_ = false;
  KnownGroups new_groups_;
};

}  // namespace paceline::roles
