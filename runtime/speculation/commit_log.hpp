// The committed tokens that a verifier has not told its drafters yet.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/speculation/drafter_roster.hpp"

namespace paceline::speculation {

/// A verifier usually tells its drafters of commits only before it asks them for drafts. If it told
/// them after each step, a small model's step of 64 requests without drafts would take about 1 %
/// longer, because each step evicts the drafters' state from the CPU caches. The log also joins the
/// tokens that several steps commit to a request. A suffix tree inserts the joined tokens faster,
/// because its nodes then stay in the cache. Not thread-safe.
class CommitLog {
 public:
  void add(const engine::Committed& committed);
  [[nodiscard]] bool has(RequestId id) const;
  /// Whether the log holds so many tokens that tell() should be called now.
  [[nodiscard]] bool full() const;
  /// Tells all drafters of all commits and ended requests, calls told(), and empties the log.
  void tell(const DrafterRoster& roster, double now);

 private:
  struct UntoldCommit {
    RequestId id;
    std::vector<TokenId> tokens;
    bool finished = false;
  };
  std::vector<UntoldCommit> entries_;  ///< never shrinks, so that the entries' memory is reused
  std::size_t requests_ = 0;           ///< number of entries in use, from the first on
  std::size_t tokens_ = 0;             ///< tokens of all entries
  std::size_t next_ = 0;               ///< entry at which add() begins to search
};

}  // namespace paceline::speculation
