// Sampling by shared noise on the CPU: argmax over the kept tokens of s + g, where s = logit * (1 /
// T) and g is the noise, and the next tokens in this order.
//
// Log-probabilities come from sums of exp(s - max) over spans of 4096 tokens, joined in span order
// in double precision. top-k, top-p and min-p each keep a prefix of the tokens ordered by s
// (largest first, lowest id on ties). So a filter's result is the last token of its prefix, and one
// pass over the row samples with any filter. Nothing depends on the number of threads.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels::cpu {

class Sampler {
 public:
  Sampler(const KernelTable& kernels, ThreadPool& pool);

  /// See Backend::sample. Throws Error (internal) when every token of a row is banned.
  void sample(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
              std::span<Sampled> out, std::span<TokenId> kept);

  /// See Backend::rank. Throws as sample() does.
  void rank(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
            int count, std::span<Ranked> out);

  /// See Backend::top. Throws as sample() does.
  void top(const float* logits, std::size_t stride, int vocab, int rows, int count,
           std::span<Ranked> out);

 private:
  enum class Fault : std::uint8_t { none, not_finite, nothing_left };

  /// Maximum and mass of a distribution over the vocabulary.
  struct Distribution {
    float max = 0;   ///< largest s
    double sum = 0;  ///< sum of exp(s - max)
  };
  /// Tokens kept by filters: s above `value`, or equal to it with an id up to `id`.
  struct Kept {
    float value = 0;
    TokenId id = 0;
    double sum = 0;  ///< sum of exp(s - max)
  };
  /// The tokens from which a row's noise chooses.
  struct Choice {
    float scale = 1;                 ///< 1 / T; 1 at temperature 0
    int vocab = 0;                   ///< all tokens from this one on are banned
    const float* allowed = nullptr;  ///< [vocab] logits after edits, banned tokens at -infinity
    Distribution full;               ///< distribution over all tokens
    Distribution all;                ///< distribution over the allowed tokens
    Kept kept;                       ///< the kept ones of the allowed tokens; all at temperature 0
  };
  /// Working memory of one thread.
  struct Scratch {
    std::vector<float> chunk_max;     ///< [chunks]
    std::vector<float> logits;        ///< [vocab] copy with edits and bans, where there are any
    std::vector<TokenId> ids;         ///< [candidates]
    std::vector<float> values;        ///< [candidates]
    std::vector<float> weights;       ///< [candidates] exp(s - max)
    std::vector<std::uint64_t> keys;  ///< [candidates] sort keys
    std::vector<double> bin_mass;     ///< [bins] of mass_prefix
    std::vector<float> sorted;        ///< [tokens of a bin]
    std::vector<ScanResult> spans;    ///< [spans]
    std::vector<float> maxima;        ///< [chunks] copy to select from
  };

  /// Whether the token can be sampled.
  static bool is_kept(const Choice& choice, TokenId token);
  /// `split`: the threads share the row, which is the only one being sampled.
  Fault sample_row(const float* logits, int vocab, const SampleRow& row, Scratch& scratch,
                   bool split, Sampled& out, std::span<TokenId> kept);
  /// Writes the tokens that can be sampled, ascending; returns their number.
  int write_kept(const Choice& choice, Scratch& scratch, std::span<TokenId> kept);
  Fault rank_row(const float* logits, int vocab, const SampleRow& row, Scratch& scratch, bool split,
                 std::span<Ranked> out);
  /// Calls work(row, scratch, split) for every row; throws where a row has a fault.
  template <class Work>
  void for_rows(int count, const Work& work);
  /// Prepares the choice of a row. Leaves in `scratch` the chunk maxima of the allowed tokens' s.
  Fault prepare(const float* logits, int vocab, const SampleRow& row, Scratch& scratch, bool split,
                Choice& choice);
  Fault scan_row(const float* logits, int vocab, float scale, Scratch& scratch, bool split,
                 Distribution& found);
  /// Applies edits and bans to the scan of the whole row in `scratch`.
  Fault change(const float* logits, const SampleRow& row, Scratch& scratch, Choice& choice);
  /// The distribution of the first `spans` spans of `scratch`, joined in order.
  static Distribution join(int spans, const Scratch& scratch);
  void filter(const SampleRow& row, const Choice& choice, Scratch& scratch, Kept& kept);
  /// Finds the shortest prefix of the candidates whose weights reach `target`; at least one token.
  void mass_prefix(double target, float max, int count, Scratch& scratch, Kept& kept);
  /// The k-th largest of scratch.chunk_max, 1 <= k <= chunks.
  static float largest_chunk(int k, Scratch& scratch);
  /// A cut that each of the best `wanted` allowed logits reaches.
  static float first_cut(int wanted, const Choice& choice, Scratch& scratch);
  /// The best tokens of the row, in order.
  void best(const SampleRow& row, const Choice& choice, Scratch& scratch, bool split,
            std::span<Ranked> out);
  void best_logits(const Choice& choice, Scratch& scratch, std::span<Ranked> out);
  void best_scores(const SampleRow& row, const Choice& choice, Scratch& scratch, bool split,
                   std::span<Ranked> out);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;  ///< [threads]
};

}  // namespace paceline::kernels::cpu
