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

/// The tokenizer, or the reason why there is none. Prompts of token ids need no tokenizer.
struct LoadedTokenizer {
  enum class State : std::uint8_t {
    read,
    absent,
    unreadable,  ///< files of a tokenizer are there, but broken or not supported
  };
  std::shared_ptr<const io::Tokenizer> tokenizer;  ///< null unless `state` is `read`
  State state = State::read;
  std::string absence;  ///< why `tokenizer` is null; empty if it is not
};

/// Sizes of the job's requests, from which the job is planned.
struct RequestSizes {
  std::size_t responses = 0;          ///< number of responses, finished ones included
  std::int32_t longest_prompt = 0;    ///< tokens
  std::int32_t longest_sequence = 0;  ///< tokens, prompt and response
  double mean_max_tokens = 0;         ///< limit on a response's tokens, averaged over prompts
  bool own_samples = false;           ///< some prompt's number of responses is not prompts.samples
  std::int32_t largest_picture = 0;   ///< patches; 0: no prompt has pictures
};

/// Fields are the same on every rank unless their comments say otherwise.
struct Inputs {
  io::RunConfig config;
  ModelCheckpoint target;
  std::optional<ModelConfig> priced;  ///< in a simulation, the model whose costs are simulated
  std::optional<ImageProcessorConfig> picture_processor;  ///< nullopt: pictures are refused
  /// Text for the user: the media that the target accepts, or why pictures cannot be read.
  std::string media_refusal = "the model is given text alone";
  LoadedTokenizer text;
  ResponseEnds ends;
  std::vector<ConfiguredDrafter> drafters;
  RequestSizes sizes;
  bool given = false;          ///< responses are given (`paceline score`); none is generated
  bool gives_routing = false;  ///< given tokens use the experts that the given run recorded

  io::PromptSet prompts;              ///< empty except on rank 0
  std::vector<std::string> subjects;  ///< [prompts] text for scoring (ground_truth.hpp)
  std::vector<std::string> scenes;    ///< [prompts] text for environments (worker_line.hpp)

  /// Findings in checkpoints that the user should know about.
  std::vector<std::string> warnings;
  /// Absent files, which a run needs but a plan does not: "weights of DIR", "tokenizer of DIR".
  std::vector<std::string> absent;

  /// Number of responses to a prompt.
  [[nodiscard]] std::uint32_t samples_of(const Prompt& prompt) const {
    return prompt.samples > 0 ? prompt.samples : static_cast<std::uint32_t>(config.prompts.samples);
  }

  /// Size of the vocabulary for which memory is planned. A simulation plans for the vocabulary of
  /// `priced`, and draws tokens from the smaller vocabulary of `target`.
  [[nodiscard]] std::int32_t vocabulary() const {
    return priced ? priced->vocab : target.config.vocab;
  }
  /// How the ranks of a group divide attention. Both layouts compute the same bits. Given responses
  /// are always scored in the layout `tensor`.
  [[nodiscard]] AttentionLayout attention() const {
    return given ? AttentionLayout::tensor
                 : config.layout.attention.value_or(AttentionLayout::tensor);
  }
  /// Number of KV owners in a group of `tp` ranks: `tp` if each rank has the KV of its own
  /// requests, 1 if each rank has a part of every request's KV.
  [[nodiscard]] int owners(int tp) const { return attention() == AttentionLayout::data ? tp : 1; }
};

/// Reads the configuration file, with the overrides and the output directory of the command line.
[[nodiscard]] io::RunConfig read_config(const RunArguments& arguments, io::Purpose purpose);
/// Reads the configuration on every rank. From then on, a rank counts as stopped if it is silent
/// for limits.stall seconds (set_patience()). Collective; throws JobEnded.
[[nodiscard]] io::RunConfig read_config(const fabric::MpiEnvironment& mpi,
                                        const RunArguments& arguments, io::Purpose purpose);

/// Reads and checks the inputs of a run. `standing`: results that the job keeps from step to step.
/// `plans`: the run is only planned, so its weights and tokenizer may be absent. Collective;
/// throws JobEnded.
[[nodiscard]] Inputs read_inputs(const fabric::MpiEnvironment& mpi, io::RunConfig config,
                                 Standing& standing, bool plans = false);

/// Reads the inputs for computing log-probabilities of a finished run's responses. Ignores settings
/// that only generation needs, such as drafters and rewards. `gives_routing`: value for Inputs.
/// Collective. Throws JobEnded, with DataError's code if the model cannot have sampled a response.
[[nodiscard]] Inputs read_given(const fabric::MpiEnvironment& mpi, io::RunConfig config,
                                const io::StoredRun& run, bool gives_routing);

/// The directory of the tokenizer and the chat template, by default the directory of the weights.
/// If the directory of the weights has no generation_config.json, this directory's is read.
[[nodiscard]] const std::string& tokenizer_directory(const io::RunConfig& config);

/// Reads the chat template of a directory. A template with an error, or of an unsupported kind,
/// makes only calls that use the template fail.
[[nodiscard]] io::ChatTemplate read_chat_template(const std::string& directory);

/// Throws UsageError if the tokenizer is absent, and DataError if it is unreadable. `what`: the
/// setting that needs a tokenizer, for example "sampling.stop_strings".
void require_tokenizer(const Inputs& inputs, const char* what);

/// Reads the configured tokenizer for the target's vocabulary. Throws DataError if model.tokenizer
/// names a directory without a supported tokenizer, or if the tokenizer does not fit the target.
[[nodiscard]] LoadedTokenizer read_tokenizer(const io::RunConfig& config, const ModelConfig& target,
                                             Standing& standing);

/// Reads the prompt file with the target's tokenizer and context. Sets Inputs::prompts, sizes and
/// ends.turn. `plans`: token counts are estimated if the tokenizer is absent. Throws as
/// io::read_prompts() does, and UsageError if the settings leave no room for a prompt or response.
void read_prompts(Inputs& inputs, bool plans);

/// Looks, in the target and in draft models, for output matrices (lm_head) that are stored although
/// config.json ties them to the embeddings. A stored matrix that differs from the embeddings is
/// used, as in transformers 5. Also finds out whether a draft head's embeddings equal the target's,
/// so that one table can serve both. Adds to Inputs::warnings. Collective; throws JobEnded.
void settle_checkpoints(const fabric::MpiEnvironment& mpi, Inputs& inputs);

}  // namespace paceline::app
