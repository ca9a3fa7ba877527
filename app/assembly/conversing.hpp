// Conversations: after each turn of a response, an environment (a tool, a user, a game) answers.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "app/assembly/inputs.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Does nothing if responses are not conversations. Otherwise throws Error if no tokenizer was read
/// or the environment's program does not exist. On rank 0, also sets Inputs::scenes: for each
/// prompt, the text about the prompt that the program gets.
void prepare_environment(Inputs& inputs);
/// Gives rank 0's Inputs::scenes to all ranks. Collective.
void share_scenes(const fabric::MpiEnvironment& mpi, Inputs& inputs);
/// The plan's line about conversations; empty: responses are not conversations.
[[nodiscard]] std::string conversing_text(const Inputs& inputs);

/// The clock and the callbacks that a rank gives to its environment.
struct EnvironmentPorts {
  const Clock& clock;
  std::function<void()> wake;                    ///< called on another thread when an answer comes
  std::function<void(const std::string&)> warn;  ///< called within Environment::take()
};
/// Makes the environment of a verifier; null: responses are not conversations. `inputs` and the
/// clock must outlive the environment.
[[nodiscard]] std::unique_ptr<Environment> make_environment(const Inputs& inputs,
                                                            EnvironmentPorts ports);

/// Limit on the tokens of one sampled turn of a conversation.
[[nodiscard]] std::int32_t turn_tokens(const Inputs& inputs);
[[nodiscard]] ConversationLimits conversation_limits(const Inputs& inputs);

}  // namespace paceline::app
