// Requests that come and go, drafters that give their memory back, and pools that are too small:
// what is drafted then is what would be drafted otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "tests/runtime/draft/model_drafter_fixture.hpp"

namespace paceline::draft {
namespace {

class DrafterTurns : public ModelDrafterFixture {
 protected:
  /// Rows that a draft of `length` tokens takes.
  static std::uint64_t rows_of(ModelDrafter& drafter, const Told& request, int length) {
    const std::uint64_t before = drafter.rows();
    static_cast<void>(propose(drafter, request, {length, length, 1}));
    return drafter.rows() - before;
  }

  struct Counts {
    int equal = 0;    ///< drafts of full length
    int shorter = 0;  ///< or none
    int returned = 0;
  };
  /// Requests start, grow, leave, come back and end in a random order, told to two drafters.
  /// `moved` hears of all of it, and may be suspended. `still` never hears that a request left, and
  /// hears what was committed elsewhere when the request is back. Where `moved` may be short of
  /// memory, its drafts may be shorter.
  static Counts compare(Drafter& moved, Drafter& still, std::uint32_t seed, bool may_be_short);
};

DrafterTurns::Counts DrafterTurns::compare(Drafter& moved, Drafter& still, std::uint32_t seed,
                                           bool may_be_short) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  const auto tokens_of = [&](int count, int kinds) {
    Text text(count);
    for (TokenId& token : text) token = 20 + below(kinds);
    return text;
  };
  std::vector<Text> prompts;
  for (const int size : {1, 16, 17, 40}) prompts.push_back(tokens_of(size, 8));
  std::map<RequestId, Told> here;
  std::map<RequestId, std::pair<Told, std::size_t>> elsewhere;  ///< size of the response it had
  MemoryGiver* giver = moved.capabilities().memory;
  bool suspended = false;
  double now = 0;
  Counts counts;
  const auto tell = [&](Told& r, const Text& tokens) {
    moved.commit(r.id, tokens, now);
    still.commit(r.id, tokens, now);
    r.response.insert(r.response.end(), tokens.begin(), tokens.end());
  };
  for (int turn = 0; turn < 60; ++turn, now += 1) {
    const int what = below(12);
    if (what < 3 && here.size() < 6) {
      Told r{
          {static_cast<std::uint32_t>(below(4)), static_cast<std::uint32_t>(below(6))}, {}, {}, {}};
      if (here.contains(r.id) || elsewhere.contains(r.id)) continue;
      r.prompt = prompts[r.id.prompt];
      r.noise = {seed, r.id.prompt * 10 + r.id.sample};
      if (below(3) == 0) r.response = tokens_of(below(20), 8);
      moved.start(r.start(), now);
      still.start(r.start(), now);
      here.emplace(r.id, std::move(r));
    } else if (what == 3 && !here.empty()) {
      const auto at = std::next(here.begin(), below(here.size()));
      moved.finish(at->first, now);
      still.finish(at->first, now);
      here.erase(at);
    } else if (what == 4 && !here.empty()) {
      const auto at = std::next(here.begin(), below(here.size()));
      moved.leave(at->first, now);
      EXPECT_THROW(moved.commit(at->first, {}, now), std::logic_error);
      EXPECT_THROW(moved.leave(at->first, now), std::logic_error);
      const std::size_t size = at->second.response.size();
      elsewhere.emplace(at->first, std::pair(std::move(at->second), size));
      here.erase(at);
    } else if (what == 5 && !elsewhere.empty()) {
      const auto at = std::next(elsewhere.begin(), below(elsewhere.size()));
      auto& [r, size] = at->second;
      const Text more = tokens_of(below(3) * below(12), 8);
      r.response.insert(r.response.end(), more.begin(), more.end());
      moved.start(r.start(), now);
      still.commit(r.id, std::span(r.response).subspan(size), now);
      here.emplace(at->first, std::move(r));
      elsewhere.erase(at);
      ++counts.returned;
    } else if (what == 6 && below(2) == 0) {
      if (giver != nullptr && suspended) {
        EXPECT_TRUE(giver->resume());
      } else if (giver != nullptr) {
        giver->suspend();
      }
      suspended = !suspended;
    } else if (what == 7 && !here.empty()) {  // without a draft before
      tell(std::next(here.begin(), below(here.size()))->second, tokens_of(below(6), 8));
    } else if (what > 7 && !here.empty()) {
      std::vector<const Told*> asked;
      for (const auto& [id, r] : here) {
        if (below(4) != 0) asked.push_back(&r);
      }
      std::shuffle(asked.begin(), asked.end(), random);
      const int paths = 1 + below(2);
      const DraftLimits limits{1 + below(8), 1 + below(5), paths};
      const std::vector<Draft> drafts = propose(moved, asked, limits);
      const std::vector<Draft> expected = propose(still, asked, limits);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        const Text path = drafts[i].main_path();
        const Text whole = expected[i].main_path();
        if (path.size() == whole.size() || !may_be_short) {
          EXPECT_EQ(drafts[i], expected[i]) << "seed " << seed << " turn " << turn;
          counts.equal += whole.empty() ? 0 : 1;
        } else {
          EXPECT_LT(path.size(), whole.size()) << "seed " << seed << " turn " << turn;
          EXPECT_TRUE(std::equal(path.begin(), path.end(), whole.begin()));
          ++counts.shorter;
        }
        // The target agrees with some of it, and goes on with a token of its own.
        Text said(whole.begin(), whole.begin() + below(whole.size() + 1));
        const int own = below(3);
        const Text rest = tokens_of(own, 8);
        said.insert(said.end(), rest.begin(), rest.end());
        std::erase_if(said, [](TokenId token) { return token == kStops[0] || token == kStops[1]; });
        tell(here.at(asked[i]->id), said);
      }
    }
  }
  EXPECT_TRUE(giver == nullptr || giver->resume());
  for (const auto& [id, r] : here) moved.finish(id, now);
  return counts;
}

