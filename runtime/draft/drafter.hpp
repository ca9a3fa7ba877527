// What an engine sees of whatever drafts for it: n-gram lookup, suffix trees, and later draft
// models, EAGLE-3 and drafters on other ranks.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/request.hpp"
#include "runtime/draft/draft.hpp"

namespace paceline::draft {

/// One request of a batch that wants a draft.
struct DraftSlot {
  RequestId id;
  DraftLimits limits;
  DraftOutput output;
  std::int32_t count = 0;  ///< set by propose(): tokens written to output; 0: no draft
};

/// Proposes continuations. It never decides what is accepted, so it cannot change a trajectory; it
/// may be late or wrong at will. Times are seconds on one clock of the caller's, which never runs
/// backwards. Not thread-safe. Throws std::logic_error on ids that were not started or were started
/// twice.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// A request begins; with a response, one goes on that began elsewhere or was interrupted.
  /// Siblings share id.prompt and have the same prompt tokens.
  virtual void start(RequestId id, std::span<const TokenId> prompt,
                     std::span<const TokenId> response, double now) = 0;
  /// The target has committed these tokens after everything told before.
  virtual void commit(RequestId id, std::span<const TokenId> tokens, double now) = 0;
  /// Fills every slot's output with what may follow its committed text, and sets its count.
  virtual void propose(std::span<DraftSlot> batch, double now) = 0;
  /// The request ended or leaves; what its siblings can learn from it may stay.
  virtual void finish(RequestId id, double now) = 0;
};

}  // namespace paceline::draft
