// A verifier's drafter ranks: those that draft for all groups, and those that draft for its own by
// one drafter each (policy/schedule/tail_drafters.hpp). What a verifier hears and says of them
// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/policy/place/placement.hpp"
#include "runtime/speculation/remote_drafter.hpp"

namespace paceline::roles {

/// Each drafter of the run by which ranks may draft is a RemoteDrafter of its own, for tokens of
/// different drafters are accepted differently. Not thread-safe.
class RemoteDrafters {
 public:
  /// `group`: the verifier, as leader of its group.
  explicit RemoteDrafters(std::int32_t group) : group_(group) {}

  /// Those that draft by this one of the run's drafters; -1: by all of them, for all groups. The
  /// drafter outlives this.
  void add(RemoteDrafter& drafter, std::int32_t method) { drafters_.push_back({&drafter, method}); }

  /// From now on ranks have these places.
  void use(std::span<const policy::DrafterPlace> places);
  [[nodiscard]] bool is_drafter(int rank) const;
  /// What a drafter rank has sent, whatever it is.
  void receive(int from, std::span<const std::byte> message);
  /// Says what was wrong with each rank in all.
  void close();
  [[nodiscard]] RemoteDrafter::Counts counts() const;
  [[nodiscard]] std::int32_t group() const { return group_; }
  [[nodiscard]] std::size_t size() const { return drafters_.size(); }

 private:
  struct Of {
    RemoteDrafter* drafter;
    std::int32_t method;
  };
  std::int32_t group_;
  std::vector<Of> drafters_;
};

}  // namespace paceline::roles
