// Sampling by shared noise on the device: argmax over the kept tokens of s + g, s = logit * (1 /
// T), and the next tokens in that order. Semantics and rules for ties are as in
// kernels/cpu/cpu_sampler.hpp. A row's result depends only on the row.
//
// There are four kernels, whatever the rows request:
//   scan_spans    one pass over the logits: maxima of chunks, sums of exp(s - max) of spans
//   prepare_rows  joins the sums, finds the last token that the filters keep, and a score that the
//                 winners reach (from the chunk with the largest logit)
//   score_spans   adds noise where it could lift a token to that score; finds each span's best
//   write_samples (or write_ranks) writes the best of these, and their log-probabilities
// If it is requested, write_kept also writes the tokens that each row could have sampled.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// SampleRow with its banned tokens and edits as ranges of common arrays, in which rows may share
/// ranges.
struct DeviceSampleRow {
  NoiseKey noise;
  std::int32_t step = 0;
  float temperature = 1;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::int32_t first_banned = 0;
  std::int32_t banned = 0;  ///< number of tokens
  std::int32_t first_edit = 0;
  std::int32_t edits = 0;  ///< number of edits
  TokenId given = -1;
};

/// The rows to sample, in device memory.
struct SampleRows {
  const DeviceSampleRow* rows = nullptr;  ///< [count]
  const TokenId* banned = nullptr;        ///< lists of all rows, one after another
  const LogitEdit* edits = nullptr;       ///< edits of all rows, one after another
  int count = 0;
};

/// Value of Sampled::token, and of a row's first Ranked::token, if a logit is NaN or infinite, or
/// if nothing is left to sample.
inline constexpr TokenId kSampleFault = -1;
inline constexpr TokenId kRankFault = -2;

/// Returns the number of bytes that sample() and rank() need between their kernels, aligned to 16.
[[nodiscard]] std::size_t sample_workspace_bytes(int rows, int vocab);

/// Destination of the tokens that rows can sample: [count, most], if `most` is not 0.
struct KeptOutput {
  TokenId* ids = nullptr;
  int most = 0;
};

/// Samples rows. logits: [count, stride], of which the first `vocab` columns are used. out:
/// [count].
void sample(const float* logits, std::size_t stride, int vocab, const SampleRows& rows,
            std::byte* workspace, Sampled* out, const KeptOutput& kept, cudaStream_t stream);

/// Values of the tokens that rank() finds.
enum class RankedAs : std::uint8_t {
  score,
  log_probability,  ///< over the full vocabulary, from the unedited logits; for rows without edits
};

/// Ranks the tokens of rows by score. out: [count, best], 1 <= best <= kMaxRanked.
void rank(const float* logits, std::size_t stride, int vocab, const SampleRows& rows, int best,
          RankedAs as, std::byte* workspace, Ranked* out, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
