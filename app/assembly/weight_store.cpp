#include "app/assembly/weight_store.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "app/assembly/drafters.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/setup.hpp"
#include "app/terminal/terminal.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {

using policy::WeightCopy;
using policy::WeightsId;

namespace {

struct Model {
  const ModelConfig& config;
  const io::Checkpoint* weights;  ///< null: weights are absent, and the model is only planned with
  DType compute;
  model::Shard shard;
};

Model model_of(const Setup& setup, const WeightsId& id) {
  if (!id.drafter) {
    return {setup.model, setup.weights.get(), setup.compute,
            model::shard_of(setup.model, id.share, id.tp)};
  }
  const DraftModel& draft = *setup.drafters[*id.drafter].model;
  return {draft.config, draft.weights.get(), draft.compute, model::shard_of(draft.config, 0, 1)};
}

/// The head that `id` names; null: it names a model.
const DraftHead* head_of(const Setup& setup, const WeightsId& id) {
  return !id.drafter ? nullptr : setup.drafters[*id.drafter].head.get();
}

std::uint64_t bytes_of(const Setup& setup, const WeightsId& id) {
  if (const DraftHead* head = head_of(setup, id))
    return model::weight_bytes(head->checkpoint.config, setup.compute);
  if (!id.drafter) return target_bytes(setup, id.tp);
  const DraftModel& draft = *setup.drafters[*id.drafter].model;
  return model::weight_bytes(draft.config, draft.compute, id.tp);
}

/// Whether a rank can lend a copy's memory to KV: the copy is of a draft model, its own, and not
/// needed in another role. On a device every copy is its rank's own.
bool lends(const Setup& setup, const WeightsId& id, std::size_t ranks_of_copy) {
  return id.drafter && head_of(setup, id) == nullptr && setup.config.elastic() &&
         (setup.backend.on_device() || (ranks_of_copy == 1 && !roles_change(setup)));
}

/// All ranks as holders of no weights yet.
std::vector<policy::WeightHolder> holders(const Setup& setup) {
  std::vector<policy::WeightHolder> all;
  for (const fabric::RankFacts& fact : setup.facts) {
    const bool shares = fact.shares_memory != 0 && !setup.backend.on_device();
    all.push_back({fact.node, fact.numa_nodes, shares, {}});
  }
  return all;
}

}  // namespace

DType stored_dtype(const ModelConfig& config, const io::Checkpoint* weights) {
  return weights == nullptr ? config.dtype : io::stored_dtype(config, *weights);
}

std::uint64_t target_bytes(const Setup& setup, int tp) {
  if (!setup.priced) return model::weight_bytes(setup.model, setup.compute, tp);
  const io::SimulationSection& simulation = setup.config.simulation;
  const ModelConfig& priced = *setup.priced;
  const double all = stored_weight_bytes(priced);
  double bytes = all / tp;
  if (priced.experts)  // GPUs of a rank share them, and each has the rest
    bytes += (simulation.gpus_per_rank - 1) * (all - stored_expert_bytes(priced)) / tp;
  return static_cast<std::uint64_t>(bytes);
}

