// Penalties and biases against the processors of transformers and vLLM, written out over whole
// rows.
#include "runtime/engine/logit_edits.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <random>

namespace paceline::engine {
namespace {

constexpr int kVocab = 50;

/// Logits after SequenceBias, RepetitionPenaltyLogitsProcessor (of prompt and response) and vLLM's
/// frequency and presence penalties (of the response), in fp32.
std::vector<float> processed(std::vector<float> scores, const std::vector<TokenId>& prompt,
                             const std::vector<TokenId>& response,
                             const std::vector<LogitBias>& biases, const TokenDraw& draw) {
  std::vector<int> count(kVocab);
  std::vector<bool> said(kVocab);
  for (const TokenId token : prompt) said[token] = true;
  for (const TokenId token : response) {
    said[token] = true;
    ++count[token];
  }
  for (const LogitBias& bias : biases) scores[bias.token] += bias.bias;
  for (int v = 0; v < kVocab; ++v) {
    float& score = scores[v];
    if (said[v])
      score = score < 0 ? score * draw.repetition_penalty : score / draw.repetition_penalty;
    score -= draw.frequency_penalty * static_cast<float>(count[v]);
    score -= draw.presence_penalty * static_cast<float>(count[v] > 0 ? 1 : 0);
  }
  return scores;
}

TEST(LogitEdits, AreThoseOfTheProcessors) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (int round = 0; round < 200; ++round) {
    const auto tokens = [&](std::size_t count) {
      std::vector<TokenId> made;
      while (made.size() < count) made.push_back(static_cast<TokenId>(random() % kVocab));
      return made;
    };
    const std::vector<TokenId> prompt = tokens(1 + random() % 60);
    const std::vector<TokenId> response = tokens(random() % 60);
    TokenDraw draw;
    if (round % 2 == 0) draw.repetition_penalty = 1.3F;
    if (round % 3 == 0) draw.presence_penalty = -0.7F;
    if (round % 5 != 0) draw.frequency_penalty = 0.3F;
    const std::vector<LogitBias> biases =
        round % 4 == 0 ? std::vector<LogitBias>{} : std::vector<LogitBias>{{3, -100}, {7, 0.1F}};

    // A part of the response is noted with the text, the rest on the way through a draft.
    const auto drafted = static_cast<std::ptrdiff_t>(random() % (response.size() + 1));
    TokenNotes text;
    text.note(biases);
    text.note(prompt, false);
    text.note(std::span(response).first(response.size() - drafted), true);
    Step step;
    step.notes.assign(text.all().begin(), text.all().end());
    StepSample sample;
    sample.notes = static_cast<std::int32_t>(step.notes.size());
    sample.first_since = sample.notes;
    sample.since = static_cast<std::int32_t>(drafted);
    for (std::ptrdiff_t i = 1; i <= drafted; ++i)  // from the last on, as a draft's path is noted
      step.notes.push_back({response[response.size() - i], 1, 0});
    SampleNotes notes(step);
    std::vector<kernels::LogitEdit> edits;
    append_edits(notes.of(sample), draw, edits);

    std::vector<float> scores(kVocab);
    for (float& score : scores) score = normal(random);
    const std::vector<float> expected = processed(scores, prompt, response, biases, draw);
    TokenId last = -1;
    for (const kernels::LogitEdit& edit : edits) {
      ASSERT_LT(last, edit.token) << "ascending, each token once";
      last = edit.token;
      scores[edit.token] = kernels::edited(edit, scores[edit.token]);
    }
    for (int v = 0; v < kVocab; ++v)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(scores[v]), std::bit_cast<std::uint32_t>(expected[v]))
          << "round " << round << ", token " << v;
  }
}

// The samples of given responses have more and more notes since the same ones; any rank of a group
// may begin anywhere among them.
TEST(LogitEdits, NotesGoOnFromOneSampleToTheNext) {
  std::mt19937 random(2);
  Step step;
  for (int part = 0; part < 3; ++part) {
    StepSample sample;
    sample.first_note = static_cast<std::int32_t>(step.notes.size());
    sample.notes = 4;
    for (TokenId token = 10; token < 14; ++token) step.notes.push_back({token, part, 0.5F});
    sample.first_since = sample.first_note + 4;
    for (sample.since = 0; sample.since < 40; ++sample.since) {
      step.samples.push_back(sample);
      step.notes.push_back({static_cast<TokenId>(random() % kVocab), 1, 0});
    }
  }
  for (std::size_t first = 0; first < step.samples.size(); ++first) {
    SampleNotes notes(step);
    for (std::size_t i = first; i < step.samples.size(); i += 1 + random() % 3) {
      const StepSample& sample = step.samples[i];
      TokenNotes expected;
      expected.assign(std::span(step.notes).subspan(sample.first_note, sample.notes));
      for (std::int32_t since = 0; since < sample.since; ++since)
        expected.note(step.notes[sample.first_since + since]);
      const std::span<const TokenNote> found = notes.of(sample);
      ASSERT_TRUE(
          std::equal(found.begin(), found.end(), expected.all().begin(), expected.all().end()))
          << first << ", " << i;
    }
  }
}

}  // namespace
}  // namespace paceline::engine
