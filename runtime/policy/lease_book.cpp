#include "runtime/policy/lease_book.hpp"

#include <algorithm>

namespace paceline::policy {

LeaseBook::LeaseBook(std::size_t requests, int groups) : active_(groups, 0) {
  for (std::size_t i = 0; i < requests; ++i) pending_.push_back(i);
}

std::vector<std::size_t> LeaseBook::grant(int group, int room) {
  const std::size_t groups = active_.size();
  const auto share = static_cast<int>((pending_.size() + leased_ + groups - 1) / groups);
  const int count = std::min({room, share - active_[group], static_cast<int>(pending_.size())});
  std::vector<std::size_t> granted;
  for (int i = 0; i < count; ++i) {
    granted.push_back(pending_.front());
    pending_.pop_front();
  }
  active_[group] += static_cast<int>(granted.size());
  leased_ += granted.size();
  return granted;
}

void LeaseBook::move(int from, int to) {
  --active_[from];
  ++active_[to];
}

void LeaseBook::finish(int group) {
  --active_[group];
  --leased_;
}

}  // namespace paceline::policy
