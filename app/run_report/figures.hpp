// The figures that a report has of a run, computed from its telemetry alone.
//
// Attempts stand one after the other on one time line, without the pauses between them. A rank's
// time is that of the attempts it was in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/recorded_telemetry.hpp"
#include "runtime/core/role.hpp"

namespace paceline::app {

/// Uses of a rank's time.
enum class Phase : std::uint8_t {
  starting,
  loading,
  prefill,
  decode,
  verify,
  draft,
  sample,
  communication,
  flush,
  other,
  idle
};
inline constexpr int kPhases = 11;
[[nodiscard]] const char* name_of(Phase phase);

/// Seconds by phase. A forward pass is shared out to prefill, decode and verify by their rows.
/// Communication is time in the group's collectives within forward passes and sampling, waiting for
/// other ranks included. Other is the rest of a step, its bookkeeping. Before its first step a rank
/// starts and loads weights; a change of roles may load more later. A flush may lie within a step
/// or outside. Idle is waiting for requests, for messages or for the end.
struct PhaseSeconds {
  std::array<double, kPhases> of{};
  [[nodiscard]] double& operator[](Phase phase) { return of[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] double operator[](Phase phase) const { return of[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] double sum() const;
  [[nodiscard]] Phase largest() const;
};

struct RankFigures {
  std::uint32_t rank = 0;
  Role role = Role::spare;  ///< its last
  std::string host;         ///< likewise
  PhaseSeconds seconds;
  std::uint64_t tokens = 0;  ///< of responses, that it committed
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::vector<PhaseSeconds> timeline;  ///< [bins]
};

/// A response that came to its end.
struct ResponseFigures {
  RequestId id;
  std::uint32_t tokens = 0;
  double leased = 0;  ///< first, on the time line
  double finished = 0;
  int moves = 0;  ///< from one group to another
  FinishReason reason = FinishReason::stop_id;
};

/// The responses to a prompt that came to their ends.
struct GroupFigures {
  std::uint32_t prompt = 0;
  std::uint32_t responses = 0;
  std::uint32_t longest = 0;  ///< tokens
  double mean = 0;            ///< tokens
  double finished = 0;        ///< its last
};

/// Draft tokens at one position of drafts by one drafter.
struct AcceptanceFigures {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
};

/// Steps with about so many requests, without prefill.
struct StepFigures {
  std::uint32_t requests = 0;  ///< rounded down to a power of two
  std::uint64_t plain = 0;     ///< steps without drafts
  std::uint64_t drafted = 0;   ///< and with
  double plain_seconds = 0;    ///< medians
  double drafted_seconds = 0;
};

/// The ranks of a host. Bytes of all of them together.
struct NodeFigures {
  std::string host;
  std::uint32_t ranks = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
};

struct RunFigures {
  double seconds = 0;                ///< of wall time, all attempts together
  double started = 0;                ///< the first attempt, Unix time; 0: simulated
  double ended = 0;                  ///< the last one, likewise
  std::vector<double> attempt_ends;  ///< on the time line
  std::uint64_t tokens = 0;          ///< of responses
  std::uint64_t cores = 0;           ///< that computed in the last attempt; 0: GPUs did
  std::uint64_t gpus = 0;            ///< likewise
  std::uint64_t partial = 0;         ///< responses that were stopped and not resumed
  std::uint64_t moves = 0;
  std::vector<RankFigures> ranks;          ///< by number
  std::vector<NodeFigures> nodes;          ///< most memory first
  std::vector<ResponseFigures> responses;  ///< by the time they finished
  std::vector<GroupFigures> groups;        ///< longest first
  std::vector<std::string> drafters;
  std::vector<std::vector<AcceptanceFigures>> acceptance;  ///< [drafter][position - 1]
  std::uint64_t drafted = 0;                               ///< tokens verified
  std::uint64_t accepted = 0;                              ///< of them
  std::vector<StepFigures> steps;                          ///< by rising requests

  /// Means over bins of equal length, bins() of them.
  struct Bin {
    double requests = 0;  ///< in the batches of all groups
    double tokens = 0;    ///< a second
    double kv_used = 0;   ///< share of all groups' blocks; 0 where there are no steps
    double drafted = 0;   ///< draft tokens verified, a second
    double accepted = 0;  ///< of them
  };
  std::vector<Bin> timeline;
  [[nodiscard]] int bins() const { return static_cast<int>(timeline.size()); }

  /// Second by which this share of the finished responses had finished; 0 where there are none.
  [[nodiscard]] double finished_by(double share) const;
  /// Length in tokens that this share of the finished responses does not exceed.
  [[nodiscard]] double length_quantile(double share) const;
  [[nodiscard]] PhaseSeconds all_ranks() const;
};

/// `bins`: of time lines, at least 1.
[[nodiscard]] RunFigures figures_of(const RecordedTelemetry& run, int bins);

/// A sentence on the phase that took most of the ranks' time without generating anything.
[[nodiscard]] std::string largest_loss(const RunFigures& figures);

}  // namespace paceline::app
