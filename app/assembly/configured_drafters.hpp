// The drafters in a run's configuration, with their checkpoints read and checked.
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

/// A draft head: an EAGLE-3 or DFlash head, or the target's own next-token layer (MTP). A head
/// drafts from hidden features of the target, and computes in the target's dtype.
struct DraftHead {
  HeadConfig config;
  std::unique_ptr<io::Checkpoint> own;  ///< checkpoint of an EAGLE-3 or DFlash head; null: not read
  /// `own` plus the target's output matrix, for a DFlash head without an output matrix of its own.
  std::unique_ptr<io::BorrowingSource> borrowing;
  /// Weights from `own`, `borrowing` or the target's checkpoint; null: absent, or not read.
  const WeightSource* weights = nullptr;
  std::shared_ptr<const policy::StopNetwork> stop;  ///< network that ends drafts; null: none
};

/// One entry of speculation.drafters, with its draft model or head if it has one.
struct ConfiguredDrafter {
  io::DrafterSetting setting;
  /// Name in telemetry: "ngram", "suffix", "mtp", "model:DIR", "eagle3:DIR" or "dflash:DIR". If
  /// setting.name is set, it takes the place of DIR.
  std::string name;
  std::unique_ptr<ModelCheckpoint> model;  ///< null unless the method is `model`
  std::unique_ptr<DraftHead> head;         ///< null unless the method is dflash, eagle3 or mtp
};

/// Reads and checks draft models and heads. Returns n-gram and suffix drafters first, then draft
/// models, then a head. If costs are unknown, the plan keeps this order. A head comes last, because
/// drafter ranks mostly use the first drafter, and have no head if there are draft models. `path`,
/// `target` and `tokenizer` (null: none) belong to the target, whose checkpoint must outlive the
/// drafters. `absent`: a list that gets the names of missing weights; null: missing weights are an
/// error. Throws UsageError if a draft model has another vocabulary than the target, if two draft
/// models have the same directory or name, or if a head cannot obey `stop` or `record_stops` in
/// its setting. Throws DataError if a head does not fit the target, or if an MTP drafter is
/// configured but the target has no next-token layer. Throws as reading a checkpoint does.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafters(const io::SpeculationSection& settings,
                                                           const std::string& path,
                                                           const ModelCheckpoint& target,
                                                           const io::Tokenizer* tokenizer,
                                                           std::vector<std::string>* absent);

/// Reads the drafters for a simulation: config.json of draft models and heads. The only weights
/// that it reads are a head's stop network. `path`, `target`: the target's directory and
/// description.
[[nodiscard]] std::vector<ConfiguredDrafter> read_drafter_shapes(
    const io::SpeculationSection& settings, const std::string& path, const ModelConfig& target);

}  // namespace paceline::app
