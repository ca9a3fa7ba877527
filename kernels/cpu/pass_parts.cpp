#include "kernels/cpu/pass_parts.hpp"

#include <algorithm>

namespace paceline::kernels::cpu {
namespace {

/// What a row costs beside its attention, in positions attended to.
constexpr double kRowWork = 64;
/// Share of all work that one part may have: where they differ more, operations that all threads
/// share are faster.
constexpr double kMostShare = 0.75;
/// Work too little to share, in row positions.
constexpr double kSmallWork = 1024;

double work_of(const Segment& segment) {
  return segment.rows * (kRowWork + segment.first_position + segment.rows / 2.0);
}

}  // namespace

void cut_pass(const Batch& batch, int most, std::vector<PassRows>& parts) {
  parts.clear();
  if (most < 2) return;
  double total = 0;
  for (const Segment& segment : batch.segments) total += work_of(segment);

  double before = 0;   // work of the segments so far
  double largest = 0;  // work of a part
  double own = 0;      // work of the last part
  int last = -1;       // the last part, as it was counted
  for (const Segment& segment : batch.segments) {
    const double work = work_of(segment);
    const int part = static_cast<int>((before + work / 2) / total * most);  // that its middle is in
    if (part != last) {
      parts.push_back({.first_row = segment.first_row});
      own = 0;
      last = part;
    }
    parts.back().rows += segment.rows;
    before += work;
    own += work;
    largest = std::max(largest, own);
  }
  if (largest > kMostShare * total && total > kSmallWork) {
    parts.clear();
    return;
  }
  auto logit_row = batch.logit_rows.begin();
  for (PassRows& part : parts) {
    const int end = part.first_row + part.rows;
    part.first_logit_row = static_cast<int>(logit_row - batch.logit_rows.begin());
    while (logit_row != batch.logit_rows.end() && *logit_row < end) ++logit_row;
    part.logit_rows = static_cast<int>(logit_row - batch.logit_rows.begin()) - part.first_logit_row;
  }
}

}  // namespace paceline::kernels::cpu
