#include "runtime/speculation/elastic_memory.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline::speculation {

using Kind = DraftMemoryRecord::Kind;

ElasticMemory::ElasticMemory(const ElasticMemoryPorts& ports,
                             std::unique_ptr<policy::DraftMemoryPolicy> policy, std::int32_t blocks,
                             std::int32_t gain)
    : ports_(ports), policy_(std::move(policy)), blocks_(blocks), gain_(gain) {
  for (const RosterEntry& entry : ports_.speculator.roster()) {
    if (draft::MemoryGiver* giver = entry.drafter->capabilities().memory) givers_.push_back(giver);
  }
}

bool ElasticMemory::turn(std::size_t waiting) {
  if (resuming_) {
    go_on_resuming();
    return false;
  }
  const engine::Batcher& batcher = ports_.batcher;
  const double taken = batcher.blocks() - batcher.blocks_free();
  switch (policy_->decide({.speculates = ports_.speculator.asked_models(),
                           .expanded = expanded_,
                           .blocks = blocks_,
                           .gain = gain_,
                           .free = batcher.blocks_free(),
                           .request = taken / std::max(1, batcher.active()),
                           .waiting = static_cast<std::int32_t>(waiting)})) {
    case policy::DraftMemoryChange::expand:
      expand();
      return true;
    case policy::DraftMemoryChange::contract:
      return contract();
    case policy::DraftMemoryChange::none:
      break;
  }
  return false;
}

void ElasticMemory::expand() {
  const double start = ports_.clock.now();
  // The models are suspended before the pool grows, because memory might be too small for both.
  for (draft::MemoryGiver* giver : givers_) giver->suspend();
  (void)ports_.runner.run(ports_.batcher.kv_work());
  if (!ports_.batcher.resize(blocks_ + gain_)) throw std::logic_error("a KV pool that cannot grow");
  (void)ports_.runner.run(ports_.batcher.kv_work());
  expanded_ = true;
  const double seconds = ports_.clock.now() - start;
  ports_.telemetry.draft_memory({.start = start,
                                 .duration = seconds,
                                 .longest_pause = seconds,
                                 .blocks = static_cast<std::uint32_t>(ports_.batcher.blocks()),
                                 .kind = Kind::expanded});
}

/// Returns false if the pool cannot shrink now: too many blocks are in use, or a block past the new
/// end has KV that is arriving, is going into the store or is kept for another group.
bool ElasticMemory::contract() {
  const double start = ports_.clock.now();
  (void)ports_.runner.run(ports_.batcher.kv_work());
  if (!ports_.batcher.resize(blocks_)) return false;
  const engine::Step& work = ports_.batcher.kv_work();
  (void)ports_.runner.run(work);
  expanded_ = false;
  const double seconds = ports_.clock.now() - start;
  const auto blocks = static_cast<std::uint32_t>(ports_.batcher.blocks());
  ports_.telemetry.draft_memory({.start = start,
                                 .duration = seconds,
                                 .longest_pause = seconds,
                                 .blocks = blocks,
                                 .moved = static_cast<std::uint32_t>(work.kv.copies.size()),
                                 .kind = Kind::contracted});
  resuming_ = true;
  resumed_ = {.start = ports_.clock.now(), .blocks = blocks, .kind = Kind::resumed};
  return true;
}

void ElasticMemory::go_on_resuming() {
  const double start = ports_.clock.now();
  resuming_ = !std::all_of(givers_.begin(), givers_.end(),
                           [](draft::MemoryGiver* giver) { return giver->resume(); });
  const double now = ports_.clock.now();
  resumed_.longest_pause = std::max(resumed_.longest_pause, now - start);
  if (resuming_) return;
  resumed_.duration = now - resumed_.start;
  ports_.telemetry.draft_memory(resumed_);
}

}  // namespace paceline::speculation
