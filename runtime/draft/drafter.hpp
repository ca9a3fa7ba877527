// What an engine sees of whatever drafts for it: n-gram lookup, suffix trees, draft models, and
// later EAGLE-3 and drafters on other ranks.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/draft.hpp"

namespace paceline::draft {

/// A request that drafts will be asked for. With a response it goes on that began elsewhere or was
/// interrupted. Siblings share id.prompt and have the same prompt tokens.
struct DraftStart {
  RequestId id;
  std::span<const TokenId> prompt;    ///< [prompt] never empty
  std::span<const TokenId> response;  ///< [response] what is committed so far
  NoiseKey noise;                     ///< that the target samples its tokens with
};

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

  /// A request begins. Its spans are not kept.
  virtual void start(const DraftStart& request, double now) = 0;
  /// The target has committed these tokens after everything told before.
  virtual void commit(RequestId id, std::span<const TokenId> tokens, double now) = 0;
  /// Whether drafting keeps state that falls behind while no drafts are asked for.
  [[nodiscard]] virtual bool lags() const { return false; }
  /// Committed tokens of the request that the next draft for it must compute first, past those that
  /// every draft begins with.
  [[nodiscard]] virtual int lag(RequestId) const { return 0; }
  /// Fills every slot's output with what may follow its committed text, and sets its count.
  virtual void propose(std::span<DraftSlot> batch, double now) = 0;
  /// The request ended or leaves; what its siblings can learn from it may stay.
  virtual void finish(RequestId id, double now) = 0;
};

}  // namespace paceline::draft
