// What an engine sees of whatever drafts for it: n-gram lookup, suffix trees, draft models, heads
// on the target, and drafters on other ranks.
//
// Whoever drafts ahead of the target asks for drafts beyond tokens that were drafted before and are
// not verified yet: those are assumed. A draft goes on after the committed text and then the
// assumed tokens, as if they had been committed, but nothing is learned from them. Drafting k
// tokens and then k more with the first k assumed gives the chain that drafting 2k at once gives;
// where that one ends early, lookup may go on. Suffix trees apply their bounds, and are chosen,
// anew for the longer text, so there the second part may also be another.
#pragma once

#include <cstddef>
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
  std::uint64_t version = 0;          ///< of its holder (Admission); later ones are larger
  bool wanted = true;                 ///< false: drafts are asked for of other drafters alone
  RequestSampling sampling = {};
};

/// One request of a batch that wants a draft. Limits and output are of what comes after the assumed
/// tokens; the longest response, the longest sequence and stop tokens count them.
struct DraftSlot {
  RequestId id;
  DraftLimits limits;
  DraftOutput output;
  /// Drafted before, and taken as said: the draft goes on after them. Read during the call.
  std::span<const TokenId> assumed = {};
  std::int32_t count = 0;  ///< set by propose(): tokens written to output; 0: no draft
  std::int32_t calls =
      0;  ///< set by draft models and heads: calls that the draft took, one a level
};

/// A draft that may have a further level.
struct GrowingDraft {
  RequestId id;
  NoiseKey noise;          ///< of the request
  std::int32_t first = 0;  ///< index in the response of the draft's first token
  /// Log-probabilities, as the drafter has them, of the paths to those tokens of its last level
  /// that are to be taken further, the likeliest first. Valid during the call.
  std::span<const float> frontier;
  bool grows = true;  ///< set by a judge
};

/// Judges, while drafts are made, whether longer ones are worth their cost (RADAR, section 2.2). A
/// level are the tokens at one distance from the text that a draft goes on after; the first is
/// level 1.
class Levels {
 public:
  virtual ~Levels() = default;
  /// Of requests drafted for together: which are to have level `level` + 1. Asked level by level,
  /// from 1 on, of those that have had all before and could have another.
  virtual void judge(int level, std::span<GrowingDraft> drafts) = 0;
};

/// Proposes continuations. It never decides what is accepted, so it cannot change a trajectory; it
/// may be late or wrong at will. Times are seconds on one clock of the caller's, which never runs
/// backwards. Not thread-safe. Throws std::logic_error on ids that were not started, or that were
/// started twice without an end between.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// A request begins. Its spans are not kept.
  virtual void start(const DraftStart& request, double now) = 0;
  /// The target has committed these tokens after everything told before.
  virtual void commit(RequestId id, std::span<const TokenId> tokens, double now) = 0;
  /// Bytes of what it reads of each position that the target has computed (StepRunner::
  /// feature_bytes()), besides the text; 0: nothing.
  [[nodiscard]] virtual std::size_t feature_bytes() const { return 0; }
  /// What the target came to at positions of the request's text from `first` on, the prompt's
  /// included: [positions, feature_bytes()]. Told of all that the target computes for the request,
  /// in order, before the tokens that it sampled there are committed; what the target has not
  /// computed here nobody tells of. Told again of the same positions, it is the same again.
  virtual void observe(RequestId /*id*/, std::int32_t /*first*/,
                       std::span<const std::byte> /*features*/) {}
  /// Whether drafting keeps state that falls behind while no drafts are asked for.
  [[nodiscard]] virtual bool lags() const { return false; }
  /// Committed tokens of the request that the next draft for it must compute first, past those that
  /// every draft begins with.
  [[nodiscard]] virtual int lag(RequestId) const { return 0; }
  /// Fills every slot's output with what may follow its committed text and the tokens it assumes,
  /// and sets its count. `levels`: null: to the slots' limits. A drafter to which a level is no
  /// work of its own does not ask.
  virtual void propose(std::span<DraftSlot> batch, double now, Levels* levels = nullptr) = 0;
  /// The request ended; what its siblings can learn from it may stay.
  virtual void finish(RequestId id, double now) = 0;
  /// The request goes elsewhere. start() with its response so far brings it back, if it comes back
  /// at all. What its siblings can learn from it may stay, and what would help itself then.
  virtual void leave(RequestId id, double now) { finish(id, now); }

  /// Whether it learns from siblings, and so would from those that are generated elsewhere.
  [[nodiscard]] virtual bool learns_from_siblings() const { return false; }
  /// Of one that does: this was said elsewhere, after the first `offset` tokens of the response of
  /// a request that was not started here. `ended`: it ends with that.
  virtual void hear(RequestId /*id*/, std::uint64_t /*offset*/, std::span<const TokenId> /*tokens*/,
                    bool /*ended*/, double /*now*/) {}

  /// Whether it drafts unasked, ahead of the verifier: on other ranks.
  [[nodiscard]] virtual bool runs_ahead() const { return false; }
  /// Whether it can have drafts at all now: of one that runs ahead, whether there are such ranks,
  /// and of others, whether they are not suspended.
  [[nodiscard]] virtual bool present() const { return true; }
  /// Of one that runs ahead: it is to do so by so many tokens at a time for the request, at most as
  /// many as it was made for; 0: not at all. start() begins with the most.
  virtual void set_window(RequestId, int /*window*/) {}
  /// Whether it wants to hear of each step's commits at once, not when it is next asked.
  [[nodiscard]] virtual bool listens() const { return false; }
  /// All that a step committed has been told.
  virtual void told() {}

  /// Whether suspend() gives memory of note back.
  [[nodiscard]] virtual bool gives_memory() const { return false; }
  /// Gives it back. There are no drafts until it is resumed; all else goes on.
  virtual void suspend() {}
  /// Takes the memory again, in parts that decoding can wait for: to be called until it is true.
  /// Then requests catch up. Where it throws for want of memory, drafting is suspended still. True
  /// at once where it is not suspended.
  [[nodiscard]] virtual bool resume() { return true; }
  /// Memory of note that is held, bytes.
  [[nodiscard]] virtual std::size_t bytes() const { return 0; }
};

}  // namespace paceline::draft
