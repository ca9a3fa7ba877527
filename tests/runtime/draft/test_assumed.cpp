// Drafts beyond tokens that were drafted before and are not verified yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "tests/runtime/draft/model_drafter_fixture.hpp"

namespace paceline::draft {
namespace {

/// A request that is drafted ahead of what the target has said.
struct Runner : Told {
  Text ahead;  ///< drafted, and neither said nor contradicted so far
  Text held;   ///< tokens whose KV a model drafter has, its pool permitting
};
struct Asked {
  Runner* runner = nullptr;
  Text assumed;
  Draft draft;
};

Text joined(Text text, const Text& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

bool begins_with(const Text& text, const Text& prefix) {
  return text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin());
}

std::size_t common(const Text& a, const Text& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// What follows a chain's first `size` tokens, with scores that begin there.
Draft rest_of(const Draft& chain, std::size_t size) {
  Draft rest;
  for (std::size_t i = size; i < chain.tokens.size(); ++i) {
    rest.tokens.push_back(chain.tokens[i]);
    rest.parents.push_back(static_cast<std::int32_t>(i - size) - 1);
    rest.scores.push_back(size == 0 ? chain.scores[i] : chain.scores[i] / chain.scores[size - 1]);
  }
  return rest;
}

void expect_same(const Draft& draft, const Draft& expected) {
  EXPECT_EQ(draft.tokens, expected.tokens);
  EXPECT_EQ(draft.parents, expected.parents);
  ASSERT_EQ(draft.scores.size(), expected.scores.size());
  for (std::size_t i = 0; i < draft.scores.size(); ++i)
    EXPECT_NEAR(draft.scores[i], expected.scores[i], 1e-5F * expected.scores[i]);
}

/// Whether a draft model has something to say after these: tokens it has, and no stop.
bool may_go_on(const Text& assumed) {
  return std::none_of(assumed.begin(), assumed.end(), [](TokenId token) {
    return token == kStops[0] || token == kStops[1] || token >= 512;
  });
}

class Assumed : public ModelDrafterFixture {
 protected:
  /// Of a batch that was drafted for, and of all requests.
  using Check =
      std::function<void(const DraftLimits&, std::span<const Asked>, std::span<const Runner>)>;

  /// The draft of a drafter that knows this request alone, to which `said` is committed.
  static Draft alone(Drafter& drafter, const Told& known, const Text& said,
                     const DraftLimits& limits) {
    Told request = known;
    request.response = joined(request.response, said);
    drafter.start(request.start(), 0);
    Draft draft = propose(drafter, request, limits, 128);
    drafter.finish(request.id, 0);
    return draft;
  }

  /// Requests are drafted ahead for, in a random order and by random lengths, and the target agrees
  /// with all of it, with a part or with nothing, goes elsewhere and comes back.
  static void run(Drafter& drafter, std::uint32_t seed, int turns, std::uint32_t siblings,
                  int paths, const Check& check);
};

void Assumed::run(Drafter& drafter, std::uint32_t seed, int turns, std::uint32_t siblings,
                  int paths, const Check& check) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  const int kinds = 2 + below(4);
  const auto some = [&](int count) {
    Text text(count);
    for (TokenId& token : text) token = 20 + below(kinds);
    return text;
  };
  std::vector<Text> prompts(4);
  for (Text& prompt : prompts) prompt = some(1 + below(20));
  std::vector<Runner> runners(4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    runners[i].id = {i / siblings, i % siblings};
    runners[i].prompt = prompts[runners[i].id.prompt];
    runners[i].noise = {seed, i};
    if (below(2) == 0) runners[i].response = some(below(10));
    drafter.start(runners[i].start(), 0);
  }
  for (int turn = 0; turn < turns; ++turn) {
    const int what = below(8);
    Runner& r = runners[below(4)];
    if (what == 0) {
      drafter.leave(r.id, 0);
      drafter.start(r.start(), 0);
      r.held.resize(common(r.held, joined(r.prompt, r.response)));
    } else if (what < 4) {
      Text said(r.ahead.begin(), r.ahead.begin() + below(r.ahead.size() + 1));
      if (below(2) == 0) said = joined(said, some(below(3)));
      std::erase_if(said, [](TokenId token) { return token == kStops[0] || token == kStops[1]; });
      commit(drafter, r, said);
      if (begins_with(r.ahead, said)) {
        r.ahead.erase(r.ahead.begin(), r.ahead.begin() + std::ssize(said));
      } else {
        r.ahead.clear();
      }
    } else {
      std::vector<Asked> asked;
      for (Runner& runner : runners) {
        if (below(3) == 0) continue;
        asked.push_back({&runner, runner.ahead, {}});
        if (below(8) == 0) asked.back().assumed = some(below(6));  // of whatever origin
        if (below(40) == 0) asked.back().assumed.push_back(below(2) == 0 ? kStops[0] : 9999);
      }
      std::shuffle(asked.begin(), asked.end(), random);
      const DraftLimits limits{1 + below(8), 1 + below(6), 1 + below(paths)};
      std::vector<const Told*> told;
      std::vector<Text> assumed;
      for (const Asked& a : asked) {
        told.push_back(a.runner);
        assumed.push_back(a.assumed);
      }
      const std::vector<Draft> drafts = propose(drafter, told, limits, 64, nullptr, assumed);
      for (std::size_t i = 0; i < asked.size(); ++i) asked[i].draft = drafts[i];
      check(limits, asked, runners);
      for (const Asked& a : asked) {
        Text& ahead = a.runner->ahead;
        if (a.assumed == ahead && ahead.size() < 16) ahead = joined(ahead, a.draft.main_path());
      }
    }
  }
}

TEST_F(Assumed, NgramDraftsGoOnAsLongerOnesWould) {
  int rests = 0;
  int anew = 0;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const int min_n = 1 + static_cast<int>(seed % 3);
    const NgramOptions o{min_n, min_n + static_cast<int>(seed % 4)};
    NgramDrafter drafter(o);
    NgramDrafter other(o);
    run(drafter, seed, 60, 2, 1,
        [&](const DraftLimits& limits, std::span<const Asked> batch, std::span<const Runner>) {
          for (const Asked& a : batch) {
            const int length = std::min(limits.max_tokens, limits.max_length);
            const int longer = length + static_cast<int>(a.assumed.size());
            const Draft at_once = alone(other, *a.runner, {}, {longer, longer, 1});
            if (begins_with(at_once.tokens, a.assumed) &&
                at_once.tokens.size() > a.assumed.size()) {
              EXPECT_EQ(a.draft, rest_of(at_once, a.assumed.size())) << "seed " << seed;
              rests += a.assumed.empty() ? 0 : 1;
            } else {
              EXPECT_EQ(a.draft, alone(other, *a.runner, a.assumed, limits)) << "seed " << seed;
              anew += a.draft.tokens.empty() ? 0 : 1;
            }
          }
        });
  }
  EXPECT_GT(rests, 1000);
  EXPECT_GT(anew, 1000);
}

/// What a suffix drafter should propose.
struct Sought {
  Draft draft;
  bool of_group = false;  ///< else of the request's own tree
};
Sought seek(SpeculationOptions options, const DraftLimits& limits, const Told& request,
            const Text& assumed, const NaiveTree& own, const NaiveTree& group) {
  options.limits = limits;
  const Text text = joined(request.response, assumed);
  const NaiveTree::Draft of_own = own.draft(joined(request.prompt, text), options);
  const NaiveTree::Draft of_group = group.draft(text, options);
  Sought sought{{}, of_group.score > of_own.score};
  for (const NaiveTree::Path& path : (sought.of_group ? of_group : of_own).paths) {
    sought.draft.tokens.push_back(path.text.back());
    sought.draft.parents.push_back(path.parent);
    sought.draft.scores.push_back(static_cast<float>(path.probability));
  }
  return sought;
}

TEST_F(Assumed, SuffixDraftsSeekTheLongerTextInTreesThatDoNotHoldIt) {
  ThreadPool pool(2);
  int drafted = 0;
  int rests = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const bool bounds = seed % 2 == 0;  // on matches and probabilities
    SuffixDrafterOptions o;
    o.store.depth = bounds ? 8 : 128;
    o.speculation.offset = bounds ? 0 : 128;
    o.speculation.max_match = bounds ? 6 : 128;
    o.speculation.min_probability = bounds ? 0.1F : 0;
    o.speculation.min_match = bounds ? 1 + static_cast<int>(seed % 3) : 1;
    SuffixDrafter drafter(o, pool);
    run(drafter, seed, 30, 2, bounds ? 3 : 1,
        [&](const DraftLimits& limits, std::span<const Asked> batch,
            std::span<const Runner> runners) {
          for (const Asked& a : batch) {
            const NaiveTree own(o.store.depth, {joined(a.runner->prompt, a.runner->response)});
            std::vector<Text> responses;
            for (const Runner& r : runners) {
              if (r.id.prompt == a.runner->id.prompt) responses.push_back(r.response);
            }
            const NaiveTree group(o.store.depth, responses);
            const Sought sought = seek(o.speculation, limits, *a.runner, a.assumed, own, group);
            EXPECT_EQ(a.draft, sought.draft) << "seed " << seed;
            drafted += a.assumed.empty() || a.draft.tokens.empty() ? 0 : 1;
            if (bounds || a.assumed.empty()) continue;
            const int longer =
                std::min(limits.max_tokens, limits.max_length) + static_cast<int>(a.assumed.size());
            const Sought at_once =
                seek(o.speculation, {longer, longer, 1}, *a.runner, {}, own, group);
            if (begins_with(at_once.draft.tokens, a.assumed) &&
                at_once.draft.tokens.size() > a.assumed.size() &&
                at_once.of_group == sought.of_group) {
              expect_same(a.draft, rest_of(at_once.draft, a.assumed.size()));
              ++rests;
            }
          }
        });
  }
  EXPECT_GT(drafted, 500);
  EXPECT_GT(rests, 200);
}

