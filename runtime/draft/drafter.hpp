// An engine's view of its drafters: n-gram lookup, suffix trees, draft models, heads on the target,
// and drafters on other ranks.
//
// A caller that drafts ahead of the target asks for drafts after tokens that were drafted before
// and are not verified yet: the assumed tokens. A draft follows the committed text and the assumed
// tokens, as if they had been committed, but nothing is learned from them. To draft k tokens, and
// then k more with the first k assumed, gives the same chain as to draft 2k tokens at once, with
// two exceptions. Lookup may go on where the chain of 2k tokens ends early. Suffix trees are chosen
// and apply their bounds anew for the longer text, so the second half of their drafts may differ.
//
// The caller may also ask for drafts for less likely outcomes: a branch leaves a request's chain of
// assumed tokens for another token, and is drafted in the same call.
//
// To add a drafter: its file here and in CMakeLists.txt; its method, its name (name_of(), in the
// same order) and its settings in io/config/run_config.hpp and drafter_list.cpp; the reading of its
// file, if it has one, in app/assembly/configured_drafters.cpp; its making in make_drafters.cpp.
// The memory of texts that it keeps: text_memory() in memory_plan.cpp; models and heads are counted
// there already. In simulation: its acceptance, under the same name, in runtime/sim/acceptance.cpp,
// declared in acceptance.hpp and called in app/simulation/simulated_work.cpp; and its costs in
// simulated_costs.cpp, where lookup_costs() takes those of n-grams unless told otherwise. If it
// drafts trees: the help of speculation.paths in io/config/key_table.cpp. If it learns from
// siblings: every use of DrafterMethod::suffix, and of the name "suffix", in app and io. A head:
// every place that names DFlash or dflash, from runtime/core/head_config.hpp on;
// require_supported() in app/assembly/plan.cpp, and check_recording() in io/config/run_config.cpp.
// Tests that list methods: test_drafter_turns.cpp, test_assumed.cpp, test_drafter_list.cpp,
// tests/mpi/speculation.sh, exactness.sh and soak.py, tests/sim/simulate.sh, campaign.py and
// costs.yaml, tests/bench/speculation_setup.cpp, acceptance_bench.cpp and calibration_bench.py.
// Users: configs/README.md, README.md.
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

/// A request for which drafts will be asked. A request with a response began elsewhere or was
/// interrupted. Siblings share id.prompt and have the same prompt tokens.
struct DraftStart {
  RequestId id;
  std::span<const TokenId> prompt;    ///< [prompt] never empty
  std::span<const TokenId> response;  ///< [response] committed so far
  NoiseKey noise;                     ///< the noise that the target samples with
  std::uint64_t version = 0;          ///< version of the request's holder (Admission); rises
  bool wanted = true;                 ///< false: only other drafters are asked for drafts
  RequestSampling sampling = {};
};

/// One request of a batch that wants a draft. Limits and output are for the tokens after the
/// assumed ones. The longest response, the longest sequence and stop tokens count assumed tokens
/// too.
struct DraftSlot {
  RequestId id;
  DraftLimits limits;
  DraftOutput output;
  /// Tokens drafted before and taken as said: the draft follows them. Read during the call.
  std::span<const TokenId> assumed = {};
  /// 0: the request's own chain. Another number names a branch of the request, until the target
  /// says another token than the branch assumes. Only for drafters with Capabilities::branches.
  std::int32_t branch = 0;
  /// If not empty, the draft is a chain, and propose() sets the drafter's second choice for each of
  /// its tokens; -1: none. Only for drafters with Capabilities::branches.
  std::span<TokenId> runners_up = {};
  std::int32_t count = 0;  ///< set by propose(): tokens written to output; 0: no draft
  std::int32_t calls =
      0;  ///< set by draft models and heads: calls that the draft took, one per level
};

/// A draft that may have a further level.
struct GrowingDraft {
  RequestId id;
  NoiseKey noise;          ///< noise of the request
  std::int32_t first = 0;  ///< index in the response of the draft's first token
  /// The drafter's log-probabilities of the paths to those tokens of the draft's last level that
  /// are to be expanded, the likeliest first. Valid during the call.
  std::span<const float> frontier;
  bool grows = true;  ///< set by a judge
};

/// Judges, while drafts are made, whether longer drafts are worth their cost (RADAR, section 2.2).
/// A level is all tokens at one distance from the text that a draft follows, from level 1 on.
class Levels {
 public:
  virtual ~Levels() = default;
  /// Decides which of the drafts, made in one call, are to have level `level` + 1. Called level by
  /// level, from 1 on, with the drafts that have `level` levels and could have another.
  virtual void judge(int level, std::span<GrowingDraft> drafts) = 0;
};

