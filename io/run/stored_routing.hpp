// The experts that a finished run recorded (SamplingParams::keep_routing), read in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/run/stored_run.hpp"

namespace paceline::io {

/// Used by one thread. Members throw IoError if the file is damaged.
class StoredRouting {
 public:
  /// `run`: complete; must outlive this.
  explicit StoredRouting(const StoredRun& run);
  ~StoredRouting();
  StoredRouting(const StoredRouting&) = delete;
  StoredRouting& operator=(const StoredRouting&) = delete;

  /// The experts of all positions but the last, the prompt's first: [positions, layers with
  /// experts, chosen]. `response`: index into StoredRun::finished; it must have tokens.
  [[nodiscard]] std::vector<std::int16_t> of(std::size_t response) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::io
