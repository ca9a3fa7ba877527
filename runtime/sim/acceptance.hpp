// Acceptance of modelled requests' drafts. A request has a mean rate for each method, drawn once;
// the rate drifts along its response; and a draw for each position of the response decides whether
// a drafted token is the target's, whenever and by whomever it is drafted.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/sampling.hpp"

namespace paceline::sim {

/// A point of a curve that is linear between points and level beyond them.
struct CurvePoint {
  double at = 0;
  double factor = 1;
};

/// One drafting method.
struct MethodAcceptance {
  std::string name;  ///< as telemetry calls it: "ngram", "suffix", "model:DIR"
  /// Mean and standard deviation of the requests' rates, which are Beta distributed. The mean is
  /// the middle of the 0.487 to 0.723 that SpecActor, section 5.2, reports of the requests that
  /// finish last; the spread is half that range.
  double mean = 0.6;
  double spread = 0.12;
  /// Correlation of a request's rate with its length, as normal quantiles of their ranks; -1 to 1:
  /// negative where long responses are hard to draft. 0 for draft models is assumed.
  double length_correlation = 0;
  /// Whether the method scores its tokens; without, it says 1 (draft/draft.hpp).
  bool scores = true;
  /// How much more the method knows of a token than of the request: tokens' chances are spread
  /// evenly about the rate, by this share of its distance from 0 or 1, and the score tells them. 0:
  /// it knows the rate alone. Assumed.
  double score_spread = 0.5;
  /// Share of second choices that are right where the first ones are wrong, of a method that says
  /// them. The embedded pair's is 0.68 (tests/bench/README.md), less in proportion because the
  /// token after them is accepted less often there than others are: 0.87 of 0.95.
  double second_choice = 0.62;
  /// Factor of the rate by finished siblings' responses; empty: they do not matter.
  std::vector<CurvePoint> by_references = {};
  /// Factor of the rate by tokens of the response so far; empty: they do not matter.
  std::vector<CurvePoint> by_progress = {};
};

/// A draft model: the defaults above.
[[nodiscard]] MethodAcceptance draft_model_acceptance(const std::string& name);
/// Lookup in a request's own text. "Almost zero" for the requests that finish last (SpecActor,
/// section 5.2), by the correlation with the length; the mean over all requests is in none of the
/// papers, and assumed.
[[nodiscard]] MethodAcceptance ngram_acceptance();
/// The grouped suffix tree. Its factors by references give the mean accepted lengths of Seer's
/// table 2 (linear drafts of at most 8 tokens) when each step has a draft of 8 independent tokens.
/// The spread is assumed.
[[nodiscard]] MethodAcceptance suffix_acceptance();

struct AcceptanceSettings {
  std::vector<MethodAcceptance> methods = {};  ///< [methods] in the order of the drafters
  /// Correlation of two methods' rates for a request, as normal quantiles of their ranks; 0 to 1.
  /// Assumed: the best method differs from request to request (SpecActor, section 3 and figure 7),
  /// so it is less than 1.
  double request_agreement = 0.5;
  /// Share of tokens that all methods draft alike: where one agrees, methods of higher rates do,
  /// too. Assumed: there are trivial tokens, which any method drafts (SpecActor, section 6).
  double token_agreement = 0.5;
  /// How far the rate strays from its mean along a response, as a share of its distance from 0 or
  /// 1, for all methods alike. Assumed: it "may change sharply over a short term" (SpecActor,
  /// section 4.1), so that a request is judged every 1,000 tokens.
  double drift = 0.3;
  /// Tokens from one turning point of the drift to the next.
  std::int32_t drift_tokens = 500;
};

/// Throws UsageError, which names the method and the setting, on a value out of range.
void check(const AcceptanceSettings& settings);

/// Draws requests' mean rates. Immutable, so thread-safe.
class AcceptanceDistribution {
 public:
  /// Throws as check() does. `settings` outlive it.
  explicit AcceptanceDistribution(const AcceptanceSettings& settings);

  /// [methods] The rates of the request with this stream. `length`: normal quantile of its length's
  /// rank among all.
  [[nodiscard]] std::vector<float> draw(const NoiseKey& request, double length) const;

 private:
  const AcceptanceSettings& settings_;
  /// [methods] The rates in the middles of equal steps of probability.
  std::vector<std::vector<double>> quantiles_;
};

/// Drafts for one request. Every answer is a function of the request's noise and the arguments.
/// Immutable, so thread-safe. Methods and positions of the response count from 0.
class RequestDrafts {
 public:
  /// means: [methods] rates of the request. They and the settings outlive it.
  RequestDrafts(const AcceptanceSettings& settings, const NoiseKey& noise,
                std::span<const float> means)
      : settings_(&settings), noise_(noise), means_(means) {}

  /// P(the method's token at this position is the target's | it is asked with the text before).
  /// `references`: finished responses of siblings.
  [[nodiscard]] double rate(int method, std::int32_t index, int references = 0) const;
  /// Whether the method's token is the target's, at that rate: true for as large a share of
  /// positions.
  [[nodiscard]] bool agrees(int method, std::int32_t index, double rate) const;
  /// Whether the method's second choice is the target's token, where its first is not.
  [[nodiscard]] bool second_agrees(int method, std::int32_t index) const;
  /// The method's score of its token, given the text before: its factor of the path's score
  /// (draft/draft.hpp). Of tokens with a score s, a share s agree.
  [[nodiscard]] double score(int method, std::int32_t index, double rate) const;

 private:
  struct Chance {
    double chance = 0;   ///< probability that the token agrees
    double outcome = 0;  ///< the token agrees if this is smaller
  };
  [[nodiscard]] Chance chance(int method, std::int32_t index, double rate) const;
  [[nodiscard]] double drift(std::int32_t index) const;

  const AcceptanceSettings* settings_;
  NoiseKey noise_;
  std::span<const float> means_;
};

/// The token that ends a modelled response; no other of its tokens is this one.
inline constexpr TokenId kModelledStop = 0;

/// The token at a position of the response of the request with this noise: never kModelledStop,
/// which stands where the response's length says. `vocabulary`: at least 3.
[[nodiscard]] TokenId modelled_token(const NoiseKey& noise, std::int32_t index,
                                     std::int32_t vocabulary);
/// A drafted token that does not agree with `token`: neither it nor kModelledStop. Of another one,
/// it is wrong as well where the vocabulary has at least 4 tokens.
[[nodiscard]] TokenId wrong_token(TokenId token, std::int32_t vocabulary);

}  // namespace paceline::sim
