// Memory that belongs to the draft models or to the target's KV, whichever can use it better
// (Nightjar, section 5), as a verifier group's leader manages it.
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

/// The objects that an ElasticMemory works with. All references outlive it.
struct ElasticMemoryPorts {
  const Clock& clock;
  engine::Batcher& batcher;
  engine::StepRunner& runner;    ///< runs steps on the whole group
  const Speculator& speculator;  ///< its drafters give memory
  TelemetrySink& telemetry;
};

/// An expansion suspends the draft models, which gives their memory back, and grows the target's
/// pool of KV blocks by as much, in place. A contraction moves the blocks in use past the pool's
/// first size to free blocks below it, and shrinks the pool. The models are then loaded, a part
/// before each step, so that decoding goes on meanwhile. They draft nothing until they are loaded.
/// Every rank of the group resizes its share at the same step (kv::Work). Not thread-safe.
class ElasticMemory {
 public:
  /// The pool has `blocks` blocks, and `gain` more while the models are suspended.
  ElasticMemory(const ElasticMemoryPorts& ports, std::unique_ptr<policy::DraftMemoryPolicy> policy,
                std::int32_t blocks, std::int32_t gain);

  /// Decides before a step, and acts. `waiting`: number of requests without a place in the batch.
  /// Returns true if the pool has grown or shrunk.
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
  DraftMemoryRecord resumed_;  ///< record of the resumption under way
};

}  // namespace paceline::speculation
