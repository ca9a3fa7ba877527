#include "runtime/sim/stop_points.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/sim/draws.hpp"

namespace paceline::sim {

StopPoints::StopPoints(std::vector<StopPoint> points) : points_(std::move(points)) {
  if (points_.empty()) throw std::invalid_argument("no recorded trees");
  std::sort(points_.begin(), points_.end(), [](const StopPoint& a, const StopPoint& b) {
    return std::pair(a.id, a.first) < std::pair(b.id, b.first);
  });
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (i == 0 || points_[i].id != points_[i - 1].id) begins_.push_back(i);
  }
  begins_.push_back(points_.size());
}

const StopPoint& StopPoints::at(const NoiseKey& noise, std::int32_t index) const {
  const auto requests = static_cast<std::uint32_t>(begins_.size() - 1);
  const std::uint32_t request = below(requests, draw_block(noise, Draw::stop_request, 0)[0]);
  const std::size_t begin = begins_[request];
  const auto count = static_cast<std::uint32_t>(begins_[request + 1] - begin);
  const auto number = static_cast<std::uint32_t>(index);
  return points_[begin + below(count, draw_block(noise, Draw::stop_point, number)[0])];
}

double StopPoints::acceptance() const {
  double found = 0;
  double tried = 0;
  for (const StopPoint& point : points_) {
    const int accepted = point.accepted.back();
    found += accepted;
    tried += std::min(accepted + 1, StopPoint::kCalls);
  }
  return found / tried;
}

}  // namespace paceline::sim
