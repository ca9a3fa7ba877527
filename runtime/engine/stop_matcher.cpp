#include "runtime/engine/stop_matcher.hpp"

#include <algorithm>

namespace paceline::engine {

StopMatcher::StopMatcher(std::span<const std::string> strings) : strings_(strings) {
  for (const std::string& s : strings_) keep_ = std::max(keep_, s.size() - 1);
}

bool StopMatcher::append(std::string_view bytes) {
  if (strings_.empty()) return false;
  const std::size_t past = tail_.size();
  tail_ += bytes;
  bool found = false;
  for (const std::string& s : strings_) {
    // Only matches that end in the new bytes: earlier matches were found before.
    const std::size_t from = past >= s.size() - 1 ? past - (s.size() - 1) : 0;
    found = found || tail_.find(s, from) != std::string::npos;
  }
  if (tail_.size() > keep_) tail_.erase(0, tail_.size() - keep_);
  return found;
}

}  // namespace paceline::engine