TEST_F(DrafterTurns, NgramDraftsAreThoseOfRequestsThatNeverLeft) {
  Counts all;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    NgramDrafter moved({.min_n = 1, .max_n = 3});
    NgramDrafter still({.min_n = 1, .max_n = 3});
    const Counts counts = compare(moved, still, seed, false);
    all.equal += counts.equal;
    all.returned += counts.returned;
  }
  EXPECT_GT(all.equal, 5000);
  EXPECT_GT(all.returned, 200);
}

TEST_F(DrafterTurns, SuffixDraftsAreThoseOfRequestsThatNeverLeft) {
  SuffixDrafterOptions o;
  o.store.depth = 16;
  ThreadPool pool(1);
  Counts all;
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SuffixDrafter moved(o, pool);
    SuffixDrafter still(o, pool);
    const Counts counts = compare(moved, still, seed, false);
    all.equal += counts.equal;
    all.returned += counts.returned;
  }
  EXPECT_GT(all.equal, 5000);
  EXPECT_GT(all.returned, 200);
}

TEST_F(DrafterTurns, ModelDraftsAreThoseOfALargePoolWhereTheyAreAsLong) {
  Counts all;
  SamplingParams sampling;
  sampling.temperature = 1.2F;
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    ModelDrafterOptions o = options();
    o.max_requests = 1 + static_cast<int>(random() % 4);
    o.prefill_chunk = static_cast<int>(random() % 40);
    o.kv_block = 16 * (1 + static_cast<int>(random() % 2));
    o.kv_blocks = 2 + static_cast<int>(random() % 16);
    const auto moved = make(small(), sampling, o);
    const auto large = make(small(), sampling, options());
    const Counts counts = compare(*moved, *large, seed, true);
    all.equal += counts.equal;
    all.shorter += counts.shorter;
    all.returned += counts.returned;
  }
  RecordProperty("equal", all.equal);
  RecordProperty("shorter", all.shorter);
  EXPECT_GT(all.equal, 2500);
  EXPECT_GT(all.shorter, 500);
  EXPECT_GT(all.returned, 150);
}

TEST_F(DrafterTurns, SiblingsShareTheBlocksOfTheirPrompt) {
  ModelDrafterOptions o = options();
  o.kv_blocks = 10 + 1 + 4 * 1;  // the prompt's, its last once more, and one of each sibling
  const auto drafter = make(small(), {}, o);
  const auto large = make(small(), {}, options());
  std::vector<Told> siblings;
  for (std::uint32_t s = 0; s < 4; ++s) siblings.push_back({{3, s}, Text(170, 30), {1, s}, {}});
  std::vector<const Told*> all;
  for (const Told& r : siblings) {
    drafter->start(r.start(), 0);
    large->start(r.start(), 0);
    all.push_back(&r);
  }
  EXPECT_EQ(propose(*drafter, all, {6, 6, 1}), propose(*large, all, {6, 6, 1}));
  EXPECT_EQ(drafter->rows(), large->rows());
  EXPECT_EQ(drafter->rows(), 170U + 3 + 4 * 5);
  for (Told& r : siblings) EXPECT_EQ(rows_of(*drafter, r, 6), 1U + 5) << "nothing was given up";
}

