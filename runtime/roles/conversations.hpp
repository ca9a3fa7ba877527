// A verifier's part in conversations: responses whose turns an environment answers.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/core/admission.hpp"
#include "runtime/core/environment.hpp"
#include "runtime/core/request.hpp"
#include "runtime/policy/schedule/request_table.hpp"

namespace paceline::roles {

/// A response whose turn has ended leaves its batch and waits here for the environment's answer.
/// Meanwhile its verifier holds the request. If the response may go on after the answer, its KV is
/// put into the stores of the group's ranks. If the request later moves to another verifier, the
/// environment there learns of the earlier turns from the trajectory. Not thread-safe.
class Conversations {
 public:
  /// `environment`: null if each response is a single turn; outlives this.
  Conversations(Environment* environment, const ConversationLimits& limits)
      : environment_(environment), limits_(limits) {}

  /// Whether the limits allow the response another turn. If not, its KV is not needed any more.
  [[nodiscard]] bool may_go_on(const Admission& request) const;
  /// Returns a new key for the KV of a waiting request. The coordinator never makes the same key.
  [[nodiscard]] std::uint64_t next_key() { return kOwnKeys | ++keys_; }
  /// Asks the environment to answer the request's last turn. `kv`: the request's stored KV, if any.
  void ask(Admission request, const policy::KeptKv& kv);
  [[nodiscard]] bool waits(RequestId id) const { return waiting_.contains(id); }
  [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
  /// Extends a waiting request's lease until its response has `until` tokens.
  void renew(RequestId id, std::uint32_t until) { waiting_.at(id).request.until = until; }
  void add_held(std::vector<RequestLength>& held) const;

  /// A request that waits no more, because its turn was answered or the run stops (stop()).
  struct Answered {
    Admission request;
    policy::KeptKv kv;     ///< the request's stored KV, if any
    bool goes_on = false;  ///< false: the response has ended
  };
  [[nodiscard]] std::vector<Answered> take();
  /// Tells the environment that the request leaves this verifier. The request must not be waiting.
  void leave(RequestId id);
  /// Returns all requests that wait, each without the last token of its last turn. A resumed run
  /// samples this token again, and so ends the turn again.
  [[nodiscard]] std::vector<Answered> stop();

 private:
  static constexpr std::uint64_t kOwnKeys = std::uint64_t{1} << 63;
  struct Waiting {
    Admission request;
    policy::KeptKv kv;
  };
  [[nodiscard]] ConversationLimits limits_of(const Admission& request) const;

  Environment* environment_;
  ConversationLimits limits_;
  std::map<RequestId, Waiting> waiting_;
  std::uint64_t keys_ = 0;  ///< number of keys made so far
};

}  // namespace paceline::roles
