// Drafts of every shape, right and wrong, change the number of steps and nothing else.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "runtime/engine/batcher.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::engine {
namespace {

/// Drafts that are right with a given probability, as chains or trees.
class Drafts {
 public:
  Drafts(const Responses* truth, double right, int length, int paths, std::uint32_t seed)
      : truth_(truth), right_(right), length_(length), paths_(paths), random_(seed) {}

  std::span<const DraftTree> propose(std::span<const Decoding> decoding) {
    trees_.assign(decoding.size(), {});
    tokens_.assign(decoding.size(), {});
    parents_.assign(decoding.size(), {});
    for (std::size_t i = 0; i < decoding.size(); ++i) {
      grow(decoding[i], tokens_[i], parents_[i]);
      trees_[i] = {tokens_[i], parents_[i]};
    }
    return trees_;
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>()(random_) < p; }

  // Level by level, so that siblings are far from their children: the batcher must order them.
  void grow(const Decoding& d, std::vector<TokenId>& tokens, std::vector<std::int32_t>& parents) {
    const std::vector<TokenId>& truth = truth_->at(d.id).tokens;
    if (chance(0.2)) return;
    std::vector<std::int32_t> level{-1};
    for (int depth = 0; depth < length_; ++depth) {
      std::vector<std::int32_t> next;
      for (const std::int32_t parent : level) {
        const int children = paths_ == 1 ? 1 : 1 + static_cast<int>(random_() % paths_);
        std::vector<TokenId> here;
        for (int c = 0; c < children; ++c) {
          if (static_cast<int>(tokens.size()) >= d.most_drafted) return;
          const std::size_t at = d.response + depth;
          TokenId token = chance(right_) && at < truth.size()
                              ? truth[at]
                              : static_cast<TokenId>(random_() % kVocab);
          while (std::find(here.begin(), here.end(), token) != here.end())
            token = (token + 1) % kVocab;
          here.push_back(token);
          next.push_back(static_cast<std::int32_t>(tokens.size()));
          tokens.push_back(token);
          parents.push_back(parent);
        }
      }
      std::shuffle(next.begin(), next.end(), random_);
      if (next.size() > 3) next.resize(3);
      level = next;
    }
  }

