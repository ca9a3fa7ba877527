// Finds stop strings in the bytes of a growing response.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace paceline::engine {

/// Remembers just enough of the text to see a stop string that spans tokens. A stop string counts
/// as soon as its last byte is there, wherever token boundaries fall.
class StopMatcher {
 public:
  /// `strings` must outlive the matcher; none may be empty.
  explicit StopMatcher(std::span<const std::string> strings);
  /// Adds a token's bytes. Returns true if a stop string ends within these bytes.
  bool append(std::string_view bytes);

 private:
  std::span<const std::string> strings_;
  std::size_t keep_ = 0;  ///< bytes of the past that a match may still need
  std::string tail_;
};

}  // namespace paceline::engine
