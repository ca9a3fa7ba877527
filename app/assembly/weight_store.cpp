#include "app/assembly/weight_store.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "app/assembly/job.hpp"
#include "app/assembly/plan.hpp"
#include "app/terminal/terminal.hpp"
#include "runtime/core/error.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {

using policy::WeightCopy;
using policy::WeightsId;

namespace {

struct Model {
  const ModelCheckpoint& checkpoint;
  model::Shard shard;
};

Model model_of(const Inputs& inputs, const Plan& plan, const WeightsId& id) {
  if (!id.drafter) {
    return {inputs.target,
            model::shard_of(inputs.target.config, id.share, id.tp, inputs.attention())};
  }
  const ModelCheckpoint& draft = *plan.drafters[*id.drafter].model;
  return {draft, model::shard_of(draft.config, 0, 1)};
}

}  // namespace

WeightStore::WeightStore(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Plan& plan,
                         kernels::Backend* backend)
    : inputs_(inputs), plan_(plan), backend_(backend) {
  if (plan.weights.on_device) return;
  const std::vector<WeightCopy>& copies = plan.weights.copies;
  share(mpi, copies);
  together(mpi, [&] {
    for (const WeightCopy& copy : copies) {
      const auto at = std::find(copy.ranks.begin(), copy.ranks.end(), mpi.rank());
      if (at == copy.ranks.end()) continue;
      const auto memory = memory_.find(copy.id);
      if (memory == memory_.end()) {
        kept_[copy.id] = timed([&] { return load(copy.id); });
        bytes_ += kept_[copy.id].bytes();
        if (lends(inputs, plan, copy)) lent_.insert(copy.id);
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

/// Maps shared copies. The lowest rank of each copy makes the memory, and the copy's other ranks
/// map it. If any rank fails, no copy is shared.
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
  std::vector<std::size_t> taken(handles.size(), 0);  // bytes read of each rank's handles
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
    say("warning: weights that ranks of a node share are in small pages, not huge pages, and are "
        "read more slowly (Linux before 6.1 cannot share huge pages)");
  if (worst.value < 2) return;
  memory_.clear();
  if (worst.rank == me)
    say("warning: every rank keeps its own copy of the weights, because rank {} cannot map its "
        "node's shared copy: {}",
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
    const Model model = model_of(inputs_, plan_, id);
    under_way = loading_
                    .try_emplace(id, *backend_, model.checkpoint.config, *model.checkpoint.weights,
                                 model.shard, model.checkpoint.compute)
                    .first;
  }
  std::shared_ptr<const model::Weights> loaded = under_way->second.next();
  if (loaded != nullptr) loading_.erase(under_way);
  return loaded;
}

std::shared_ptr<const model::HeadWeights> WeightStore::get_head(const WeightsId& id) {
  if (const auto kept = kept_.find(id); kept != kept_.end()) return kept->second.head;
  return timed([&] { return load(id).head; });
}

std::shared_ptr<const model::TowerWeights> WeightStore::get_tower() {
  const WeightsId id{.tower = true};
  if (inputs_.sizes.largest_picture == 0) return nullptr;
  if (const auto kept = kept_.find(id); kept != kept_.end()) return kept->second.tower;
  return timed([&] { return load(id).tower; });
}

WeightStore::Kept WeightStore::load(const WeightsId& id, const model::SharedPacking& shared) const {
  if (id.tower) {
    const ModelCheckpoint& target = inputs_.target;
    return {nullptr, nullptr,
            std::make_shared<const model::TowerWeights>(*backend_, target.config, *target.weights,
                                                        target.compute, shared)};
  }
  if (const DraftHead* head = head_of(plan_, id)) {
    return {nullptr, std::make_shared<model::HeadWeights>(*backend_, head->config, *head->weights,
                                                          inputs_.target.compute, shared)};
  }
  const Model model = model_of(inputs_, plan_, id);
  return {std::make_shared<const model::Weights>(*backend_, model.checkpoint.config,
                                                 *model.checkpoint.weights, model.shard,
                                                 model.checkpoint.compute, shared),
          nullptr};
}

std::size_t WeightStore::packed_bytes(const WeightsId& id) const {
  if (id.tower)
    return model::tower_packed_bytes(*backend_, inputs_.target.config, inputs_.target.compute);
  if (const DraftHead* head = head_of(plan_, id))
    return model::packed_bytes(*backend_, head->config, inputs_.target.compute);
  const Model model = model_of(inputs_, plan_, id);
  return model::packed_bytes(*backend_, model.checkpoint.config, model.shard,
                             model.checkpoint.compute);
}

}  // namespace paceline::app
