// Costs on the machine at hand: the one table that every decision about speed reads.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace paceline {

/// Seconds of something by how many rows it computes (or tokens, or requests), and by the context:
/// the positions that each of these attends to, on average. A value; reading is thread-safe.
class CostCurve {
 public:
  struct Point {
    double rows = 0;     ///< > 0
    double seconds = 0;  ///< > 0, where nothing is attended to
  };
  /// Seconds of attention, beside a Point's, by rows x context positions.
  struct Attention {
    double positions = 0;  ///< > 0
    double seconds = 0;    ///< >= 0
  };

  CostCurve() = default;
  /// Points in any order; of several with as many rows the mean counts. More rows never cost less:
  /// costs that noise made fall are levelled to the mean of their neighbours (isotonic regression).
  /// `per_position`: seconds, >= 0, for each row and each position that it attends to. Throws
  /// std::invalid_argument on values out of range.
  explicit CostCurve(std::vector<Point> points, double per_position = 0);
  /// The same with seconds of attention by positions: KV that a cache holds is read faster.
  /// Attention is levelled likewise, and in proportion below its first point and past its last.
  CostCurve(std::vector<Point> points, std::vector<Attention> attention);

  /// Linear between points. Fewer rows than were measured cost as much as the fewest; past the last
  /// point costs rise as over the last octave, and from a single one in proportion. 0 without
  /// points.
  [[nodiscard]] double seconds(double rows, double context = 0) const;

  [[nodiscard]] bool empty() const { return points_.empty(); }
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }  ///< by rows
  /// Seconds of attending to so many positions in all, beside the rows' own.
  [[nodiscard]] double attending(double positions) const;
  /// Seconds for each position, where there are many.
  [[nodiscard]] double per_position() const;
  [[nodiscard]] const std::vector<Attention>& attention() const { return attention_; }

 private:
  std::vector<Point> points_;         ///< by rows
  std::vector<Attention> attention_;  ///< by positions
};

/// Costs of one drafter. A draft is a first round and further ones.
struct DrafterCosts {
  std::string name;    ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  CostCurve first;     ///< one token for each of so many requests, after a step of the target
  CostCurve round;     ///< one more for each
  CostCurve catch_up;  ///< so many committed tokens yet to compute; empty: the drafter never lags
};

/// Costs of moving bytes to another rank.
struct TransferCosts {
  double latency = 0;    ///< seconds
  double bandwidth = 0;  ///< bytes a second, > 0
};

/// Conditions that a table holds for. Costs measured under others say nothing here.
struct CostConditions {
  std::string backend;  ///< "cpu" | "cuda"
  std::string isa;      ///< instruction set, or the device's architecture
  int tp = 1;           ///< ranks that share the weights
  int threads = 1;      ///< of each rank
  /// The model's shape and dtype. The weights have no part in it: costs hold for every step of a
  /// training.
  std::string model;
  bool operator==(const CostConditions&) const = default;
};

/// A step that is foreseen.
struct StepShape {
  double requests = 0;         ///< requests that decode, one row each
  double drafted = 0;          ///< rows of drafts beside the requests' own
  double prefill_rows = 0;     ///< rows of prompts
  double context = 0;          ///< positions that a decoding request attends to, on average
  double prefill_context = 0;  ///< positions before prompt rows, on average over the rows
};

struct CostTable {
  static constexpr std::size_t kAllDrafters = static_cast<std::size_t>(-1);

  CostConditions conditions;
  CostCurve decode;  ///< rows that are sampled, each of its own request
  /// Seconds for each position that a drafted row attends to: less than decode's, for the KV read
  /// for the request's first row serves the others.
  double drafted_position = 0;
  CostCurve prefill;  ///< rows of a prompt, none sampled; context: before the first
  std::vector<DrafterCosts> drafters;
  std::optional<TransferCosts> transfer;

  [[nodiscard]] double step_seconds(const StepShape& step) const;
  /// Seconds of the first `leading` drafters together.
  [[nodiscard]] double first_seconds(double requests, double context,
                                     std::size_t leading = kAllDrafters) const;
  [[nodiscard]] double round_seconds(double requests, double context,
                                     std::size_t leading = kAllDrafters) const;
  /// Fewer tokens than were measured cost their share, for a few are computed in the rounds.
  [[nodiscard]] double catch_up_seconds(double tokens, double context,
                                        std::size_t leading = kAllDrafters) const;
  /// Seconds of computing the KV of `tokens` positions anew, after the first `context` of the
  /// sequence, in chunks as large as prefill was measured with.
  [[nodiscard]] double recompute_seconds(double tokens, double context) const;
  /// nullopt: transfers were not measured.
  [[nodiscard]] std::optional<double> transfer_seconds(double bytes) const;
};

}  // namespace paceline
