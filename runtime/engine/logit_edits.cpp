#include "runtime/engine/logit_edits.hpp"

namespace paceline::engine {

std::span<const TokenNote> SampleNotes::of(const StepSample& sample) {
  const std::span<const TokenNote> all = step_.notes;
  const std::span<const TokenNote> before = all.subspan(sample.first_note, sample.notes);
  if (sample.since == 0) return before;
  const bool goes_on = last_.since > 0 && last_.since <= sample.since &&
                       last_.first_note == sample.first_note && last_.notes == sample.notes &&
                       last_.first_since == sample.first_since;
  const std::int32_t known = goes_on ? last_.since : 0;
  if (!goes_on) notes_.assign(before);
  notes_.note(all.subspan(sample.first_since + known, sample.since - known));
  last_ = sample;
  return notes_.all();
}

void append_edits(std::span<const TokenNote> notes, const TokenDraw& draw,
                  std::vector<kernels::LogitEdit>& edits) {
  for (const TokenNote& note : notes) {
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