  const Responses* truth_;
  double right_;
  int length_, paths_;
  std::mt19937 random_;
  std::vector<DraftTree> trees_;
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<std::vector<std::int32_t>> parents_;
};

struct World {
  BatcherLimits limits{
      .max_batch = 7, .prefill_chunk = 20, .kv_block = 16, .kv_blocks = 200, .context = 2000};
  SamplingParams sampling;
  std::int32_t gain = 0;   ///< blocks by which the pool grows and shrinks again, at random
  std::uint32_t seed = 0;  ///< of that chance
  std::size_t shrunk = 0;
  std::size_t moved = 0;  ///< blocks, when it did
  int stop_after = -1;    ///< steps until everything is stopped and moved to a fresh batcher
  std::size_t steps = 0;
  std::size_t accepted = 0;
};

/// What a step says it computed is its requests' texts, position after position, from where they
/// began here or were shared. `ends`: [requests] where what is known of each ends.
void expect_computed(const Batcher& batcher, const Step& step,
                     const std::map<RequestId, std::vector<TokenId>>& told,
                     std::map<RequestId, std::size_t>& ends) {
  for (const Computed& c : batcher.computed()) {
    std::vector<TokenId> text = request(c.id.prompt, c.id.sample).prompt;
    const std::size_t prompt = text.size();
    if (const auto said = told.find(c.id); said != told.end())
      text.insert(text.end(), said->second.begin(), said->second.end());
    const auto first = static_cast<std::size_t>(c.first_position);
    const auto [end, begins] = ends.try_emplace(c.id, first);
    EXPECT_EQ(first, end->second);
    EXPECT_TRUE(!begins || first < prompt);
    for (std::size_t i = 0; i < c.rows.size(); ++i)
      EXPECT_EQ(step.tokens.at(c.rows[i]), text.at(first + i));
    end->second += c.rows.size();
    EXPECT_LT(end->second, text.size());
  }
  // A request that decodes knows all but its last token.
  for (const Committed& c : batcher.committed()) {
    if (c.finished) continue;
    const std::size_t prompt = request(c.id.prompt, c.id.sample).prompt.size();
    EXPECT_EQ(ends.at(c.id) + 1, prompt + told.at(c.id).size());
  }
}

// Runs 6 prompts x 5 samples to the end. `drafts` null: plainly.
Responses generate(World& world, Drafts* drafts) {
  world.sampling.max_tokens = 60;
  world.sampling.keep_masks = true;
  world.sampling.keep_routing = true;
  world.sampling.logprobs = BlockCheckingRunner::kTop;
  world.sampling.presence_penalty = 0.5F;  // the runner checks notes of what was said
  std::deque<Admission> queue = requests(6, 5);
  Responses results;
  std::map<RequestId, std::vector<TokenId>> told;  // by committed()
  int steps = 0;
  while (!queue.empty()) {
    Batcher batcher(world.limits, world.sampling, {kStop}, nullptr);
    BlockCheckingRunner runner(world.limits.kv_blocks, world.limits.kv_block, kVocab);
    std::deque<Admission> next;
    std::map<RequestId, std::size_t> ends;
    std::mt19937 random(world.seed);
    while (!queue.empty() || batcher.active() > 0) {
      if (world.gain > 0 && random() % 3 == 0) {
        const bool grown = batcher.blocks() > world.limits.kv_blocks;
        (void)runner.run(batcher.kv_work());
        const std::int32_t blocks = world.limits.kv_blocks + (grown ? 0 : world.gain);
        const bool done = batcher.resize(blocks);
        EXPECT_TRUE(done || grown);
        EXPECT_EQ(batcher.blocks() == blocks, done);
        const Step& work = batcher.kv_work();
        world.shrunk += done && grown ? 1 : 0;
        world.moved += done && grown ? work.kv.copies.size() : 0;
        (void)runner.run(work);
      }
      while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
      std::span<const DraftTree> proposed;
      std::vector<Decoding> decoding;
      if (drafts != nullptr && steps % 9 != 8) {  // now and then a plain step
        const std::span<const Decoding> d = batcher.decoding();
        decoding.assign(d.begin(), d.end());
        proposed = drafts->propose(decoding);
      }
      const Step& step = batcher.plan(proposed);
      for (const StepSample& sample : step.samples)
        EXPECT_EQ(sample.ban, sample.index < world.sampling.min_tokens ? StepSample::run_stops
                                                                       : StepSample::none);
      std::size_t drafted = 0;
      for (const DraftTree& tree : proposed) drafted += tree.tokens.size();
      EXPECT_EQ(batcher.counts().drafted, drafted);
      EXPECT_LE(batcher.counts().prefill_tokens,
                static_cast<std::uint32_t>(world.limits.prefill_chunk));
      std::vector<Trajectory> done = commit(batcher, runner, step);
      for (const Committed& c : batcher.committed()) {
        std::vector<TokenId>& text = told[c.id];
        text.insert(text.end(), c.tokens.begin(), c.tokens.end());
        EXPECT_LE(c.path.size(), c.tokens.size());
        world.accepted += c.path.size();
        if (c.path.empty()) continue;
        EXPECT_EQ(decoding.at(c.decoding).id, c.id);
        std::int32_t parent = -1;
        for (std::size_t i = 0; i < c.path.size(); ++i) {
          const DraftTree& tree = proposed[c.decoding];
          EXPECT_EQ(tree.parents[c.path[i]], parent);
          EXPECT_EQ(tree.tokens[c.path[i]], c.tokens[i]);
          parent = c.path[i];
        }
      }
      expect_computed(batcher, step, told, ends);
      for (Trajectory& t : done) {
        const RequestId id = t.id;
        EXPECT_EQ(told[id], t.tokens);
        EXPECT_TRUE(results.emplace(id, std::move(t)).second) << "finished twice";
      }
      ++world.steps;
      if (++steps == world.stop_after) {
        for (Trajectory& t : batcher.stop()) {
          Admission again = request(t.id.prompt, t.id.sample);
          again.trajectory = std::move(t);
          next.push_back(std::move(again));
        }
        next.insert(next.end(), std::make_move_iterator(queue.begin()),
                    std::make_move_iterator(queue.end()));
        queue.clear();
      }
    }
    queue = std::move(next);
  }
  return results;
}

TEST(Speculation, DraftsChangeNothingButTheSteps) {
  for (const int min_tokens : {0, 12}) {
    World plain;
    plain.sampling.min_tokens = min_tokens;
    const Responses truth = generate(plain, nullptr);
    for (const double right : {0.0, 0.5, 0.9, 1.0}) {
      for (const int paths : {1, 2, 4}) {
        for (const int length : {1, 4, 16}) {
          for (const int block : {16, 32}) {
            World world;
            world.sampling.min_tokens = min_tokens;
            world.limits.kv_block = block;
            Drafts drafts(&truth, right, length, paths, 1 + length);
            expect_same(truth, generate(world, &drafts));
            if (right == 1.0 && length > 1) {
              EXPECT_LT(world.steps, plain.steps);
              EXPECT_GT(world.accepted, 100U);
            }
          }
        }
      }
    }
  }
}

TEST(Speculation, StoppingMidwayAndLittleMemoryChangeNothing) {
  World plain;
  const Responses truth = generate(plain, nullptr);
  for (const int stop : {1, 5, 17, 40}) {
    for (const int paths : {1, 3}) {
      World world;
      world.stop_after = stop;
      Drafts drafts(&truth, 0.8, 6, paths, stop);
      expect_same(truth, generate(world, &drafts));
    }
  }
  World small;
  small.limits.kv_blocks = 20;  // trees must keep to what was reserved for the response
  Drafts drafts(&truth, 0.9, 30, 4, 3);
  expect_same(truth, generate(small, &drafts));
}

// With trees whose accepted rows are still to be moved, prompts that are shared and forked from,
// and requests that wait for them.
TEST(Speculation, APoolThatGrowsAndShrinksChangesNothing) {
  World plain;
  const Responses truth = generate(plain, nullptr);
  std::size_t shrunk = 0;
  std::size_t moved = 0;
  for (const std::int32_t blocks : {20, 30, 60}) {
    for (const std::int32_t gain : {1, 7, 40}) {
      for (std::uint32_t seed = 0; seed < 12; ++seed) {
        World world;
        world.limits.kv_blocks = blocks;
        world.gain = gain;
        world.seed = seed;
        Drafts drafts(&truth, 0.8, 6, seed % 2 == 0 ? 1 : 3, seed);
        expect_same(truth, generate(world, &drafts));
        shrunk += world.shrunk;
        moved += world.moved;
      }
    }
  }
  EXPECT_GT(shrunk, 200U);
  EXPECT_GT(moved, 500U);
}

TEST(Speculation, ContextEndsADraftToo) {
  World plain;
  plain.limits.context = 105;
  const Responses truth = generate(plain, nullptr);
  World world;
  world.limits.context = 105;
  Drafts drafts(&truth, 1.0, 30, 2, 3);
  expect_same(truth, generate(world, &drafts));
}

TEST(Speculation, RowsAreDepthFirst) {
  //      -1
  //   0      1
  //  2 4     3
  //  5
  const std::vector<TokenId> tokens{10, 11, 12, 13, 14, 15};
  const std::vector<std::int32_t> parents{-1, -1, 0, 1, 0, 2};
  TreeRows rows;
  rows.lay_out({tokens, parents});
  const auto as_vector = [](std::span<const std::int32_t> s) {
    return std::vector<std::int32_t>(s.begin(), s.end());
  };
  EXPECT_FALSE(rows.chain());
  EXPECT_EQ(as_vector(rows.draft()), (std::vector<std::int32_t>{-1, 0, 2, 5, 4, 1, 3}));
  EXPECT_EQ(as_vector(rows.parent()), (std::vector<std::int32_t>{-1, 0, 1, 2, 1, 0, 5}));
  EXPECT_EQ(as_vector(rows.depth()), (std::vector<std::int32_t>{0, 1, 2, 3, 2, 1, 2}));
  rows.lay_out({std::span(tokens).first(2), std::vector<std::int32_t>{-1, 0}});
  EXPECT_TRUE(rows.chain());
  rows.lay_out({});
  EXPECT_EQ(rows.size(), 1);
}

TEST(Speculation, ADraftLongerThanItsRoomIsAFault) {
  World world;
  world.sampling.max_tokens = 5;
  Batcher batcher(world.limits, world.sampling, {kStop}, nullptr);
  Admission r = request(0, 0);  // a prompt of one token decodes at once
  ASSERT_TRUE(batcher.admit(r));
  ASSERT_EQ(batcher.decoding().size(), 1U);
  EXPECT_EQ(batcher.decoding()[0].most_drafted, 4);
  const std::vector<TokenId> tokens(5, 1);
  const std::vector<std::int32_t> parents{-1, 0, 1, 2, 3};
  const DraftTree tree{tokens, parents};
  EXPECT_THROW(static_cast<void>(batcher.plan({&tree, 1})), std::logic_error);
}

}  // namespace
}  // namespace paceline::engine
