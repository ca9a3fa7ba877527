// From a configuration file to everything a run needs to know, checked. Shared by rollout, check
// and score.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/assembly/backend_choice.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/memory_plan.hpp"
#include "app/assembly/speculation_choice.hpp"
#include "app/assembly/token_sets.hpp"
#include "app/commands/commands.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/config/run_config.hpp"
#include "io/run/manifest.hpp"
#include "io/run/stored_run.hpp"
#include "io/text/prompts.hpp"
#include "io/text/tokenizer.hpp"
#include "kernels/backend.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/fabric/mpi_environment.hpp"
#include "runtime/policy/place/kv_pool_plan.hpp"
#include "runtime/policy/place/layout.hpp"

namespace paceline::app {

class Standing;

/// Whether tokens have a text. Token ids can be rolled out without.
enum class TokenizerState : std::uint8_t {
  read,
  absent,
  unreadable,  ///< a tokenizer is there, but broken or not supported
};

/// The checked configuration and all that follows from it. Fields are the same on every rank unless
/// they say otherwise.
struct Setup {
  io::RunConfig config;
  ModelConfig model;
  std::optional<ModelConfig> priced;        ///< of a simulation: the target as its costs see it
  std::unique_ptr<io::Checkpoint> weights;  ///< null: weights are absent, and nothing is computed
  std::shared_ptr<const io::Tokenizer> tokenizer;  ///< null when there is none
  TokenizerState tokenizer_state = TokenizerState::read;
  std::string no_tokenizer;  ///< why there is no tokenizer
  DType compute = DType::bf16;
  std::vector<TokenId> stops;  ///< every id that ends a response
  /// The model's end tokens in the job's previous step; none in the first step.
  std::optional<std::vector<TokenId>> earlier_eos;
  std::int32_t longest_prompt = 0;       ///< tokens
  double mean_max_tokens = 0;            ///< mean over prompts of the longest response's tokens
  std::int32_t longest_sequence = 0;     ///< tokens, prompt and response
  std::vector<fabric::RankFacts> facts;  ///< [ranks]
  policy::Layout layout;
  policy::KvPlan kv;
  std::int32_t kv_gain = 0;  ///< blocks more in a group's pool while its draft models are suspended
  policy::KvPoolPlan kv_pool;
  MemoryPlan memory;
  std::vector<int> draft_servers;           ///< ranks that host one
  std::vector<ConfiguredDrafter> drafters;  ///< in the order in which a rank asks them
  int threads = 1;                          ///< of this rank; other ranks may have more or fewer
  BackendChoice backend;                    ///< with this rank's device
  std::size_t responses = 0;                ///< number to generate in all
  CostConditions conditions;                ///< of costs, with this rank's threads
  std::optional<CostTable> profile;         ///< engine.profile
  std::string profile_fault;                ///< why the profile does not hold here; empty: it holds
  SpeculationChoice speculation;            ///< the plans behind the choice: rank 0 alone
  /// Findings in checkpoints that the user should know of.
  std::vector<std::string> warnings;
  /// Files that are absent, which a plan does without: "weights of DIR", "tokenizer of DIR".
  std::vector<std::string> absent;
  bool given = false;  ///< responses are given: none is generated, and nothing drafts

  io::PromptSet prompts;              ///< on rank 0 alone
  TurnEnd turn_end;                   ///< on rank 0 alone
  std::vector<std::string> subjects;  ///< [prompts] what scoring needs of each (ground_truth.hpp)

  [[nodiscard]] std::size_t requests() const {
    return prompts.prompts.size() * config.prompts.samples;
  }
  [[nodiscard]] bool profile_holds() const { return profile && profile_fault.empty(); }
};

/// The configuration that the command line names, output directory included.
[[nodiscard]] io::RunConfig read_config(const RunArguments& arguments, io::Purpose purpose);

/// Reads and checks everything and plans the layout. Collective; throws JobEnded. `standing`: kept
/// by the job from its previous step. `planned`: null, or the machine to plan for instead of the
/// job's own (on one rank).
[[nodiscard]] Setup prepare(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
                            Standing& standing, const PlannedMachine* planned = nullptr);

/// Prepares computing the log-probabilities of a finished run's responses; settings for generating
/// responses and for rewards are ignored. Collective; throws JobEnded, with DataError's code where
/// the responses cannot be the model's: of another vocabulary, or too long.
[[nodiscard]] Setup prepare_given(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
                                  const io::StoredRun& run);

/// The directory of the tokenizer and chat template, which need not lie beside the weights, and of
/// generation_config.json where the weights have none.
[[nodiscard]] const std::string& tokenizer_directory(const io::RunConfig& config);

/// Throws where tokens have no text, naming `what` (as "sampling.stop_strings") that needs it:
/// DataError when the tokenizer cannot be read, UsageError when there is none.
void require_tokenizer(const Setup& setup, const char* what);

/// Reads the configured tokenizer for the vocabulary of setup.model: sets setup.tokenizer,
/// tokenizer_state and no_tokenizer. Throws DataError where model.tokenizer names a directory
/// without one, or the tokenizer does not fit.
void read_tokenizer(Setup& setup, Standing& standing);

/// Reads the prompt file, with setup.tokenizer and for the context of setup.model: setup.prompts
/// and longest_prompt. `plans`: without a tokenizer, lengths of text are estimated. Throws as
/// io::read_prompts() does, and UsageError where no prompt would have room.
void read_prompts(Setup& setup, bool plans);

/// The manifest, which identifies the run in its output directory. On rank 0.
[[nodiscard]] io::RunManifest manifest_of(const Setup& setup);

}  // namespace paceline::app