std::vector<WeightCopy> weight_copies(const Setup& setup) {
  const policy::Placement& placement = setup.layout.placement;
  std::vector<policy::WeightHolder> all = holders(setup);
  const auto add_draft = [&](int rank, std::int32_t d) {
    const policy::WeightsId id{d};
    std::vector<policy::WeightsId>& has = all[rank].weights;
    if (std::find(has.begin(), has.end(), id) == has.end()) has.push_back(id);
  };
  const auto add_drafts = [&](int rank, Role role) {
    for (const std::int32_t d : own_drafters(setup, role)) {
      if (setup.drafters[d].model != nullptr || setup.drafters[d].head != nullptr)
        add_draft(rank, d);
    }
  };
  if (setup.config.test.shuffles(io::Shuffle::roles) && !setup.backend.on_device()) {
    const std::vector<int> degrees = placement.degrees();
    for (int rank = 0; rank < placement.ranks; ++rank) {
      for (const int tp : degrees) {
        if ((rank / tp + 1) * tp <= placement.ranks)
          all[rank].weights.push_back({{}, tp, rank % tp});
      }
      add_drafts(rank, Role::verifier);
      add_drafts(rank, Role::drafter);
    }
    return policy::weight_copies(all);
  }
  for (const auto& [leader, tp] : placement.groups) {
    for (int share = 0; share < tp; ++share) all[leader + share].weights.push_back({{}, tp, share});
    add_drafts(leader, Role::verifier);
  }
  for (const policy::DrafterPlace& drafter : placement.drafters)
    add_drafts(drafter.rank, Role::drafter);
  if (!tail_methods(setup).empty() && !setup.backend.on_device()) {
    // All ranks but those of rank 0's group, which keeps its role.
    for (int rank = placement.groups.front().tp; rank < placement.ranks; ++rank) {
      for (const std::int32_t d : tail_methods(setup)) add_draft(rank, d);
    }
  }
  return policy::weight_copies(all);
}

int weight_sharers(const Setup& setup) { return policy::least_sharers(holders(setup)); }

