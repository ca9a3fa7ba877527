// A verifier's side of the grouped draft servers (Seer, section 4.4 and table 4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/draft/group_log.hpp"
#include "runtime/protocol/draft_messages.hpp"

namespace paceline::speculation {

struct DraftClientOptions {
  std::vector<int> servers;   ///< ranks that host a draft server, not empty; prompts go round them
  draft::LogClient name = 0;  ///< unique among all clients of the run, earlier ones included
  std::int32_t vocab = 0;     ///< token ids are below this
  /// Tokens that requests get on average between two exchanges with the servers. A longer interval
  /// saves messages, but siblings' tokens are known later: 32 tokens lose up to 3 % of what drafts
  /// gain, 64 lose 4 to 6 %, 128 lose 6 to 11 % (tests/bench/README.md).
  int exchange_tokens = 32;
  /// Tokens of earlier steps that are taken in between two steps: a token takes about 0.4 us, all
  /// of them a millisecond or two of a step that is held up by it.
  int earlier_tokens = 4096;
  /// A group is forgotten after so many seconds without a request here.
  double ttl = 3600;
};

/// A drafter that learns from siblings, extended to siblings generated elsewhere. The client tells
/// the servers what is committed here, and asks them for what others commit to the groups that have
/// requests here (the paper's register_group). Speculation is the drafter's own, over what it holds
/// itself, and never waits for an answer: a server that lags, does not read or
/// says nothing costs acceptance alone. Nonsense from a server is dropped.
///
/// The client tells and asks in told(), that is, between two steps of a verifier that drafts.
class DraftClient final : public draft::Drafter {
 public:
  /// The drafter learns from siblings. Mailbox and clock outlive this.
  DraftClient(std::unique_ptr<draft::Drafter> drafter, Mailbox& mailbox, const Clock& clock,
              DraftClientOptions options);

  void start(const draft::DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;
  void told() override;
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override {
    drafter_->propose(batch, now, levels);
  }
  [[nodiscard]] bool present() const override { return drafter_->present(); }
  [[nodiscard]] draft::Capabilities capabilities() override { return drafter_->capabilities(); }

  /// Takes a message of a rank's draft server.
  void receive(int from, std::span<const std::byte> message);

  struct Counts {
    std::uint64_t update_bytes = 0;  ///< of updates sent to servers
    std::uint64_t fetch_bytes = 0;   ///< of the servers' answers
    std::uint64_t fetches = 0;       ///< answered fetches
    double fetch_seconds = 0;        ///< from asking until the answer was read, over all fetches
    std::uint64_t heard = 0;         ///< tokens that came with answers
    std::uint64_t most_behind = 0;   ///< most tokens that one answer brought and left together
    std::uint64_t invalid = 0;       ///< messages and stretches that made no sense
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct SharedRequest {
    std::vector<TokenId> response;
    std::size_t told = 0;  ///< response tokens that its server is thought to have
  };
  /// The rest that a server is to be told of a request that is here no more.
  struct Rest {
    RequestId id;
    std::uint64_t offset = 0;
    std::vector<TokenId> tokens;
    bool ended = false;
  };
  struct Group {
    draft::LogPlace place;
    int requests = 0;
    double used = 0;  ///< when a request of the group was last here
  };
  struct Server {
    Address at;
    std::vector<Rest> rests;
    std::size_t rest_tokens = 0;
    std::uint64_t ticket = 0;  ///< of the fetch in flight; 0: none
    double asked = 0;
    // The exchange under way.
    bool reads = true;  ///< its mailbox has room
    protocol::DraftUpdate update;
    protocol::DraftFetch fetch;
  };
  [[nodiscard]] Server& server_of(RequestId id) { return servers_[id.prompt % servers_.size()]; }
  SharedRequest& request(RequestId id);
  void end(RequestId id, bool ended, double now);
  void exchange();
  static void add(protocol::DraftUpdate& update, RequestId id, std::uint64_t offset,
                  std::span<const TokenId> tokens, bool ended);
  void take(Server& server, const protocol::DraftTexts& texts);

  std::unique_ptr<draft::Drafter> drafter_;
  Mailbox& mailbox_;
  const Clock& clock_;
  DraftClientOptions options_;
  std::vector<Server> servers_;
  std::map<RequestId, SharedRequest> requests_;
  std::map<draft::GroupId, Group> groups_;
  std::size_t committed_ = 0;  ///< tokens since the last exchange
  bool due_ = false;           ///< an exchange is due, whatever was committed
  std::uint64_t last_ticket_ = 0;
  Counts counts_;
};

}  // namespace paceline::speculation
