// Seconds of a GPU operation of any size, predicted from measured ones.
//
// An operation takes a roofline bound times a factor, plus a floor. The bound is the larger of the
// times that its bytes and its arithmetic take at the data sheet's rates. The floor is the least
// measured time of the kind. The factor is that of measured operations of the nearest shapes with
// the same number of rows, so a measured shape gets its measured time. With each of the five
// measured models predicted from the other four, a layer's products take 0.97 of the measured time
// in the median, and 90 % of them 0.81 to 1.21 (bench_gpu_costs). The tables allow no better: where
// both sources measured the same product, they differ as much.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/gpu_measurements.hpp"

namespace paceline::sim {

/// Rates of an H100 SXM, from its data sheet. As factors are relative to them, the figures
/// themselves matter only where a shape and its neighbours are bound by different rates.
inline constexpr double kGpuBandwidth = 3.35e12;  ///< bytes a second
inline constexpr double kGpuFlops = 990e12;       ///< dense bf16
/// NVLink of the measured all-reduces, bytes a second of a GPU, both directions together.
inline constexpr double kMeasuredNvlink = 900e9;

/// Seconds of one kind of operation, by shape and rows. Immutable: reading is thread-safe.
class MeasuredTimes {
 public:
  struct Shape {
    double inputs = 1;   ///< inner dimension of a product
    double outputs = 1;  ///< outer dimension on one GPU
  };

  void add(Shape shape, double rows, double seconds, double bound);
  [[nodiscard]] bool empty() const { return curves_.empty(); }
  /// Predicted seconds. `bound`: the roofline bound in seconds, > 0. Several measurements of one
  /// shape and number of rows count as their mean. Throws std::invalid_argument when nothing was
  /// measured.
  [[nodiscard]] double seconds(Shape shape, double rows, double bound) const;

 private:
  /// Sums over the measurements of one shape and number of rows.
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
  double flops = 0;   ///< operations a second
};

/// Predicted seconds of GPU operations. Immutable: reading is thread-safe.
class GpuTimes {
 public:
  /// Uses norms and rotary embedding only where they were measured fused, and all-reduces of a DGX
  /// H100 ("h100_dgx"), whose NVLinks join every pair of GPUs.
  explicit GpuTimes(const GpuMeasurements& measured);

  // Functions below give seconds on one GPU, > 0. All throw std::invalid_argument when nothing of
  // the kind was measured.

  /// A product [rows, inputs] x [inputs, outputs] in bf16 arithmetic. `weight_bytes`: bytes of a
  /// weight.
  [[nodiscard]] double product(double inputs, double outputs, double rows,
                               double weight_bytes = 2) const;
  /// An embedding, norm, rope, activation or add of `width` elements of each row.
  [[nodiscard]] double elementwise(GpuOp op, double width, double rows) const;
  /// An all-reduce over `workers` GPUs of one node, by NCCL. `nvlink`: bytes a second, both
  /// directions together; below kMeasuredNvlink the time that sending takes longer is added. In the
  /// table small sums take 7 to 40 us irregularly; here a sum takes no longer than any larger one.
  [[nodiscard]] double all_reduce(double bytes, int workers, double nvlink) const;
  /// Largest number of workers in a measured all-reduce; 1: none was measured.
  [[nodiscard]] int most_workers() const;
  /// The highest rates in the tables. As the measured kernel reads keys and values once for each
  /// query head, `stream` is the rate at which multiprocessors take them in.
  [[nodiscard]] const AttentionRates& attention() const { return attention_; }

  /// Predicted seconds of an operation that was measured, for comparison. 0 for prompt_attention,
  /// and for a head where the model has none.
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
