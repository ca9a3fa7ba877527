// Tokens that end a response of the run, tokens that cannot be sampled, and the text for the user.
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

/// Every id that ends a response: the model's own end tokens unless they are ignored,
/// sampling.stop_ids, and special tokens among sampling.stop_strings. Ascending, each once.
/// `tokenizer` may be null. Throws UsageError on an id that is no token of the model.
[[nodiscard]] std::vector<TokenId> stop_set(const ModelConfig& model,
                                            const SamplingParams& sampling,
                                            const io::Tokenizer* tokenizer);

/// Ids for SamplingParams::masked: sampling.banned_ids, all but sampling.allowed_ids where there
/// are some and, unless unused ids are kept, rows of the vocabulary that no token has and
/// placeholders of images and the like. Unused rows and
/// placeholders that end a response are not masked. Without a tokenizer no row is known to be
/// unused. Throws UsageError on an id that is no token of the model, and where nothing is left to
/// sample.
[[nodiscard]] std::vector<TokenId> masked_tokens(const ModelConfig& model,
                                                 const SamplingParams& sampling,
                                                 const io::Tokenizer* tokenizer,
                                                 const std::vector<TokenId>& stops);

/// The text that a chat template writes behind an answer, as "<|im_end|>", which ends a turn.
struct TurnEnd {
  std::string text;             ///< empty: not known
  std::vector<TokenId> tokens;  ///< a single one where it is a special token
  bool in_prompts = false;      ///< some prompt contains it, so the model has seen turns end so
};
[[nodiscard]] TurnEnd turn_end(const io::ChatTemplate& chat, const io::Tokenizer* tokenizer,
                               std::span<const Prompt> prompts);

/// Where responses end.
struct ResponseEnds {
  std::vector<TokenId> stops;  ///< every id that ends one: stop_set()
  /// The model's end tokens in the job's previous step; none in the first step.
  std::optional<std::vector<TokenId>> earlier_eos;
  TurnEnd turn;  ///< on rank 0 alone
};

/// Ascending ids as text, as "3, 7-9".
[[nodiscard]] std::string ranges_text(const std::vector<TokenId>& ids);

/// Lines of the banner: tokens that end a response and tokens that cannot be sampled, with warnings
/// where nobody can want them so, and the settings that mend it.
[[nodiscard]] std::string token_text(const Inputs& inputs);

}  // namespace paceline::app
