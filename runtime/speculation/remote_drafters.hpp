// A verifier's drafter ranks together: the ranks that draft for all groups, and the ranks that
// draft for its own group by one drafter each (policy/schedule/tail_drafters.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/policy/place/placement.hpp"
#include "runtime/speculation/remote_drafter.hpp"

namespace paceline::speculation {

/// Ranks that draft by different drafters of the run have different RemoteDrafters, for tokens of
/// different drafters are accepted differently. Not thread-safe.
class RemoteDrafters {
 public:
  /// `group`: the rank of the verifier, which leads its group.
  explicit RemoteDrafters(std::int32_t group) : group_(group) {}

  /// Adds the ranks that draft by `method`, index of one of the run's drafters. `method` absent:
  /// the ranks that draft by all of them, for all groups. `drafter` outlives this.
  void add(RemoteDrafter& drafter, OptionalIndex method) {
    drafters_.push_back({&drafter, method});
  }

  /// Takes the drafter ranks' places that hold from now on.
  void use(std::span<const policy::DrafterPlace> places);
  [[nodiscard]] bool is_drafter(int rank) const;
  /// Takes a message of a drafter rank, which may have any contents.
  void receive(int from, std::span<const std::byte> message);
  /// Tells the user the totals of each rank's troubles.
  void close();
  [[nodiscard]] RemoteDrafter::Counts counts() const;
  [[nodiscard]] std::int32_t group() const { return group_; }
  [[nodiscard]] std::size_t size() const { return drafters_.size(); }

 private:
  struct Of {
    RemoteDrafter* drafter;
    OptionalIndex method;
  };
  std::int32_t group_;
  std::vector<Of> drafters_;
};

}  // namespace paceline::speculation
