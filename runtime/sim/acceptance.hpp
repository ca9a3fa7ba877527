// How often drafted tokens of modelled requests are accepted. A request has a mean rate for each
// method, drawn once; along its response the rate drifts; and whether a token of a draft is the
// target's is drawn for each position of the response, whenever and by whomever it is drafted.
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
  /// Of the requests' rates, which are Beta distributed. The mean is the middle of the 0.487 to
  /// 0.723 that SpecActor, section 5.2, reports of the requests that finish last; the spread, a
  /// standard deviation, is half that range.
  double mean = 0.6;
  double spread = 0.12;
  /// Of a request's rate and its length, as ranks by their normal quantiles; -1 to 1: negative
  /// where long responses are hard to draft. 0 for draft models is assumed.
  double length_correlation = 0;
  /// Whether it has a score for each of its tokens; without, it says 1 (draft/draft.hpp).
  bool scores = true;
  /// How much more it knows of a token than of the request: tokens' chances are spread about the
  /// rate, evenly, by as much of its distance from 0 or 1, and the score tells. 0: it knows the
  /// rate alone. Assumed.
  double score_spread = 0.5;
  /// By responses of siblings that are finished; empty: they do not matter. A factor of the rate.
  std::vector<CurvePoint> by_references = {};
  /// By tokens of the response so far; empty: it does not matter. A factor of the rate.
  std::vector<CurvePoint> by_progress = {};
};

/// A draft model: the defaults above.
[[nodiscard]] MethodAcceptance draft_model_acceptance(const std::string& name);
/// Lookup in a request's own text. "Almost zero" for the requests that finish last (SpecActor,
/// section 5.2), which the correlation with the length gives; the mean over all requests is in none
/// of the papers, and assumed.
[[nodiscard]] MethodAcceptance ngram_acceptance();
/// The grouped suffix tree. By references as in Seer's table 2 (linear drafts of at most 8 tokens):
/// the rates that give its mean accepted lengths when each step has a draft of 8 tokens, which are
/// independent. The spread is assumed.
[[nodiscard]] MethodAcceptance suffix_acceptance();

struct AcceptanceSettings {
  std::vector<MethodAcceptance> methods = {};  ///< [methods] in the order of the drafters
  /// Of two methods' rates for a request, as ranks by their normal quantiles; 0 to 1. Assumed: the
  /// best method differs from request to request (SpecActor, section 3 and figure 7), so that it
  /// is less than 1.
  double request_agreement = 0.5;
  /// Share of tokens that all methods draft alike: where one agrees those of higher rates do, too.
  /// Assumed: there are trivial tokens, which any method drafts (SpecActor, section 6).
  double token_agreement = 0.5;
  /// How far the rate strays from its mean along a response, as a share of its distance from 0 or
  /// 1, for all methods alike. Assumed: it "may change sharply over a short term" (SpecActor,
  /// section 4.1), so that a request is judged every 1,000 tokens.
  double drift = 0.3;
  /// Tokens from one turning point of it to the next.
  std::int32_t drift_tokens = 500;
};

/// Throws UsageError, which names the method and the setting, on what is out of range.
void check(const AcceptanceSettings& settings);

/// Draws requests' mean rates. Immutable, so thread-safe.
class AcceptanceDistribution {
 public:
  /// Throws as check() does. `settings` outlive it.
  explicit AcceptanceDistribution(const AcceptanceSettings& settings);

  /// [methods] The rates of the request that has this stream. `length`: the normal quantile of its
  /// length's rank among all.
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
  /// means: [methods], of the request. They and the settings outlive it.
  RequestDrafts(const AcceptanceSettings& settings, const NoiseKey& noise,
                std::span<const float> means)
      : settings_(&settings), noise_(noise), means_(means) {}

  /// P(what the method says at this position is the target's token | it is asked with the text
  /// before). `references`: responses of siblings that are finished.
  [[nodiscard]] double rate(int method, std::int32_t index, int references = 0) const;
  /// Whether it is, at that rate: true for as large a share of positions.
  [[nodiscard]] bool agrees(int method, std::int32_t index, double rate) const;
  /// What the method thinks of its token, given the text before: its share of the score of the path
  /// (draft/draft.hpp). Of tokens with a score s, a share s agree.
  [[nodiscard]] double score(int method, std::int32_t index, double rate) const;

 private:
  struct Chance {
    double chance = 0;   ///< that the token agrees
    double outcome = 0;  ///< it does if this is smaller
  };
  [[nodiscard]] Chance chance(int method, std::int32_t index, double rate) const;
  [[nodiscard]] double drift(std::int32_t index) const;

  const AcceptanceSettings* settings_;
  NoiseKey noise_;
  std::span<const float> means_;
};

/// The token that ends a modelled response; no other of its tokens is this one.
inline constexpr TokenId kModelledStop = 0;

/// The token at a position of the response of the request that has this noise: never
/// kModelledStop, which stands where the response's length says. `vocabulary`: at least 3.
[[nodiscard]] TokenId modelled_token(const NoiseKey& noise, std::int32_t index,
                                     std::int32_t vocabulary);
/// What a draft says that does not agree with `token`: neither it nor kModelledStop.
[[nodiscard]] TokenId wrong_token(TokenId token, std::int32_t vocabulary);

}  // namespace paceline::sim
