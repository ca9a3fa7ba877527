// Which tokens end a response of the run, and what is said of them.
#pragma once

#include <vector>

#include "io/text/tokenizer.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"

namespace paceline::app {

/// Every id that ends a response: the model's own end tokens unless they are ignored,
/// sampling.stop_ids, and those of sampling.stop_strings that are special tokens. Ascending, each
/// once. `tokenizer` may be null. Throws UsageError on an id that is no token of the model.
[[nodiscard]] std::vector<TokenId> stop_set(const ModelConfig& model, const SamplingParams& sampling,
                                            const io::Tokenizer* tokenizer);

}  // namespace paceline::app
