// Clocks, and the time limit of the job.
#pragma once

#include <optional>
#include <string>

#include "runtime/core/clock.hpp"

namespace paceline::app {

/// A clock that counts seconds since its construction.
class SteadyClock final : public Clock {
 public:
  SteadyClock();
  [[nodiscard]] double now() const override;

 private:
  double start_;
};

[[nodiscard]] double unix_seconds();

struct TimeLimit {
  std::optional<double> seconds;  ///< length of the limit; nullopt: no limit is known
  std::string origin;             ///< for the user: what sets the limit, or why none is known
};

/// Returns `setting` (limits.wall_clock in seconds) if it is set, otherwise the seconds from now to
/// the end of the Slurm job (SLURM_JOB_END_TIME, or squeue).
[[nodiscard]] TimeLimit time_limit(std::optional<double> setting);

}  // namespace paceline::app
