// Tokens that end a response, tokens that cannot be sampled, and the text about them for the user.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline::app {

struct Inputs;

/// Every id that ends a response: sampling.stop_ids, special tokens among sampling.stop_strings
/// and, if sampling.ignore_eos is false, the model's end tokens. Ascending, without duplicates.
/// `tokenizer` may be null. Throws UsageError if one of sampling.stop_ids is no token of the model.
[[nodiscard]] std::vector<TokenId> stop_set(const ModelConfig& model,
                                            const SamplingParams& sampling,
                                            const io::Tokenizer* tokenizer);

/// Ids that are never sampled (SamplingParams::masked): sampling.banned_ids and, if
/// sampling.allowed_ids is not empty, all ids outside that list. If sampling.unused_ids is `mask`,
/// also placeholders of media and vocabulary rows for which the tokenizer has no token, except
/// `stops` and the model's end tokens. `tokenizer` may be null. Throws UsageError if banned_ids,
/// allowed_ids or logit_bias has an id that is no token of the model, or if no token is left.
[[nodiscard]] std::vector<TokenId> masked_tokens(const ModelConfig& model,
                                                 const SamplingParams& sampling,
                                                 const io::Tokenizer* tokenizer,
                                                 const std::vector<TokenId>& stops);

/// The text with which a chat template ends an answer's turn: the special token after the answer,
/// such as "<|im_end|>", or else the rest of the answer's line.
struct TurnEnd {
  std::string text;             ///< empty: not known
  std::vector<TokenId> tokens;  ///< tokens of `text`
  bool in_prompts = false;      ///< some prompt contains these tokens
};
[[nodiscard]] TurnEnd turn_end(const io::ChatTemplate& chat, const io::Tokenizer* tokenizer,
                               std::span<const Prompt> prompts);

/// The tokens and texts at which responses end.
struct ResponseEnds {
  std::vector<TokenId> stops;  ///< every id that ends a response: stop_set()
  /// End tokens of the model in the job's previous step; nullopt in the first step.
  std::optional<std::vector<TokenId>> earlier_eos;
  TurnEnd turn;  ///< set only on rank 0
};

/// Text of ascending ids, e.g. "3, 7-9".
[[nodiscard]] std::string ranges_text(const std::vector<TokenId>& ids);

/// Lines of the banner about the ends of responses and the tokens that cannot be sampled, with
/// warnings if responses may not end as intended. For given responses (Inputs::given), the lines
/// name only the tokens that cannot be sampled.
[[nodiscard]] std::string token_text(const Inputs& inputs);

}  // namespace paceline::app
