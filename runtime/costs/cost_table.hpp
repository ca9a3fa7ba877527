// Costs on this machine: the only table that decisions about speed read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace paceline {

/// Seconds of an operation as a function of its rows (or tokens, or requests) and of the context:
/// the positions that a row attends to, on average. A value type; reading is thread-safe.
class CostCurve {
 public:
  struct Point {
    double rows = 0;     ///< > 0
    double seconds = 0;  ///< > 0, without attention
  };
  /// Seconds of attention, to be added to a Point's, for rows * context positions.
  struct Attention {
    double positions = 0;  ///< > 0
    double seconds = 0;    ///< >= 0
  };

  CostCurve() = default;
  /// `points`: in any order. Points with equal rows are replaced by their mean. Where measured
  /// costs fall with more rows, they are levelled to the mean of neighbours (isotonic regression).
  /// `per_position`: seconds, >= 0, for each row and each position that it attends to. Throws
  /// std::invalid_argument on values out of range.
  explicit CostCurve(std::vector<Point> points, double per_position = 0);
  /// As above, with points of attention, whose seconds are not proportional to positions because KV
  /// that fits in a cache is read faster. These points are levelled too. Outside their range,
  /// seconds are proportional to positions. `context`: the context at which attention was measured.
  /// In a shorter context, rows take their seconds at `context` times the ratio of contexts: KV of
  /// many short contexts is read as slowly as of many long ones. 0: only positions count.
  CostCurve(std::vector<Point> points, std::vector<Attention> attention, double context = 0);

  /// Seconds of `rows` rows, linear between points. Below the first point the cost is the first
  /// point's. Past the last point costs rise with the slope of the last octave, or in proportion to
  /// rows if there is only one point. 0 without points.
  [[nodiscard]] double seconds(double rows, double context = 0) const;

  [[nodiscard]] bool empty() const { return points_.empty(); }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }  ///< by rising rows
  /// Seconds of attention, to be added to seconds(rows).
  [[nodiscard]] double attending(double rows, double context) const;
  /// Seconds per position, for large numbers of positions.
  [[nodiscard]] double per_position() const;
  [[nodiscard]] const std::vector<Attention>& attention() const { return attention_; }
  [[nodiscard]] double context() const { return context_; }  ///< 0: only positions count

 private:
  [[nodiscard]] double attending(double positions) const;

  std::vector<Point> points_;         ///< by rising rows
  std::vector<Attention> attention_;  ///< by rising positions
  double context_ = 0;
};

/// Costs of one drafter. A draft has a first round and may have further rounds.
struct DrafterCosts {
  std::string name;    ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  CostCurve first;     ///< drafting a first token, after a step, for each of `rows` requests
  CostCurve round;     ///< drafting one more token for each of `rows` requests
  CostCurve catch_up;  ///< computing `rows` committed tokens; empty: the drafter never lags
  /// Shape and dtype of the draft model or head, like CostConditions::model; empty: the drafter has
  /// none, or the table is by an earlier version.
  std::string model = {};
  /// Drafting one more token for each of `rows` requests in a call of its own, as drafter ranks do:
  /// the drafter has computed all text before it, and no step goes before the call. Empty: not
  /// measured, and such a call costs as much as `first`. Only simulated drafters read it.
  CostCurve next = {};
};

/// Costs of moving bytes to another rank.
struct TransferCosts {
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes per second, > 0
};

/// Conditions under which a table was measured. The table is not valid under other conditions.
struct CostConditions {
  std::string backend;  ///< "cpu" | "cuda"
  std::string isa;      ///< instruction set, or the device's architecture
  int tp = 1;           ///< tensor-parallel degree
  int threads = 1;      ///< threads of each rank
  /// The model's shape and dtype, not its weights: costs hold for every step of a training.
  std::string model;
  bool operator==(const CostConditions&) const = default;
};

/// Shape of a step whose cost is asked for.
struct StepShape {
  double requests = 0;         ///< requests that decode, one row each
  double drafted = 0;          ///< rows of drafts, in addition to the requests' own rows
  double prefill_rows = 0;     ///< rows of prompts
  double context = 0;          ///< positions that a decoding request attends to, on average
  double prefill_context = 0;  ///< positions before a prompt row's chunk, on average
};

struct CostTable {
  static constexpr std::size_t kAllDrafters = static_cast<std::size_t>(-1);

  CostConditions conditions;
  CostCurve decode;  ///< rows that are sampled, one for each request
  /// Seconds for each position that a drafted row attends to. It is less than a decoding row's,
  /// because KV that is read for a request's own row also serves the request's drafted rows.
  double drafted_position = 0;
  CostCurve prefill;  ///< rows of a prompt, none sampled; context: positions before them
  std::vector<DrafterCosts> drafters;
  std::optional<TransferCosts> transfer;

  [[nodiscard]] double step_seconds(const StepShape& step) const;
  /// Seconds of a first token for each of `requests` requests, summed over the first `leading`
  /// drafters.
  [[nodiscard]] double first_seconds(double requests, double context,
                                     std::size_t leading = kAllDrafters) const;
  [[nodiscard]] double round_seconds(double requests, double context,
                                     std::size_t leading = kAllDrafters) const;
  /// Seconds in which drafters compute `tokens` committed tokens. Fewer tokens than were measured
  /// cost in proportion, because a few tokens are computed within a round.
  [[nodiscard]] double catch_up_seconds(double tokens, double context,
                                        std::size_t leading = kAllDrafters) const;
  /// Seconds of computing the KV of `tokens` positions again, after the first `context` positions
  /// of the sequence, in chunks of the largest size in `prefill`.
  [[nodiscard]] double recompute_seconds(double tokens, double context) const;
  /// Seconds of moving `bytes` bytes; nullopt: transfers were not measured.
  [[nodiscard]] std::optional<double> transfer_seconds(double bytes) const;
};

}  // namespace paceline
