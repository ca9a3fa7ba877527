// Elastic memory: memory of draft models that is lent to KV and taken back (Nightjar, section 5.1).
#pragma once

#include <cstdint>

namespace paceline::policy {

/// State of a verifier group before a step. Blocks are blocks of its KV pool.
struct DraftMemoryState {
  bool speculates = false;   ///< the last step asked a draft model for drafts
  bool expanded = false;     ///< the pool has the models' memory
  std::int32_t blocks = 0;   ///< blocks of the pool when not expanded
  std::int32_t gain = 0;     ///< blocks that expanding adds: S_draft
  std::int32_t free = 0;     ///< blocks that no request has or may take in its lease: N_free
  double request = 0;        ///< mean number of blocks of a request of the batch
  std::int32_t waiting = 0;  ///< requests of the group without a place in its batch: |Q_wait|
};

enum class DraftMemoryChange : std::uint8_t { none, expand, contract };

/// Decides when draft models' memory is lent to KV, and when it is taken back. A state machine
/// without a clock: equal calls get equal answers. No answer can change a trajectory. If something
/// prevents a change, the policy may ask for it again at once. Not thread-safe.
class DraftMemoryPolicy {
 public:
  virtual ~DraftMemoryPolicy() = default;
  /// Called before every step, except for steps in which models take their memory back. Answers
  /// `expand` only if the pool is not expanded, and `contract` only if it is.
  virtual DraftMemoryChange decide(const DraftMemoryState& state) = 0;
};

/// tau_low, as a share of the unexpanded pool's blocks: with fewer free blocks there is a shortage.
/// In Nightjar's figure 14 throughput is best at 10 %.
inline constexpr double kScarce = 0.1;
/// T_persist: number of steps for which the reason for a change must last. A request or a chunk
/// that ends may relieve a shortage within a few steps. Policies that have given up drafting try it
/// again after a rest (goodput: 16 steps). So that a rest does not look like a change, this is
/// twice the longest rest.
inline constexpr int kPersist = 32;

/// The paper's rules: the pool expands when for T_persist steps nothing was drafted and fewer than
/// tau_low blocks were free. It contracts when no request waits and more blocks are free than the
/// models' blocks and tau_low together.
///
/// Three things differ here. First, a lease gets at once all blocks that it may need, so there is
/// also a shortage if too few blocks are free for one more request. Second, shortages come and go
/// with every lease that ends. So a step against a change cancels one step for the change, not all
/// steps. A draft that was asked for cancels all. Third, the reason for a contraction must last as
/// long as that for an expansion, because a batch that has lost a request has room only until the
/// next comes.
///
/// Hysteresis prevents changes in quick succession. A change needs kPersist more steps for it than
/// against it, and the free blocks, without the gain, must cross tau_low between two changes.
class ElasticDraftMemory final : public DraftMemoryPolicy {
 public:
  DraftMemoryChange decide(const DraftMemoryState& state) override;

 private:
  int lasted_ = 0;  ///< steps that spoke for the change, less those that spoke against it
};

}  // namespace paceline::policy