std::uint64_t weight_memory(const Setup& setup) {
  std::vector<std::uint64_t> bytes(setup.facts.size(), 0);
  for (const WeightCopy& copy : weight_copies(setup)) {
    for (const int rank : copy.ranks) bytes[rank] += bytes_of(setup, copy.id) / copy.ranks.size();
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

std::uint64_t weights_to_lend(const Setup& setup) {
  std::uint64_t least = UINT64_MAX;
  const std::vector<WeightCopy> copies = weight_copies(setup);
  for (const auto& [leader, tp] : setup.layout.placement.groups) {
    std::uint64_t bytes = 0;
    for (const WeightCopy& copy : copies) {
      const bool has = std::find(copy.ranks.begin(), copy.ranks.end(), leader) != copy.ranks.end();
      if (has && lends(setup, copy.id, copy.ranks.size())) bytes += bytes_of(setup, copy.id);
    }
    least = std::min(least, bytes);
  }
  return least;
}

WeightStore::WeightStore(const fabric::MpiEnvironment& mpi, const Setup& setup,
                         kernels::Backend* backend)
    : setup_(setup), backend_(backend) {
  if (setup.backend.on_device()) return;
  const std::vector<WeightCopy> copies = weight_copies(setup);
  share(mpi, copies);
  together(mpi, [&] {
    for (const WeightCopy& copy : copies) {
      const auto at = std::find(copy.ranks.begin(), copy.ranks.end(), mpi.rank());
      if (at == copy.ranks.end()) continue;
      const auto memory = memory_.find(copy.id);
      if (memory == memory_.end()) {
        kept_[copy.id] = timed([&] { return load(copy.id); });
        bytes_ += kept_[copy.id].bytes();
        if (lends(setup, copy.id, copy.ranks.size())) lent_.insert(copy.id);
        continue;
      }
      kept_[copy.id] = timed([&] {
        return load(copy.id, {.memory = memory->second.bytes(),
                              .part = static_cast<int>(at - copy.ranks.begin()),
                              .parts = static_cast<int>(copy.ranks.size())});
      });
      const std::uint64_t part = kept_[copy.id].bytes() / copy.ranks.size();
      bytes_ += part;
      bytes_of_others_ += kept_[copy.id].bytes() - part;
    }
  });
  for (auto& [id, memory] : memory_) memory.freeze();
}

/// Maps shared copies: the lowest rank of each makes its memory, and the others map it. Where any
/// rank cannot, all do without.
void WeightStore::share(const fabric::MpiEnvironment& mpi, const std::vector<WeightCopy>& copies) {
  const int me = mpi.rank();
  std::string trouble;
  const auto attempt = [&](const auto& step) {
    try {
      if (trouble.empty()) timed(step);
    } catch (const Error& error) {
      trouble = error.what();
    }
  };
  std::vector<fabric::SharedMemory::Handle> made;
  for (const WeightCopy& copy : copies) {
    if (copy.ranks.size() < 2 || copy.ranks[0] != me) continue;
    fabric::SharedMemory& memory = memory_[copy.id];
    attempt([&] { memory = fabric::SharedMemory::make(packed_bytes(copy.id)); });
    made.push_back(memory.handle());
  }
  const auto handles = mpi.all_gather(std::as_bytes(std::span(made)));

  bool small_pages = false;
  std::vector<std::size_t> taken(handles.size(), 0);  // bytes
  for (const WeightCopy& copy : copies) {
    if (copy.ranks.size() < 2) continue;
    const int leader = copy.ranks[0];
    fabric::SharedMemory::Handle handle;
    std::memcpy(&handle, handles[leader].data() + taken[leader], sizeof handle);
    taken[leader] += sizeof handle;
    const auto at = std::find(copy.ranks.begin(), copy.ranks.end(), me);
    if (at == copy.ranks.end()) continue;
    fabric::SharedMemory& memory = memory_[copy.id];
    attempt([&] {
      if (leader != me) memory = fabric::SharedMemory::open(handle);
      const bool huge = memory.allocate(static_cast<int>(at - copy.ranks.begin()),
                                        static_cast<int>(copy.ranks.size()));
      small_pages = small_pages || !huge;
    });
  }
  const int fault = trouble.empty() ? (small_pages ? 1 : 0) : 2;
  const fabric::MpiEnvironment::MaxAt worst = mpi.max_of(fault);
  if (worst.value == 1 && worst.rank == me)
    say("warning: the memory that ranks of a node have in common for weights is in small pages, "
        "which are read more slowly (Linux before 6.1 gives no others)");
  if (worst.value < 2) return;
  memory_.clear();
  if (worst.rank == me)
    say("warning: each rank keeps weights of its own, for rank {} cannot map those of a node: {}",
        me, trouble);
}

std::shared_ptr<const model::Weights> WeightStore::get(const WeightsId& id) {
  std::shared_ptr<const model::Weights> weights;
  while (weights == nullptr) weights = get_part(id);
  return weights;
}

std::shared_ptr<const model::Weights> WeightStore::get_part(const WeightsId& id) {
  if (const auto kept = kept_.find(id); kept != kept_.end()) {
    std::shared_ptr<const model::Weights> weights = kept->second.model;
    if (lent_.contains(id)) kept_.erase(kept);
    return weights;
  }
  const Stopwatch watch(loading_seconds_);
  auto under_way = loading_.find(id);
  if (under_way == loading_.end()) {
    const Model model = model_of(setup_, id);
    under_way =
        loading_
            .try_emplace(id, *backend_, model.config, *model.weights, model.shard, model.compute)
            .first;
  }
  std::shared_ptr<const model::Weights> loaded = under_way->second.next();
  if (loaded != nullptr) loading_.erase(under_way);
  return loaded;
}

std::shared_ptr<const model::Eagle3Weights> WeightStore::get_head(const WeightsId& id) {
  if (const auto kept = kept_.find(id); kept != kept_.end()) return kept->second.head;
  return timed([&] { return load(id).head; });
}

WeightStore::Kept WeightStore::load(const WeightsId& id, const model::SharedPacking& shared) const {
  if (const DraftHead* head = head_of(setup_, id)) {
    return {nullptr, std::make_shared<model::Eagle3Weights>(*backend_, head->checkpoint.config,
                                                            *head->checkpoint.weights,
                                                            setup_.compute, shared)};
  }
  const Model model = model_of(setup_, id);
  return {std::make_shared<const model::Weights>(*backend_, model.config, *model.weights,
                                                 model.shard, model.compute, shared),
          nullptr};
}

std::size_t WeightStore::packed_bytes(const WeightsId& id) const {
  if (const DraftHead* head = head_of(setup_, id))
    return model::packed_bytes(*backend_, head->checkpoint.config, setup_.compute);
  const Model model = model_of(setup_, id);
  return model::packed_bytes(*backend_, model.config, model.shard, model.compute);
}

}  // namespace paceline::app
