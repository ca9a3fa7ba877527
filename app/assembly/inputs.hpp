// The inputs of a job, read and checked: its configuration, models, drafters and prompts. Nothing
// changes them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/assembly/configured_drafters.hpp"
#include "app/assembly/model_checkpoint.hpp"
#include "app/assembly/token_sets.hpp"
#include "app/commands/commands.hpp"
#include "io/config/run_config.hpp"
#include "io/run/stored_run.hpp"
#include "io/text/prompts.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/image_processor_config.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

class Standing;

/// The tokenizer, which gives tokens their text. Runs whose prompts are token ids need none.
struct LoadedTokenizer {
  enum class State : std::uint8_t {
    read,
    absent,
    unreadable,  ///< a tokenizer is there, but broken or not supported
  };
  std::shared_ptr<const io::Tokenizer> tokenizer;  ///< null unless state is read
  State state = State::read;
  std::string absence;  ///< why there is no tokenizer
};

/// Sizes of the job's requests, by which it is planned.
struct RequestSizes {
  std::size_t responses = 0;          ///< number to generate in all
  std::int32_t longest_prompt = 0;    ///< tokens
  std::int32_t longest_sequence = 0;  ///< tokens, prompt and response
  double mean_max_tokens = 0;         ///< mean over prompts of the most tokens of a response
  bool own_samples = false;           ///< some prompt asks for another number of responses
  std::int32_t largest_picture = 0;   ///< patches; 0: no prompt has pictures
};

/// Fields are the same on every rank unless their comments say otherwise.
struct Inputs {
  io::RunConfig config;
  ModelCheckpoint target;
  std::optional<ModelConfig> priced;  ///< simulation only: the model whose costs are modelled
  std::optional<ImageProcessorConfig> picture_processor;  ///< nullopt: the target takes no pictures
  /// Why a prompt's media are refused: all of them, or those that are no pictures under 'images'.
  std::string media_refusal = "the model is given text alone";
  LoadedTokenizer text;
  ResponseEnds ends;
  std::vector<ConfiguredDrafter> drafters;
  RequestSizes sizes;
  bool given = false;          ///< responses are given: none is generated, and nothing drafts
  bool gives_routing = false;  ///< given responses come with their tokens' experts

  io::PromptSet prompts;              ///< on rank 0 alone
  std::vector<std::string> subjects;  ///< [prompts] text for scoring (ground_truth.hpp)
  std::vector<std::string> scenes;    ///< [prompts] text for environments (worker_line.hpp)

  /// Findings in checkpoints that the user should know about.
  std::vector<std::string> warnings;
  /// Absent files that a plan does without: "weights of DIR", "tokenizer of DIR".
  std::vector<std::string> absent;

  /// Number of responses to a prompt.
  [[nodiscard]] std::uint32_t samples_of(const Prompt& prompt) const {
    return prompt.samples > 0 ? prompt.samples : static_cast<std::uint32_t>(config.prompts.samples);
  }

  /// Size of the target's vocabulary. A simulation plans memory by the priced target's vocabulary,
  /// but draws its tokens from target.config's, which is smaller.
  [[nodiscard]] std::int32_t vocabulary() const {
    return priced ? priced->vocab : target.config.vocab;
  }
  /// How attention is shared in a group. Given responses are always scored with tensor attention:
  /// the bits are the same.
  [[nodiscard]] AttentionLayout attention() const {
    return given ? AttentionLayout::tensor
                 : config.layout.attention.value_or(AttentionLayout::tensor);
  }
  /// Number of ranks in a group of `tp` that have KV of their own requests; 1: all KV is shared.
  [[nodiscard]] int owners(int tp) const { return attention() == AttentionLayout::data ? tp : 1; }
};

/// Reads the configuration that the command line names, with its output directory.
[[nodiscard]] io::RunConfig read_config(const RunArguments& arguments, io::Purpose purpose);
/// Reads the configuration on every rank, and sets limits.stall. Collective; throws JobEnded.
[[nodiscard]] io::RunConfig read_config(const fabric::MpiEnvironment& mpi,
                                        const RunArguments& arguments, io::Purpose purpose);

/// Reads and checks the inputs of a run. `standing`: what the job keeps from step to step. `plans`:
/// the run is only planned, so that weights and tokenizers may be absent. Collective; throws
/// JobEnded.
[[nodiscard]] Inputs read_inputs(const fabric::MpiEnvironment& mpi, io::RunConfig config,
                                 Standing& standing, bool plans = false);

/// Reads the inputs for computing log-probabilities of a finished run's responses. Ignores settings
/// for generating responses and for rewards. Collective; throws JobEnded, with DataError's code if
/// the responses cannot be the model's: another vocabulary, or longer than its context.
[[nodiscard]] Inputs read_given(const fabric::MpiEnvironment& mpi, io::RunConfig config,
                                const io::StoredRun& run, bool gives_routing);

/// The directory of the tokenizer and the chat template, by default the weights' directory. It is
/// also searched for a generation_config.json if the weights have none.
[[nodiscard]] const std::string& tokenizer_directory(const io::RunConfig& config);

/// Reads the chat template of a directory. An unreadable or unknown template fails only if it is
/// used.
[[nodiscard]] io::ChatTemplate read_chat_template(const std::string& directory);

/// Throws if there is no tokenizer to give tokens their text: DataError if it cannot be read,
/// UsageError if there is none. `what`: the setting that needs it, as "sampling.stop_strings".
void require_tokenizer(const Inputs& inputs, const char* what);

/// Reads the configured tokenizer for the target's vocabulary. Throws DataError if
/// model.tokenizer names a directory without one, or the tokenizer does not fit.
[[nodiscard]] LoadedTokenizer read_tokenizer(const io::RunConfig& config, const ModelConfig& target,
                                             Standing& standing);

/// Reads the prompt file with the target's tokenizer and context. Sets prompts, sizes and the end
/// of turns. `plans`: if there is no tokenizer, lengths of text are estimated. Throws as
/// io::read_prompts() does, and UsageError if no prompt would have room.
void read_prompts(Inputs& inputs, bool plans);

/// Looks for output heads that are stored although config.json ties them to the embeddings, in the
/// model and in draft models. A stored head whose values differ is used, as in transformers 5.
/// Finds whether a draft head's embeddings equal the model's; if so, one table serves both. Adds
/// warnings about the checkpoints to Inputs::warnings. Collective; throws JobEnded.
void settle_checkpoints(const fabric::MpiEnvironment& mpi, Inputs& inputs);

}  // namespace paceline::app
