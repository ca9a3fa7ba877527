// Settings of conversations, as a configuration has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace paceline::io {

/// The source of answers to a response's turns: none, so that a response is one turn, or programs.
enum class EnvironmentMethod : std::uint8_t { none, command };

struct EnvironmentSection {
  EnvironmentMethod method = EnvironmentMethod::none;
  std::vector<std::string> command;  ///< program and arguments of a worker (environment_pool.hpp)
  std::int32_t workers = 2;          ///< on each verifier
  double timeout = 60;               ///< seconds for one answer
  std::int32_t attempts = 2;         ///< for a turn on which workers fail
  std::int32_t max_turns = 8;        ///< turns that the model samples in a response
  std::optional<std::int32_t> max_tokens_turn;  ///< tokens of one; none: as the response has left
};

}  // namespace paceline::io
