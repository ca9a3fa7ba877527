// Drafts with a head on the target: EAGLE-3's (arXiv 2503.01840), DFlash's (arXiv 2602.06036), or
// the target's own next-token layer (model/mtp_head.cpp).
//
// A head's row costs little compared with its pass, so tokens other than the best are followed too:
// the draft is a dynamic tree (dynamic_tree.hpp), which grows by a level with each pass. With one
// path it is a chain. Tokens are ranked under the target's own noise, as with a draft model
// (model_drafter.hpp): the target chooses the token with the largest sum of logit and noise, so a
// likely token with little noise is not worth a row. The head's tokens are mapped to the target's
// before ranking, since the noise belongs to the target's tokens.
//
// A head that drafts at once (P-EAGLE, arXiv 2602.01469, and DFlash) says of each distance from the
// text which tokens are likely there, in one pass. Noise belongs to a place in the response, so the
// ranking of a distance is the same after every path, and the tree grows from these rankings alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/draft/dynamic_tree.hpp"
#include "runtime/draft/head_sequences.hpp"
#include "runtime/draft/sequence_drafter.hpp"

namespace paceline::draft {

/// limits.paths bounds how many tokens of a level are expanded and how many children each has,
/// max_length the depth, max_tokens the tokens kept of the tree. These are EAGLE's k, depth and
/// total (which counts the last committed token too).
///
/// Scores: under noise the conditional probability of a token is taken as the softmax over the
/// paths + 1 best perturbed scores after the same token. Without noise the head's own probability
/// at temperature 1 is taken, as published.
class HeadDrafter final : public SequenceDrafter {
 public:
  /// `weights`, `embedding`, `alone`: for HeadSequences; the others: for SequenceDrafter.
  /// options.width and logit_rows are set to rows_of_request(). Drafts once to warm up.
  HeadDrafter(kernels::Backend& backend, std::shared_ptr<const model::HeadWeights> weights,
              std::shared_ptr<const kernels::Embedding> embedding, TensorParallelGroup& alone,
              const SamplingParams& sampling, std::vector<TokenId> stops,
              SequenceDrafterOptions options);

 private:
  struct Job : Started {
    explicit Job(const Started& started) : Started(started) {}
    int depth = 0;  ///< levels so far
    int read = 0;   ///< with at_once(): rows ranked so far
    DynamicTree tree;
    std::vector<std::int32_t> expanded;  ///< the tree's tokens, in the order of their rows
    std::vector<std::vector<DynamicTree::Child>> levels;  ///< with at_once(): tokens by distance
  };

  void propose_together(std::span<DraftSlot> batch, Levels* levels) override;
  void rank(std::span<const int> jobs, const float* logits) override;
  void find_next() override;
  void judge(Levels& levels, int level) override;
  void grow_at_once();
  /// Rows that each level but the last takes.
  [[nodiscard]] int rows_of_level(const Job& job) const {
    return sequences_->at_once() ? 1 : job.paths;
  }
  [[nodiscard]] double best_log_probability(const float* logits, std::size_t row);
  void write() const;

  // The round.
  std::vector<Job> jobs_;
  std::vector<std::int32_t> nodes_;  ///< [next_] nodes of the trees; empty: the texts are ranked
  std::vector<DynamicTree::Child> children_;
  std::vector<float> frontier_;  ///< [next_]
};

/// Most rows that a request has in a pass of a head after its text: one for each path of a level,
/// one for each token of the longest path where all come at once, or a DFlash head's whole block.
/// Of a block only rows of drafted tokens have logits; of others, all rows have.
[[nodiscard]] kernels::PassRows rows_of_request(const HeadConfig& head, int paths, int max_length);

}  // namespace paceline::draft
