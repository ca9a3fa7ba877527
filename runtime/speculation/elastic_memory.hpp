// The leader of a verifier group lends the memory of its draft models to the target's KV cache
// while nothing is drafted, and takes it back later (Nightjar, section 5).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/policy/plan/draft_memory.hpp"
#include "runtime/speculation/speculator.hpp"

namespace paceline::speculation {

/// The objects that an ElasticMemory works with. They must outlive it.
struct ElasticMemoryPorts {
  const Clock& clock;
  engine::Batcher& batcher;
  engine::StepRunner& runner;    ///< runs steps on all ranks of the group
  const Speculator& speculator;  ///< owns the draft models
  TelemetrySink& telemetry;
};

/// An expansion suspends the draft models, which frees their memory, and grows the target's pool of
/// KV blocks into this memory. A contraction moves all blocks in use to indices below the pool's
/// initial size, and shrinks the pool to this size. Then a part of the models is loaded before each
/// step, so decoding goes on meanwhile. A model drafts again when all its parts are loaded. All
/// ranks of the group resize their parts of the pool in the same step (kv::Work). Not thread-safe.
class ElasticMemory {
 public:
  /// `blocks`: initial number of KV blocks in the pool. `gain`: blocks that an expansion adds.
  ElasticMemory(const ElasticMemoryPorts& ports, std::unique_ptr<policy::DraftMemoryPolicy> policy,
                std::int32_t blocks, std::int32_t gain);

  /// Call before each step. Expands or contracts the pool if the policy says so, or loads a further
  /// part of the models. `waiting`: number of requests without a place in the batch. Returns true
  /// if the pool has grown or shrunk; a contraction may fail.
  bool turn(std::size_t waiting);

 private:
  void expand();
  [[nodiscard]] bool contract();
  void go_on_resuming();

  ElasticMemoryPorts ports_;
  std::unique_ptr<policy::DraftMemoryPolicy> policy_;
  std::vector<draft::MemoryGiver*> givers_;
  std::int32_t blocks_;
  std::int32_t gain_;
  bool expanded_ = false;
  bool resuming_ = false;
  DraftMemoryRecord resumed_;  ///< record of the models' loading; valid while `resuming_`
};

}  // namespace paceline::speculation
