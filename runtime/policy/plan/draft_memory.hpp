// When the memory of draft models is KV's, and when it is theirs (Nightjar, section 5.1).
#pragma once

#include <cstdint>
#include <random>

namespace paceline::policy {

/// What a verifier group sees before a step. Blocks are those of its KV pool.
struct DraftMemoryState {
  bool speculates = false;   ///< the last step asked a draft model for drafts
  bool expanded = false;     ///< the models' memory is the pool's
  std::int32_t blocks = 0;   ///< in the pool while it is not
  std::int32_t gain = 0;     ///< further blocks while it is: S_draft
  std::int32_t free = 0;     ///< that nobody has or will have by a lease that runs: N_free
  double request = 0;        ///< that a request of the batch has, on average
  std::int32_t waiting = 0;  ///< requests of the group without a place in its batch: |Q_wait|
};

enum class DraftMemoryChange : std::uint8_t { none, expand, contract };

/// A state machine without a clock: equal calls, equal answers. No answer can change a trajectory.
/// A change that is not made, for what is in the way, may be asked for again at once. Not
/// thread-safe.
class DraftMemoryPolicy {
 public:
  virtual ~DraftMemoryPolicy() = default;
  /// Before every step but those in which models take their memory again. Expands only where the
  /// pool is not expanded, and contracts only where it is.
  virtual DraftMemoryChange decide(const DraftMemoryState& state) = 0;
};

/// Share of the pool's blocks, without the gain, of which fewer free ones are a shortage (tau_low).
/// Nightjar's figure 14 has its best throughput at 10 %.
inline constexpr double kScarce = 0.1;
/// Steps that a reason for a change must outweigh (T_persist). A request or a chunk that ends gives
/// back within a few steps what looked like a shortage, and policies that have given up drafting
/// look at it again after rests (goodput: 16 steps). Twice the longest of those is not a rest.
inline constexpr int kPersist = 32;

/// The paper's rules: the pool expands when nothing is drafted and fewer than tau_low blocks are
/// free, for T_persist steps; it contracts when no request waits and more are free than the models
/// take and tau_low.
///
/// Three things differ. A lease is given at once all the blocks that it may come to take, so that
/// where fewer are free than another request takes none can be let in: that is a shortage too. It
/// comes and goes with every lease that ends, so a step that speaks against a change takes back one
/// that spoke for it, and not all of them; a draft that was asked for does. And a contraction has
/// to last like an expansion: a batch that has just lost a request has room until the next comes.
///
/// So memory does not go to and fro (hysteresis): after a change the blocks that are free, counted
/// without the gain, must cross tau_low for most of many steps before there is another.
class ElasticDraftMemory final : public DraftMemoryPolicy {
 public:
  DraftMemoryChange decide(const DraftMemoryState& state) override;

 private:
  int lasted_ = 0;  ///< steps that spoke for the change, less those that spoke against it
};

/// For tests of exactness: changes by chance, about once in so many steps.
class RandomDraftMemory final : public DraftMemoryPolicy {
 public:
  explicit RandomDraftMemory(std::uint64_t seed) : random_(seed) {}
  DraftMemoryChange decide(const DraftMemoryState& state) override;

 private:
  std::mt19937_64 random_;
};

}  // namespace paceline::policy
