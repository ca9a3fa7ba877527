// An engine's view of its drafters: n-gram lookup, suffix trees, draft models, heads on the target,
// and drafters on other ranks.
//
// A caller that drafts ahead of the target asks for drafts beyond tokens that were drafted before
// and are not verified yet: the assumed tokens. A draft goes on after the committed text and the
// assumed tokens, as if they had been committed, but nothing is learned from them. Drafting k
// tokens and then k more with the first k assumed gives the chain that drafting 2k at once gives;
// where the chain of 2k ends early, lookup may go on. Suffix trees apply their bounds, and are
// chosen, anew for the longer text, so the second part of their drafts may differ.
//
// It may also draft for outcomes that are less likely: a branch leaves a request's chain of assumed
// tokens for another token, and is drafted in the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/draft.hpp"

namespace paceline::draft {

/// A request that drafts will be asked for. A request with a response began elsewhere or was
/// interrupted. Siblings share id.prompt and have the same prompt tokens.
struct DraftStart {
  RequestId id;
  std::span<const TokenId> prompt;    ///< [prompt] never empty
  std::span<const TokenId> response;  ///< [response] committed so far
  NoiseKey noise;                     ///< the noise that the target samples with
  std::uint64_t version = 0;          ///< of the request's holder (Admission); rises
  bool wanted = true;                 ///< false: only other drafters are asked for drafts
  RequestSampling sampling = {};
};

/// One request of a batch that wants a draft. Limits and output are of the tokens after the assumed
/// ones; the longest response, the longest sequence and stop tokens count assumed tokens too.
struct DraftSlot {
  RequestId id;
  DraftLimits limits;
  DraftOutput output;
  /// Tokens drafted before and taken as said: the draft goes on after them. Read during the call.
  std::span<const TokenId> assumed = {};
  /// 0: the request's own chain. Another number names a branch of the request, until the target
  /// says something else than the branch assumes. Of drafters with Capabilities::branches alone.
  std::int32_t branch = 0;
  /// Where not empty, propose() sets the drafter's second choice for each token of the draft, which
  /// is a chain then; -1: none. Of the same drafters.
  std::span<TokenId> runners_up = {};
  std::int32_t count = 0;  ///< set by propose(): tokens written to output; 0: no draft
  std::int32_t calls =
      0;  ///< set by draft models and heads: calls that the draft took, one a level
};

/// A draft that may have a further level.
struct GrowingDraft {
  RequestId id;
  NoiseKey noise;          ///< of the request
  std::int32_t first = 0;  ///< index in the response of the draft's first token
  /// Log-probabilities, by the drafter, of the paths to the tokens of the draft's last level that
  /// are to be taken further, the likeliest first. Valid during the call.
  std::span<const float> frontier;
  bool grows = true;  ///< set by a judge
};

/// Judges, while drafts are made, whether longer ones are worth their cost (RADAR, section 2.2). A
/// level is all tokens at one distance from the text that a draft goes on after, from level 1 on.
class Levels {
 public:
  virtual ~Levels() = default;
  /// Decides which requests drafted for together are to have level `level` + 1. Called level by
  /// level, from 1 on, with the drafts that have had all levels before and could have another.
  virtual void judge(int level, std::span<GrowingDraft> drafts) = 0;
};

/// A drafter that reads features of the target, besides the text.
class FeatureReader {
 public:
  /// Bytes of the features read at each computed position (StepRunner::feature_bytes()).
  [[nodiscard]] virtual std::size_t feature_bytes() const = 0;
  /// The target's features at positions of the request's text from `first` on, the prompt's
  /// included: [positions, feature_bytes()]. Told of all positions that the target computes here
  /// for the request, in order, before the tokens sampled there are committed; never of positions
  /// computed elsewhere. Features that are told again are the same again.
  virtual void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) = 0;

 protected:
  ~FeatureReader() = default;
};

/// A drafter whose state falls behind while no drafts are asked for.
class LaggingState {
 public:
  /// Committed tokens of the request that the next draft for it must compute first, past those that
  /// every draft begins with.
  [[nodiscard]] virtual int lag(RequestId id) const = 0;

 protected:
  ~LaggingState() = default;
};

/// A drafter that learns from siblings, and so from siblings generated elsewhere.
class SiblingLearner {
 public:
  /// Tokens said elsewhere, after the first `offset` tokens of the response of a request that was
  /// not started here. `ended`: the response ends with the tokens.
  virtual void hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens, bool ended,
                    double now) = 0;
  /// Likewise tokens of a response of an earlier step to the same prompt: `age` steps ago, >= 1.
  virtual void recall(RequestId /*id*/, std::uint32_t /*age*/, std::uint64_t /*offset*/,
                      std::span<const TokenId> /*tokens*/, bool /*ended*/, double /*now*/) {}
  /// Whether all that was recalled for the prompt is still here.
  [[nodiscard]] virtual bool remembers(std::uint32_t /*prompt*/) const { return true; }
  /// Whether most drafts were made with responses of earlier steps at hand.
  [[nodiscard]] virtual bool recalls() const { return false; }
  /// What became of drafts from responses of earlier steps, by their age: `drafter` is the age's
  /// class less one (text_age.hpp). Of each draft counts its likeliest path along the text, and one
  /// token past it.
  [[nodiscard]] virtual std::vector<AcceptanceCell> recalled() const { return {}; }

 protected:
  ~SiblingLearner() = default;
};

/// A drafter that holds memory of note, and can give it back.
class MemoryGiver {
 public:
  /// Gives the memory back. There are no drafts until the drafter is resumed; all else goes on.
  virtual void suspend() = 0;
  /// Takes the memory again, in parts that decoding can wait for: to be called until it returns
  /// true. Then requests catch up. A call that throws for want of memory leaves the drafter
  /// suspended. True at once for a drafter that is not suspended.
  [[nodiscard]] virtual bool resume() = 0;

 protected:
  ~MemoryGiver() = default;
};

/// A drafter's capabilities beyond Drafter; null: it lacks this one. A decorator returns those of
/// its drafter together, so that none is lost.
struct Capabilities {
  FeatureReader* features = nullptr;
  LaggingState* state = nullptr;
  SiblingLearner* siblings = nullptr;
  MemoryGiver* memory = nullptr;
  /// It drafts unasked, ahead of the verifier: on other ranks, which are to hear of each step's
  /// commits at once.
  bool ahead = false;
  bool branches = false;  ///< it drafts branches, and says its second choices
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
  /// Fills every slot's output with what may follow its committed text and assumed tokens, and sets
  /// its count. `levels`: null: drafts go to the slots' limits. A drafter whose levels are no work
  /// of their own does not ask it.
  virtual void propose(std::span<DraftSlot> batch, double now, Levels* levels = nullptr) = 0;
  /// The request ended; what its siblings can learn from it may stay.
  virtual void finish(RequestId id, double now) = 0;
  /// The request goes elsewhere. start() with its response so far brings it back, if it comes back
  /// at all. State that helps its siblings, or the request then, may stay.
  virtual void leave(RequestId id, double now) { finish(id, now); }

  /// Whether there can be drafts at all now: a drafter that runs ahead needs drafter ranks, others
  /// must not be suspended.
  [[nodiscard]] virtual bool present() const { return true; }
  /// All that a step committed has been told.
  virtual void told() {}
  [[nodiscard]] virtual Capabilities capabilities() { return {}; }
};

}  // namespace paceline::draft
