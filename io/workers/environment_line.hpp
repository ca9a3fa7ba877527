// Lines that environment workers read and write (environment_pool.hpp), each one JSON object.
//
// A worker reads
//   id             text that the answer repeats: PROMPT:SAMPLE, indices from 0
//   turn           number of the turn that has ended, from 0; at 0 a conversation begins
//   text           the turn's text, without special tokens
//   tokens         the turn's token ids
//   finish_reason  why the turn ended: stop_id, stop_string, length or context
//   last           true: the response has no room for another turn, so that of the answer only
//                  `reward` and `extra` count
//   uid, prompt, data_source, ground_truth, extra_info, fields   about the prompt, as for reward
//                  workers (worker_line.hpp)
//   replay         true: the turn was answered before, by a worker that is gone or on another rank,
//                  and the new answer does not count
//   observation    with replay: the token ids that were given then
//   close          true; the line then has only `id` in addition. The conversation has come to a
//                  limit, or goes on elsewhere. An answer is awaited, of which only `id` counts
// and writes
//   id             as read
//   observation    input of the model before its next turn: text; a list of messages
//                  {role, content}; or a list of token ids, which are taken unchanged
//   done           true: the conversation is over
// and optionally
//   reward         a finite number, the reward of the turn; a response has the sum over its turns
//   extra          an object: further values to keep with the response's reward (reward_extra of
//                  the files); the last answer's counts
//   error          text, instead of the others: this conversation cannot go on
// Other members of the answer are ignored. A member of another form than above counts as an error.
// A line that is no JSON object with the id read is no answer. Lines end with a line feed; all text
// is UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

/// Kind of a line about a turn.
struct TurnTelling {
  bool last = false;    ///< no turn can follow
  bool replay = false;  ///< the turn was answered before
};

/// The line about turn number `turn`, which has ended. `prompt`: from prompt_members().
[[nodiscard]] std::string turn_line(const Trajectory& response, std::size_t turn,
                                    const std::string& prompt, const Tokenizer& tokenizer,
                                    const TurnTelling& telling);
[[nodiscard]] std::string close_line(RequestId id);

/// A worker's answer.
struct TurnAnswer {
  enum class Kind : std::uint8_t { answer, error, garbage };
  Kind kind = Kind::garbage;
  /// If it is an error: what the worker did, as "says: ..." or "wrote ...". If it is garbage: the
  /// reason.
  std::string text;
  /// Nothing, text, messages or token ids.
  std::variant<std::monostate, std::string, std::vector<ChatMessage>, std::vector<TokenId>>
      observation;
  bool done = false;
  float reward = std::numeric_limits<float>::quiet_NaN();
  std::string extra;  ///< compact JSON of an object; empty: none
};

/// Parses a line, without its line feed, that answers the line with this id. `counts`: false if
/// only the id is read.
[[nodiscard]] TurnAnswer read_turn_answer(std::string_view line, RequestId id, bool counts);

}  // namespace paceline::io
