// What penalties and biases make of the notes that come with a sample.
#pragma once

#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/token_notes.hpp"
#include "runtime/engine/step.hpp"

namespace paceline::engine {

/// Appends the edits of a sample's logits, ascending by token. `notes` is working memory.
void append_edits(const Step& step, const StepSample& sample, const TokenDraw& draw,
                  TokenNotes& notes, std::vector<kernels::LogitEdit>& edits);

}  // namespace paceline::engine
