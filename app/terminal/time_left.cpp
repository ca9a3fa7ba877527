#include "app/terminal/time_left.hpp"

namespace paceline::app {

std::optional<double> TimeLeft::look(double now, const RunSoFar& run) {
  if (run.tokens == 0) {
    before_ = now;
    return std::nullopt;
  }
  if (!began_) began_ = before_;
  if (run.finished == 0 || 2 * run.finished < run.active || run.left == 0) return std::nullopt;
  return (now - *began_) * static_cast<double>(run.left) / static_cast<double>(run.finished);
}

}  // namespace paceline::app
