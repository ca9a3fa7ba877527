// Branches of a draft model's drafts: what they say, what they compute, and what becomes of them.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/runtime/draft/model_drafter_fixture.hpp"

namespace paceline::draft {
namespace {

/// A request with a chain ahead of its text, and branches by the length of the chain before them.
struct Branching : Told {
  Text chain;
  Text seconds;                          ///< [chain] second choices
  std::map<std::size_t, Text> branches;  ///< from the second choice on

  [[nodiscard]] Text assumed(std::size_t leaves) const {
    Text text(chain.begin(), chain.begin() + static_cast<std::ptrdiff_t>(leaves));
    const Text& branch = branches.at(leaves);
    text.insert(text.end(), branch.begin(), branch.end());
    return text;
  }
};

struct Wish {
  Branching* request = nullptr;
  std::size_t leaves = 0;  ///< branch + 1; 0: the chain
  Text assumed;
  Text token, second;  ///< none, or one
};

class Branches : public ModelDrafterFixture {
 protected:
  /// The next token of each.
  static void draft(Drafter& drafter, std::vector<Wish>& wishes) {
    std::vector<DraftBuffers> buffers(wishes.size(), DraftBuffers(1));
    std::vector<DraftSlot> batch;
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      Wish& wish = wishes[i];
      wish.second = {-1};
      // A branch's number is of the place in the response where it leaves.
      const auto number = static_cast<std::int32_t>(wish.request->response.size() + wish.leaves);
      batch.push_back({.id = wish.request->id,
                       .limits = {1, 1, 1},
                       .output = buffers[i].output(),
                       .assumed = wish.assumed,
                       .branch = wish.leaves == 0 ? 0 : number,
                       .runners_up = wish.second});
    }
    drafter.propose(batch, 0, nullptr);
    for (std::size_t i = 0; i < wishes.size(); ++i) wishes[i].token = draft_of(batch[i]).tokens;
  }
  /// The two best tokens after a text, by a drafter that knows this request alone.
  static Text best(Drafter& drafter, const Wish& wish) {
    Told request = *wish.request;
    request.response.insert(request.response.end(), wish.assumed.begin(), wish.assumed.end());
    drafter.start(request.start(), 0);
    Text tokens = propose(drafter, request, {2, 1, 2}).tokens;
    drafter.finish(request.id, 0);
    return tokens;
  }
  static bool may_go_on(const Text& assumed) {
    return std::none_of(assumed.begin(), assumed.end(),
                        [](TokenId token) { return token == kStops[0] || token == kStops[1]; });
  }
  /// All chains and some branches, at random, by another token.
  static std::vector<Wish> wishes(std::vector<Branching>& requests, std::mt19937& random) {
    std::vector<Wish> all;
    for (Branching& r : requests) {
      if (random() % 4 != 0 && r.chain.size() < 8) all.push_back({&r, 0, r.chain, {}, {}});
      for (std::size_t at = 0; at < r.chain.size(); ++at) {
        if (random() % 3 != 0 || r.seconds[at] < 0) continue;
        r.branches.try_emplace(at, Text{r.seconds[at]});
        if (r.branches.at(at).size() < 6) all.push_back({&r, at + 1, r.assumed(at), {}, {}});
      }
    }
    std::shuffle(all.begin(), all.end(), random);
    return all;
  }
  static void take(const std::vector<Wish>& drafted) {
    for (const Wish& wish : drafted) {
      if (wish.token.empty()) continue;
      Branching& r = *wish.request;
      if (wish.leaves > 0) {
        r.branches.at(wish.leaves - 1).push_back(wish.token[0]);
      } else {
        r.chain.push_back(wish.token[0]);
        r.seconds.push_back(wish.second[0]);
      }
    }
  }
  /// The target says `count` tokens of the chain and then, perhaps, goes a branch's way.
  static void say(Drafter& drafter, Branching& r, std::size_t count, bool branches) {
    const auto end = static_cast<std::ptrdiff_t>(count);
    Text said(r.chain.begin(), r.chain.begin() + end);
    const auto at = r.branches.find(count);
    const bool taken = branches && at != r.branches.end();
    if (taken) said.push_back(at->second[0]);
    if (!may_go_on(said) || said.empty()) return;
    commit(drafter, r, said);
    std::map<std::size_t, Text> later;
    for (const auto& [leaves, branch] : r.branches)
      if (!taken && leaves >= count) later[leaves - count] = branch;
    if (taken) {
      r.chain.assign(at->second.begin() + 1, at->second.end());
      r.seconds.assign(r.chain.size(), -1);
    } else {
      r.chain.erase(r.chain.begin(), r.chain.begin() + end);
      r.seconds.erase(r.seconds.begin(), r.seconds.begin() + end);
    }
    r.branches = std::move(later);
  }
};

TEST_F(Branches, SayWhatAChainWouldSayAfterTheirText) {
  SamplingParams sampling;
  sampling.temperature = 1.5F;
  sampling.max_tokens = 60;
  int branched = 0;
  int taken = 0;
  int missing = 0;
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    ModelDrafterOptions o = options();
    o.max_length = 64;
    o.max_requests = 24;
    const bool tight = seed % 3 == 2;
    const auto other = make(small(), sampling, o);
    if (tight) o.kv_blocks = 14;
    const auto drafter = make(small(), sampling, o);
    std::vector<Branching> requests;
    for (const Told& told : four()) requests.push_back({told, {}, {}, {}});
    for (Branching& r : requests) drafter->start(r.start(), 0);
    for (int turn = 0; turn < 40; ++turn) {
      Branching& r = requests[random() % requests.size()];
      if (random() % 3 == 0) {
        const bool way = random() % 2 == 0;
        const std::size_t count = random() % (r.chain.size() + 1);
        taken += way && r.branches.contains(count) ? 1 : 0;
        say(*drafter, r, count, way);
      } else if (random() % 16 == 0) {
        drafter->leave(r.id, 0);
        drafter->start(r.start(), 0);
      }
      std::vector<Wish> drafted = wishes(requests, random);
      draft(*drafter, drafted);
      for (const Wish& wish : drafted) {
        branched += wish.leaves > 0 && !wish.token.empty() ? 1 : 0;
        if (!may_go_on(wish.assumed)) {
          EXPECT_TRUE(wish.token.empty());
          continue;
        }
        // Where there is no room, or no KV to begin with, there is no draft.
        if (wish.token.empty() && (tight || wish.leaves > 0)) {
          ++missing;
          continue;
        }
        const Text expected = best(*other, wish);
        if (expected.empty()) continue;  // the response is at its longest
        ASSERT_EQ(wish.token.size(), 1U) << "seed " << seed;
        EXPECT_EQ(wish.token[0], expected[0]) << "seed " << seed << " turn " << turn;
        EXPECT_EQ(wish.second[0], expected[1]) << "seed " << seed << " turn " << turn;
      }
      take(drafted);
    }
  }
  EXPECT_GT(branched, 500);
  EXPECT_GT(taken, 10);
  EXPECT_GT(missing, 10);
}

