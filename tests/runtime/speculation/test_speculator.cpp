// The speculator between drafters that are told what to say and an engine without a model.
#include <gtest/gtest.h>

#include "tests/runtime/speculation/scripted_drafters.hpp"

namespace paceline::speculation {
namespace {
TEST(Speculator, FeedsDraftersVerifiesTheirDraftsAndCounts) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  for (const int paths : {1, 2}) {
    Log log;
    Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 3, 0.9F, log)),
                          std::make_unique<policy::FixedLength>(5),
                          {.max_tokens = 6, .max_length = 5, .paths = paths}, clock);
    const Outcome outcome = run(&speculator, clock);
    EXPECT_EQ(outcome.texts, plain.texts);
    EXPECT_LT(outcome.steps, plain.steps / 2);
    EXPECT_EQ(log.committed, plain.texts);
    EXPECT_EQ(log.finished.size(), plain.texts.size());

    std::uint64_t drafted = 0;
    std::uint64_t accepted = 0;
    std::map<std::uint32_t, std::uint64_t> by_position;
    for (const AcceptanceCell& cell : speculator.acceptance()) {
      EXPECT_EQ(cell.drafter, 0U);
      EXPECT_LE(cell.batch, 4U);  // of at most five
      EXPECT_LE(cell.progress, 32U);
      EXPECT_GE(cell.drafted, cell.accepted);
      drafted += cell.drafted;
      accepted += cell.accepted;
      by_position[cell.position] += cell.accepted;
    }
    EXPECT_EQ(drafted, outcome.drafted);
    EXPECT_EQ(accepted, outcome.accepted);
    // Judged: the three that are right, and the fourth where the text goes on that far. The second
    // path is less likely than the first, and is not counted.
    const DraftTally tally = speculator.tallies()[0];
    EXPECT_EQ(tally.accepted, accepted);
    EXPECT_GT(tally.tried, accepted + accepted / 4);
    EXPECT_LE(tally.tried, accepted + accepted / 3 + plain.texts.size());
    EXPECT_GT(by_position[3], 0U);
    EXPECT_EQ(by_position[4], 0U);  // every draft is wrong from its fourth token on
  }
}

TEST(Speculator, TellsDraftersWhatTheTargetComputed) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  for (const int paths : {1, 2}) {
    Log log;
    Texts read;
    Speculator speculator(roster_of(std::make_unique<ReadingDrafter>(plain.texts, 2, log, read)),
                          std::make_unique<policy::FixedLength>(3),
                          {.max_tokens = 6, .max_length = 3, .paths = paths}, clock);
    EXPECT_TRUE(speculator.observes());
    EXPECT_EQ(run(&speculator, clock).texts, plain.texts);
    for (const auto& [id, text] : plain.texts)
      EXPECT_TRUE(read.contains(id) || text.size() <= 4) << "it did not end in its first step";
    std::size_t whole = 0;
    for (const auto& [id, seen] : read) {
      std::vector<TokenId> text = request(id.prompt, id.sample).prompt;
      const std::size_t prompt = text.size();
      text.insert(text.end(), plain.texts.at(id).begin(), plain.texts.at(id).end());
      const auto first = std::find_if(seen.begin(), seen.end(), [](TokenId t) { return t >= 0; });
      whole += first == seen.begin() ? 1 : 0;
      EXPECT_LE(first - seen.begin(), static_cast<std::ptrdiff_t>(prompt) - 1);
      EXPECT_TRUE(std::equal(first, seen.end(), text.begin() + (first - seen.begin())));
      EXPECT_LT(seen.size(), text.size());
      EXPECT_GE(seen.size() + 5, text.size());  // but for its last step
    }
    EXPECT_EQ(whole, kPrompts);  // siblings share what one computes
  }
}

