#include "app/drafters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/setup.hpp"
#include "app/weight_store.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/draft/model_drafter.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "runtime/kv/block_pool.hpp"
#include "runtime/model/sharding.hpp"
#include "runtime/policy/goodput.hpp"

namespace paceline::app {
namespace {

// Sizes may differ, for checkpoints pad their vocabularies, but no token may mean something else.
void require_same_tokens(const std::string& path, const ModelConfig& draft,
                         const ModelConfig& model, const io::Tokenizer* tokenizer) {
  const bool tokenized = std::filesystem::exists(std::filesystem::path(path) / "tokenizer.json");
  if (tokenizer == nullptr || !tokenized) {
    if (draft.vocab == model.vocab) return;
    throw UsageError(fmt::format(
        "speculation.drafters: the vocabulary of {} has {} tokens, the model's {}; a draft model "
        "must have the model's vocabulary",
        path, draft.vocab, model.vocab));
  }
  const io::Tokenizer other = io::Tokenizer::load(path);
  for (TokenId id = 0; id < std::min(draft.vocab, model.vocab); ++id) {
    if (other.bytes_of(id) == tokenizer->bytes_of(id)) continue;
    throw UsageError(fmt::format(
        "speculation.drafters: token {} of {} stands for \"{}\", in the model for \"{}\"; a draft "
        "model must have the model's vocabulary",
        id, path, other.bytes_of(id), tokenizer->bytes_of(id)));
  }
}

bool profile_holds(const Setup& setup) { return setup.profile && setup.profile_fault.empty(); }

}  // namespace

std::vector<DrafterPlan> plan_drafters(const io::SpeculationSection& settings,
                                       const ModelConfig& model, const io::Tokenizer* tokenizer) {
  std::vector<DrafterPlan> plans;
  for (const io::DrafterSetting& setting : settings.drafters) {
    DrafterPlan plan;
    plan.setting = setting;
    switch (setting.method) {
      case io::DrafterMethod::ngram:
        plan.name = "ngram";
        break;
      case io::DrafterMethod::suffix:
        plan.name = "suffix";
        break;
      case io::DrafterMethod::model: {
        plan.name = "model:" + setting.path;
        for (const DrafterPlan& other : plans) {
          if (other.name != plan.name) continue;
          throw UsageError(
              fmt::format("speculation.drafters: {} is there twice; it would draft the same twice",
                          setting.path));
        }
        plan.model = std::make_unique<DraftModel>();
        DraftModel& draft = *plan.model;
        draft.config = io::load_model_config(setting.path);
        draft.weights = std::make_unique<io::Checkpoint>(setting.path);
        io::check_tensor_shapes(draft.config, *draft.weights);
        draft.compute = io::stored_dtype(draft.config, *draft.weights);
        require_same_tokens(setting.path, draft.config, model, tokenizer);
        break;
      }
    }
    plans.push_back(std::move(plan));
  }
  std::stable_partition(plans.begin(), plans.end(),
                        [](const DrafterPlan& plan) { return plan.model == nullptr; });
  return plans;
}

int draft_tokens(const io::SpeculationSection& settings) {
  if (settings.drafters.empty()) return 0;
  return settings.max_tokens.value_or(settings.max_length * settings.paths);
}

int draft_window(const io::SpeculationSection& settings) {
  return settings.window.value_or(settings.max_length);
}

std::uint32_t reconfigure_every(const Setup& setup) {
  const io::SpeculationSection& settings = setup.config.speculation;
  if (setup.drafters.empty() || !not_reconfigured(setup).empty()) return 0;
  const bool by_itself = setup.layout.drafters() > 0 && profile_holds(setup) &&
                         settings.policy == io::SpeculationPolicy::goodput;
  return static_cast<std::uint32_t>(
      settings.reconfigure.value_or(by_itself ? policy::kReconfigureEvery : 0));
}

std::string not_reconfigured(const Setup& setup) {
  const bool asked = setup.config.speculation.reconfigure.value_or(0) > 0;
  if (!asked || setup.layout.drafters() == 0 || profile_holds(setup)) return "";
  return "what drafter ranks cost is known by engine.profile alone";
}

DrafterMemory drafter_memory(const Setup& setup, Role role) {
  DrafterMemory memory;
  if (role != (setup.layout.drafters() > 0 ? Role::drafter : Role::verifier)) return memory;
  for (const DrafterPlan& plan : setup.drafters) {
    if (plan.model == nullptr) continue;
    const DraftModel& draft = *plan.model;
    const kernels::KvShape shape{draft.config.layers, draft.config.kv_heads, draft.config.head_dim,
                                 setup.config.engine.kv_block, draft.compute};
    memory.weights += model::weight_bytes(draft.config, draft.compute, 1);
    memory.kv += shape.block_bytes() * draft.kv_blocks;
  }
  return memory;
}

std::vector<std::string> own_drafter_names(const Setup& setup, Role role) {
  std::vector<std::string> names;
  const bool models = role == Role::drafter || setup.layout.drafters() == 0;
  for (const DrafterPlan& plan : setup.drafters) {
    if (models || plan.model == nullptr) names.push_back(plan.name);
  }
  return names;
}

std::vector<std::string> drafter_names(const Setup& setup) {
  std::vector<std::string> names = own_drafter_names(setup, Role::verifier);
  if (setup.layout.drafters() > 0) names.insert(names.begin(), "drafter-ranks");
  return names;
}

std::vector<std::unique_ptr<draft::Drafter>> make_drafters(const Setup& setup,
                                                           kernels::Backend& backend,
                                                           WeightStore& weights,
                                                           TensorParallelGroup& alone,
                                                           ThreadPool& pool, bool models) {
  const io::SpeculationSection& settings = setup.config.speculation;
  std::vector<std::unique_ptr<draft::Drafter>> drafters;
  for (const DrafterPlan& plan : setup.drafters) {
    const io::DrafterSetting& setting = plan.setting;
    switch (setting.method) {
      case io::DrafterMethod::ngram: {
        draft::NgramOptions options;
        options.min_n = setting.min_match;
        options.max_n = setting.max_match;
        drafters.push_back(std::make_unique<draft::NgramDrafter>(options));
        break;
      }
      case io::DrafterMethod::suffix: {
        draft::SuffixDrafterOptions options;
        options.speculation.min_match = setting.min_match;
        options.speculation.max_match = setting.max_match;
        options.speculation.min_probability = static_cast<float>(setting.min_probability);
        options.store.depth = setting.depth;
        options.store.max_bytes = setting.max_memory;
        drafters.push_back(std::make_unique<draft::SuffixDrafter>(options, pool));
        break;
      }
      case io::DrafterMethod::model: {
        if (!models) break;
        const DraftModel& draft = *plan.model;
        draft::ModelDrafterOptions options;
        options.vocab = setup.model.vocab;
        options.max_requests = setup.config.engine.max_batch;
        options.kv_block = setup.config.engine.kv_block;
        options.kv_blocks = draft.kv_blocks;
        options.max_position = std::min(draft.config.max_position, setup.longest_sequence);
        options.max_length = std::max(settings.max_length, draft_window(settings));
        // Of a level the backend ranks no more; n-grams and trees may still use all paths.
        options.paths = std::min(settings.paths, kernels::kMaxRanked - 1);
        options.prefill_chunk = setup.config.engine.prefill_chunk;
        const policy::WeightsId id{static_cast<std::int32_t>(&plan - setup.drafters.data())};
        drafters.push_back(std::make_unique<draft::ModelDrafter>(
            backend, [&weights, id] { return weights.get(id); }, alone, setup.config.sampling,
            setup.stops, options));
        break;
      }
    }
  }
  return drafters;
}

namespace {

/// Of the drafters that a verifier asks. Drafter ranks ask theirs in their order.
std::vector<double> known_acceptance(const Setup& setup) {
  const std::vector<double>& all = setup.speculation.acceptance;
  const bool ahead = setup.layout.drafters() > 0;
  std::vector<double> known;
  if (ahead) known.push_back(all.front());
  for (std::size_t d = 0; d < all.size(); ++d) {
    if (!ahead || setup.drafters[d].model == nullptr) known.push_back(all[d]);
  }
  return known;
}

/// `costs`: of the verifier's steps and of all drafters that are known.
std::optional<roles::Reconfiguration> reconfiguration(const Setup& setup, const CostTable& costs) {
  if (reconfigure_every(setup) == 0) return std::nullopt;
  std::vector<std::string> names = own_drafter_names(setup, Role::verifier);
  // Drafter ranks seldom get past the first of theirs.
  if (setup.layout.drafters() > 0) names.insert(names.begin(), setup.drafters.front().name);
  roles::Reconfiguration how;
  how.every = reconfigure_every(setup);
  how.costs = costs;
  for (const std::string& name : names) {
    const auto at = std::find_if(costs.drafters.begin(), costs.drafters.end(),
                                 [&](const DrafterCosts& drafter) { return drafter.name == name; });
    if (at == costs.drafters.end()) return std::nullopt;
    how.drafters.push_back(*at);
  }
  how.window = draft_window(setup.config.speculation);
  how.max_batch = setup.config.engine.max_batch;
  if (setup.layout.drafters() > 0)
    how.groups_per_drafter = static_cast<double>(setup.layout.groups()) / setup.layout.drafters();
  return how;
}

}  // namespace

std::unique_ptr<roles::Speculator> make_speculator(
    const Setup& setup, std::vector<std::unique_ptr<draft::Drafter>> drafters, CostTable costs,
    const Clock& clock) {
  const io::SpeculationSection& settings = setup.config.speculation;
  if (drafters.empty()) return nullptr;
  roles::SpeculatorOptions options{known_acceptance(setup), reconfiguration(setup, costs)};
  // A profile knows all drafters, and those of drafter ranks cost a verifier nothing.
  const std::vector<std::string> own = own_drafter_names(setup, Role::verifier);
  std::erase_if(costs.drafters, [&](const DrafterCosts& drafter) {
    return std::find(own.begin(), own.end(), drafter.name) == own.end();
  });
  std::unique_ptr<policy::DraftLengthPolicy> policy;
  switch (settings.policy) {
    case io::SpeculationPolicy::fixed:
      policy = std::make_unique<policy::FixedLength>(settings.max_length);
      break;
    case io::SpeculationPolicy::goodput:
      policy = std::make_unique<policy::Goodput>(std::move(costs), settings.max_length);
      break;
  }
  return std::make_unique<roles::Speculator>(
      std::move(drafters), std::move(policy),
      draft::DraftLimits{draft_tokens(settings), settings.max_length, settings.paths}, clock,
      std::move(options));
}

}  // namespace paceline::app
