// A rank that drafts for verifiers on other ranks, ahead of them (decoupled speculation, SpecActor
// section 4.1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/types.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::roles {

struct DrafterOptions {
  policy::DrafterPlace place;  ///< its own
  /// How many tokens are drafted until the verifier has answered is most_ahead() of it.
  int window = 4;
  /// Tokens after which a draft is sent, at most `window`; 0: that many. A rank that has few
  /// requests drafts and sends one at a time: it hears sooner that a draft was refuted, and what it
  /// drafts from there is sooner of use.
  int piece = 0;
  int max_batch = 64;            ///< requests drafted for in one call
  DType features = DType::bf16;  ///< of the target's, where a drafter reads them
};

/// Drafts for every request it was given, a few tokens each in turn, while what it has drafted and
/// the verifier has not answered is less than the window allows. The drafters are asked in their
/// order; a later one for the requests that those before found nothing for. Drafts of a request are
/// chains: a verifier that is behind could not use a tree's other branches.
///
/// A head drafts from the features that verifiers send. Past those it goes on from its own, as
/// EAGLE's chain does, and computes these rows anew once the target's have come. Where some never
/// came (a request that moved, a mailbox that was full) it begins anew with the first that did.
///
/// Nothing that a message says is taken for granted: a rank may have been a drafter that sends
/// anything. What makes no sense is counted (RankSummary::invalid) and dropped.
class DrafterRank final : public Participant {
 public:
  /// `drafters`: not empty. References outlive this.
  DrafterRank(Mailbox& mailbox, const Clock& clock,
              std::vector<std::unique_ptr<draft::Drafter>> drafters, TelemetrySink& telemetry,
              const DrafterOptions& options);

  Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_place_; }
  /// Totals so far; the caller fills in rank, role and memory.
  [[nodiscard]] RankSummary summary() const { return summary_; }
  /// [drafters] Whether a token came in time to be verified is nothing to these.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  struct Request {
    int verifier = 0;
    std::uint64_t version = 0;     ///< of its holder, the verifier
    int window = 1;                ///< its own, at most DrafterOptions::window
    std::int32_t response = 0;     ///< committed tokens
    std::vector<TokenId> ahead;    ///< drafted after the committed text
    std::vector<float> scores;     ///< [ahead] of each, given those before
    std::vector<std::int32_t> by;  ///< [ahead] the drafter that each is from
    std::size_t sent = 0;          ///< of them
    bool exhausted = false;        ///< nothing more is found until the verifier says something
  };
  /// A verifier that tells something hears something within a while, drafts or not.
  struct Correspondence {
    double said = 0;     ///< when it was last sent anything
    bool waits = false;  ///< it has told something since
  };
  void receive();
  void take(const Envelope& envelope);
  void open(int from, const DraftOpen& open);
  void apply(int from, const DraftCommits& commits);
  void observe(int from, const DraftFeatures& message);
  [[nodiscard]] bool usable(const DraftFeatures& message) const;
  void judge(Request& r, std::span<const TokenId> tokens);
  void drop(RequestId id);
  bool draft();
  bool ask(std::int32_t drafter);
  void send_due();
  [[nodiscard]] int piece(const Request& r) const {
    return options_.piece > 0 ? std::min(options_.piece, r.window) : r.window;
  }
  [[nodiscard]] bool at_limit(const Request& r) const {
    return static_cast<int>(r.ahead.size()) >= most_ahead(r.window);
  }
  void say(int verifier, const Drafts& drafts);

  Mailbox& mailbox_;
  const Clock& clock_;
  std::vector<std::unique_ptr<draft::Drafter>> drafters_;
  TelemetrySink& telemetry_;
  DrafterOptions options_;
  std::size_t feature_bytes_ = 0;  ///< that a drafter reads of a position; 0: none does
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;
  std::map<RequestId, Request> requests_;
  std::map<int, Correspondence> verifiers_;
  RequestId next_;             ///< whose turn it is where there are more than fit into a call
  double held_up_since_ = -1;  ///< by verification: all is drafted that may be; -1: it is not
  bool over_ = false;
  std::optional<policy::Placement> next_place_;
  RankSummary summary_;
  std::vector<DraftTally> tallies_;

  // The call under way.
  std::vector<RequestId> asked_;  ///< without a draft yet
  std::vector<draft::DraftSlot> slots_;
  std::vector<TokenId> tokens_;        ///< [slots, window]
  std::vector<std::int32_t> parents_;  ///< likewise
  std::vector<float> path_scores_;     ///< likewise
};

}  // namespace paceline::roles
