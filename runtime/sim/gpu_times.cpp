#include "runtime/sim/gpu_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

namespace paceline::sim {
namespace {

/// Number of nearest shapes whose factors are averaged, weighted by inverse distance. One to six of
/// them predict a left-out model about equally well; three have the best worst cases.
constexpr std::size_t kNeighbours = 3;

double distance(const MeasuredTimes::Shape& a, const MeasuredTimes::Shape& b) {
  return std::hypot(std::log2(a.inputs / b.inputs), std::log2(a.outputs / b.outputs));
}

/// Bytes of an activation: bf16.
constexpr double kActivationBytes = 2;

double product_bound(double inputs, double outputs, double rows, double weight_bytes) {
  const double bytes =
      weight_bytes * inputs * outputs + kActivationBytes * rows * (inputs + outputs);
  return std::max(bytes / kGpuBandwidth, 2 * inputs * outputs * rows / kGpuFlops);
}

/// Bound of an elementwise operation: each row is read and written once. Further reads are in
/// proportion to the width, so the operation's factor contains them.
double elementwise_bound(double width, double rows) {
  return 2 * kActivationBytes * width * rows / kGpuBandwidth;
}

std::optional<MeasuredTimes::Shape> product_shape(const MeasuredModel& m, GpuOp op, int tp) {
  const double hidden = m.hidden;
  const double q = static_cast<double>(m.heads) * m.head_dim() / tp;
  const double kv = static_cast<double>(m.kv_heads) * m.head_dim() / tp;
  const double width = static_cast<double>(m.intermediate) / tp;
  switch (op) {
    case GpuOp::qkv:
      return MeasuredTimes::Shape{hidden, q + 2 * kv};
    case GpuOp::q:
      return MeasuredTimes::Shape{hidden, q};
    case GpuOp::k:
    case GpuOp::v:
      return MeasuredTimes::Shape{hidden, kv};
    case GpuOp::output:
      return MeasuredTimes::Shape{q, hidden};
    case GpuOp::gate_up:
      return MeasuredTimes::Shape{hidden, 2 * width};
    case GpuOp::gate:
    case GpuOp::up:
      return MeasuredTimes::Shape{hidden, width};
    case GpuOp::down:
      return MeasuredTimes::Shape{width, hidden};
    case GpuOp::head:
      if (m.vocab == 0) return std::nullopt;
      return MeasuredTimes::Shape{hidden, static_cast<double>(m.vocab) / tp};
    default:
      return std::nullopt;
  }
}

std::optional<double> elementwise_width(const MeasuredModel& m, GpuOp op, int tp) {
  switch (op) {
    case GpuOp::embedding:
    case GpuOp::norm:
    case GpuOp::add:
      return m.hidden;
    case GpuOp::rope:
      return static_cast<double>(m.heads + m.kv_heads) * m.head_dim() / tp;
    case GpuOp::activation:
      return static_cast<double>(m.intermediate) / tp;
    default:
      return std::nullopt;
  }
}

}  // namespace

void MeasuredTimes::add(Shape shape, double rows, double seconds, double bound) {
  auto curve = std::find_if(curves_.begin(), curves_.end(), [&](const Curve& c) {
    return c.shape.inputs == shape.inputs && c.shape.outputs == shape.outputs;
  });
  floor_ = curves_.empty() ? seconds : std::min(floor_, seconds);
  if (curve == curves_.end()) curve = curves_.insert(curve, Curve{shape, {}});
  Sums& sums = curve->rows[rows];
  sums.bound += bound;
  sums.seconds += seconds;
  ++sums.count;
}

/// The factor at `rows` rows: linear in log(rows) between measured numbers of rows, and constant
/// beyond them.
double MeasuredTimes::factor(const Curve& curve, double rows) const {
  const auto at = [&](const Sums& s) { return (s.seconds - floor_ * s.count) / s.bound; };
  const auto above = curve.rows.lower_bound(rows);
  if (above == curve.rows.end()) return at(std::prev(above)->second);
  if (above == curve.rows.begin() || above->first == rows) return at(above->second);
  const auto below = std::prev(above);
  const double share = std::log(rows / below->first) / std::log(above->first / below->first);
  return at(below->second) * (1 - share) + at(above->second) * share;
}

double MeasuredTimes::seconds(Shape shape, double rows, double bound) const {
  if (curves_.empty()) throw std::invalid_argument("an operation was not measured");
  std::array<std::pair<double, const Curve*>, kNeighbours> nearest;
  nearest.fill({std::numeric_limits<double>::infinity(), nullptr});
  for (const Curve& curve : curves_) {
    std::pair<double, const Curve*> candidate{distance(shape, curve.shape), &curve};
    for (auto& kept : nearest) {
      if (candidate.first < kept.first) std::swap(candidate, kept);
    }
  }
  if (nearest[0].first == 0) return floor_ + bound * factor(*nearest[0].second, rows);
  double sum = 0;
  double weights = 0;
  for (const auto& [away, curve] : nearest) {
    if (curve == nullptr) break;
    sum += factor(*curve, rows) / away;
    weights += 1 / away;
  }
  return floor_ + bound * sum / weights;
}

GpuTimes::GpuTimes(const GpuMeasurements& measured) {
  add_layers(measured);
  add_attention(measured);
  add_collectives(measured);
}

void GpuTimes::add_layers(const GpuMeasurements& measured) {
  for (const LayerMeasurement& m : measured.layers) {
    const MeasuredModel& model = measured.models.at(m.model);
    if (const auto shape = product_shape(model, m.op, m.tp)) {
      products_.add(*shape, m.tokens, m.seconds,
                    product_bound(shape->inputs, shape->outputs, m.tokens, 2));
    } else if (const auto width = elementwise_width(model, m.op, m.tp)) {
      if (!model.fused && (m.op == GpuOp::norm || m.op == GpuOp::rope)) continue;
      elementwise_[m.op].add({*width, 1}, m.tokens, m.seconds, elementwise_bound(*width, m.tokens));
    }
  }
}

void GpuTimes::add_attention(const GpuMeasurements& measured) {
  const auto raise_flops = [&](double heads, double head_dim, double attended, double seconds) {
    attention_.flops = std::max(attention_.flops, 4 * heads * head_dim * attended / seconds);
  };
  for (const LayerMeasurement& m : measured.layers) {
    if (m.op != GpuOp::prompt_attention) continue;
    const MeasuredModel& model = measured.models.at(m.model);
    raise_flops(static_cast<double>(model.heads) / m.tp, model.head_dim(),
                m.tokens * (m.tokens + 1.0) / 2, m.seconds);
  }
  attention_.floor = std::numeric_limits<double>::infinity();
  for (const AttentionMeasurement& m : measured.attention) {
    if (m.chunk > 0) {
      const double before = m.positions - m.chunk;
      raise_flops(m.heads, m.head_dim, m.chunk * (before + (m.chunk + 1.0) / 2), m.seconds);
    } else if (m.positions >= m.batch) {  // else nothing is attended to
      const double bytes = 2.0 * kActivationBytes * m.positions * m.heads * m.head_dim;
      attention_.stream = std::max(attention_.stream, bytes / m.seconds);
      attention_.floor = std::min(attention_.floor, m.seconds);
    }
  }
  if (attention_.stream == 0 || attention_.flops == 0) {
    throw std::invalid_argument("attention was not measured");
  }
}

void GpuTimes::add_collectives(const GpuMeasurements& measured) {
  for (const CollectiveMeasurement& m : measured.collectives) {
    if (m.fabric != "h100_dgx" || m.collective != Collective::all_reduce) continue;
    const auto [at, fresh] = all_reduce_[m.workers].try_emplace(m.bytes, m.seconds);
    if (!fresh) at->second = std::min(at->second, m.seconds);
  }
  for (auto& [workers, curve] : all_reduce_) {
    double least = std::numeric_limits<double>::infinity();
    for (auto point = curve.rbegin(); point != curve.rend(); ++point) {
      least = point->second = std::min(least, point->second);
    }
  }
}

double GpuTimes::product(double inputs, double outputs, double rows, double weight_bytes) const {
  return products_.seconds({inputs, outputs}, rows,
                           product_bound(inputs, outputs, rows, weight_bytes));
}

double GpuTimes::elementwise(GpuOp op, double width, double rows) const {
  const auto found = elementwise_.find(op);
  if (found == elementwise_.end()) throw std::invalid_argument("an operation was not measured");
  return found->second.seconds({width, 1}, rows, elementwise_bound(width, rows));
}

double GpuTimes::all_reduce(double bytes, int workers, double nvlink) const {
  const auto found = all_reduce_.find(workers);
  if (found == all_reduce_.end()) {
    throw std::invalid_argument("an all-reduce of " + std::to_string(workers) +
                                " GPUs was not measured");
  }
  const std::map<double, double>& curve = found->second;
  const auto above = curve.lower_bound(bytes);
  double seconds = curve.begin()->second;
  if (above == curve.end()) {
    seconds = curve.rbegin()->second * bytes / curve.rbegin()->first;
  } else if (above != curve.begin()) {
    const auto below = std::prev(above);
    seconds = below->second + (above->second - below->second) * (bytes - below->first) /
                                  (above->first - below->first);
  }
  // Bytes that a GPU sends, and as many that it receives, each direction at half of NVLink's rate.
  const double sent = 2 * bytes * (workers - 1) / workers;
  return seconds + std::max(0.0, sent * (2 / nvlink - 2 / kMeasuredNvlink));
}

int GpuTimes::most_workers() const { return all_reduce_.empty() ? 1 : all_reduce_.rbegin()->first; }

double GpuTimes::seconds(const MeasuredModel& model, GpuOp op, int tp, double rows) const {
  if (const auto shape = product_shape(model, op, tp)) {
    return product(shape->inputs, shape->outputs, rows);
  }
  if (const auto width = elementwise_width(model, op, tp)) return elementwise(op, *width, rows);
  return 0;
}

}  // namespace paceline::sim
