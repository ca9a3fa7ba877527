#include "runtime/speculation/remote_drafters.hpp"

#include <algorithm>

namespace paceline::speculation {

void RemoteDrafters::use(std::span<const policy::DrafterPlace> places) {
  for (const Of& of : drafters_) of.drafter->use(policy::drafters_of(group_, of.method, places));
}

bool RemoteDrafters::is_drafter(int rank) const {
  return std::any_of(drafters_.begin(), drafters_.end(),
                     [rank](const Of& of) { return of.drafter->is_drafter(rank); });
}

void RemoteDrafters::receive(int from, std::span<const std::byte> message) {
  for (const Of& of : drafters_) {
    if (of.drafter->is_drafter(from)) return of.drafter->receive(from, message);
  }
}

void RemoteDrafters::close() {
  for (const Of& of : drafters_) of.drafter->close();
}

RemoteDrafter::Counts RemoteDrafters::counts() const {
  RemoteDrafter::Counts sum;
  for (const Of& of : drafters_) {
    const RemoteDrafter::Counts& own = of.drafter->counts();
    sum.drafted += own.drafted;
    sum.stale += own.stale;
    sum.invalid += own.invalid;
    sum.flooded += own.flooded;
    sum.late += own.late;
    sum.foreseen += own.foreseen;
  }
  return sum;
}

}  // namespace paceline::speculation
