// A verifier's part in conversations: responses whose turns an environment answers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/core/request.hpp"
#include "runtime/roles/kv_exchange.hpp"

namespace paceline::roles {

/// A response whose turn has ended leaves its batch and waits here for the answer, in the hands of
/// the verifier that sampled the turn; its KV is stored meanwhile, as after a chunk. A request that
/// goes to another verifier takes its record along, from which the environment there learns of
/// earlier turns. Not thread-safe.
class Conversations {
 public:
  /// `environment`: null where responses are of one turn; outlives this.
  Conversations(Environment* environment, const ConversationLimits& limits)
      : environment_(environment), limits_(limits) {}

  /// Whether any answer to the response's last turn could let it go on, so that its KV is of use.
  [[nodiscard]] bool may_go_on(const Admission& request) const;
  /// A key for the KV of a waiting request. The coordinator makes none of such keys.
  [[nodiscard]] std::uint64_t next_key() { return kOwnKeys | ++keys_; }
  /// The request's turn has ended.
  void ask(Admission request, const KvOrigin& origin);
  [[nodiscard]] bool waits(RequestId id) const { return waiting_.contains(id); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  /// The lease of a request that waits goes on until its response has so many tokens.
  void renew(RequestId id, std::uint32_t until) { waiting_.at(id).request.until = until; }
  /// Adds the requests that wait.
  void add_held(std::vector<RunningRequest>& held) const;

  /// A request whose turn was answered: it goes on, or has ended.
  struct Answered {
    Admission request;
    KvOrigin origin;  ///< of its stored KV
    bool goes_on = false;
  };
  [[nodiscard]] std::vector<Answered> take();
  /// The request goes elsewhere, or has been written as it is.
  void leave(RequestId id);
  /// All that wait, as they are to be resumed: their last turn ends again with its last token,
  /// which is not part of them.
  [[nodiscard]] std::vector<Answered> stop();

 private:
  static constexpr std::uint64_t kOwnKeys = std::uint64_t{1} << 63;
  struct Waiting {
    Admission request;
    KvOrigin origin;
  };
  [[nodiscard]] ConversationLimits limits_of(const Admission& request) const;

  Environment* environment_;
  ConversationLimits limits_;
  std::map<RequestId, Waiting> waiting_;
  std::uint64_t keys_ = 0;  ///< made so far
};

}  // namespace paceline::roles
