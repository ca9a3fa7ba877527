#include "runtime/roles/watchdog.hpp"

#include <algorithm>

#include "runtime/core/counted.hpp"

namespace paceline::roles {
namespace {

constexpr double kLongestGap = 1;  // a longer time between two looks counts as this many seconds
constexpr double kGrace = 10;      // seconds from `stop` to `give_up` if there is no progress
constexpr std::size_t kMostNamed = 8;

}  // namespace

Watchdog::Verdict Watchdog::look(double now, const Coordinator& coordinator) {
  const double passed = std::clamp(now - looked_, 0.0, kLongestGap);
  looked_ = now;
  const auto heard = coordinator.heard();
  heard_.resize(heard.size());
  silent_.resize(heard.size());
  for (std::size_t r = 0; r < heard.size(); ++r) {
    silent_[r] = heard[r] == heard_[r] ? silent_[r] + passed : 0;
    heard_[r] = heard[r];
  }
  const bool changed = coordinator.changes() != changes_;
  changes_ = coordinator.changes();
  quiet_ = changed ? 0 : quiet_ + passed;
  grace_ = changed ? 0 : grace_ + passed;
  if (!limit_ || changes_ == 0) return Verdict::goes_on;
  if (stopping_) return grace_ < std::min(kGrace, *limit_) ? Verdict::goes_on : Verdict::give_up;
  if (quiet_ < *limit_) return Verdict::goes_on;
  stopping_ = true;
  grace_ = 0;
  return Verdict::stop;
}

std::string Watchdog::report(const Coordinator& coordinator) const {
  std::vector<int> ranks = coordinator.awaited();
  std::ranges::stable_sort(ranks, [&](int a, int b) { return silent_[a] > silent_[b]; });
  std::string text = "no progress for " + duration_text(quiet_);
  for (std::size_t i = 0; i < std::min(kMostNamed, ranks.size()); ++i) {
    const int rank = ranks[i];
    const policy::Placement& placement = coordinator.placement();
    const Role role = placement.role(rank);
    text +=
        (i > 0 ? ", rank " : "; waiting for rank ") + std::to_string(rank) + " (" + name_of(role);
    const int tp = role == Role::verifier ? placement.groups[placement.group(rank)].tp : 1;
    if (tp > 1)
      text += " of ranks " + std::to_string(rank) + " to " + std::to_string(rank + tp - 1);
    text += heard_[rank] == 0 ? "; no message yet)"
                              : "; last message " + duration_text(silent_[rank]) + " ago)";
  }
  if (ranks.size() > kMostNamed)
    text += " and " + std::to_string(ranks.size() - kMostNamed) + " others";
  return text;
}

}  // namespace paceline::roles
