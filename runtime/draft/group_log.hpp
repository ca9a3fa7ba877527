// A draft server's logs: for each prompt group the texts of its responses, in the order in which
// they came (Seer, section 4.4, table 3), and the texts of earlier steps' responses.
//
// Texts are sent, not suffix trees. A client appends the tokens that it lacks to its own tree, by
// the code that appends its own requests' tokens, so that speculation reads only the client's
// memory. A token takes 4 bytes in a message, and 61 to 66 in a tree (tests/bench/README.md). New
// tokens also change a tree in many places. With texts the server has next to nothing to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"
#include "runtime/draft/draft_store.hpp"

namespace paceline::draft {

/// The place up to which a client has read a group's log. The client keeps it, so that a server
/// knows nothing of its clients.
struct LogPlace {
  std::uint64_t epoch = 0;  ///< epoch of the log; 0: nothing was read
  std::uint32_t entry = 0;  ///< the next entry to read
  GroupId group = 0;
  std::uint32_t earlier = 0;         ///< the next text of earlier steps to read
  std::uint32_t earlier_tokens = 0;  ///< tokens of this text that were read
};

/// A stretch of one response. The tokens lie in the log, and are valid until it next changes.
struct LoggedText {
  RequestId id;
  std::uint64_t offset = 0;  ///< response tokens before the stretch
  std::span<const TokenId> tokens;
  bool ended = false;     ///< the response ends with the stretch
  std::uint32_t age = 0;  ///< training steps since; 0: a response of this step
};

struct LogLimits {
  std::size_t max_bytes = std::size_t{2} << 30;  ///< limit on the bytes of all groups together
  std::uint32_t samples = 0;  ///< responses to a prompt: when all end, the group ends; 0: never
  std::vector<std::uint32_t> own_samples = {};  ///< [prompts]; empty: `samples` to every prompt
  double ttl = 3600;  ///< seconds that a group lives without being asked for or added to

  [[nodiscard]] std::uint32_t samples_of(std::uint32_t prompt) const {
    return prompt < own_samples.size() ? own_samples[prompt] : samples;
  }
};

/// The name of a client that adds to a log. A client does not read its own tokens.
using LogClient = std::uint64_t;

/// Each request has a text of its own, and a log entry is a stretch of one text. An update says how
/// many tokens come before its own. So tokens told twice, or by a client that no longer holds the
/// request, add nothing, and a gap is noticed.
///
/// A group is forgotten when all its responses have ended, or when nobody has asked for it or added
/// to it for its time to live. If all groups together are past max_bytes, the group that was
/// touched longest ago is given up: it takes in nothing more, which costs its clients only
/// acceptance. Times are seconds on one clock of the caller. Not thread-safe.
class GroupLogs {
 public:
  explicit GroupLogs(const LogLimits& limits) : limits_(limits) {}

  /// Appends the tokens of a request's response after its first `offset` tokens. Returns the number
  /// then held; below `offset`: nothing was added, since tokens between are missing.
  std::uint64_t update(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens,
                       LogClient from, double now);
  /// Returns whether nobody has asked for the group before. Makes the group if need be.
  [[nodiscard]] bool first_asked(GroupId group, double now);
  /// Adds a whole response of `age` training steps ago, >= 1.
  void add_earlier(RequestId id, std::uint32_t age, std::span<const TokenId> tokens, double now);
  /// Marks the response as ended, even if some of its last tokens never came.
  void end(RequestId id, LogClient from, double now);
  /// Number of tokens held of a request's response.
  [[nodiscard]] std::uint64_t held(RequestId id) const;

  /// Appends to `texts` the stretches past `place` that did not come from `client`, and moves the
  /// place on. `most`: tokens after which the fetch stops. Returns how many tokens are left for the
  /// next fetch.
  std::uint64_t fetch(LogPlace& place, LogClient client, std::size_t most, double now,
                      std::vector<LoggedText>& texts);
  /// Appends to `texts` stretches of earlier steps' texts, in the order in which they came, and
  /// moves the place on. Takes exactly `most` tokens if there are that many. A group that was given
  /// up has no such texts.
  void fetch_earlier(LogPlace& place, std::size_t most, double now, std::vector<LoggedText>& texts);
  /// Tokens of earlier steps that a client lacks.
  [[nodiscard]] std::uint64_t left_earlier(const LogPlace& place) const;

  /// Forgets the groups whose time to live is over, and returns their number.
  int expire(double now);
  [[nodiscard]] std::size_t groups() const { return groups_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  /// A part of a text as it came. Stretches are in the order in which they came.
  struct Stretch {
    LogClient from = 0;
    std::uint64_t offset = 0;
    std::uint32_t sample = 0;
    std::uint32_t count = 0;
    bool ended = false;
  };
  struct EarlierText {
    std::uint32_t age = 0;
    std::uint32_t sample = 0;
    std::vector<TokenId> tokens;
  };
  struct Text {
    std::vector<TokenId> tokens;
    bool ended = false;
  };
  struct Group {
    std::uint64_t epoch = 0;
    double touched = 0;  ///< time at which the group was last asked for or added to
    std::size_t bytes = 0;
    bool given_up = false;
    bool asked = false;                   ///< somebody has asked for the group
    std::uint32_t ended = 0;              ///< number of ended texts
    std::map<std::uint32_t, Text> texts;  ///< by sample
    std::vector<Stretch> stretches;
    std::vector<EarlierText> earlier;
  };
  Group& touch(GroupId id, double now);
  void count(Group& group, std::size_t bytes);
  void give_up_oldest();
  void erase(std::map<GroupId, Group>::iterator at);

  LogLimits limits_;
  std::map<GroupId, Group> groups_;
  std::uint64_t last_epoch_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace paceline::draft
