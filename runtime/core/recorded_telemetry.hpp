// Contents of a run's telemetry.h5, in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/interfaces.hpp"

namespace paceline {

/// A record of a rank in one of the run's attempts. Times are seconds since the attempt began.
template <typename Row>
struct OfRank {
  Row row;
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
};

struct RecordedAttempt {
  std::uint32_t attempt = 0;
  std::uint32_t ranks = 0;
  double started = 0;  ///< Unix time, seconds; 0: simulated
  double ended = 0;    ///< Unix time, seconds, as far as known; 0: simulated
  std::string plan;    ///< as printed
};

/// The process of a rank in an attempt.
struct RecordedProcess {
  std::uint32_t attempt = 0;
  std::uint32_t rank = 0;
  std::uint32_t cores = 0;  ///< cores that it computes on, its part of shared ones; 0 with GPUs
  std::uint32_t gpus = 0;
  std::string host;
};

struct RecordedTelemetry {
  std::vector<RecordedAttempt> attempts;
  std::vector<RecordedProcess> processes;    ///< by (attempt, rank)
  std::vector<OfRank<StepRecord>> steps;     ///< by (rank, attempt, start)
  std::vector<OfRank<RequestEvent>> events;  ///< by (attempt, time)
  std::vector<OfRank<TransferRecord>> transfers;
  std::vector<OfRank<RoleRecord>> roles;
  std::vector<OfRank<WriteRecord>> writes;  ///< by (attempt, rank, start)
  std::vector<OfRank<AcceptanceCell>> acceptance;
  std::vector<OfRank<RankSummary>> summaries;  ///< by (attempt, rank)
  std::vector<std::string> drafters;           ///< by AcceptanceCell::drafter
};

}  // namespace paceline
