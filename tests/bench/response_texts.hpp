// Responses to draft for: of a file, or synthetic. A file is JSON Lines of token ids; a line is a
// response, or a whole group:
//   {"group": 7, "prompt": [1, 2], "tokens": [3, 4]}          "group": a string or a number
//   {"prompt": [1, 2], "responses": [[3, 4], [3, 5]]}         "prompt" may be left out
// A finished run becomes one with (PYTHONPATH=io/python):
//   run = paceline_reader.open_run(DIR)
//   for r in run:
//     print(json.dumps({"group": r.prompt_index, "tokens": r.tokens.tolist(),
//                       "prompt": run.prompts[r.prompt_index].tokens.tolist()}))
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/core/types.hpp"
#include "runtime/draft/draft.hpp"

namespace paceline::bench {

using Text = std::vector<TokenId>;

/// A prompt and what was said to it.
struct Responses {
  Text prompt;
  std::vector<Text> texts;
};

/// Empty where there is no such file.
[[nodiscard]] std::vector<Responses> read_groups(const std::string& path);

/// `siblings` responses to one prompt, synthetic: of phrases of 4 to 40 tokens, `shared` percent
/// come from a stock of 1 phrase to 200 tokens of one response, the others are drawn afresh, their
/// tokens by Zipf's law over 150,000.
[[nodiscard]] std::vector<Text> make_group(int siblings, std::size_t tokens, int shared,
                                           unsigned seed);

/// How many tokens of a draft are what the text says next.
[[nodiscard]] int accepted(const draft::DraftOutput& draft, int count,
                           std::span<const TokenId> next);

}  // namespace paceline::bench
