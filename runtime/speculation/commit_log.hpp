// What a verifier has committed and its drafters have yet to be told.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/speculation/drafter_roster.hpp"

namespace paceline::speculation {

/// Drafters hear of what was committed when they may be asked next. Telling them step by step would
/// fetch each request's state into a cache that the step between has emptied: a hundredth of a
/// plain step of a small model at 64 requests. It also gives them each request's tokens together:
/// taking them in one by one, suffix trees would mostly fetch cold nodes. Not thread-safe.
class CommitLog {
 public:
  void add(const engine::Committed& committed);
  [[nodiscard]] bool has(RequestId id) const;
  /// Whether it holds so much that drafters should be told now.
  [[nodiscard]] bool full() const;
  /// Tells all drafters everything, then that it was all. The log is empty then.
  void tell(const DrafterRoster& roster, double now);

 private:
  struct UntoldCommit {
    RequestId id;
    std::vector<TokenId> tokens;
    bool finished = false;
  };
  std::vector<UntoldCommit> entries_;  ///< the first requests_ are in use
  std::size_t requests_ = 0;           ///< fewer than there are, so that their memory is used again
  std::size_t tokens_ = 0;             ///< of all entries
  std::size_t next_ = 0;               ///< entry of the request that is likely committed next
};

}  // namespace paceline::speculation