TEST(Speculator, DraftsGoOnAfterWhatIsForetold) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  std::size_t steps_before = plain.steps;
  for (const int ahead : {0, 1, 3, 6, 20}) {
    const Foreteller foreteller{plain.texts, ahead};
    Log log;
    Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 2, 0.9F, log)),
                          std::make_unique<policy::FixedLength>(3),
                          {.max_tokens = 6, .max_length = 3}, clock);
    const Outcome outcome = run(&speculator, clock, &foreteller);
    EXPECT_EQ(outcome.texts, plain.texts);
    EXPECT_LE(outcome.steps, steps_before);  // requests that nothing is foretold of take as many
    steps_before = outcome.steps;
    // What is foretold is no drafter's: of its own tokens each third is wrong.
    for (const AcceptanceCell& cell : speculator.acceptance()) {
      EXPECT_LE(cell.position, 3U);
      EXPECT_TRUE(cell.position < 3 || cell.accepted == 0);
    }
    const DraftTally tally = speculator.tallies()[0];
    EXPECT_GT(tally.tried, 100U);
    EXPECT_NEAR(static_cast<double>(tally.accepted) / static_cast<double>(tally.tried), 0.67, 0.03);
    EXPECT_EQ(ahead == 0, outcome.accepted == tally.accepted);
  }
}

TEST(Speculator, WhatIsForetoldIsVerifiedWhateverThePolicySays) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  const Foreteller foreteller{plain.texts, 20};
  Log log;
  Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 2, 0.9F, log)),
                        std::make_unique<policy::FixedLength>(0),
                        {.max_tokens = 6, .max_length = 3}, clock);
  const Outcome outcome = run(&speculator, clock, &foreteller);
  EXPECT_EQ(outcome.texts, plain.texts);
  EXPECT_GT(outcome.accepted, 100U);
  EXPECT_EQ(outcome.accepted, outcome.drafted);
  EXPECT_EQ(log.proposals, 0);
}

TEST(Speculator, VerifiesNothingWhereThePolicySaysNothing) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  Log log;
  Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 8, 0.9F, log)),
                        std::make_unique<policy::FixedLength>(0), {}, clock);
  const Outcome outcome = run(&speculator, clock);
  EXPECT_EQ(outcome.texts, plain.texts);
  EXPECT_EQ(outcome.steps, plain.steps);
  EXPECT_EQ(log.proposals, 0);
  EXPECT_EQ(log.committed, plain.texts);
}

/// Checks the order of its calls, and that what is observed was chosen for.
class AuditedPolicy final : public policy::DraftLengthPolicy {
 public:
  explicit AuditedPolicy(int& prefills) : prefills_(prefills) {}

  bool considers(const policy::DraftQuery&) override { return true; }
  void choose(const policy::DraftQuery& query, std::span<int> lengths) override {
    EXPECT_FALSE(chosen_);
    chosen_ = true;
    requests_ = query.requests;
    prefills_ += query.requests == 0 && query.prefill_rows > 0 ? 1 : 0;
    for (int r = 0; r < query.requests; ++r) lengths[r] = std::min(2, query.longest_draft[r]);
  }
  void select(const policy::DraftQuery&, const policy::DraftedTokens&,
              std::span<std::uint8_t> keep) override {
    EXPECT_TRUE(chosen_);
    std::fill(keep.begin(), keep.end(), 1);
  }
  void observe(const policy::StepOutcome& outcome) override {
    EXPECT_TRUE(chosen_);
    chosen_ = false;
    EXPECT_GE(outcome.committed, requests_);
    EXPECT_LE(outcome.committed, requests_ + outcome.draft_rows);
    EXPECT_LE(outcome.draft_rows, 2 * requests_);
  }

 private:
  int& prefills_;
  bool chosen_ = false;
  int requests_ = 0;
};

TEST(Speculator, AsksThePolicyBeforeEveryStepAlsoWhereAllPrefill) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  Log log;
  int prefills = 0;
  Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 8, 0.9F, log)),
                        std::make_unique<AuditedPolicy>(prefills), {}, clock);
  EXPECT_EQ(run(&speculator, clock).texts, plain.texts);
  EXPECT_GT(prefills, 0);
}

