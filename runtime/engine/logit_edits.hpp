// The edits of a sample's logits by penalties and biases, made from the sample's notes.
#pragma once

#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/token_notes.hpp"
#include "runtime/engine/step.hpp"

namespace paceline::engine {

/// The notes of a step's samples, sample by sample. If a sample's text continues the text of the
/// sample before, as in a given response, only the notes of the new tokens are added.
class SampleNotes {
 public:
  /// `step` outlives this, unchanged.
  explicit SampleNotes(const Step& step) : step_(step) {}
  /// The sample's notes, ascending by token, each token once. Valid until the next call.
  [[nodiscard]] std::span<const TokenNote> of(const StepSample& sample);

 private:
  const Step& step_;
  TokenNotes notes_;  ///< notes of last_
  StepSample last_;   ///< the last sample with StepSample::since > 0
};

/// Appends the edits of a sample's logits that its notes ask for, ascending by token.
void append_edits(std::span<const TokenNote> notes, const TokenDraw& draw,
                  std::vector<kernels::LogitEdit>& edits);

}  // namespace paceline::engine
