// Drafts from suffix trees: the group's, and one of the request's own prompt and response.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/thread_pool.hpp"
#include "runtime/draft/draft_store.hpp"
#include "runtime/draft/drafter.hpp"

namespace paceline::draft {

struct SuffixDrafterOptions {
  /// Options of all drafts, but limits come from each DraftSlot.
  SpeculationOptions speculation;
  StoreLimits store;  ///< default_ttl is not used: `ttl` is
  double ttl = 3600;  ///< of a group after its last commit, seconds
};

/// Proposes for each request the draft of the higher score, its own tree's on ties. Proposals
/// depend on the texts alone, not on threads or on how commits of siblings interleave. Assumed
/// tokens are a part of the text that is sought in the trees, but not of the trees.
class SuffixDrafter final : public Drafter, public SiblingLearner {
 public:
  /// propose() works on the pool's threads; the pool outlives this and may serve others in between.
  SuffixDrafter(const SuffixDrafterOptions& options, ThreadPool& pool);

  void start(const DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void propose(std::span<DraftSlot> batch, double now, Levels* levels) override;
  void finish(RequestId id, double now) override;
  /// The request's group keeps its response so far.
  void leave(RequestId id, double now) override;

  void hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens, bool ended,
            double now) override;
  [[nodiscard]] Capabilities capabilities() override { return {.siblings = this}; }

  /// Memory of the groups' trees and the requests' own.
  [[nodiscard]] std::size_t bytes() const;

 private:
  struct Request {
    std::unique_ptr<SuffixTree> own;  ///< one sequence: prompt, then response
    std::size_t prompt_size = 0;
    [[nodiscard]] std::span<const TokenId> response() const {
      return own->tokens(0).subspan(prompt_size);
    }
  };

  Request& request(RequestId id);

  SuffixDrafterOptions options_;
  DraftStore store_;
  std::map<RequestId, Request> requests_;
  ThreadPool& pool_;
  std::vector<SpeculationScratch> scratch_;  ///< [threads]
  std::vector<SpeculationScratch> second_;   ///< [threads] for the groups' drafts
  std::vector<std::vector<TokenId>> texts_;  ///< [threads] ends of texts, with assumed tokens
  std::vector<const Request*> batch_requests_;
};

}  // namespace paceline::draft