/// Two levels, each a wrong leaf before the right token. The first right token is wrong too for
/// every other draft of a request; the second would be right after it.
class TwoLevelDrafter final : public draft::Drafter {
 public:
  static constexpr float kLeaf = 0.1F, kFirst = 0.8F, kSecond = 0.6F;  ///< conditional scores

  explicit TwoLevelDrafter(const Texts& truth) : truth_(truth) {}
  void start(const draft::DraftStart& s, double /*now*/) override { size_[s.id] = 0; }
  void commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) override {
    size_.at(id) += tokens.size();
  }
  void propose(std::span<draft::DraftSlot> batch, double /*now*/,
               draft::Levels* /*levels*/) override {
    for (draft::DraftSlot& slot : batch) {
      const std::span<const TokenId> left = std::span(truth_.at(slot.id)).subspan(size_[slot.id]);
      slot.count = 0;
      if (left.size() < 2 || slot.limits.max_tokens < 4) continue;
      const int off = ++drafts_[slot.id] % 2;
      const auto other = [](TokenId token, int by) { return (token + by) % kVocab; };
      slot.output.set(0, other(left[0], 2), -1, kLeaf);
      slot.output.set(1, other(left[0], off), -1, kFirst);
      slot.output.set(2, other(left[1], 2), 1, kFirst * kLeaf);
      slot.output.set(3, left[1], 1, kFirst * kSecond);
      slot.count = 4;
    }
  }
  void finish(RequestId id, double /*now*/) override { size_.erase(id); }

 private:
  const Texts& truth_;
  std::map<RequestId, std::size_t> size_;
  std::map<RequestId, int> drafts_;
};

/// Drops the first of each draft's leaves, and keeps what it was told.
class DropsALeaf final : public policy::DraftLengthPolicy {
 public:
  struct Seen {
    double acceptance = 0;       ///< highest of any request and step
    std::vector<double> values;  ///< of the draft last seen
  };
  explicit DropsALeaf(Seen& seen) : seen_(seen) {}

  bool considers(const policy::DraftQuery&) override { return true; }
  void choose(const policy::DraftQuery& query, std::span<int> lengths) override {
    for (const double p : query.acceptance) seen_.acceptance = std::max(seen_.acceptance, p);
    for (int r = 0; r < query.requests; ++r) lengths[r] = std::min(2, query.longest_draft[r]);
  }
  void select(const policy::DraftQuery& query, const policy::DraftedTokens& drafted,
              std::span<std::uint8_t> keep) override {
    for (int r = 0; r < query.requests; ++r) {
      if (drafted.offsets[r] == drafted.offsets[r + 1]) continue;
      const auto own = drafted.values.subspan(drafted.offsets[r], 4);
      seen_.values.assign(own.begin(), own.end());
      for (const int kept : {1, 2, 3}) keep[drafted.offsets[r] + kept] = 1;
    }
  }
  void observe(const policy::StepOutcome&) override {}

 private:
  Seen& seen_;
};

