// What penalties and biases make of the notes that come with a sample.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/token_notes.hpp"
#include "runtime/engine/step.hpp"

namespace paceline::engine {

/// The notes of a step's samples, one sample after the other. A sample whose text goes on from the
/// last one's, as the samples of a given response do, takes what came since alone.
class SampleNotes {
 public:
  /// `step` outlives this, unchanged.
  explicit SampleNotes(const Step& step) : step_(step) {}
  /// Ascending by token, each token once. Valid until the next call.
  [[nodiscard]] std::span<const TokenNote> of(const StepSample& sample);

 private:
  const Step& step_;
  TokenNotes notes_;  ///< of last_
  StepSample last_;   ///< the last sample with notes since
};

/// Appends the edits of a sample's logits by its notes, ascending by token.
void append_edits(std::span<const TokenNote> notes, const TokenDraw& draw,
                  std::vector<kernels::LogitEdit>& edits);

}  // namespace paceline::engine
