// The watchdog notices when a run makes no more progress.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/roles/coordinator.hpp"

namespace paceline::roles {

/// The watchdog looks at the messages that the coordinator gets. If they show no progress for too
/// long, some rank probably hangs: in a step, in a collective with a rank that is gone, or because
/// its process was stopped. Then look() returns `stop`, and the caller asks groups to hand in their
/// requests. After 10 more seconds without progress (`limit` if shorter), look() returns `give_up`.
///
/// The watch begins when a message first shows progress, because loading weights may take any time.
/// A long pause between two calls of look() counts as one second: the whole job may have been
/// suspended.
class Watchdog {
 public:
  /// `limit`: allowed seconds without progress; absent: there is no limit.
  explicit Watchdog(std::optional<double> limit) : limit_(limit) {}

  enum class Verdict : std::uint8_t { goes_on, stop, give_up };
  /// Judges the run. To be called at least once a second. Returns `stop` at most one time.
  [[nodiscard]] Verdict look(double now, const Coordinator& coordinator);
  /// Returns a text for the user: how long there was no progress, and for which ranks the
  /// coordinator waits. The rank that has been silent longest comes first.
  [[nodiscard]] std::string report(const Coordinator& coordinator) const;

 private:
  std::optional<double> limit_;
  double looked_ = 0;          ///< time of the last look
  std::uint64_t changes_ = 0;  ///< Coordinator::changes() at the last look
  double quiet_ = 0;           ///< seconds since the last change
  double grace_ = 0;           ///< seconds since the last change or `stop`, whichever was later
  bool stopping_ = false;
  std::vector<std::uint64_t> heard_;  ///< [ranks] Coordinator::heard() at the last look
  std::vector<double> silent_;        ///< [ranks] seconds without a message
};

}  // namespace paceline::roles
