// Interface of the policies that decide draft lengths, and how much of a draft is verified.
// To add one: its file in policy/CMakeLists.txt, its name and properties in
// core/speculation_policy.hpp, its making in make_draft_length.cpp, and a word on it in
// speculation.policy's help (io/config/key_table.cpp). If it chooses paths(): `adapts` in
// app/assembly/make_drafters.cpp, and speculation.paths's help. Tests that list policies:
// tests/mpi/speculation.sh and soak.py, tests/sim/simulate.sh and campaign.py. Users:
// configs/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace paceline::policy {

/// Expected acceptance of one drafter's drafts for one request: of a draft of n tokens, found *
/// (next + next^2 + ... + next^n) are accepted.
struct DraftHope {
  double found = 0;  ///< P(the drafter has a draft at all)
  double next = 0;   ///< P(the next token is drafted and accepted), if it has one
  /// Expected accepted tokens of a draft of `length` tokens.
  [[nodiscard]] double tokens(int length) const;
};

/// A step about to be made. Spans are indexed by request of the batch and used during the call
/// only.
struct DraftQuery {
  int requests = 0;      ///< decoding requests: one row each without drafts
  int prefill_rows = 0;  ///< prompt rows that share the step
  /// Positions that a decoding request attends to, on average; 0: unknown.
  double context = 0;
  std::span<const double> acceptance;  ///< [requests] P(next drafted token is accepted)
  /// [drafters, requests] in the order in which drafters are asked; 0 for a drafter that does not
  /// draft for a request. Empty: there is one drafter, which always has a draft, accepted with
  /// `acceptance`.
  std::span<const DraftHope> hopes;
  std::span<const int> longest_draft;  ///< [requests] most tokens of a useful draft
  /// [requests] committed tokens that the drafter has yet to compute, besides the one or two that
  /// every draft begins with; empty: 0 for every request.
  std::span<const int> lag;
  std::span<const std::int32_t> response = {};  ///< [requests] tokens so far; empty: not known
};

/// Drafted tokens of a batch, by request, in tree order: parents before children.
struct DraftedTokens {
  /// Calibrated probability that the path up to and including the token is accepted; falls along a
  /// path.
  std::span<const double> values;  ///< [tokens]
  std::span<const int> offsets;    ///< [requests + 1] where a request's tokens begin
};

/// A step that was made.
struct StepOutcome {
  int draft_rows = 0;        ///< drafted tokens that were verified
  int committed = 0;         ///< tokens that the decoding requests got
  double draft_seconds = 0;  ///< seconds in drafters; 0 where none was asked
  double step_seconds = 0;   ///< seconds in the engine
  int accepted = 0;          ///< drafted tokens that were accepted
};

/// Decides speculation step by step: considers(); if true, choose(); if any length is not 0,
/// select(); in the end observe(). It is a state machine without a clock whose only randomness is a
/// seed: equal calls get equal answers. No answer can change a trajectory. Not thread-safe.
class DraftLengthPolicy {
 public:
  virtual ~DraftLengthPolicy() = default;

  /// Whether the step may be other than plain. Reads only the query's numbers; its spans may still
  /// be empty.
  virtual bool considers(const DraftQuery& query) = 0;
  /// Chooses before drafting: the longest path to draft for each request, at most its
  /// longest_draft. All 0 is plain decoding: no drafter is called.
  virtual void choose(const DraftQuery& query, std::span<int> lengths) = 0;
  /// Number of parallel paths to draft for a request of the step, at most `most`. Called after
  /// choose(); not all of the paths need be verified.
  [[nodiscard]] virtual int paths(const DraftQuery& /*query*/, int /*request*/, int most) const {
    return most;
  }
  /// Whether to ask a drafter, given by its index in the order in which drafters are asked. Called
  /// after choose().
  [[nodiscard]] virtual bool asks(std::size_t /*drafter*/) const { return true; }
  /// Selects after drafting: keep[i] = 1 for each token to verify. The parents of a kept token are
  /// kept. By default all tokens are.
  virtual void select(const DraftQuery& query, const DraftedTokens& drafted,
                      std::span<std::uint8_t> keep);
  virtual void observe(const StepOutcome& /*outcome*/) {}
};

/// Gives every request the same length, cut to the request's longest_draft. Returns the longest
/// length given.
int draft_alike(const DraftQuery& query, int length, std::span<int> lengths);

/// Measured mean rate of one kind of steps: committed tokens a second. (Nightjar's incremental
/// mean, given after equation 3.)
class MeanGoodput {
 public:
  /// Ignores a step that took no time.
  void record(const StepOutcome& measured);
  [[nodiscard]] int visits() const { return visits_; }
  [[nodiscard]] double value() const { return mean_; }  ///< tokens a second; 0 without visits

 private:
  int visits_ = 0;
  double mean_ = 0;
};

/// Orders tokens by falling value, a request's parents before its children. Every prefix is closed
/// under parents, and the prefix of k tokens is the selection with the most expected accepted
/// tokens under a budget of k rows over the whole batch (TETRIS).
void order_by_value(const DraftedTokens& drafted, std::vector<int>& order);

/// Drafts the same length always, and verifies everything.
class FixedLength final : public DraftLengthPolicy {
 public:
  explicit FixedLength(int length) : length_(length) {}

  bool considers(const DraftQuery&) override { return length_ > 0; }
  void choose(const DraftQuery& query, std::span<int> lengths) override;

 private:
  int length_;
};

}  // namespace paceline::policy
