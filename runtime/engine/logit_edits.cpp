#include "runtime/engine/logit_edits.hpp"

#include <span>

namespace paceline::engine {

void append_edits(const Step& step, const StepSample& sample, const TokenDraw& draw,
                  TokenNotes& notes, std::vector<kernels::LogitEdit>& edits) {
  std::span<const TokenNote> all = std::span(step.notes).subspan(sample.first_note, sample.notes);
  if (sample.since > 0) {
    notes.assign(all);
    notes.note(std::span(step.notes).subspan(sample.first_since, sample.since));
    all = notes.all();
  }
  for (const TokenNote& note : all) {
    kernels::LogitEdit edit{.token = note.token, .bias = note.bias};
    if (note.sampled != TokenNote::kUnsaid) edit.repetition = draw.repetition_penalty;
    if (note.sampled > 0) {
      edit.frequency = draw.frequency_penalty * static_cast<float>(note.sampled);
      edit.presence = draw.presence_penalty;
    }
    edits.push_back(edit);
  }
}

}  // namespace paceline::engine
