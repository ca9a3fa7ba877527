// Lines that environment workers read and write (environment_pool.hpp): one JSON object each.
//
// A worker reads
//   id             text that its answer repeats: PROMPT:SAMPLE, indices from 0
//   turn           number of the turn that has ended, from 0; at 0 a conversation begins
//   text           the turn's text, without special tokens
//   tokens         its ids
//   finish_reason  why it ended: stop_id, stop_string, length or context
//   last           true: the response has no room for another turn, so that only `reward` and
//                  `extra` of the answer count
//   uid, prompt, data_source, ground_truth, extra_info, fields   the prompt's, as reward workers
//                  read them (worker_line.hpp)
//   replay         true: the turn was answered before, by a worker that is gone or elsewhere, and
//                  what is said now does not count
//   observation    with replay: the tokens that were given then
//   close          true, and nothing but `id` beside it: the conversation has come to a limit, or
//                  goes on elsewhere; an answer is awaited, of which `id` alone counts
// and writes
//   id             as read
//   observation    what the model is to read before its next turn: text; a list of messages
//                  {role, content}; or a list of token ids, which are taken as they are
//   done           true: the conversation is over
// and optionally
//   reward         a finite number, of the turn: a response has the sum over its turns
//   extra          an object: further values to keep beside the response's reward (reward_extra of
//                  the files), as the last answer has them
//   error          text, in place of the others: this conversation cannot go on
// Other members of the answer are ignored. Members that are not as above count as an error; a line
// that is no JSON object with the id read is no answer. Lines end in a line feed; all text is
// UTF-8.
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

/// How a turn is told.
struct TurnTelling {
  bool last = false;
  bool replay = false;
};

/// The line of the turn of this number, which has ended. `prompt`: prompt_members().
[[nodiscard]] std::string turn_line(const Trajectory& response, std::size_t turn,
                                    const std::string& prompt, const Tokenizer& tokenizer,
                                    const TurnTelling& telling);
[[nodiscard]] std::string close_line(RequestId id);

/// A worker's answer.
struct TurnAnswer {
  enum class Kind : std::uint8_t { answer, error, garbage };
  Kind kind = Kind::garbage;
  /// What the worker did, where it is an error: "says: ..." or "wrote ..."; or why the answer is
  /// garbage.
  std::string text;
  /// Nothing, a text, messages or ids.
  std::variant<std::monostate, std::string, std::vector<ChatMessage>, std::vector<TokenId>>
      observation;
  bool done = false;
  float reward = std::numeric_limits<float>::quiet_NaN();
  std::string extra;  ///< compact JSON of an object; empty: none
};

/// Parses a line without its line feed, in answer to one with this id. `counts`: false where no
/// more than the id is looked at.
[[nodiscard]] TurnAnswer read_turn_answer(std::string_view line, RequestId id, bool counts);

}  // namespace paceline::io
