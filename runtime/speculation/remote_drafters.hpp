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

/// Each drafter of the run by which ranks may draft is a RemoteDrafter of its own, for tokens of
/// different drafters are accepted differently. Not thread-safe.
class RemoteDrafters {
 public:
  /// `group`: the verifier, as leader of its group.
  explicit RemoteDrafters(std::int32_t group) : group_(group) {}

  /// Adds the ranks that draft by `method`, one of the run's drafters; absent: by all of the run's
  /// drafters, for all groups. `drafter` outlives this.
  void add(RemoteDrafter& drafter, OptionalIndex method) {
    drafters_.push_back({&drafter, method});
  }

  /// From now on ranks have these places.
  void use(std::span<const policy::DrafterPlace> places);
  [[nodiscard]] bool is_drafter(int rank) const;
  /// Takes a message of a drafter rank, whatever it holds.
  void receive(int from, std::span<const std::byte> message);
  /// Tells the user what was wrong with each rank in all.
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
