// Drafts from suffix trees: the group's tree, trees of earlier steps' responses to the same prompt,
// and a tree of the request's own prompt and response.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/draft_store.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/draft/text_age.hpp"

namespace paceline::draft {

struct SuffixDrafterOptions {
  /// Options of all drafts, except for limits, which come from each DraftSlot.
  SpeculationOptions speculation;
  StoreLimits store;  ///< all but default_ttl, which `ttl` replaces
  double ttl = 3600;  ///< seconds that a group lives after its last commit
};

/// Proposes for each request the draft with the highest score: on ties its own tree's, then the
/// group's, then the newest step's. Probabilities by trees of earlier steps are lowered by a
/// factor, because these trees are right less often than this step's (AgeTrust). The factor is
/// learned from the likeliest next token of each tree, proposed or not. Without texts of earlier
/// steps, proposals depend on texts alone, not on threads or on how commits of siblings interleave.
/// Assumed tokens are a part of the text that is sought in the trees, but not of the trees.
///
/// Commits are only noted. The request's own tree takes them in when a draft is asked for it, and
/// the group's tree when a draft is asked for any of its requests, or the request ends. A verifier
/// that hardly drafts so pays for one tree instead of two, in stretches that keep to warm caches:
/// 1.5 % of the time of a 9 MB mixture at batch 16 instead of 6 %.
class SuffixDrafter final : public Drafter, public SiblingLearner {
 public:
  /// propose() works on the pool's threads. The pool outlives this and may serve others in between.
  SuffixDrafter(const SuffixDrafterOptions& options, ThreadPool& pool);

  void start(const DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void propose(std::span<DraftSlot> batch, double now, Levels* levels) override;
  void finish(RequestId id, double now) override;
  /// The request's group keeps its response so far.
  void leave(RequestId id, double now) override;

  void hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens, bool ended,
            double now) override;
  void recall(RequestId id, std::uint32_t age, std::uint64_t offset,
              std::span<const TokenId> tokens, bool ended, double now) override;
  [[nodiscard]] bool remembers(std::uint32_t prompt) const override { return store_.whole(prompt); }
  [[nodiscard]] bool recalls() const override { return beside_earlier_ > proposals_ / 2; }
  [[nodiscard]] std::vector<AcceptanceCell> recalled() const override;
  [[nodiscard]] Capabilities capabilities() override { return {.siblings = this}; }

  /// Memory of the groups' trees and the requests' own.
  [[nodiscard]] std::size_t bytes() const;

 private:
  /// Predictions for a request with texts of earlier steps, which its next commit will judge.
  struct Forecast {
    struct Next {
      int age_class = 0;
      TokenId token = 0;
      double probability = 0;  ///< probability by the tree
    };
    std::vector<Next> next;  ///< likeliest next token of this step's trees, and of each other tree
    int age_class = 0;       ///< class of the proposed draft below; 0: no draft is kept
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
  };
  /// The last match of a request's text in a tree of an earlier step. While the tree is unchanged,
  /// the next match is longer by at most the number of tokens said since.
  struct Match {
    std::uint64_t version = 0;  ///< version of the tree; 0: the match may have been longer
    std::size_t at = 0;         ///< number of response tokens at the time of the match
    int length = 0;
    [[nodiscard]] int bound(const EarlierTree& texts, std::size_t now, int most) const;
  };
  struct Tally {
    std::uint64_t tried = 0;
    std::uint64_t right = 0;
  };
  struct Request {
    std::vector<TokenId> text;  ///< prompt, then response
    std::size_t prompt_size = 0;
    std::unique_ptr<SuffixTree> own;  ///< one sequence: the beginning of `text`; null: no draft yet
    std::size_t in_group = 0;         ///< response tokens that the group's tree was told
    Forecast forecast;
    std::vector<Match> matches;  ///< [trees of earlier steps]
    [[nodiscard]] std::span<const TokenId> response() const {
      return std::span(text).subspan(prompt_size);
    }
  };

  Request& request(RequestId id);
  void tell_group(std::uint32_t prompt, double now);
  void tell_text(RequestId id, Request& request, double now);
  void tell_own(Request& request) const;
  void draft_from_earlier(Request& request, DraftSlot& slot, SpeculationSlot& group, double score,
                          SpeculationScratch& scratch) const;
  void judge(Forecast& forecast, std::span<const TokenId> said);

  SuffixDrafterOptions options_;
  DraftStore store_;
  std::map<RequestId, Request> requests_;
  ThreadPool& pool_;
  std::vector<SpeculationScratch> scratch_;  ///< [threads]
  std::vector<SpeculationScratch> second_;   ///< [threads] for the groups' drafts
  std::vector<std::vector<TokenId>> texts_;  ///< [threads] end of a text, with assumed tokens
  std::vector<Request*> batch_requests_;
  AgeTrust trust_;
  std::vector<std::vector<Tally>> tallies_;  ///< [age class - 1][position - 1]
  std::uint64_t proposals_ = 0;              ///< number of slots so far
  std::uint64_t beside_earlier_ = 0;         ///< slots of groups with texts of earlier steps
};

}  // namespace paceline::draft
