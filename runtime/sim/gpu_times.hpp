// Seconds of a GPU operation of any size, foreseen from measured ones.
//
// An operation takes its bound, the slower of moving its bytes and of its arithmetic on paper (a
// roofline), times a factor, plus a floor that even the smallest one takes. The floor is the least
// measured time of the kind. The factor is of measured operations of the nearest shapes at as many
// rows, so a measured shape yields its measurement. With each of the five measured models foreseen
// from the other four, a layer's products take 0.97 of the measured time in the median, 90 % from
// 0.81 to 1.21 (bench_gpu_costs). These tables allow no better: where both sources measured the
// same product, they are as far apart.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/gpu_measurements.hpp"

namespace paceline::sim {

/// Rates of an H100 SXM, from its data sheet. Factors are relative to them: the figures themselves
/// matter only where a shape and its neighbours are bound by different ones.
inline constexpr double kGpuBandwidth = 3.35e12;  ///< bytes a second
inline constexpr double kGpuFlops = 990e12;       ///< dense bf16
/// NVLink of the measured all-reduces, bytes a second of a GPU, both directions together.
inline constexpr double kMeasuredNvlink = 900e9;

/// Seconds of one kind of operation, by shape and rows. Immutable: reading is thread-safe.
class MeasuredTimes {
 public:
  struct Shape {
    double inputs = 1;   ///< inner dimension of a product
    double outputs = 1;  ///< on one GPU
  };

  void add(Shape shape, double rows, double seconds, double bound);
  [[nodiscard]] bool empty() const { return curves_.empty(); }
  /// `bound`: seconds on paper, > 0. Several measurements of one shape and rows count as their
  /// mean. Throws std::invalid_argument when nothing was measured.
  [[nodiscard]] double seconds(Shape shape, double rows, double bound) const;

 private:
  /// Sums of seconds on paper and of measured ones, at so many rows.
  struct Sums {
    double bound = 0;
    double seconds = 0;
    int count = 0;
  };
  struct Curve {
    Shape shape;
    std::map<double, Sums> rows;
  };
  [[nodiscard]] double factor(const Curve& curve, double rows) const;

  std::vector<Curve> curves_;
  double floor_ = 0;
};

/// Measured rates of attention.
struct AttentionRates {
  double floor = 0;   ///< seconds; the least of a decoding step
  double stream = 0;  ///< bytes a second of keys and values
  double flops = 0;   ///< a second
};

/// Foreseen seconds of GPU operations. Immutable: reading is thread-safe.
class GpuTimes {
 public:
  /// Norms and rotary embedding count where they are fused; all-reduces are those of a DGX H100
  /// ("h100_dgx"), whose NVLinks join every pair of GPUs.
  explicit GpuTimes(const GpuMeasurements& measured);

  // Functions below give seconds on one GPU, > 0. All throw std::invalid_argument when nothing of
  // the kind was measured.

  /// [rows, inputs] x [inputs, outputs], bf16 arithmetic; `weight_bytes` an element.
  [[nodiscard]] double product(double inputs, double outputs, double rows,
                               double weight_bytes = 2) const;
  /// Embedding, norm, rope, activation or add: `width` elements of each row.
  [[nodiscard]] double elementwise(GpuOp op, double width, double rows) const;
  /// Sum over `workers` GPUs of one node, by NCCL. NVLink in bytes a second, both directions
  /// together; below kMeasuredNvlink the slower sending is added. Small sums take from 7 to 40 us
  /// by turns in the table: one takes no longer than any larger one.
  [[nodiscard]] double all_reduce(double bytes, int workers, double nvlink) const;
  /// The most workers of a measured all-reduce; 1: none was measured.
  [[nodiscard]] int most_workers() const;
  /// The highest rates of the tables. The measured kernel streams keys and values once for each
  /// query head: its rate is what multiprocessors take in.
  [[nodiscard]] const AttentionRates& attention() const { return attention_; }

  /// Seconds of an operation as it was measured, for comparison. 0 for prompt_attention, and for a
  /// head that the model lacks.
  [[nodiscard]] double seconds(const MeasuredModel& model, GpuOp op, int tp, double rows) const;

 private:
  void add_layers(const GpuMeasurements& measured);
  void add_attention(const GpuMeasurements& measured);
  void add_collectives(const GpuMeasurements& measured);

  MeasuredTimes products_;
  std::map<GpuOp, MeasuredTimes> elementwise_;
  std::map<int, std::map<double, double>> all_reduce_;  ///< by workers, then bytes
  AttentionRates attention_;
};

}  // namespace paceline::sim
