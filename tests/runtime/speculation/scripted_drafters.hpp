// Drafters that are told what to say, and a run of a speculator with them and an engine without a
// model.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "runtime/speculation/speculator.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::speculation {

constexpr int kPrompts = 3;
constexpr int kSamples = 4;

using Texts = std::map<RequestId, std::vector<TokenId>>;

class SteppedClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time += 0.001; }
  mutable double time = 0;
};

/// What happened to a scripted drafter.
struct Log {
  std::set<RequestId> started, finished;
  Texts committed;
  std::size_t tellings = 0;           ///< of committed tokens
  int proposals = 0;                  ///< slots filled
  std::map<RequestId, int> asked_of;  ///< slots by request
};

/// Drafts what is known to come, wrong from token `wrong_at` of a draft on, with a score a token.
class ScriptedDrafter : public draft::Drafter {
 public:
  ScriptedDrafter(const Texts& truth, int wrong_at, float score, Log& log)
      : truth_(truth), wrong_at_(wrong_at), score_(score), log_(log) {}

  void start(const draft::DraftStart& s, double /*now*/) override {
    EXPECT_FALSE(s.prompt.empty());
    EXPECT_TRUE(log_.started.insert(s.id).second);
    log_.committed[s.id].assign(s.response.begin(), s.response.end());
  }
  void commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) override {
    std::vector<TokenId>& text = log_.committed.at(id);
    text.insert(text.end(), tokens.begin(), tokens.end());
    ++log_.tellings;
  }
  void propose(std::span<draft::DraftSlot> batch, double /*now*/,
               draft::Levels* /*levels*/) override {
    for (draft::DraftSlot& slot : batch) {
      ++log_.proposals;
      ++log_.asked_of[slot.id];
      const std::vector<TokenId>& truth = truth_.at(slot.id);
      const std::size_t at = log_.committed.at(slot.id).size() + slot.assumed.size();
      slot.count = 0;
      float path = 1;
      while (slot.count < slot.limits.max_length && slot.count < slot.limits.max_tokens &&
             at + slot.count < truth.size()) {
        const TokenId right = truth[at + slot.count];
        path *= score_;
        slot.output.set(slot.count, slot.count < wrong_at_ ? right : (right + 1) % kVocab,
                        slot.count - 1, path);
        ++slot.count;
      }
      if (slot.limits.paths == 1) continue;
      // A second path: another first token.
      const auto room = static_cast<int>(slot.output.tokens.size());
      if (slot.count > 0 && slot.count < std::min(slot.limits.max_tokens, room)) {
        slot.output.set(slot.count++, (slot.output.tokens[0] + 3) % kVocab, -1, path / 2);
      }
    }
  }
  void finish(RequestId id, double /*now*/) override {
    EXPECT_TRUE(log_.finished.insert(id).second);
  }

 private:
  const Texts& truth_;
  int wrong_at_;
  float score_;
  Log& log_;
};

/// As if on another rank, which may not be there.
class AheadDrafter final : public ScriptedDrafter {
 public:
  AheadDrafter(const Texts& truth, int wrong_at, Log& log, bool present)
      : ScriptedDrafter(truth, wrong_at, 0.9F, log), present_(present) {}
  [[nodiscard]] bool present() const override { return present_; }
  [[nodiscard]] draft::Capabilities capabilities() override { return {.ahead = true}; }

 private:
  bool present_;
};

/// Reads what the target computed: of BlockCheckingRunner the text itself.
class ReadingDrafter final : public ScriptedDrafter, public draft::FeatureReader {
 public:
  ReadingDrafter(const Texts& truth, int wrong_at, Log& log, Texts& read)
      : ScriptedDrafter(truth, wrong_at, 0.9F, log), read_(read) {}
  [[nodiscard]] std::size_t feature_bytes() const override { return sizeof(TokenId); }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override {
    const auto [at, begins] = read_.try_emplace(id, first, -1);  // what a sibling computed
    EXPECT_EQ(first, std::ssize(at->second));
    EXPECT_FALSE(features.empty());
    at->second.resize(first + features.size() / sizeof(TokenId));
    std::memcpy(at->second.data() + first, features.data(), features.size());
  }
  [[nodiscard]] draft::Capabilities capabilities() override { return {.features = this}; }

 private:
  Texts& read_;
};

/// A roster of these drafters, of which nothing is known.
template <typename... Drafters>
DrafterRoster roster_of(std::unique_ptr<Drafters>... drafters) {
  DrafterRoster roster;
  (roster.push_back({.drafter = std::move(drafters)}), ...);
  return roster;
}

struct Outcome {
  Texts texts;
  std::size_t steps = 0;
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
};

/// Somebody who is ahead of a run by so many tokens of every third request's.
struct Foreteller {
  const Texts& truth;
  int ahead = 0;
  [[nodiscard]] std::span<const TokenId> next(const engine::Decoding& d) const {
    if (d.id.sample % 3 != 0) return {};
    const auto rest = std::span(truth.at(d.id)).subspan(d.response);
    return rest.first(std::min<std::size_t>(rest.size(), ahead));
  }
};

inline Outcome run(Speculator* speculator, const Clock& clock,
                   const Foreteller* foreteller = nullptr) {
  SamplingParams sampling;
  sampling.max_tokens = 60;
  engine::Batcher batcher(
      {.max_batch = 5, .prefill_chunk = 30, .kv_block = 16, .kv_blocks = 90, .context = 500},
      sampling, {kStop}, nullptr);
  engine::BlockCheckingRunner runner(90, 16, kVocab);
  // Without the first prompt, of one token: it would decode in every step, and some are to prefill
  // alone.
  std::deque<Admission> queue = requests(1 + kPrompts, kSamples);
  queue.erase(queue.begin(), queue.begin() + kSamples);
  if (speculator != nullptr) {
    for (const Admission& r : queue) speculator->start(r);
  }
  Outcome outcome;
  while (!queue.empty() || batcher.active() > 0) {
    while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
    std::span<const engine::DraftTree> drafts;
    if (speculator != nullptr) {
      const std::span<const engine::Decoding> decoding = batcher.decoding();
      std::vector<std::span<const TokenId>> foretold;
      for (const engine::Decoding& d : decoding) {
        if (foreteller != nullptr) foretold.push_back(foreteller->next(d));
      }
      drafts = speculator->draft(decoding, batcher.prefill_rows(), foretold);
      EXPECT_TRUE(drafts.empty() || drafts.size() == decoding.size());
    }
    const engine::Step& step = batcher.plan(drafts);
    outcome.drafted += batcher.counts().drafted;
    for (const Trajectory& t : batcher.commit(runner.run(step))) outcome.texts[t.id] = t.tokens;
    if (speculator != nullptr) {
      if (speculator->observes()) speculator->observe(batcher.computed(), runner);
      speculator->commit(batcher.committed(), clock.now());
      outcome.accepted += speculator->accepted();
    }
    ++outcome.steps;
  }
  return outcome;
}

}  // namespace paceline::speculation
