// The grouped draft server: keeps the tokens that all verifiers have generated, so that verifiers
// can draft for siblings generated elsewhere (Seer, section 4.4 and table 3).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/earlier_responses.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/draft/group_log.hpp"
#include "runtime/protocol/draft_messages.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::roles {

/// The server applies updates and answers fetches. Only the acceptance of drafts depends on it,
/// never a response. The server trusts no sender, drops messages that make no sense, and serves
/// until its driver stops. An answer has this step's texts first, and then responses of earlier
/// training steps to the same prompt. After its messages, a turn reads a part of these responses.
class DraftServer final : public protocol::Participant {
 public:
  /// References outlive this. `earlier`: the responses of earlier steps; null: there are none.
  /// `servers`: rank of each server; the index is the server's number as a reader of `earlier`.
  DraftServer(Mailbox& mailbox, const Clock& clock, const draft::LogLimits& limits,
              EarlierResponses* earlier = nullptr, std::vector<int> servers = {})
      : mailbox_(mailbox),
        clock_(clock),
        logs_(limits),
        earlier_(earlier),
        servers_(std::move(servers)) {}

  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return false; }

  [[nodiscard]] const draft::GroupLogs& logs() const { return logs_; }
  [[nodiscard]] std::uint64_t nonsense() const { return nonsense_; }  ///< messages dropped

 private:
  struct Asker {
    Address at;
    protocol::DraftFetch fetch;
  };
  void apply(Address from, const protocol::DraftUpdate& update);
  void answer(Asker& asker);
  void add_earlier(protocol::DraftTexts& answer, std::size_t most);
  void ask_for_gaps();
  [[nodiscard]] bool work_on_earlier();

  Mailbox& mailbox_;
  const Clock& clock_;
  draft::GroupLogs logs_;
  EarlierResponses* earlier_;
  std::vector<int> servers_;
  double looked_ = 0;  ///< time of the last look for groups to forget
  std::uint64_t nonsense_ = 0;

  // State of the turn under way.
  std::vector<Asker> askers_;
  struct Teller {
    Address at;
    draft::LogClient client = 0;
    std::uint64_t offset = 0;  ///< response index of the stretch after the gap
  };
  std::map<RequestId, Teller> gaps_;  ///< [requests with a gap] last client that sent its tokens
  std::vector<draft::LoggedText> texts_;
};

}  // namespace paceline::roles
