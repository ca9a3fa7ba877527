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
#include "runtime/speculation/stop_recorder.hpp"

namespace paceline::app {

struct Setup;
class WeightStore;

/// A draft model's checkpoint.
struct DraftModel {
  ModelConfig config;
  std::unique_ptr<io::Checkpoint> weights;
  DType compute = DType::bf16;
  std::int32_t kv_blocks = 0;  ///< a rank; of engine.kv_block positions
};

/// An EAGLE-3 head's checkpoint. It computes in the target's dtype.
struct DraftHead {
  io::Eagle3Checkpoint checkpoint;
  std::shared_ptr<const policy::StopNetwork> stop;  ///< null: none
  std::int32_t kv_blocks = 0;                       ///< a rank; of engine.kv_block positions
};

/// One entry of speculation.drafters with what it needs.
struct ConfiguredDrafter {
  io::DrafterSetting setting;
  /// As telemetry calls it: "ngram", "suffix", "model:DIR", "eagle3:DIR".
  std::string name;
  std::unique_ptr<DraftModel> model;  ///< of method model
  std::unique_ptr<DraftHead> head;    ///< of method eagle3
};

/// Reads and checks draft models and heads; until costs say more cheap drafters come first, and a
/// head last, which beside draft models drafter ranks have not. `model` and `tokenizer` (may be
/// null) are the target's. `absent`: null, or where it is noted that weights are not there, of
/// which config.json then says what there is to say. Throws UsageError on a draft model of another
/// vocabulary and on a stop network without the paths it reads, DataError on a head that does not
/// fit the target, and as reading a checkpoint does.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafters(const io::SpeculationSection& settings,
                                                           const ModelConfig& model,
                                                           const io::Tokenizer* tokenizer,
                                                           std::vector<std::string>* absent);

/// The same of config.json alone, of models and heads that are modelled; and of heads the stop
/// network, if they have one.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafter_shapes(
    const io::SpeculationSection& settings);

/// Most tokens of a request's draft where all requests of a batch have as many; 0 without drafters.
[[nodiscard]] int draft_tokens(const io::SpeculationSection& settings);

/// How draft trees are recorded, where speculation.record_stops is not 0.
[[nodiscard]] roles::StopRecorderOptions stop_recording(const io::SpeculationSection& settings);

/// Tokens that a drafter rank sends at a time.
[[nodiscard]] int draft_window(const io::SpeculationSection& settings);

/// Whether groups that run dry race for requests of others (best-of-N): it is asked for, there are
/// groups, and drafters that could be others' than those the request has.
[[nodiscard]] bool races(const Setup& setup);
/// By how many drafters of verifiers that may be, the first of drafter_names().
[[nodiscard]] int race_methods(const Setup& setup);

/// Draft models by which ranks that are freed may come to draft for the last requests of a group
/// (policy/schedule/tail_drafters.hpp): those that its requests are not drafted for by anyhow.
/// Indices; empty: no rank does, for best-of-N is not asked for, drafts are to be coupled, or there
/// are no costs to decide by.
[[nodiscard]] std::vector<std::int32_t> tail_methods(const Setup& setup);
/// Whether ranks may have other roles than those of the layout.
[[nodiscard]] bool roles_change(const Setup& setup);

/// Whether ranks of this role have the draft models: drafter ranks and, where the layout has none
/// of those, verifiers.
[[nodiscard]] bool has_draft_models(const Setup& setup, Role role);
/// The head of the drafters; null: there is none.
[[nodiscard]] DraftHead* draft_head(const Setup& setup);
/// Layers of the target that it reads (feature_layers()); empty: there is none.
[[nodiscard]] std::vector<std::int32_t> read_layers(const Setup& setup);
/// Whether it embeds tokens by a table of its own, not the target's.
[[nodiscard]] bool has_own_embeddings(const Setup& setup);
/// Bytes of what it reads of a token.
[[nodiscard]] std::uint64_t feature_row_bytes(const Setup& setup);
/// Whether ranks of this role have the head: drafter ranks where the layout has such and there is
/// no draft model, by which they draft otherwise; else verifiers.
[[nodiscard]] bool has_head(const Setup& setup, Role role);
/// Throws UsageError where drafter ranks would have to draft trees by the head, for its stop
/// network or to record them: they draft chains.
void require_chains(const Setup& setup);
/// What a rank drafts by in a place, of its own: indices.
[[nodiscard]] std::vector<std::int32_t> own_drafters(const Setup& setup, Role role,
                                                     const policy::DrafterPlace* place = nullptr);
/// What the drafters are called that a verifier or a drafter rank of the layout makes for itself.
[[nodiscard]] std::vector<std::string> own_drafter_names(const Setup& setup, Role role);
/// What telemetry calls the drafters that verifiers ask, in their order: drafter ranks of the
/// layout, then their own, then ranks that draft for one group by one of tail_methods().
[[nodiscard]] std::vector<std::string> drafter_names(const Setup& setup);

}  // namespace paceline::app
