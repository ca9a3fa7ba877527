// Keeps track of the free places in a row of equal places, for instance slots of a file.
#pragma once

#include <cstdint>
#include <map>

namespace paceline::kv {

/// Hands out the lowest places first, so that memory past the last place in use can be given back
/// to the system. Places taken together are adjacent, so that one read or write can access them.
/// Not thread-safe.
class FreeRanges {
 public:
  explicit FreeRanges(std::int32_t places);

  struct Range {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  /// Takes up to `most` places from the start of the lowest free range. `count`: 0 if none is free.
  [[nodiscard]] Range take(std::int32_t most);
  void give(std::int32_t place);
  /// Takes all free places away from the row for good. Places in use stay in the row.
  void drop_free();

  [[nodiscard]] std::int32_t free() const { return free_; }
  [[nodiscard]] std::int32_t used() const { return places_ - free_; }
  /// One past the last place in use. After drop_free() the result may be higher.
  [[nodiscard]] std::int32_t end() const;

 private:
  std::int32_t places_;  ///< number of places in the row
  std::int32_t free_;
  std::int32_t row_end_;  ///< one past the last place of the original row
  /// Number of places of each free range, by its first place. Adjacent ranges are merged.
  std::map<std::int32_t, std::int32_t> ranges_;
};

}  // namespace paceline::kv
