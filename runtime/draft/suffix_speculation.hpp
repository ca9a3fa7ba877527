// Drafts from a suffix tree: find the end of the text in it, then follow the tokens that were
// frequent after it (Seer, section 4.4 and table 4; SuffixDecoding).
#pragma once

#include <span>
#include <vector>

#include "runtime/draft/draft.hpp"
#include "runtime/draft/suffix_tree.hpp"

namespace paceline::draft {

/// A match of m tokens is worth a draft of min(max_length, m + offset) tokens. A token follows its
/// path with probability count(path + token) / (sum of this count over next tokens); occurrences
/// without a next token do not count. Of each length the `paths` most probable paths are drafted
/// (beams), except for paths less probable than min_probability.
struct SpeculationOptions {
  DraftLimits limits;
  /// Lengths of a match, tokens, >= 1. max_match is capped at depth - max_length, so that a whole
  /// draft finds room below the match.
  int min_match = 1;
  int max_match = 64;
  int offset = 0;  ///< tokens, >= 0; benchmarks ask for whole drafts by it
  float min_probability = 0.1F;
  float trust = 1.0F;  ///< factor of each token's probability (text_age.hpp)
};

/// Working memory that calls may use one after another: one for each thread.
struct SpeculationScratch {
  struct State {
    SuffixTree::Cursor at;
    double probability = 1;
    TokenId token = 0;
    std::int32_t parent = -1;
    int length = 0;
  };
  std::vector<State> frontier;
  std::vector<State> candidates;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;

  /// Memory for a draft of `capacity` tokens that is compared with another one.
  [[nodiscard]] DraftOutput second(int capacity);
};

/// Longest match after which a whole draft finds room in the tree.
[[nodiscard]] int longest_match(const SuffixTree& tree, const DraftLimits& limits);

/// Drafts tokens that may follow a sequence of the tree. The longest match is known from appending,
/// so the cost is O(log depth + drafted).
DraftResult speculate(const SuffixTree& tree, SuffixTree::Sequence sequence,
                      const SpeculationOptions& options, const DraftOutput& output,
                      SpeculationScratch& scratch);

/// Drafts tokens that may follow `text`, which need not be in the tree. The cost is
/// O(match * log(match) + drafted).
DraftResult speculate(const SuffixTree& tree, std::span<const TokenId> text,
                      const SpeculationOptions& options, const DraftOutput& output,
                      SpeculationScratch& scratch);

/// Copies a draft of `count` tokens.
void copy_draft(const DraftOutput& from, const DraftOutput& to, int count);

}  // namespace paceline::draft
