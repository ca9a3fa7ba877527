// The drafters that a run is configured with, their checkpoints checked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/assembly/model_checkpoint.hpp"
#include "io/checkpoint/dflash_reader.hpp"
#include "io/checkpoint/eagle3_reader.hpp"
#include "io/config/run_config.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/policy/length/draft_stop.hpp"

namespace paceline::app {

/// A head drafts from the target's features. It computes in the target's dtype.
struct DraftHead {
  HeadConfig config;
  std::unique_ptr<io::Checkpoint> own;             ///< checkpoint of a published head
  std::unique_ptr<io::BorrowingSource> borrowing;  ///< `own` with the target's output
  const WeightSource* weights = nullptr;  ///< either, or the target's checkpoint; null: absent
  std::shared_ptr<const policy::StopNetwork> stop;  ///< null: no stop network
};

/// One entry of speculation.drafters with its checkpoint, if it has one.
struct ConfiguredDrafter {
  io::DrafterSetting setting;
  /// Name in telemetry: "ngram", "suffix", "model:DIR", "eagle3:DIR", "dflash:DIR", "mtp".
  std::string name;
  std::unique_ptr<ModelCheckpoint> model;  ///< draft model, of method model
  std::unique_ptr<DraftHead> head;         ///< head, of methods dflash, eagle3 and mtp
};

/// Reads and checks draft models and heads. Until costs order them, cheap drafters come first and a
/// head last, because drafter ranks have no head if there are draft models. `path`, `target` and
/// `tokenizer` (may be null) are the target's; its checkpoint must outlive the drafters. `absent`:
/// null, or a list that gets the names of missing weights: config.json alone then describes the
/// checkpoint. Throws UsageError on a draft model with another vocabulary, and on too few paths for
/// a stop network. Throws DataError if a head does not fit the target, or the target has no
/// next-token layer. Throws as reading a checkpoint does.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafters(const io::SpeculationSection& settings,
                                                           const std::string& path,
                                                           const ModelCheckpoint& target,
                                                           const io::Tokenizer* tokenizer,
                                                           std::vector<std::string>* absent);

/// Reads the drafters of a simulation: only config.json of draft models and heads, and a head's
/// stop network, if it has one. `path` and `target` are the target's.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafter_shapes(
    const io::SpeculationSection& settings, const std::string& path, const ModelConfig& target);

}  // namespace paceline::app
