// Statistics of a run for a report, computed from its telemetry.
//
// An attempt is one start or resume of a run. The run's time line joins the attempts without the
// pauses between them. Times are seconds on this line. A rank's time is all time of the
// attempts in which it left records.
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

/// Seconds by phase. `prefill`, `decode` and `verify` divide a forward pass in proportion to its
/// rows; `prefill` has the time of encoding pictures too. A group's leader has the numbers of rows;
/// a member's pass counts as `decode` if the leader has no record of it. `communication` is a
/// group's collectives, except NCCL's, in forward passes and sampling, including the wait for other
/// ranks. `other` is bookkeeping in steps. `starting` comes before the first step of an attempt.
/// `loading` is loading weights, at the start and in changes of roles. `flush` is writing to files.
/// `idle` is all remaining time.
struct PhaseSeconds {
  std::array<double, kPhases> of{};
  [[nodiscard]] double& operator[](Phase phase) { return of[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] double operator[](Phase phase) const { return of[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] double sum() const;
  [[nodiscard]] Phase largest() const;
};

struct RankFigures {
  std::uint32_t rank = 0;
  Role role = Role::spare;  ///< the rank's last role
  std::string host;         ///< the rank's last host
  PhaseSeconds seconds;
  std::uint64_t tokens = 0;  ///< response tokens that the rank committed
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::vector<PhaseSeconds> timeline;  ///< [bins] part of `seconds` in each bin of the time line
};

/// A finished response.
struct ResponseFigures {
  RequestId id;
  std::uint32_t tokens = 0;
  double leased = 0;    ///< time at which a group first got the request
  double finished = 0;  ///< time at which the response finished
  int moves = 0;        ///< moves straight from one verifier group to another
  FinishReason reason = FinishReason::stop_id;
};

/// The finished responses to a prompt.
struct GroupFigures {
  std::uint32_t prompt = 0;
  std::uint32_t responses = 0;
  std::uint32_t longest = 0;  ///< tokens of the longest response
  double mean = 0;            ///< mean tokens of a response
  double finished = 0;        ///< time at which the last of these responses finished
};

/// Statistics of conversations: turns of responses, and waits for the environment's answers.
struct TurnFigures {
  std::vector<std::uint64_t>
      responses;  ///< [turns] number of responses with this many turns; empty: no conversations
  std::vector<double>
      waits;  ///< seconds from a turn's end to the answer that begins the next turn, ascending
  [[nodiscard]] double mean() const;  ///< mean turns of a response; 0: no conversations
};

/// KV that the KV pool held while its request waited at the coordinator or for an environment's
/// answer. Bytes are sums over ranks.
struct StoredKvFigures {
  std::uint64_t stored = 0;
  std::uint64_t from_memory = 0;  ///< fetched from memory
  std::uint64_t from_disk = 0;    ///< fetched from disk
  std::uint64_t lost = 0;         ///< times that a group dropped a request's KV for lack of room
};

/// Counts of draft tokens at one position of one drafter's drafts.
struct AcceptanceFigures {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
};

/// Verifier groups' steps without prefill that have about the same number of requests.
struct StepFigures {
  std::uint32_t requests = 0;  ///< requests in a step, rounded down to a power of two
  std::uint64_t plain = 0;     ///< steps without drafts
  std::uint64_t drafted = 0;   ///< steps with drafts
  double plain_seconds = 0;    ///< median duration of steps without drafts
  double drafted_seconds = 0;  ///< median duration of steps with drafts
};

/// Memory used on a host. Bytes are sums over its `ranks` ranks.
struct NodeFigures {
  std::string host;
  std::uint32_t ranks = 0;
  std::uint64_t peak_rss_bytes = 0;
  std::uint64_t weight_bytes = 0;
  std::uint64_t kv_bytes = 0;
};

struct RunFigures {
  /// Numbers, in the run, of the prompts that dynamic sampling kept for trajectories.h5, ascending.
  /// The caller of figures_of() sets this. nullopt: all prompts are kept, as far as is known.
  std::optional<std::vector<std::uint32_t>> kept;
  /// A prompt's number in trajectories.h5, for `paceline show`. `prompt`: its number in the run. If
  /// `kept` lacks the prompt, the result is `prompt` in brackets: "(5)".
  [[nodiscard]] std::string number_of(std::uint32_t prompt) const;

  double seconds = 0;                      ///< length of the time line
  double started = 0;                      ///< Unix time of the first attempt's start; 0: simulated
  double ended = 0;                        ///< Unix time of the last attempt's end
  std::vector<double> attempt_ends;        ///< [attempts] time at which the attempt ended
  std::uint64_t tokens = 0;                ///< response tokens
  std::uint64_t cores = 0;                 ///< cores used by the last attempt; 0 with GPUs
  std::uint64_t gpus = 0;                  ///< GPUs used by the last attempt
  std::uint64_t partial = 0;               ///< unfinished responses at a stop, not resumed since
  std::uint64_t moves = 0;                 ///< moves of requests to a group or the coordinator
  std::uint64_t pregenerated = 0;          ///< tokens generated for the next training step's drafts
  double pregenerating_seconds = 0;        ///< idle time spent on these tokens, summed over ranks
  std::vector<RankFigures> ranks;          ///< in order of rank numbers
  std::vector<NodeFigures> nodes;          ///< greatest peak_rss_bytes first
  std::vector<ResponseFigures> responses;  ///< in order of finishing
  std::vector<GroupFigures> groups;        ///< longest response first
  std::vector<std::string> drafters;
  std::vector<std::vector<AcceptanceFigures>> acceptance;  ///< [drafter][position - 1]
  std::uint64_t drafted = 0;                               ///< draft tokens verified
  std::uint64_t accepted = 0;                              ///< draft tokens accepted
  std::vector<StepFigures> steps;                          ///< ascending by requests
  TurnFigures turns;
  StoredKvFigures stored_kv;

  /// Means over one of the bins() equal parts of the time line.
  struct Bin {
    double requests = 0;  ///< requests in the batches of all verifier groups
    double tokens = 0;    ///< response tokens a second, without those sampled in a prefill
    double kv_used = 0;   ///< share of the groups' KV blocks in use; 0: no steps
    double drafted = 0;   ///< draft tokens verified a second
    double accepted = 0;  ///< draft tokens accepted a second
  };
  std::vector<Bin> timeline;
  [[nodiscard]] int bins() const { return static_cast<int>(timeline.size()); }

  /// Time by which `share` of the finished responses had finished; 0: no response finished.
  [[nodiscard]] double finished_by(double share) const;
  /// Length in tokens that at least `share` of the finished responses do not exceed. `share` < 1.
  [[nodiscard]] double length_quantile(double share) const;
  [[nodiscard]] PhaseSeconds all_ranks() const;
};

/// Computes the statistics. `bins`: number of bins of the time line, at least 1.
[[nodiscard]] RunFigures figures_of(const RecordedTelemetry& run, int bins);

/// Text for the user about the greatest loss of the ranks' time. Losses are all phases except
/// prefill, decode and draft. Of `verify`, only the part for refused draft tokens is a loss.
[[nodiscard]] std::string largest_loss(const RunFigures& figures);

}  // namespace paceline::app
