// Which verifier group gets which request next.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace paceline::policy {

/// Leases requests, in their given order, to groups that have room. Siblings stand next to each
/// other in that order, so a group mostly gets all of a prompt's and computes the prompt once. Near
/// the end no group takes more than its even share of what is unfinished, so that none sits on a
/// queue while another runs dry. Requests are indices into the caller's list.
class LeaseBook {
 public:
  LeaseBook(std::size_t requests, int groups);

  /// Requests for a group that has room for `room` more. Empty when it should wait.
  [[nodiscard]] std::vector<std::size_t> grant(int group, int room);
  /// A leased request changed groups.
  void move(int from, int to);
  /// A leased request of the group ended.
  void finish(int group);

  [[nodiscard]] std::size_t pending() const { return pending_.size(); }
  [[nodiscard]] std::size_t leased() const { return leased_; }

 private:
  std::deque<std::size_t> pending_;
  std::vector<int> active_;  ///< [groups] leased and not ended
  std::size_t leased_ = 0;   ///< of all groups
};

}  // namespace paceline::policy
