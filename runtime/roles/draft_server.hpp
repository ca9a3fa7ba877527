// A draft server collects the tokens that verifiers generate for its prompts, so that a verifier
// can draft from other verifiers' responses to the same prompt (Seer, section 4.4 and table 3).
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

/// Verifiers send updates with new tokens, and fetch the tokens of other verifiers. The server
/// affects the acceptance of drafts, but never a response. It trusts no sender, and drops invalid
/// messages. An answer to a fetch has texts of this training step first, and then responses of
/// earlier training steps to the same prompts. Each turn does only a small part of finding and
/// reading these earlier responses, so that fetches do not wait long.
class DraftServer final : public protocol::Participant {
 public:
  /// References outlive this. `earlier`: responses of earlier training steps; null: answers have
  /// none. `servers`: if `earlier` is set, servers[i] is the rank of the server that is reader i.
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
  [[nodiscard]] std::uint64_t nonsense() const { return nonsense_; }  ///< invalid contents dropped

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
  double looked_ = 0;  ///< time at which the server last searched for expired logs
  std::uint64_t nonsense_ = 0;

  // State of the current turn.
  std::vector<Asker> askers_;
  /// A verifier that has sent tokens of a response, while the server lacks tokens before them.
  struct Teller {
    Address at;
    draft::LogClient client = 0;
    std::uint64_t offset = 0;  ///< number of response tokens before the sent ones
  };
  std::map<RequestId, Teller> gaps_;  ///< by request: the last verifier that sent such tokens
  std::vector<draft::LoggedText> texts_;
};

}  // namespace paceline::roles
