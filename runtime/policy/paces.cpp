#include "runtime/policy/paces.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace paceline::policy {
namespace {

int octave(int requests) { return std::bit_width(static_cast<unsigned>(requests)) - 1; }

}  // namespace

void PaceRatio::observe(double ratio) {
  recent_[static_cast<std::size_t>(count_ % kSteps)] = ratio;
  count_ = count_ + 1 < 2 * kSteps ? count_ + 1 : kSteps;
}

double PaceRatio::value() const {
  if (count_ == 0) return 1;
  std::array<double, kSteps> sorted = recent_;
  const auto end = sorted.begin() + std::min(count_, kSteps);
  const auto middle = sorted.begin() + (std::min(count_, kSteps) - 1) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

void LengthPaces::observe(int requests, int longest, double ratio) {
  const auto at = static_cast<std::size_t>(octave(requests));
  if (paces_.size() <= at) paces_.resize(at + 1, std::vector<PaceRatio>(max_length_ + 1));
  paces_[at][longest].observe(ratio);
}

const PaceRatio* LengthPaces::known(int octave, int length) const {
  if (octave < 0 || octave >= static_cast<int>(paces_.size())) return nullptr;
  const PaceRatio& pace = paces_[octave][length];
  return pace.known() ? &pace : nullptr;
}

void LengthPaces::factors(int requests, double plain, double speculative,
                          std::vector<double>& out) const {
  const int own = octave(requests);
  out.assign(max_length_ + 1, std::sqrt(plain / speculative));
  for (int length = 1; length <= max_length_; ++length) {
    const PaceRatio* pace = known(own, length);
    const PaceRatio* below = pace != nullptr ? pace : known(own - 1, length);
    const PaceRatio* above = pace != nullptr ? pace : known(own + 1, length);
    if (below == nullptr) below = above;
    if (above == nullptr) above = below;
    if (below != nullptr) out[length] = (below->value() + above->value()) / 2 / speculative;
  }
}

}  // namespace paceline::policy