/// A drafter that reads features of the target in addition to the text.
class FeatureReader {
 public:
  /// Bytes of the features read at each computed position (StepRunner::feature_bytes()).
  [[nodiscard]] virtual std::size_t feature_bytes() const = 0;
  /// Takes the target's features at positions of the request's text from `first` on, the prompt's
  /// included: [positions, feature_bytes()]. Called for all positions that the target computes here
  /// for the request, in order, before the tokens sampled there are committed; never for positions
  /// computed elsewhere. Features of a position are the same in every call.
  virtual void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) = 0;

 protected:
  ~FeatureReader() = default;
};

/// A drafter whose state falls behind while no drafts are asked for.
class LaggingState {
 public:
  /// Committed tokens of the request that its next draft must compute first, without those that
  /// every draft must compute.
  [[nodiscard]] virtual int lag(RequestId id) const = 0;

 protected:
  ~LaggingState() = default;
};

/// A drafter that learns from siblings, those generated elsewhere included.
class SiblingLearner {
 public:
  /// Takes tokens generated elsewhere, which follow the first `offset` tokens of the response of a
  /// request that was not started here. `ended`: the response ends with the tokens.
  virtual void hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens, bool ended,
                    double now) = 0;
  /// Takes tokens of a response of `age` steps ago, >= 1, to the same prompt.
  virtual void recall(RequestId /*id*/, std::uint32_t /*age*/, std::uint64_t /*offset*/,
                      std::span<const TokenId> /*tokens*/, bool /*ended*/, double /*now*/) {}
  /// Whether all recalled responses to the prompt are still here.
  [[nodiscard]] virtual bool remembers(std::uint32_t /*prompt*/) const { return true; }
  /// Whether most drafts were made with responses of earlier steps at hand.
  [[nodiscard]] virtual bool recalls() const { return false; }
  /// Acceptance of drafts from responses of earlier steps, by their age: `drafter` is the age's
  /// class minus one (text_age.hpp). Of each draft the levels along the text count, and one level
  /// past them. A level is accepted if its likeliest token is.
  [[nodiscard]] virtual std::vector<AcceptanceCell> recalled() const { return {}; }

 protected:
  ~SiblingLearner() = default;
};

/// A drafter that holds much memory, and can give it back.
class MemoryGiver {
 public:
  /// Gives the memory back. There are no drafts until the drafter is resumed; all else goes on.
  virtual void suspend() = 0;
  /// Takes the memory again, in parts that are short enough for decoding to wait: to be called
  /// until it returns true. Then requests catch up. A call that throws for lack of memory leaves
  /// the drafter suspended. Returns true at once if the drafter is not suspended.
  [[nodiscard]] virtual bool resume() = 0;

 protected:
  ~MemoryGiver() = default;
};

/// A drafter's capabilities beyond Drafter; null: it lacks this one. A decorator returns all of its
/// drafter's capabilities, so that none is lost.
struct Capabilities {
  FeatureReader* features = nullptr;
  LaggingState* state = nullptr;
  SiblingLearner* siblings = nullptr;
  MemoryGiver* memory = nullptr;
  /// The drafter drafts unasked, ahead of the verifier: on other ranks, which must hear of each
  /// step's commits at once.
  bool ahead = false;
  bool branches = false;  ///< the drafter drafts branches, and says its second choices
};

/// A drafter proposes continuations. It never decides which tokens are accepted, so it may be late
/// or wrong without changing a trajectory. Times are seconds on one clock of the caller, which
/// never runs backwards. Not thread-safe. Throws std::logic_error on ids that were not started, or
/// that were started twice without an end in between.
class Drafter {
 public:
  virtual ~Drafter() = default;

  /// A request begins. Its spans are not kept.
  virtual void start(const DraftStart& request, double now) = 0;
  /// The target has committed these tokens after all tokens told before.
  virtual void commit(RequestId id, std::span<const TokenId> tokens, double now) = 0;
  /// Fills every slot's output with tokens that may follow its committed text and assumed tokens,
  /// and sets its count. `levels`: asked between levels by drafters that compute level by level;
  /// null: drafts go to the slots' limits.
  virtual void propose(std::span<DraftSlot> batch, double now, Levels* levels = nullptr) = 0;
  /// The request ended. State from which its siblings can learn may stay.
  virtual void finish(RequestId id, double now) = 0;
  /// The request goes elsewhere. If it comes back, start() is called with its response so far.
  /// State that helps its siblings, or the request when it comes back, may stay.
  virtual void leave(RequestId id, double now) { finish(id, now); }

  /// Whether there can be drafts at all now: a drafter that runs ahead needs drafter ranks, others
  /// must not be suspended.
  [[nodiscard]] virtual bool present() const { return true; }
  /// All commits of a step have been told.
  virtual void told() {}
  [[nodiscard]] virtual Capabilities capabilities() { return {}; }
};

}  // namespace paceline::draft
