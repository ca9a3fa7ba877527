#include "runtime/policy/step_cost.hpp"

#include <algorithm>
#include <cmath>

namespace paceline::policy {
namespace {

constexpr double kJump = 0.2;      ///< a knot this far from its recent median starts over
constexpr double kMostJump = 0.4;  ///< however much it varies
/// Measurements in a row that far above a knot that may still be a burst: what else the machine
/// does takes the caches too, and they fill again over several steps. Nothing makes a step faster.
constexpr int kLongestBurst = 12;
constexpr double kLeastClip = 0.03;     ///< relative distance from a knot always believed
constexpr double kMostClip = 0.25;      ///< and never
constexpr double kFirstDeviation = .1;  ///< before it is known
constexpr double kMostWeight = 16;      ///< of a knot in the fit, measurements
constexpr double kDoubt = 2;            ///< standard errors
constexpr double kMostDoubt = 0.1;
constexpr double kSingleDoubt = 0.8;     ///< of one measurement: it may be an outlier
constexpr double kFineGap = 1.25;        ///< ratio of row counts with nothing to learn between
constexpr double kNear = 1.13;           ///< ratio of row counts told apart by cost
constexpr double kFirstElasticity = .5;  ///< of seconds in rows, past a single knot
constexpr double kSlopeSpan = 1.5;       ///< ratio of row counts a slope is measured over

/// A single measurement may be an outlier: it gives way to whatever is better known.
double fit_weight(double count) { return count < 2 ? 0.05 : std::min(count, kMostWeight); }

std::size_t knot_index(double rows) {
  constexpr double kSingle = 8;
  if (rows <= kSingle) return static_cast<std::size_t>(std::max(1.0, std::round(rows)) - 1);
  return static_cast<std::size_t>(kSingle - 1 + std::ceil(kSingle * std::log2(rows / kSingle)));
}

}  // namespace

double StepCost::Knot::median() const {
  std::array<double, kRecent> sorted = recent;
  const int n = static_cast<int>(std::min<double>(count, kRecent));
  std::sort(sorted.begin(), sorted.end());
  return sorted[(n - 1) / 2];  // of two the lower: outliers are slow
}

void StepCost::observe(double rows, double seconds) {
  if (!(rows >= 1) || !(seconds > 0)) return;
  const std::size_t index = knot_index(rows);
  if (index >= knots_.size()) knots_.resize(index + 1);
  Knot& knot = knots_[index];
  knot.recent[static_cast<std::size_t>(std::fmod(knot.count, kRecent))] = seconds;
  knot.count += 1;
  const double median = knot.median();
  const double rate = std::max(1 / knot.count, 1 / kMemory);
  knot.rows += rate * (rows - knot.rows);
  const double jump = std::clamp(3 * knot.deviation, kJump, kMostJump) * knot.seconds;
  knot.slow = seconds > knot.seconds + jump ? knot.slow + 1 : 0;
  if (knot.count <= kRecent) {
    knot.seconds = median;
    knot.deviation = kFirstDeviation;
  } else if (median < knot.seconds - jump || knot.slow > kLongestBurst) {
    knot.seconds = median;
    knot.slow = 0;
  } else {
    const double clip = std::clamp(3 * knot.deviation, kLeastClip, kMostClip);
    const double ratio = std::clamp(seconds / knot.seconds, 1 - clip, 1 + clip);
    knot.deviation += rate * (std::abs(ratio - 1) - knot.deviation);
    knot.seconds *= 1 + rate * (ratio - 1);
  }
  fit();
}

/// Pools neighbours that fall until none do (isotonic regression).
void StepCost::fit() {
  struct Block {
    double seconds, weight;
    std::size_t knots;
  };
  curve_.clear();
  std::vector<Block> blocks;
  for (const Knot& knot : knots_) {
    if (knot.count == 0) continue;
    curve_.push_back({knot.rows, 0, knot.count, knot.deviation});
    blocks.push_back({knot.seconds, fit_weight(knot.count), 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].seconds > blocks.back().seconds) {
      const Block last = blocks.back();
      blocks.pop_back();
      Block& into = blocks.back();
      into.seconds =
          (into.seconds * into.weight + last.seconds * last.weight) / (into.weight + last.weight);
      into.weight += last.weight;
      into.knots += last.knots;
    }
  }
  auto point = curve_.begin();
  for (const Block& block : blocks) {
    for (std::size_t i = 0; i < block.knots; ++i, ++point) point->seconds = block.seconds;
  }
}

std::vector<StepCost::Point>::const_iterator StepCost::past(double rows) const {
  return std::upper_bound(curve_.begin(), curve_.end(), rows,
                          [](double r, const Point& point) { return r < point.rows; });
}

double StepCost::seconds(double rows) const {
  if (curve_.empty()) return 0;
  const auto above = past(rows);
  if (above == curve_.begin()) {
    // Fewer rows than ever: somewhere between the same and proportionally less.
    const double share = rows / above->rows;
    return above->seconds * (1 - kFirstElasticity * (1 - share));
  }
  const Point& below = *(above - 1);
  if (above != curve_.end()) {
    const double share = (rows - below.rows) / (above->rows - below.rows);
    return below.seconds + share * (above->seconds - below.seconds);
  }
  const double proportional = below.seconds / below.rows;
  double slope = kFirstElasticity * proportional;
  const auto from = past(below.rows / kSlopeSpan);
  if (from != curve_.begin()) {
    const Point& early = *(from - 1);
    slope = std::min(proportional, (below.seconds - early.seconds) / (below.rows - early.rows));
  }
  return below.seconds + slope * (rows - below.rows);
}

double StepCost::least_seconds(double rows) const {
  const auto above = past(rows);
  if (above == curve_.begin()) return seconds(rows);
  const auto low = [](const Point& point) {
    double doubt = 0;
    if (point.weight < 2) {
      doubt = kSingleDoubt;
    } else if (point.weight < kMostWeight) {
      doubt = std::min(kMostDoubt, kDoubt * point.deviation / std::sqrt(point.weight));
    }
    return point.seconds * (1 - doubt);
  };
  auto below = above - 1;
  double least = low(*below);
  if (above != curve_.end() && above->rows <= std::max(kFineGap * below->rows, below->rows + 1)) {
    const double share = (rows - below->rows) / (above->rows - below->rows);
    least += share * std::max(0.0, low(*above) - least);
  }
  while (below->weight < 2 && below != curve_.begin()) least = std::max(least, low(*--below));
  return least;
}

bool StepCost::known(double rows) const {
  for (auto point = past(rows / kNear); point != curve_.end() && point->rows <= rows * kNear;
       ++point) {
    if (point->weight >= 2) return true;
  }
  return false;
}

StepCost::Gap StepCost::gap(double rows) const {
  const auto above = past(rows);
  return {above == curve_.begin() ? 0 : (above - 1)->rows, above == curve_.end() ? 0 : above->rows};
}

void DraftCost::observe(const Call& call) {
  if (call.rounds < 1 || call.rows < 1 || !(call.seconds >= 0)) return;
  const double requests = static_cast<double>(call.rows) / call.rounds;
  if (call.catch_up <= call.rows) {
    // A little lag is lost in the rounds. A call too short for the clock still says that it costs
    // next to nothing.
    round_.observe(requests, std::max(call.seconds, 1e-9) / call.rounds);
    return;
  }
  const double seconds = round_.largest() > 0
                             ? call.seconds - call.rounds * round_.seconds(requests)
                             : call.seconds * call.catch_up / (call.catch_up + call.rows);
  catch_up_.observe(call.catch_up, std::max(seconds, 1e-9));
}

double DraftCost::catch_up_seconds(double tokens) const {
  const double from = std::max(tokens, catch_up_.smallest());
  return from > 0 ? catch_up_.seconds(from) * tokens / from : 0;
}

}  // namespace paceline::policy