TEST_F(Assumed, ModelDraftsGoOnAndComputeNothingAgain) {
  int rests = 0;
  int ended = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SamplingParams sampling;
    sampling.temperature = seed % 4 == 0 ? 3 : 1.2F;
    sampling.max_tokens = 40;
    sampling.min_tokens = static_cast<std::int32_t>(seed % 3) * 15;
    ModelDrafterOptions o = options();
    o.max_length = 64;
    o.max_position = seed % 2 == 0 ? kContext : 45;
    const auto other = make(small(), sampling, o);
    o.max_requests = 1 + static_cast<int>(seed % 4);
    o.prefill_chunk = static_cast<int>(seed % 7) * 5;
    const auto drafter = make(small(), sampling, o);
    std::uint64_t rows = 0;
    run(*drafter, seed, 40, 1, 3,
        [&](const DraftLimits& limits, std::span<const Asked> batch, std::span<const Runner>) {
          for (const Asked& a : batch) {
            Runner& r = *a.runner;
            const Text& drafted = a.draft.tokens;
            const Text path = a.draft.main_path();
            if (!may_go_on(a.assumed)) {
              EXPECT_TRUE(drafted.empty()) << "seed " << seed;
              ++ended;
              continue;
            }
            EXPECT_EQ(a.draft, alone(*other, r, a.assumed, limits)) << "seed " << seed;
            if (drafted.empty()) continue;
            const Text text = joined(joined(r.prompt, r.response), a.assumed);
            rows += text.size() - std::min(text.size() - 1, common(r.held, text));
            rows += path.size() - 1;
            r.held = joined(text, {path.begin(), path.end() - 1});

            if (limits.paths > 1 || a.assumed.empty()) continue;
            const int longer =
                std::min(limits.max_tokens, limits.max_length) + static_cast<int>(a.assumed.size());
            const Draft at_once = alone(*other, r, {}, {longer, longer, 1});
            if (!begins_with(at_once.tokens, a.assumed)) continue;
            expect_same(a.draft, rest_of(at_once, a.assumed.size()));
            ++rests;
          }
          EXPECT_EQ(drafter->rows(), rows) << "seed " << seed;
        });
  }
  EXPECT_GT(rests, 200);
  EXPECT_GT(ended, 20);
}

