// Conversations: the environment that answers a rank's responses.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/assembly/inputs.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Checks that responses can be answered. On rank 0, sets Inputs::scenes: the facts about prompts
/// that an environment needs. Throws Error.
void prepare_environment(Inputs& inputs);
/// Gives Inputs::scenes to all ranks. Collective; throws JobEnded.
void share_scenes(const fabric::MpiEnvironment& mpi, Inputs& inputs);
/// The line of plan_text() about conversations, or nothing.
[[nodiscard]] std::string conversing_text(const Inputs& inputs);

/// Calls from an environment to the rank that it serves.
struct EnvironmentPorts {
  const Clock& clock;
  std::function<void()> wake;                    ///< called by another thread: an answer has come
  std::function<void(const std::string&)> warn;  ///< called by the rank's own thread
};
/// The environment of a rank that verifies; null if responses are of one turn. `inputs` and the
/// clock must outlive it.
[[nodiscard]] std::unique_ptr<Environment> make_environment(const Inputs& inputs,
                                                            EnvironmentPorts ports);

/// Most tokens that a response may take in one turn of a conversation.
[[nodiscard]] std::int32_t turn_tokens(const Inputs& inputs);
[[nodiscard]] ConversationLimits conversation_limits(const Inputs& inputs);

}  // namespace paceline::app
