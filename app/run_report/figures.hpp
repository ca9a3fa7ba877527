// Figures of a run for a report, computed from its telemetry alone.
//
// Attempts follow one another on one time line, without the pauses between them. A rank's time is
// the time of the attempts in which it took part.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

/// Seconds by phase. A forward pass is divided among prefill, decode and verify by their rows.
/// Communication is the time in the group's collectives within forward passes and sampling, with
/// waiting for other ranks. Other is the rest of a step: bookkeeping. Before its first step a rank
/// starts and loads weights; a later change of roles may load more. A flush may lie within a step
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
  Role role = Role::spare;  ///< its last role
  std::string host;         ///< its last host
  PhaseSeconds seconds;
  std::uint64_t tokens = 0;  ///< response tokens that it committed
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::vector<PhaseSeconds> timeline;  ///< [bins]
};

/// A finished response.
struct ResponseFigures {
  RequestId id;
  std::uint32_t tokens = 0;
  double leased = 0;  ///< seconds on the time line, at its first lease
  double finished = 0;
  int moves = 0;  ///< moves from one group to another
  FinishReason reason = FinishReason::stop_id;
};

/// The finished responses to a prompt.
struct GroupFigures {
  std::uint32_t prompt = 0;
  std::uint32_t responses = 0;
  std::uint32_t longest = 0;  ///< tokens
  double mean = 0;            ///< tokens
  double finished = 0;        ///< time at which the last one finished
};

/// Conversations: the turns of responses, and the waits for answers to them.
struct TurnFigures {
  std::vector<std::uint64_t>
      responses;  ///< [turns] number of responses with so many turns; empty: no conversations
  std::vector<double>
      waits;  ///< seconds from a turn's end to its answer, ascending; last turns have none
  [[nodiscard]] double mean() const;  ///< turns of a response; 0 where there are none
};

/// KV in the pool while requests waited for room or for answers, or moved. Bytes of all ranks.
struct StoredKvFigures {
  std::uint64_t stored = 0;
  std::uint64_t from_memory = 0;  ///< fetched from memory
  std::uint64_t from_disk = 0;    ///< fetched from disk
  std::uint64_t lost = 0;         ///< number of requests for whose KV there was no room
};

/// Counts of draft tokens at one position of one drafter's drafts.
struct AcceptanceFigures {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
};

/// Steps without prefill, of about the same number of requests.
struct StepFigures {
  std::uint32_t requests = 0;  ///< rounded down to a power of two
  std::uint64_t plain = 0;     ///< steps without drafts
  std::uint64_t drafted = 0;   ///< steps with drafts
  double plain_seconds = 0;    ///< median of plain steps
  double drafted_seconds = 0;
};

/// The ranks of a host. Bytes are sums over these ranks.
struct NodeFigures {
  std::string host;
  std::uint32_t ranks = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
};

struct RunFigures {
  /// Dynamic sampling: the prompts that the run's file has, by their numbers in the run, ascending;
  /// absent: the file has all prompts.
  std::optional<std::vector<std::uint32_t>> kept;
  /// A prompt's number in the run's file, as `paceline show` takes it; "(5)" where the file lacks
  /// prompt 5 of the run.
  [[nodiscard]] std::string number_of(std::uint32_t prompt) const;

  double seconds = 0;                ///< wall time, all attempts together
  double started = 0;                ///< Unix time of the first attempt; 0: simulated
  double ended = 0;                  ///< Unix time of the last attempt's end
  std::vector<double> attempt_ends;  ///< seconds on the time line
  std::uint64_t tokens = 0;          ///< response tokens
  std::uint64_t cores = 0;           ///< cores used by the last attempt; 0: it used GPUs
  std::uint64_t gpus = 0;            ///< GPUs used by the last attempt
  std::uint64_t partial = 0;         ///< responses that were stopped and not resumed
  std::uint64_t moves = 0;
  std::uint64_t pregenerated = 0;          ///< tokens generated for the next step's drafts
  double pregenerating_seconds = 0;        ///< part of idle time, summed over ranks
  std::vector<RankFigures> ranks;          ///< in order of rank numbers
  std::vector<NodeFigures> nodes;          ///< most memory first
  std::vector<ResponseFigures> responses;  ///< in order of finishing
  std::vector<GroupFigures> groups;        ///< longest first
  std::vector<std::string> drafters;
  std::vector<std::vector<AcceptanceFigures>> acceptance;  ///< [drafter][position - 1]
  std::uint64_t drafted = 0;                               ///< draft tokens verified
  std::uint64_t accepted = 0;                              ///< draft tokens accepted
  std::vector<StepFigures> steps;                          ///< ascending by requests
  TurnFigures turns;
  StoredKvFigures stored_kv;

  /// Means over time bins of equal length; there are bins() bins.
  struct Bin {
    double requests = 0;  ///< number in the batches of all groups
    double tokens = 0;    ///< response tokens a second
    double kv_used = 0;   ///< used share of all groups' blocks; 0: no steps
    double drafted = 0;   ///< draft tokens verified a second
    double accepted = 0;  ///< draft tokens accepted a second
  };
  std::vector<Bin> timeline;
  [[nodiscard]] int bins() const { return static_cast<int>(timeline.size()); }

  /// Seconds after which this share of the finished responses had finished; 0: there are none.
  [[nodiscard]] double finished_by(double share) const;
  /// Length in tokens that this share of the finished responses does not exceed.
  [[nodiscard]] double length_quantile(double share) const;
  [[nodiscard]] PhaseSeconds all_ranks() const;
};

/// Computes the figures. `bins`: number of bins of the time lines, at least 1.
[[nodiscard]] RunFigures figures_of(const RecordedTelemetry& run, int bins);

/// A sentence about the phase that cost the ranks most time without generating anything.
[[nodiscard]] std::string largest_loss(const RunFigures& figures);

}  // namespace paceline::app
