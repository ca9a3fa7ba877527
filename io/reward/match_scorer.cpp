#include "io/reward/match_scorer.hpp"

#include <array>
#include <cstddef>

#include "runtime/core/error.hpp"

namespace paceline::io {

const char* name_of(ScoreOutcome outcome) {
  constexpr std::array names{"scored", "refused", "garbage", "timed_out", "died", "not_tried"};
  static_assert(names.size() == static_cast<std::size_t>(ScoreOutcome::not_tried) + 1);
  return name_in(names, outcome);
}

void MatchScorer::submit(const Trajectory& response) {
  Score score;
  score.id = response.id;
  score.start = clock_.now();
  try {
    const std::string text = tokenizer_.decode(response.tokens);
    score.value = matches_.matches(text, subjects_[response.id.prompt]) ? 1.0F : 0.0F;
  } catch (const DataError& error) {
    score.outcome = ScoreOutcome::refused;
    score.error = error.what();
  }
  score.duration = clock_.now() - score.start;
  done_.push_back(std::move(score));
}

}  // namespace paceline::io
