#include "runtime/sim/turns.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/sim/draws.hpp"
#include "runtime/sim/special_functions.hpp"

namespace paceline::sim {
namespace {

std::int32_t whole(double value, std::int32_t most) {
  return static_cast<std::int32_t>(std::clamp(std::floor(value + 0.5), 1.0, double(most)));
}

}  // namespace

double Lognormal::quantile(double share) const {
  const double spread = (log_of(p99) - log_of(median)) / normal_quantile(0.99);
  return exp_of(log_of(median) + spread * normal_quantile(share));
}

// Turns divide a response's tokens at random, by exponentially distributed weights.
std::vector<ModelledTurn> make_turns(const TurnSettings& settings, const NoiseKey& whose,
                                     std::int32_t sampled, std::int32_t most) {
  const auto draw = [&](std::uint32_t turn, std::uint32_t what) {
    return uniform(whose, Draw::turn, turn, what);
  };
  enum : std::uint32_t { of_count, of_weight, of_tokens, of_seconds };
  const std::int32_t count =
      whole(settings.turns.quantile(draw(0, of_count)), std::min(settings.most, sampled));
  std::vector<double> weights;
  double sum = 0;
  for (std::int32_t t = 0; t < count; ++t)
    sum += weights.emplace_back(-log_of(draw(static_cast<std::uint32_t>(t), of_weight)));
  std::vector<ModelledTurn> turns;
  std::int32_t position = 0;
  for (std::int32_t t = 0; t < count; ++t) {
    const auto number = static_cast<std::uint32_t>(t);
    std::int32_t tokens = whole(sampled * weights[number] / sum, most - position);
    if (settings.longest > 0) tokens = std::min(tokens, settings.longest);
    ModelledTurn& turn = turns.emplace_back(ModelledTurn{.end = position + tokens});
    turn.seconds = settings.seconds.quantile(draw(number, of_seconds));
    if (turn.seconds > settings.timeout) {
      turn.seconds = settings.timeout * settings.attempts;
      turn.failed = true;
      break;
    }
    if (t + 1 == count) break;
    const std::int32_t given = whole(settings.tokens.quantile(draw(number, of_tokens)), most);
    if (given >= most - turn.end) break;  // no room for a further turn
    turn.given = given;
    position = turn.end + given;
  }
  return turns;
}

}  // namespace paceline::sim
