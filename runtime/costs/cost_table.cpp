#include "runtime/costs/cost_table.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace paceline {
namespace {

/// Pools neighbours whose seconds fall, until no seconds fall (isotonic regression).
template <typename Point>
void level(std::vector<Point>& points) {
  struct Block {
    double mean;
    std::size_t points;
  };
  std::vector<Block> blocks;
  for (const Point& point : points) {
    blocks.push_back({point.seconds, 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean > blocks.back().mean) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      into.mean = (into.mean * static_cast<double>(into.points) +
                   last.mean * static_cast<double>(last.points)) /
                  static_cast<double>(into.points + last.points);
      into.points += last.points;
    }
  }
  auto point = points.begin();
  for (const Block& block : blocks) {
    for (std::size_t i = 0; i < block.points; ++i, ++point) point->seconds = block.mean;
  }
}

}  // namespace

CostCurve::CostCurve(std::vector<Point> points, double per_position)
    : CostCurve(std::move(points), std::vector<Attention>{{1, per_position}}) {}

CostCurve::CostCurve(std::vector<Point> points, std::vector<Attention> attention, double context)
    : attention_(std::move(attention)), context_(context) {
  const auto is_cost = [](const Point& p) {
    return std::isfinite(p.rows) && p.rows > 0 && std::isfinite(p.seconds) && p.seconds > 0;
  };
  const auto is_attention = [](const Attention& a) {
    return std::isfinite(a.positions) && a.positions > 0 && std::isfinite(a.seconds) &&
           a.seconds >= 0;
  };
  if (!std::ranges::all_of(attention_, is_attention) || !std::ranges::all_of(points, is_cost) ||
      !(std::isfinite(context) && context >= 0))
    throw std::invalid_argument("a cost curve is out of range");
  std::ranges::stable_sort(points, {}, &Point::rows);
  for (auto first = points.begin(); first != points.end();) {
    const auto next =
        std::find_if(first, points.end(), [&](const Point& p) { return p.rows != first->rows; });
    double sum = 0;
    for (auto point = first; point != next; ++point) sum += point->seconds;
    points_.push_back({first->rows, sum / static_cast<double>(next - first)});
    first = next;
  }
  level(points_);
  std::ranges::stable_sort(attention_, {}, &Attention::positions);
  level(attention_);
}

double CostCurve::per_position() const {
  return attention_.empty() ? 0 : attention_.back().seconds / attention_.back().positions;
}

double CostCurve::attending(double positions) const {
  const auto above = std::ranges::upper_bound(attention_, positions, {}, &Attention::positions);
  if (above == attention_.end()) return positions * per_position();
  if (above == attention_.begin()) return positions * above->seconds / above->positions;
  const Attention& below = *(above - 1);
  const double share = (positions - below.positions) / (above->positions - below.positions);
  return below.seconds + share * (above->seconds - below.seconds);
}

double CostCurve::attending(double rows, double context) const {
  const double measured = std::max(context, context_);
  return measured == 0 ? 0 : attending(rows * measured) * (context / measured);
}

double CostCurve::seconds(double rows, double context) const {
  if (points_.empty()) return 0;
  const double attention = attending(rows, context);
  const auto above = std::ranges::upper_bound(points_, rows, {}, &Point::rows);
  if (above == points_.begin()) return attention + points_.front().seconds;
  const Point& below = *(above - 1);
  if (above == points_.end() && points_.size() == 1)
    return attention + below.seconds * rows / below.rows;
  // Past the last point the slope of the last octave is used. A slope between two neighbours would
  // be mostly noise.
  const Point& from =
      above != points_.end()
          ? below
          : *std::partition_point(points_.begin(), points_.end() - 2,
                                  [&](const Point& p) { return p.rows < below.rows / 2; });
  const Point& to = above == points_.end() ? below : *above;
  const double slope = (to.seconds - from.seconds) / (to.rows - from.rows);
  return attention + below.seconds + slope * (rows - below.rows);
}

/// Rows of prompts go through the layers with the other rows, but nothing is sampled from them.
double CostTable::step_seconds(const StepShape& step) const {
  const double rows = step.requests + step.drafted;
  const double attention = decode.attending(step.requests, step.context) +
                           step.drafted * step.context * drafted_position;
  if (step.prefill_rows == 0) return decode.seconds(rows) + attention;
  const double sampling =
      rows > 0 ? std::max(0.0, decode.seconds(rows) - prefill.seconds(rows)) : 0;
  const double before = prefill.attending(step.prefill_rows, step.prefill_context);
  return prefill.seconds(rows + step.prefill_rows) + before + (rows > 0 ? sampling + attention : 0);
}

double CostTable::first_seconds(double requests, double context, std::size_t leading) const {
  double sum = 0;
  for (std::size_t d = 0; d < std::min(leading, drafters.size()); ++d)
    sum += drafters[d].first.seconds(requests, context);
  return sum;
}

double CostTable::round_seconds(double requests, double context, std::size_t leading) const {
  double sum = 0;
  for (std::size_t d = 0; d < std::min(leading, drafters.size()); ++d)
    sum += drafters[d].round.seconds(requests, context);
  return sum;
}

double CostTable::catch_up_seconds(double tokens, double context, std::size_t leading) const {
  double sum = 0;
  for (std::size_t d = 0; d < std::min(leading, drafters.size()); ++d) {
    const CostCurve& catch_up = drafters[d].catch_up;
    if (catch_up.empty()) continue;
    const double from = std::max(tokens, catch_up.points().front().rows);
    sum += catch_up.seconds(from, context) * tokens / from;
  }
  return sum;
}

double CostTable::recompute_seconds(double tokens, double context) const {
  if (prefill.empty() || tokens <= 0) return 0;
  const double chunk = prefill.points().back().rows;
  const double whole = std::floor(tokens / chunk);
  const double rest = tokens - whole * chunk;
  // Context grows by a chunk from one chunk to the next: its mean is that of the middle chunk.
  double seconds = whole * prefill.seconds(chunk, context + chunk * std::max(0.0, whole - 1) / 2);
  if (rest > 0) seconds += prefill.seconds(rest, context + whole * chunk);
  return seconds;
}

std::optional<double> CostTable::transfer_seconds(double bytes) const {
  if (!transfer) return std::nullopt;
  return transfer->latency + bytes / transfer->bandwidth;
}

}  // namespace paceline
