// Settings of conversations, as a configuration has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::io {

/// Who answers a response's turns: nobody, so that a response is one turn, or programs.
enum class EnvironmentMethod : std::uint8_t { none, command };

struct EnvironmentSection {
  EnvironmentMethod method = EnvironmentMethod::none;
  std::vector<std::string> command;  ///< program and arguments of a worker (environment_pool.hpp)
  std::int32_t workers = 2;          ///< on each rank that verifies
  double timeout = 60;               ///< seconds for one answer
  std::int32_t attempts = 2;         ///< at a turn on which a worker fails
  std::int32_t max_turns = 8;        ///< sampled turns of a response
  std::optional<std::int32_t> max_tokens_turn;  ///< tokens of one; none: as the response has left
};

}  // namespace paceline::io
