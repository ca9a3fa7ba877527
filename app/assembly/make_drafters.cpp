#include "app/assembly/make_drafters.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "app/assembly/drafters.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/weight_store.hpp"
#include "runtime/draft/head_drafter.hpp"
#include "runtime/draft/model_drafter.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "runtime/policy/length/make_draft_length.hpp"
#include "runtime/speculation/learned_stop.hpp"

namespace paceline::app {
namespace {

/// Options that all draft models and heads have in common.
draft::ModelDrafterOptions model_options(const Inputs& inputs, const Plan& plan,
                                         const io::DrafterSetting& setting) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  draft::ModelDrafterOptions options;
  options.vocab = inputs.target.config.vocab;
  options.max_requests = inputs.config.engine.max_batch;
  options.kv_block = inputs.config.engine.kv_block;
  options.max_length = longest_draft(inputs, plan);
  // Draft models and heads ask the backend for a row's `paths` + 1 best tokens, and get at most
  // kMaxRanked. N-grams and suffix trees do not ask the backend, so they may have more paths.
  options.paths = std::min(settings.paths.value_or(1), kernels::kMaxRanked - 1);
  options.prefill_chunk = inputs.config.engine.prefill_chunk;
  // An MTP layer has no directory of its own, because the target's checkpoint contains it.
  options.weights = setting.path.empty() ? inputs.config.model.path : setting.path;
  return options;
}

}  // namespace

std::unique_ptr<draft::Drafter> make_drafter(const Inputs& inputs, const Plan& plan,
                                             kernels::Backend& backend, WeightStore& weights,
                                             TensorParallelGroup& alone, ThreadPool& pool,
                                             std::shared_ptr<const kernels::Embedding> embedding,
                                             std::int32_t which) {
  const PlannedDrafter& drafter = plan.drafters[which];
  const io::DrafterSetting& setting = drafter.setting;
  switch (setting.method) {
    case io::DrafterMethod::dflash:
    case io::DrafterMethod::eagle3:
    case io::DrafterMethod::mtp: {
      draft::ModelDrafterOptions options = model_options(inputs, plan, setting);
      options.kv_blocks = plan.memory.draft_blocks[which];
      // Heads draft at any position, whatever max_position_embeddings in their config.json says.
      options.max_position = inputs.sizes.longest_sequence;
      // On a drafter rank, a head drafts a single path, not a tree.
      if (has_head(plan, Role::drafter)) options.paths = 1;
      if (!setting.noise) options.noise = draft::DraftNoise::greedy;
      return std::make_unique<draft::HeadDrafter>(
          backend, weights.get_head({which}), std::move(embedding), alone, inputs.config.sampling,
          inputs.ends.stops, options);
    }
    case io::DrafterMethod::ngram:
      return std::make_unique<draft::NgramDrafter>(
          draft::NgramOptions{.min_n = setting.min_match, .max_n = setting.max_match});
    case io::DrafterMethod::suffix: {
      draft::SuffixDrafterOptions options;
      options.speculation.min_match = setting.min_match;
      options.speculation.max_match = setting.max_match;
      options.speculation.min_probability = static_cast<float>(setting.min_probability);
      options.store.depth = setting.depth;
      options.store.max_bytes = setting.max_memory;
      return std::make_unique<draft::SuffixDrafter>(options, pool);
    }
    case io::DrafterMethod::model: {
      draft::ModelDrafterOptions options = model_options(inputs, plan, setting);
      options.kv_blocks = plan.memory.draft_blocks[which];
      options.max_position =
          std::min(drafter.model->config.max_position, inputs.sizes.longest_sequence);
      const policy::WeightsId id{which};
      return std::make_unique<draft::ModelDrafter>(
          backend, [&weights, id] { return weights.get_part(id); }, alone, inputs.config.sampling,
          inputs.ends.stops, options);
    }
  }
  throw std::logic_error("a drafter without a method");
}

std::unique_ptr<speculation::Speculator> make_speculator(const Inputs& inputs, const Plan& plan,
                                                         speculation::DrafterRoster roster,
                                                         CostTable costs, const Clock& clock) {
  const io::SpeculationSection& settings = inputs.config.speculation;
  if (roster.empty()) return nullptr;
  speculation::SpeculatorOptions options;
  // The policy of draft lengths counts no cost for drafters on other ranks, nor for drafters that
  // draft only in best-of-N races or on trial (RosterEntry::reserved).
  costs.drafters.clear();
  for (speculation::RosterEntry& entry : roster) {
    const bool own = entry.kind == speculation::DrafterKind::own;
    costs.drafters.push_back(own && !entry.reserved ? entry.costs.value_or(DrafterCosts{})
                                                    : DrafterCosts{});
    const DraftHead* head = plan.drafters[entry.place].head;
    if (own && head != nullptr && head->stop != nullptr)
      entry.levels = std::make_shared<speculation::LearnedStop>(head->stop);
  }
  const bool adapts = !settings.paths && settings.policy == SpeculationPolicy::goodput;
  const int paths = settings.paths.value_or(adapts ? io::SpeculationSection::kMostPaths : 1);
  options.step_tokens = inputs.config.engine.max_batch * draft_tokens(settings);
  return std::make_unique<speculation::Speculator>(
      std::move(roster),
      policy::make_draft_length(settings.policy, std::move(costs), settings.max_length,
                                inputs.config.sampling.seed),
      draft::DraftLimits{settings.record_stops() > 0
                             ? draft_tokens(settings)
                             : settings.max_tokens().value_or(settings.max_length * paths),
                         settings.max_length, paths},
      clock, std::move(options));
}

}  // namespace paceline::app