TEST_F(DrafterTurns, WhatComesBackTakesUpWhatIsHeldAndStillFits) {
  const auto drafter = make(small(), {}, options());
  Told r = four()[0];
  drafter->start(r.start(), 0);
  commit(*drafter, r, {40, 41, 42});
  const Text path = propose(*drafter, r, {5, 5, 1}).tokens;
  drafter->leave(r.id, 0);
  EXPECT_THROW(propose(*drafter, r, {5, 5, 1}), std::logic_error);
  EXPECT_THROW(static_cast<void>(drafter->lag(r.id)), std::logic_error);
  EXPECT_THROW(drafter->finish(r.id, 0), std::logic_error);
  // The target said three of the drafted tokens, and two more.
  r.response.insert(r.response.end(), path.begin(), path.begin() + 3);
  r.response.insert(r.response.end(), {(path[3] + 1) % 500, 43});
  drafter->start(r.start(), 0);
  EXPECT_EQ(drafter->lag(r.id), 0);
  EXPECT_EQ(rows_of(*drafter, r, 4), 2U + 3);

  // It leaves without a draft in between, with a lag, and comes back with another text.
  commit(*drafter, r, {44, 45, 46});
  drafter->leave(r.id, 0);
  r.response.resize(2);
  drafter->start(r.start(), 0);
  EXPECT_EQ(rows_of(*drafter, r, 4), 1U + 3);
}

TEST_F(DrafterTurns, WhatLeftGivesWayToThoseThatAreThere) {
  ModelDrafterOptions o = options();
  o.kv_blocks = 2 * (4 + 1);
  const auto drafter = make(small(), {}, o);
  std::vector<Told> requests;
  for (std::uint32_t p = 0; p < 3; ++p) requests.push_back({{p, 0}, Text(50, 30), {1, p}, {}});
  for (const Told& r : requests) drafter->start(r.start(), 0);
  EXPECT_EQ(rows_of(*drafter, requests[0], 4), 53U);
  EXPECT_EQ(rows_of(*drafter, requests[1], 4), 53U);
  drafter->leave(requests[0].id, 0);
  EXPECT_EQ(rows_of(*drafter, requests[2], 4), 53U);  // in its place
  EXPECT_EQ(rows_of(*drafter, requests[1], 4), 1U + 3);
  drafter->start(requests[0].start(), 0);
  EXPECT_EQ(drafter->lag(requests[0].id), 48);
  EXPECT_EQ(rows_of(*drafter, requests[0], 4), 53U);
}

TEST_F(DrafterTurns, SuspendedMemoryIsGivenBackAndRequestsCatchUp) {
  const auto drafter = make(small(), {}, options());
  Told r = four()[0];
  drafter->start(r.start(), 0);
  const Draft before = propose(*drafter, r, {8, 5, 2});
  const std::size_t bytes = drafter->bytes();
  EXPECT_GT(bytes, drafter->kv_bytes() + drafter->weight_bytes());
  EXPECT_TRUE(drafter->resume());  // nothing to do
  EXPECT_EQ(drafter->lag(r.id), 0);
  const std::uint64_t rows = drafter->rows();

  drafter->suspend();
  EXPECT_EQ(drafter->bytes(), 0U);
  EXPECT_EQ(drafter->kv_bytes() + drafter->weight_bytes(), 0U);
  EXPECT_TRUE(propose(*drafter, r, {8, 5, 2}).tokens.empty());
  Told other = four()[1];
  drafter->start(other.start(), 0);
  commit(*drafter, r, {40, 41});
  EXPECT_EQ(drafter->lag(r.id), static_cast<int>(r.prompt.size() + 2) - 2);
  drafter->leave(other.id, 0);
  drafter->suspend();
  EXPECT_TRUE(drafter->resume());
  EXPECT_EQ(drafter->bytes(), bytes);
  EXPECT_EQ(drafter->rows(), rows) << "the first pass after it is warm";
  const auto fresh = make(small(), {}, options());
  fresh->start(r.start(), 0);
  EXPECT_EQ(propose(*drafter, r, {8, 5, 2}), propose(*fresh, r, {8, 5, 2}));
  EXPECT_EQ(drafter->rows() - rows, fresh->rows());
  EXPECT_FALSE(before.tokens.empty());
}

}  // namespace
}  // namespace paceline::draft