TEST_F(Assumed, ModelDraftsOfASmallPoolAreTheSameOrShorter) {
  int equal = 0;
  int shorter = 0;
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    ModelDrafterOptions o = options();
    const auto large = make(small(), {}, o);
    o.kv_blocks = 4 + static_cast<int>(seed % 10);
    const auto drafter = make(small(), {}, o);
    run(*drafter, seed, 40, 2, 1,
        [&](const DraftLimits& limits, std::span<const Asked> batch, std::span<const Runner>) {
          for (const Asked& a : batch) {
            if (!may_go_on(a.assumed)) continue;
            const Draft whole = alone(*large, *a.runner, a.assumed, limits);
            EXPECT_TRUE(begins_with(whole.tokens, a.draft.tokens)) << "seed " << seed;
            (a.draft == whole ? equal : shorter) += 1;
          }
        });
  }
  EXPECT_GT(equal, 500);
  EXPECT_GT(shorter, 100);
}

TEST_F(Assumed, AChainOfTheModelGrowsByAPassAToken) {
  const auto drafter = make(small(), {}, options());
  Told r = four()[0];
  drafter->start(r.start(), 0);
  const auto ask = [&](const Text& assumed) {
    const std::uint64_t before = drafter->rows();
    const Text tokens = propose(*drafter, {&r}, {4, 4, 1}, 64, nullptr, {assumed})[0].tokens;
    EXPECT_EQ(tokens.size(), 4U);
    return std::pair(tokens, drafter->rows() - before);
  };
  Text ahead = ask({}).first;
  for (int round = 0; round < 3; ++round) {
    const auto [tokens, rows] = ask(ahead);
    EXPECT_EQ(rows, 4U) << "the last of those assumed, and three new ones";
    ahead = joined(ahead, tokens);
  }
  // What is committed of it stays, and what is ahead of that too.
  commit(*drafter, r, {ahead.begin(), ahead.begin() + 6});
  EXPECT_EQ(drafter->lag(r.id), 0);
  EXPECT_EQ(ask({ahead.begin() + 6, ahead.end()}).second, 4U);
  // Less is assumed than was drafted.
  EXPECT_EQ(ask({ahead.begin() + 6, ahead.begin() + 8}).second, 4U);
  // The target disagrees with the second token behind.
  commit(*drafter, r, {ahead[6], (ahead[7] + 1) % 500});
  EXPECT_EQ(ask({}).second, 1U + 3);
}

}  // namespace
}  // namespace paceline::draft
