// Which places of a row of equal ones are free.
#pragma once

#include <cstdint>
#include <map>

namespace paceline::kv {

/// Lowest places first, next to one another where that can be: what is taken at once is read and
/// written at once, and the row's end stays free to be given back. Not thread-safe.
class FreeRanges {
 public:
  explicit FreeRanges(std::int32_t places);

  struct Range {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  /// Places next to one another, from the lowest free one on: as many as are, `most` at most. None
  /// where nothing is free.
  [[nodiscard]] Range take(std::int32_t most);
  void give(std::int32_t place);
  /// Places that are free now are not there any more.
  void drop_free();

  [[nodiscard]] std::int32_t free() const { return free_; }
  [[nodiscard]] std::int32_t used() const { return places_ - free_; }
  /// No place from there on is in use.
  [[nodiscard]] std::int32_t end() const;

 private:
  std::int32_t places_;  ///< that are there
  std::int32_t free_;
  std::int32_t last_;                            ///< one past the last that was ever there
  std::map<std::int32_t, std::int32_t> ranges_;  ///< free ones: first place, count; apart
};

}  // namespace paceline::kv