TEST(Speculator, CompactsWhatThePolicyKeepsAndLearnsFromWhatWasJudged) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  DropsALeaf::Seen seen;
  Speculator speculator(roster_of(std::make_unique<TwoLevelDrafter>(plain.texts)),
                        std::make_unique<DropsALeaf>(seen),
                        {.max_tokens = 4, .max_length = 2, .paths = 2}, clock);
  const Outcome outcome = run(&speculator, clock);
  EXPECT_EQ(outcome.texts, plain.texts);

  std::map<std::uint32_t, std::uint64_t> drafted, accepted;  // by position
  for (const AcceptanceCell& cell : speculator.acceptance()) {
    drafted[cell.position] += cell.drafted;
    accepted[cell.position] += cell.accepted;
  }
  EXPECT_EQ(drafted.size(), 2U);
  EXPECT_EQ(drafted[2], 2 * drafted[1]);  // two tokens and one
  EXPECT_GT(accepted[2], 50U);
  // The second token is right whenever the first is, but where the text ends with the first.
  EXPECT_LE(accepted[1] - accepted[2], plain.texts.size());

  ASSERT_EQ(seen.values.size(), 4U);
  EXPECT_LT(seen.values[2], 0.1);                    // a leaf never is right
  EXPECT_NEAR(seen.values[1], 0.5, 0.15);            // every other first token
  EXPECT_GT(seen.values[3], 0.85 * seen.values[1]);  // unjudged second ones do not count
  EXPECT_LT(seen.acceptance, 0.75);                  // of three tokens one is refused
}

/// Considers every so many steps.
class SeldomPolicy final : public policy::DraftLengthPolicy {
 public:
  explicit SeldomPolicy(int every) : every_(every) {}
  bool considers(const policy::DraftQuery&) override { return ++steps_ % every_ == 0; }
  void choose(const policy::DraftQuery& query, std::span<int> lengths) override {
    for (int r = 0; r < query.requests; ++r) lengths[r] = std::min(2, query.longest_draft[r]);
  }
  void select(const policy::DraftQuery&, const policy::DraftedTokens&,
              std::span<std::uint8_t> keep) override {
    std::fill(keep.begin(), keep.end(), 1);
  }
  void observe(const policy::StepOutcome&) override {}

 private:
  int every_;
  int steps_ = 0;
};

TEST(Speculator, TellsDraftersAllOfTheTextBeforeTheyAreAskedAndAtTheEnd) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  for (const int every : {3, 1'000'000}) {
    Log log;
    Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 8, 0.9F, log)),
                          std::make_unique<SeldomPolicy>(every), {}, clock);
    EXPECT_EQ(run(&speculator, clock).texts, plain.texts);
    EXPECT_EQ(log.committed, plain.texts);
    EXPECT_EQ(log.finished.size(), plain.texts.size());
    std::uint64_t rejected = 0;  // the drafter knows the truth after what it was told
    for (const AcceptanceCell& cell : speculator.acceptance())
      rejected += cell.drafted - cell.accepted;
    EXPECT_EQ(rejected, 0U);
    EXPECT_EQ(log.proposals > 0, every == 3);
    // What was committed of a request is told together.
    if (log.proposals == 0) {
      EXPECT_EQ(log.tellings, plain.texts.size());
    }
  }
}

TEST(Speculator, ARequestThatComesBackIsToldOfFirst) {
  const SteppedClock clock;
  const Texts truth{{{0, 0}, {1, 2, 3}}};
  Log log;
  Speculator speculator(roster_of(std::make_unique<ScriptedDrafter>(truth, 8, 0.9F, log)),
                        std::make_unique<policy::FixedLength>(0), {}, clock);
  Admission request;
  request.prompt = {1};
  request.trajectory.id = {0, 0};
  speculator.start(request);
  request.trajectory.id = {1, 0};
  speculator.start(request);
  const std::vector<TokenId> text{1, 2};
  engine::Committed committed;
  committed.id = {0, 0};
  committed.tokens = text;
  committed.finished = true;
  speculator.commit({&committed, 1}, 0);
  EXPECT_TRUE(log.finished.empty());
  log.started.clear();
  request.trajectory.id = {0, 0};
  request.trajectory.tokens = text;
  speculator.start(request);
  EXPECT_EQ(log.finished.size(), 1U);
  EXPECT_EQ(log.committed.at({0, 0}), text);
}

TEST(Speculator, NeedsADrafter) {
  const SteppedClock clock;
  EXPECT_THROW(Speculator({}, std::make_unique<policy::FixedLength>(1), {}, clock),
               std::invalid_argument);
}

}  // namespace
}  // namespace paceline::speculation
