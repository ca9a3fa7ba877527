// Elastic memory: draft models' memory lent to KV and taken back (Nightjar, section 5.1).
#pragma once

#include <cstdint>

namespace paceline::policy {

/// State of a verifier group before a step. Blocks are of its KV pool.
struct DraftMemoryState {
  bool speculates = false;   ///< the last step asked a draft model for drafts
  bool expanded = false;     ///< the pool has the models' memory
  std::int32_t blocks = 0;   ///< blocks of the pool when not expanded
  std::int32_t gain = 0;     ///< further blocks when expanded: S_draft
  std::int32_t free = 0;     ///< blocks that no request has or will have by a running lease: N_free
  double request = 0;        ///< blocks of a request of the batch, on average
  std::int32_t waiting = 0;  ///< requests of the group without a place in its batch: |Q_wait|
};

enum class DraftMemoryChange : std::uint8_t { none, expand, contract };

/// Decides when draft models' memory changes hands. A state machine without a clock: equal calls,
/// equal answers. No answer can change a trajectory. A change that something prevented may be asked
/// for again at once. Not thread-safe.
class DraftMemoryPolicy {
 public:
  virtual ~DraftMemoryPolicy() = default;
  /// Called before every step but those in which models take their memory back. Expands only where
  /// the pool is not expanded, and contracts only where it is.
  virtual DraftMemoryChange decide(const DraftMemoryState& state) = 0;
};

/// Free share of the unexpanded pool's blocks below which there is a shortage (tau_low). Nightjar's
/// figure 14 has its best throughput at 10 %.
inline constexpr double kScarce = 0.1;
/// Steps that a reason for a change must outweigh (T_persist). A request or a chunk that ends may
/// relieve a shortage within a few steps, and policies that have given up drafting try it again
/// after rests (goodput: 16 steps). Twice the longest rest is more than a rest.
inline constexpr int kPersist = 32;

/// The paper's rules: the pool expands when nothing is drafted and fewer than tau_low blocks are
/// free, for T_persist steps; it contracts when no request waits and more are free than the models
/// take and tau_low.
///
/// Three things differ. First, a lease is given at once all the blocks that it may come to take, so
/// fewer free blocks than another request takes admit none: a shortage too. Second, it comes and
/// goes with every lease that ends, so a step that speaks against a change takes back one that
/// spoke for it, and not all of them; a draft that was asked for takes back all. Third, a
/// contraction has to last like an expansion: a batch that has just lost a request has room until
/// the next comes.
///
/// Hysteresis keeps memory from going to and fro: after a change the free blocks, counted without
/// the gain, must cross tau_low for most of many steps before there is another.
class ElasticDraftMemory final : public DraftMemoryPolicy {
 public:
  DraftMemoryChange decide(const DraftMemoryState& state) override;

 private:
  int lasted_ = 0;  ///< steps that spoke for the change, less those that spoke against it
};

}  // namespace paceline::policy
