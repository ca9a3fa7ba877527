// Tokens that a verifier has committed and its drafters have yet to be told.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/speculation/drafter_roster.hpp"

namespace paceline::speculation {

/// Drafters mostly hear of commits only before they are asked. To tell them after each step would
/// take a hundredth of a plain step of a small model at 64 requests, because the step has evicted
/// each request's state from the caches. Drafters also get a request's tokens together: if tokens
/// came one by one, suffix trees would mostly fetch cold nodes. Not thread-safe.
class CommitLog {
 public:
  void add(const engine::Committed& committed);
  [[nodiscard]] bool has(RequestId id) const;
  /// Whether the log holds so many tokens that drafters should be told now.
  [[nodiscard]] bool full() const;
  /// Tells all drafters all commits, then calls their told(). The log is empty afterwards.
  void tell(const DrafterRoster& roster, double now);

 private:
  struct UntoldCommit {
    RequestId id;
    std::vector<TokenId> tokens;
    bool finished = false;
  };
  std::vector<UntoldCommit> entries_;  ///< never shrinks, so that entries' memory is used again
  std::size_t requests_ = 0;           ///< the first `requests_` entries are in use
  std::size_t tokens_ = 0;             ///< tokens of all entries
  std::size_t next_ = 0;               ///< entry of the request that is likely committed next
};

}  // namespace paceline::speculation
