// The drafters that a run is configured with, their checkpoints checked, and who makes which.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/eagle3_reader.hpp"
#include "io/config/run_config.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/role.hpp"
#include "runtime/policy/length/draft_stop.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/speculation/drafter_roster.hpp"
#include "runtime/speculation/stop_recorder.hpp"

namespace paceline::app {

struct Setup;
class WeightStore;

/// A draft model's checkpoint.
struct DraftModel {
  ModelConfig config;
  std::unique_ptr<io::Checkpoint> weights;
  DType compute = DType::bf16;
  std::int32_t kv_blocks = 0;  ///< of each rank; engine.kv_block positions a block
};

/// An EAGLE-3 head's checkpoint. It computes in the target's dtype.
struct DraftHead {
  io::Eagle3Checkpoint checkpoint;
  std::shared_ptr<const policy::StopNetwork> stop;  ///< null: none
  std::int32_t kv_blocks = 0;  ///< of each rank; engine.kv_block positions a block
};

/// One entry of speculation.drafters with its checkpoint, if it has one.
struct ConfiguredDrafter {
  io::DrafterSetting setting;
  /// Name in telemetry: "ngram", "suffix", "model:DIR", "eagle3:DIR".
  std::string name;
  std::unique_ptr<DraftModel> model;               ///< of method model
  std::unique_ptr<DraftHead> head;                 ///< of method eagle3
  double acceptance = policy::kUnknownAcceptance;  ///< of its tokens, in earlier runs
};

/// Reads and checks draft models and heads. Until costs order them, cheap drafters come first and
/// a head last, for drafter ranks have no head where there are draft models. `model` and
/// `tokenizer` (may be null) are the target's. `absent`: null, or the list to add missing weights
/// to; config.json alone then describes the checkpoint. Throws UsageError on a draft model of
/// another vocabulary and on a stop network without the paths it reads, DataError on a head that
/// does not fit the target, and as reading a checkpoint does.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafters(const io::SpeculationSection& settings,
                                                           const ModelConfig& model,
                                                           const io::Tokenizer* tokenizer,
                                                           std::vector<std::string>* absent);

/// Reads the drafters of a simulation: config.json alone of draft models and heads, and a head's
/// stop network, if it has one.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafter_shapes(
    const io::SpeculationSection& settings);

/// Most tokens of a request's draft where all requests of a batch have as many; 0 without drafters.
[[nodiscard]] int draft_tokens(const io::SpeculationSection& settings);

/// How draft trees are recorded, where record_stops is not 0.
[[nodiscard]] speculation::StopRecorderOptions stop_recording(
    const io::SpeculationSection& settings);

/// Tokens that a drafter rank sends at a time.
[[nodiscard]] int draft_window(const io::SpeculationSection& settings);

/// Whether groups that run dry race for requests of others (best-of-N): racing is asked for, and
/// there are several groups and a drafter besides the one that a request has.
[[nodiscard]] bool races(const Setup& setup);
/// The number of drafters that may race: the first of drafter_roster().
[[nodiscard]] int race_methods(const Setup& setup);

/// Indices of the draft models by which freed ranks may draft for the last requests of a group
/// (policy/schedule/tail_drafters.hpp): all but the model that drafts for them already. Empty: no
/// freed rank drafts, for best-of-N is not asked for, drafts are to be coupled, or there are no
/// costs to decide by.
[[nodiscard]] std::vector<std::int32_t> tail_methods(const Setup& setup);
/// Whether ranks may have other roles than those of the layout.
[[nodiscard]] bool roles_change(const Setup& setup);

/// Whether ranks of this role have the draft models: drafter ranks and, where the layout has none
/// of those, verifiers.
[[nodiscard]] bool has_draft_models(const Setup& setup, Role role);
/// The head of the drafters; null: there is none.
[[nodiscard]] DraftHead* draft_head(const Setup& setup);
/// Layers of the target that the head reads (feature_layers()); empty: there is no head.
[[nodiscard]] std::vector<std::int32_t> read_layers(const Setup& setup);
/// Whether the head embeds tokens by a table of its own, not the target's.
[[nodiscard]] bool has_own_embeddings(const Setup& setup);
/// Bytes of one token's features, which the head reads.
[[nodiscard]] std::uint64_t feature_row_bytes(const Setup& setup);
/// Whether ranks of this role have the head: drafter ranks where the layout has some and there is
/// no draft model for them; else verifiers.
[[nodiscard]] bool has_head(const Setup& setup, Role role);
/// Throws UsageError where drafter ranks, which draft chains, would have to draft trees by the
/// head: for its stop network, or to record them.
void require_chains(const Setup& setup);
/// Indices of the drafters that a rank makes for itself in a place.
[[nodiscard]] std::vector<std::int32_t> own_drafters(const Setup& setup, Role role,
                                                     const policy::DrafterPlace* place = nullptr);
/// The roster of verifiers, without drafters in it: drafter ranks of the layout, then the
/// verifier's own, then ranks that draft for one group by one of tail_methods(). `costs`: null, or
/// of all drafters that are known.
[[nodiscard]] speculation::DrafterRoster drafter_roster(const Setup& setup,
                                                        const CostTable* costs = nullptr);
/// Names of the roster's entries.
[[nodiscard]] std::vector<std::string> drafter_names(const Setup& setup);

}  // namespace paceline::app