TEST_F(Branches, ComputeARowForATokenAndGoOnWhereTheTargetTakesOne) {
  ModelDrafterOptions o = options();
  o.max_requests = 8;
  const auto drafter = make(small(), {}, o);
  std::vector<Branching> requests{{four()[1], {}, {}, {}}};
  Branching& r = requests[0];
  drafter->start(r.start(), 0);
  const auto rows = [&](std::vector<Wish> drafted) {
    const std::uint64_t before = drafter->rows();
    draft(*drafter, drafted);
    take(drafted);
    return drafter->rows() - before;
  };
  const auto own = [&] { return Wish{&r, 0, r.chain, {}, {}}; };
  const auto branch = [&](std::size_t at) {
    r.branches.try_emplace(at, Text{r.seconds[at]});
    return Wish{&r, at + 1, r.assumed(at), {}, {}};
  };
  EXPECT_EQ(rows({own()}), r.prompt.size());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(rows({own()}), 1U);
  EXPECT_EQ(rows({own(), branch(0), branch(2)}), 3U);
  EXPECT_EQ(rows({branch(2), own()}), 2U);
  EXPECT_EQ(rows({branch(0), branch(2)}), 2U);
  ASSERT_EQ(r.branches.at(2).size(), 4U);
  say(*drafter, r, 2, true);
  EXPECT_EQ(r.chain.size(), 3U);
  EXPECT_EQ(rows({own()}), 1U) << "the branch's KV is the request's";
  std::vector<Wish> twice{own(), own()};
  EXPECT_THROW(draft(*drafter, twice), std::logic_error);
  drafter->finish(r.id, 0);
}

TEST_F(Branches, LeaveTheirKVToRequestsThatWaitForTheTarget) {
  ModelDrafterOptions o = options();
  o.max_requests = 8;
  std::vector<Branching> requests{{four()[0], {}, {}, {}}, {four()[1], {}, {}, {}}};
  const auto blocks = [](const Told& told) {
    return static_cast<std::int32_t>((told.prompt.size() + 8) / 16 + 2);
  };
  o.kv_blocks = blocks(requests[0]) + blocks(requests[1]);
  const auto drafter = make(small(), {}, o);
  for (Branching& r : requests) {
    drafter->start(r.start(), 0);
    for (int i = 0; i < 5; ++i) {
      std::vector<Wish> chain{{&r, 0, r.chain, {}, {}}};
      draft(*drafter, chain);
      take(chain);
    }
  }
  std::vector<Wish> branches;
  Branching& last = requests[1];
  for (std::size_t at = 0; at < 5; ++at) {
    last.branches.try_emplace(at, Text{last.seconds[at]});
    branches.push_back({&last, at + 1, last.assumed(at), {}, {}});
  }
  draft(*drafter, branches);
  EXPECT_TRUE(std::any_of(branches.begin(), branches.end(), [](const Wish& wish) {
    return wish.token.empty();
  })) << "room for all of them";
  const std::uint64_t before = drafter->rows();
  std::vector<Wish> goes_on{{&requests[0], 0, requests[0].chain, {}, {}}};
  draft(*drafter, goes_on);
  EXPECT_EQ(drafter->rows() - before, 1U) << "the request that waited has lost its KV";
}

}  // namespace
}  // namespace paceline::draft
