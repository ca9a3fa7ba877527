#include "app/token_sets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "runtime/core/error.hpp"

namespace paceline::app {

std::vector<TokenId> stop_set(const ModelConfig& model, const SamplingParams& sampling,
                              const io::Tokenizer* tokenizer) {
  for (const TokenId id : sampling.stop_ids) {
    if (id >= 0 && id < model.vocab) continue;
    throw UsageError(fmt::format("sampling.stop_ids: {} is not a token of this model (0 to {})", id,
                                 model.vocab - 1));
  }
  std::vector<TokenId> stops = sampling.stop_ids;
  if (!sampling.ignore_eos) stops.insert(stops.end(), model.eos.begin(), model.eos.end());
  // Such a string is asked for as the token, which then cannot be sampled before min_tokens either.
  // The matcher goes on to look for its spelling in what several tokens say.
  for (const std::string& text : sampling.stop_strings) {
    if (tokenizer == nullptr) break;
    const std::optional<TokenId> id = tokenizer->token_to_id(text);
    if (id && tokenizer->is_special(*id)) stops.push_back(*id);
  }
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  return stops;
}

}  // namespace paceline::app
