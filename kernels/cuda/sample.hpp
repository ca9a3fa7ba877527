// Sampling by shared noise on the device: argmax over the kept tokens of s + g, s = logit * (1 /
// T), and the next tokens in that order. Semantics and tie rules are those of
// kernels/cpu/cpu_sampler.hpp; a row's result depends on the row alone.
//
// Four kernels, whatever the rows ask for:
//   scan_spans    one pass over the logits: maxima of chunks, sums of exp(s - max) of spans
//   prepare_rows  joins the sums, finds the last token that the filters keep, and a score that the
//                 winners reach (of the chunk of the largest logit)
//   score_spans   noise where it could lift a token to that score; the best tokens of each span
//   the last      the best of them, and their log-probabilities
// and where it is asked for write_kept, the tokens that each row could have sampled.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"

namespace paceline::kernels::cuda {

/// SampleRow with its banned tokens as a range of a common array, in which rows may share ranges.
struct DeviceSampleRow {
  NoiseKey noise;
  std::int32_t step = 0;
  float temperature = 1;
  std::int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::int32_t first_banned = 0;
  std::int32_t banned = 0;  ///< tokens
  TokenId given = -1;
};

/// Value of Sampled::token and of a row's first Ranked::token on a NaN or infinite logit, or where
/// nothing is left to sample.
inline constexpr TokenId kSampleFault = -1;
inline constexpr TokenId kRankFault = -2;

/// Bytes that sample() and rank() need between their kernels, aligned to 16.
[[nodiscard]] std::size_t sample_workspace_bytes(int rows, int vocab);

/// Destination of the tokens that rows can sample: [count, most], where most is not 0.
struct KeptOutput {
  TokenId* ids = nullptr;
  int most = 0;
};

/// Samples rows. logits: [count, stride], of which the first `vocab` columns count; rows, out:
/// [count]; banned: indexed by rows.
void sample(const float* logits, std::size_t stride, int vocab, const DeviceSampleRow* rows,
            const TokenId* banned, int count, std::byte* workspace, Sampled* out,
            const KeptOutput& kept, cudaStream_t stream);

/// Ranks tokens of rows. out: [count, best], 1 <= best <= kMaxRanked.
void rank(const float* logits, std::size_t stride, int vocab, const DeviceSampleRow* rows,
          const TokenId* banned, int count, int best, std::byte* workspace, Ranked* out,
          cudaStream_t stream);

}  // namespace paceline::kernels::cuda
