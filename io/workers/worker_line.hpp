// Lines that reward workers read and write (worker_pool.hpp), each one JSON object.
//
// A worker reads
//   id             text that the answer repeats: PROMPT:SAMPLE, indices from 0
//   uid            the prompt's uid
//   prompt         the prompt's text, without special tokens
//   data_source    the prompt's own field (verl), or null
//   ground_truth   the true answer, of any type, or null
//   extra_info     the prompt's own field (verl), or {}
//   fields         all other fields of the prompt's line
//   response       the response's text, without special tokens
//   finish_reason  stop_id, stop_string, length or context; with the last two it was cut short
//   prompt_tokens, response_tokens   token ids, if reward.send_tokens is set
// and writes
//   id             as read
//   score          a finite number; or, instead of it,
//   error          text: this response cannot be scored
// and optionally, in addition to a score
//   extra          an object: further values to keep for this response (reward_extra of the files)
// Other members of the answer are ignored. Lines end with a line feed; all text is UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/text/tokenizer.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// The members of a line that depend only on the prompt, with a comma after the last. `truth`:
/// ground truth as JSON; nullopt: there is none.
[[nodiscard]] std::string prompt_members(const Prompt& prompt,
                                         const std::optional<std::string>& truth,
                                         const Tokenizer& tokenizer, bool send_tokens);

[[nodiscard]] std::string worker_id(RequestId id);

/// The line that a worker reads, with its line feed.
[[nodiscard]] std::string request_line(const Trajectory& response, const std::string& prompt,
                                       const Tokenizer& tokenizer, bool send_tokens);

/// A worker's answer.
struct WorkerAnswer {
  enum class Kind : std::uint8_t { score, error, garbage };
  Kind kind = Kind::garbage;
  float score = 0;
  std::string text;   ///< the worker's error, or the reason why the answer is garbage
  std::string extra;  ///< object given with the score, as compact JSON; empty: none
};

/// Parses a line, without its line feed, that answers the request with this id.
[[nodiscard]] WorkerAnswer read_answer(std::string_view line, RequestId id);

}  // namespace paceline::io
