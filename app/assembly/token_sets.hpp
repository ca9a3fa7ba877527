// Which tokens end a response of the run, which cannot be sampled, and what is said of both.
#pragma once

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

struct Setup;

/// Every id that ends a response: the model's own end tokens unless they are ignored,
/// sampling.stop_ids, and those of sampling.stop_strings that are special tokens. Ascending, each
/// once. `tokenizer` may be null. Throws UsageError on an id that is no token of the model.
[[nodiscard]] std::vector<TokenId> stop_set(const ModelConfig& model,
                                            const SamplingParams& sampling,
                                            const io::Tokenizer* tokenizer);

/// SamplingParams::masked: sampling.banned_ids and, unless they are kept, rows of the vocabulary
/// that no token has and placeholders of images and the like; of these two kinds not what ends a
/// response. Without a tokenizer no row is known to be unused. Throws UsageError on an id that is
/// no token of the model, and where nothing is left to sample.
[[nodiscard]] std::vector<TokenId> masked_tokens(const ModelConfig& model,
                                                 const SamplingParams& sampling,
                                                 const io::Tokenizer* tokenizer,
                                                 const std::vector<TokenId>& stops);

/// What a chat template writes behind an answer, "<|im_end|>": the answer ends where it is sampled.
struct TurnEnd {
  std::string text;             ///< empty: not known
  std::vector<TokenId> tokens;  ///< one, where the tokenizer has it
  bool in_prompts = false;  ///< some prompt has it, so that its model was told that turns end so
};
[[nodiscard]] TurnEnd turn_end(const io::ChatTemplate& chat, const io::Tokenizer* tokenizer,
                               std::span<const Prompt> prompts);

/// "3, 7-9" of ascending ids.
[[nodiscard]] std::string ranges_text(const std::vector<TokenId>& ids);

/// Lines of the banner: what ends a response and what cannot be sampled, with warnings where that
/// is not what anyone can want, and the settings that mend it.
[[nodiscard]] std::string token_text(const Setup& setup);

}  // namespace paceline::app
