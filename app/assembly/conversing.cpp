#include "app/assembly/conversing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "app/assembly/communicator.hpp"
#include "io/reward/ground_truth.hpp"
#include "io/text/chat_template.hpp"
#include "io/text/turn_encoder.hpp"
#include "io/workers/environment_pool.hpp"
#include "io/workers/worker_line.hpp"
#include "io/workers/worker_process.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

/// A pool of environment workers, and the chat template with which it renders their answers.
class TemplatedEnvironment final : public Environment {
 public:
  TemplatedEnvironment(const Inputs& inputs, EnvironmentPorts ports)
      : chat_(read_chat_template(tokenizer_directory(inputs.config))),
        pool_(inputs.config.environment, inputs.scenes, *inputs.text.tokenizer,
              {chat_, *inputs.text.tokenizer, options(inputs)},
              {.vocabulary = inputs.target.config.vocab,
               .context = inputs.target.config.max_position,
               .wake = std::move(ports.wake),
               .warn = std::move(ports.warn),
               .placeholders = placeholders(inputs.target.config)},
              ports.clock) {}
  void ask(const Trajectory& response, bool goes_on) override { pool_.ask(response, goes_on); }
  void leave(RequestId id) override { pool_.leave(id); }
  std::vector<EnvironmentReply> take() override { return pool_.take(); }

 private:
  static std::vector<TokenId> placeholders(const ModelConfig& model) {
    return model.vision ? model.vision->placeholders() : std::vector<TokenId>{};
  }
  [[nodiscard]] io::ChatOptions options(const Inputs& inputs) const {
    io::ChatOptions options;
    if (chat_.reads_enable_thinking())
      options.enable_thinking = inputs.config.prompts.chat.enable_thinking;
    return options;
  }
  io::ChatTemplate chat_;
  io::EnvironmentPool pool_;
};

}  // namespace

void prepare_environment(Inputs& inputs) {
  if (!inputs.config.converses()) return;
  require_tokenizer(inputs, "environment.method");
  (void)io::find_program(inputs.config.environment.command.front(), "environment");
  for (const Prompt& prompt : inputs.prompts.prompts) {  // only rank 0 has prompts
    inputs.scenes.push_back(
        io::prompt_members(prompt, io::ground_truth_json(prompt, inputs.config.reward.ground_truth),
                           *inputs.text.tokenizer, false));
  }
}

void share_scenes(const fabric::MpiEnvironment& mpi, Inputs& inputs) {
  if (inputs.config.converses()) broadcast(mpi, inputs.scenes);
}

std::string conversing_text(const Inputs& inputs) {
  if (!inputs.config.converses()) return "";
  const io::EnvironmentSection& environment = inputs.config.environment;
  return fmt::format(
      "  responses are conversations of up to {}, answered by {} beside each verifier, each "
      "running '{}' (environment.workers)\n",
      counted(environment.max_turns, "turn"), counted(environment.workers, "worker"),
      fmt::join(environment.command, " "));
}

std::unique_ptr<Environment> make_environment(const Inputs& inputs, EnvironmentPorts ports) {
  if (!inputs.config.converses()) return nullptr;
  return std::make_unique<TemplatedEnvironment>(inputs, std::move(ports));
}

std::int32_t turn_tokens(const Inputs& inputs) {
  return inputs.config.environment.max_tokens_turn.value_or(
      std::numeric_limits<std::int32_t>::max());
}

ConversationLimits conversation_limits(const Inputs& inputs) {
  return {.max_turns = inputs.config.environment.max_turns,
          .max_tokens = inputs.config.sampling.max_tokens,
          .context = inputs.target.config.max_position,
          .rewards = inputs.config.reward.method == io::RewardMethod::none,
          .keep_masks = inputs.config.sampling.keep_masks,
          .logprobs = inputs.config.sampling.logprobs};
}

}  // namespace paceline::app
