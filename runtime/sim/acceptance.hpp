// Acceptance of modelled requests' drafts. A request has a mean rate for each method, drawn once,
// and the rate drifts along its response. A draw for each position of the response decides whether
// a drafted token is the target's, whenever and on whichever rank it is drafted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/sampling.hpp"

namespace paceline::sim {

/// A point of a curve that is linear between points and constant beyond the outermost ones.
struct CurvePoint {
  double at = 0;
  double factor = 1;
};

/// One drafting method.
struct MethodAcceptance {
  std::string name;  ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  /// Mean and standard deviation of the requests' rates, which are Beta distributed. SpecActor,
  /// section 5.2, reports 0.487 to 0.723 for the requests that finish last: the mean is the middle
  /// of this range, the spread is half of its width.
  double mean = 0.6;
  double spread = 0.12;
  /// Correlation of a request's rate with its length, -1 to 1, between normal quantiles of their
  /// ranks. Negative where long responses are hard to draft. 0 for draft models is assumed.
  double length_correlation = 0;
  /// Whether the method scores its tokens; if not, its scores are 1 (draft/draft.hpp).
  bool scores = true;
  /// Spread of tokens' probabilities about the request's rate: they are uniform within this share
  /// of the rate's distance from 0 or 1, and a token's score is its probability. 0: all scores are
  /// the rate. Assumed.
  double score_spread = 0.5;
  /// Share of second choices that are right where the first ones are wrong, for methods that give
  /// second choices. The embedded pair has 0.68 (tests/bench/README.md). This is scaled by 0.87 /
  /// 0.95, for there the token after a second choice is accepted less often than other tokens.
  double second_choice = 0.62;
  /// Factor of the rate by the number of siblings' finished responses; empty: always 1.
  std::vector<CurvePoint> by_references = {};
  /// Factor of the rate by the number of response tokens so far; empty: always 1.
  std::vector<CurvePoint> by_progress = {};
  /// Share of the tokens missed otherwise that responses of earlier steps to the same prompt have
  /// right. 0: there are no earlier steps.
  double history = 0;

  /// The rate with the texts of earlier steps, where `rate` is the rate without them.
  [[nodiscard]] double with_history(double rate) const { return rate + history * (1 - rate); }
};

/// Acceptance of a draft model: the defaults above.
[[nodiscard]] MethodAcceptance draft_model_acceptance(const std::string& name);
/// Acceptance of lookup in a request's own text. The correlation with the length makes it "almost
/// zero" for the requests that finish last (SpecActor, section 5.2). The mean over all requests is
/// assumed, for none of the papers has it.
[[nodiscard]] MethodAcceptance ngram_acceptance();
/// Acceptance of the grouped suffix tree. Its factors by references give the mean accepted lengths
/// of Seer's table 2 (linear drafts of at most 8 tokens) if each step has a draft of 8 independent
/// tokens. The spread is assumed.
[[nodiscard]] MethodAcceptance suffix_acceptance();

struct AcceptanceSettings {
  std::vector<MethodAcceptance> methods = {};  ///< [methods] in the order of the drafters
  /// Correlation of two methods' rates for a request, 0 to 1, between normal quantiles of their
  /// ranks. Assumed; it is less than 1, as the best method differs from request to request
  /// (SpecActor, section 3 and figure 7).
  double request_agreement = 0.5;
  /// Share of tokens with one draw for all methods: where one method agrees, methods of higher
  /// rates do too. Assumed: there are trivial tokens, which any method drafts (SpecActor, section
  /// 6).
  double token_agreement = 0.5;
  /// Largest drift of the rate from its mean along a response, as a share of the mean's distance
  /// from 0 or 1, the same for all methods. Assumed: the rate "may change sharply over a short
  /// term", for which SpecActor (section 4.1) reconsiders a request every 1,000 tokens.
  double drift = 0.3;
  /// Tokens from one turning point of the drift to the next.
  std::int32_t drift_tokens = 500;
};

/// Throws UsageError, which names the method and the setting, on a value out of range.
void check(const AcceptanceSettings& settings);

/// Draws requests' mean rates. Immutable, so thread-safe.
class AcceptanceDistribution {
 public:
  /// Throws as check() does. `settings` must outlive this object.
  explicit AcceptanceDistribution(const AcceptanceSettings& settings);

  /// Returns [methods] the mean rates of the request with this noise. `length`: normal quantile of
  /// the rank of its length among all requests.
  [[nodiscard]] std::vector<float> draw(const NoiseKey& request, double length) const;

 private:
  const AcceptanceSettings& settings_;
  /// [methods, kQuantiles] rates at the middles of equal steps of probability.
  std::vector<std::vector<double>> quantiles_;
};

/// Drafts for one request. Every answer is a function of the request's noise and the arguments.
/// Immutable, so thread-safe. Methods and positions of the response count from 0.
class RequestDrafts {
 public:
  /// `means`: [methods] mean rates of the request. `settings` and `means` must outlive this object.
  RequestDrafts(const AcceptanceSettings& settings, const NoiseKey& noise,
                std::span<const float> means)
      : settings_(&settings), noise_(noise), means_(means) {}

  /// The turning points of the drift about a position, which are kept for the next one.
  struct Drift {
    std::int32_t turn = -1;  ///< index of the first; -1: none are known
    double from = 0, to = 0;
  };
  /// P(the method's token at this position is the target's | it is asked with the text before),
  /// with the texts of earlier steps. `references`: number of finished responses of siblings.
  [[nodiscard]] double rate(int method, std::int32_t index, int references, Drift& known) const;
  [[nodiscard]] double rate(int method, std::int32_t index, int references = 0) const {
    Drift none;
    return rate(method, index, references, none);
  }
  struct Drafted {
    /// Whether the token is the target's. True for the share `rate` of positions.
    bool agrees = false;
    /// The method's score of the token, given the text before: the token's factor in the path's
    /// score (draft/draft.hpp). Of tokens with score s, a share s agree.
    double score = 0;
  };
  /// The method's token at a position.
  [[nodiscard]] Drafted drafted(int method, std::int32_t index, double rate) const;
  /// Whether the method's second choice is the target's token, given that its first is not.
  [[nodiscard]] bool second_agrees(int method, std::int32_t index) const;

 private:
  [[nodiscard]] double drift(std::int32_t index, Drift& known) const;

  const AcceptanceSettings* settings_;
  NoiseKey noise_;
  std::span<const float> means_;
};

/// The token that ends a modelled response; no other of its tokens is this one.
inline constexpr TokenId kModelledStop = 0;

/// The token at index `index` of the response with this noise; never kModelledStop, which the
/// response's length places. `vocabulary`: at least 3.
[[nodiscard]] TokenId modelled_token(const NoiseKey& noise, std::int32_t index,
                                     std::int32_t vocabulary);
/// A drafted token that is wrong: neither `token` nor kModelledStop. Applied twice it gives another
/// wrong token, if the vocabulary has at least 4 tokens.
[[nodiscard]] TokenId wrong_token(TokenId token, std::int32_t vocabulary);

}  // namespace paceline::sim
