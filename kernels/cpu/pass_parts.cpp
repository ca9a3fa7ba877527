#include "kernels/cpu/pass_parts.hpp"

#include <algorithm>

namespace paceline::kernels::cpu {
namespace {

/// Bytes of weights that second-level caches hold: reading them once in each thread costs little.
constexpr std::size_t kOwnCacheBytes = std::size_t{2} << 20;
/// Bytes of weights that any third-level cache holds: for many rows, reading them in each thread
/// costs less than handing rows from core to core. At 17 MB both ways are equally fast.
constexpr std::size_t kSharedCacheBytes = std::size_t{12} << 20;
/// Cost of a row without its attention, in units of one position attended to.
constexpr double kRowWork = 64;
/// Largest share of all work that one part may have: with a larger one, operations that all threads
/// share are faster.
constexpr double kMostShare = 0.75;
/// Largest ratio of a part to an even share, for weights in the third-level cache: parts are at
/// most so many times as fast as shared operations there.
constexpr double kMostOfEvenShare = 1.15;
/// Work, in row positions, that is too little to share.
constexpr double kSmallWork = 1024;

double work_of(const Segment& segment) {
  return segment.rows * (kRowWork + segment.first_position + segment.rows / 2.0);
}

}  // namespace

void cut_pass(const Batch& batch, std::size_t weight_bytes, int many_rows, int threads,
              std::vector<PassRows>& parts) {
  parts.clear();
  if (threads < 2) return;
  double most_share = kMostShare;
  if (weight_bytes > kOwnCacheBytes) {
    const int rows = static_cast<int>(batch.tokens.size()) / threads;
    if (weight_bytes > kSharedCacheBytes || rows < many_rows) return;
    most_share = kMostOfEvenShare / threads;
  }
  double total = 0;
  for (const Segment& segment : batch.segments) total += work_of(segment);

  double before = 0;   // work of the segments so far
  double largest = 0;  // work of the largest part
  double own = 0;      // work of the last part
  int last = -1;       // number of the last part, empty ones counted too
  for (const Segment& segment : batch.segments) {
    const double work = work_of(segment);
    const double middle = before + work / 2;
    // The middle of a last segment without rows is at the very end.
    const int part = std::min(static_cast<int>(middle / total * threads), threads - 1);
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
  if (largest > most_share * total && total > kSmallWork) {
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
