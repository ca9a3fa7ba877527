// The drafters of a run: their checkpoints, checked, and the speculator a verifier gets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/config/run_config.hpp"
#include "io/text/tokenizer.hpp"
#include "kernels/backend.hpp"
#include "runtime/core/clock.hpp"
#include "runtime/core/cost_table.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/role.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/roles/speculator.hpp"

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

/// One entry of speculation.drafters with what it needs.
struct DrafterPlan {
  io::DrafterSetting setting;
  std::string name;                   ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  std::unique_ptr<DraftModel> model;  ///< of method model
};

/// Reads and checks the draft models; cheap drafters come first until costs say more. `model`
/// and `tokenizer` (may be null) are the target's. Throws UsageError on a draft model of another
/// vocabulary, and as reading a checkpoint does.
[[nodiscard]] std::vector<DrafterPlan> plan_drafters(const io::SpeculationSection& settings,
                                                     const ModelConfig& model,
                                                     const io::Tokenizer* tokenizer);

/// Most tokens of one request's draft; 0 without drafters.
[[nodiscard]] int draft_tokens(const io::SpeculationSection& settings);

/// Tokens that a drafter rank sends at a time.
[[nodiscard]] int draft_window(const io::SpeculationSection& settings);

/// Tokens of a request from one reconfiguration to the next; 0: never. Where it is auto it is the
/// paper's number under goodput where ranks draft for others, at costs that are known: only there
/// is a mode to choose. Goodput gives each request its length at every step by itself, and a fixed
/// length is to stay fixed.
[[nodiscard]] std::uint32_t reconfigure_every(const Setup& setup);
/// Why no request is reconfigured although the configuration asks for it; empty: it does not ask,
/// nothing drafts, or requests are.
[[nodiscard]] std::string not_reconfigured(const Setup& setup);

/// Bytes that draft models' weights and KV take on a rank of this role.
struct DrafterMemory {
  std::size_t weights = 0;
  std::size_t kv = 0;
};
[[nodiscard]] DrafterMemory drafter_memory(const Setup& setup, Role role);

/// What the drafters are called that a rank of this role makes for itself.
[[nodiscard]] std::vector<std::string> own_drafter_names(const Setup& setup, Role role);
/// What telemetry calls the drafters that verifiers ask, in their order.
[[nodiscard]] std::vector<std::string> drafter_names(const Setup& setup);

/// The drafters of one rank, without those by draft models where `models` is false. Draft models
/// are not sharded. All arguments outlive them.
[[nodiscard]] std::vector<std::unique_ptr<draft::Drafter>> make_drafters(
    const Setup& setup, kernels::Backend& backend, WeightStore& weights, TensorParallelGroup& alone,
    ThreadPool& pool, bool models);

/// The speculator of one verifier, null without drafters. `costs` are asked for by the goodput
/// policy and by reconfiguration.
[[nodiscard]] std::unique_ptr<roles::Speculator> make_speculator(
    const Setup& setup, std::vector<std::unique_ptr<draft::Drafter>> drafters, CostTable costs,
    const Clock& clock);

}  // namespace paceline::app
