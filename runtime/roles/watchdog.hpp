// Notices that a run no longer goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/roles/coordinator.hpp"

namespace paceline::roles {

/// Looks at what the coordinator hears. When that shows nothing new for too long, a rank hangs: in
/// a step, in a collective with a member that has gone, or stopped by somebody. First the groups
/// are to hand in what they have, which those that still can do; then the run is to be given up.
///
/// It begins with the first report, for reading weights may take any time. Time during which nobody
/// looked does not count: the job may have been suspended as a whole.
class Watchdog {
 public:
  /// `limit`: seconds; nothing: it never gives up.
  explicit Watchdog(std::optional<double> limit) : limit_(limit) {}

  enum class Verdict : std::uint8_t { goes_on, stop, give_up };
  /// To be called often, at least once a second. Says `stop` once.
  [[nodiscard]] Verdict look(double now, const Coordinator& coordinator);
  /// For how long nothing has gone on, and whom the coordinator waits for: who has been silent for
  /// longest comes first.
  [[nodiscard]] std::string report(const Coordinator& coordinator) const;

 private:
  std::optional<double> limit_;
  double looked_ = 0;  ///< when it last did
  std::uint64_t changes_ = 0;
  double quiet_ = 0;  ///< seconds since the last change
  double grace_ = 0;  ///< likewise, or since it said `stop`
  bool stopping_ = false;
  std::vector<std::uint64_t> heard_;  ///< [ranks]
  std::vector<double> silent_;        ///< [ranks] seconds
};

}  // namespace paceline::roles
