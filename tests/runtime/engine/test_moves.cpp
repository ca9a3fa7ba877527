// Requests that leave one batch for another, with their KV, without it, or with a part of it.
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "runtime/engine/batcher.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::engine {
namespace {

constexpr int kBlock = 16;

SamplingParams sampling_params() {
  SamplingParams params;
  params.max_tokens = 90;
  params.keep_masks = true;
  params.keep_routing = true;
  params.logprobs = BlockCheckingRunner::kTop;
  params.frequency_penalty = 1;  // the runner checks notes of what was said
  return params;
}

/// A group: a batch and a cache of its own.
struct Group {
  explicit Group(const BatcherLimits& limits)
      : batcher(limits, sampling_params(), {kStop}, nullptr),
        runner(limits.kv_blocks * limits.owners, limits.kv_block, kVocab) {
    runner.owners = limits.owners;
  }

  void step(Responses& results) {
    for (Trajectory& t : commit(batcher, runner)) {
      const RequestId id = t.id;
      ASSERT_TRUE(results.emplace(id, std::move(t)).second) << "finished twice";
    }
    std::vector<Admission> parked = batcher.take_parked();
    queue.insert(queue.begin(), std::make_move_iterator(parked.begin()),
                 std::make_move_iterator(parked.end()));
  }

  Batcher batcher;
  BlockCheckingRunner runner;
  std::deque<Admission> queue;
};

Responses reference() {
  Group group({.max_batch = 1,
               .prefill_chunk = 1000,
               .kv_block = kBlock,
               .kv_blocks = 32,
               .context = 2000});
  Responses results;
  group.queue = requests(6, 4);
  while (!group.queue.empty() || group.batcher.active() > 0) {
    while (!group.queue.empty() && group.batcher.admit(group.queue.front()))
      group.queue.pop_front();
    group.step(results);
  }
  return results;
}

TEST(Moves, RoomByChunksParksWhoCameLastAndChangesNothing) {
  const Responses expected = reference();
  for (const int blocks : {14, 20, 40}) {
    for (const int chunk : {1, 16, 40}) {
      Group group({.max_batch = 8,
                   .prefill_chunk = 24,
                   .kv_block = kBlock,
                   .kv_blocks = blocks,
                   .context = 2000,
                   .growth = chunk});
      Responses results;
      group.queue = requests(6, 4);
      int idle = 0;
      while (!group.queue.empty() || group.batcher.active() > 0) {
        while (!group.queue.empty() && group.batcher.admit(group.queue.front()))
          group.queue.pop_front();
        const std::size_t rows = group.runner.rows;
        group.step(results);
        idle = group.runner.rows == rows ? idle + 1 : 0;
        ASSERT_LT(idle, 3) << "nobody gets on";
      }
      expect_same(expected, results);
    }
  }
}

TEST(Moves, ARequestMayMoveAtAnyStepWithAnyPartOfItsKv) {
  const Responses expected = reference();
  int moves = 0;
  int partly = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
    std::vector<std::unique_ptr<Group>> groups;
    for (int g = 0; g < 3; ++g) {
      groups.push_back(
          std::make_unique<Group>(BatcherLimits{.max_batch = 6,
                                                .prefill_chunk = 5 + below(40),
                                                .kv_block = kBlock,
                                                .kv_blocks = 40,
                                                .owners = 1 + g,
                                                .context = 2000,
                                                .growth = below(2) * (1 + below(30))}));
    }
    /// KV under way: it arrives some steps later, or never.
    struct Transfer {
      int from, to;
      RequestId id;
      kv::Parcel parcel;
      std::int32_t first;
      int steps;
    };
    std::vector<Transfer> transfers;
    Responses results;
    groups[0]->queue = requests(6, 4);
    const auto busy = [&] {
      for (const auto& g : groups) {
        if (!g->queue.empty() || g->batcher.active() > 0) return true;
      }
      return false;
    };
    int turns = 0;
    while (busy()) {
      ASSERT_LT(++turns, 20000) << "nobody gets on";
      for (auto it = transfers.begin(); it != transfers.end();) {
        if (--it->steps > 0) {
          ++it;
          continue;
        }
        Group& to = *groups[it->to];
        const bool fails = below(4) == 0;
        const std::vector<std::int32_t> table = to.batcher.table(it->id);
        for (std::size_t b = it->first / kBlock; b < it->parcel.blocks.size() && !fails; ++b) {
          const auto source = groups[it->from]->runner.block(it->parcel.blocks[b]);
          std::copy(source.begin(), source.end(), to.runner.block(table[b]).begin());
        }
        to.batcher.arrived(it->id, !fails);
        groups[it->from]->batcher.release(it->parcel);
        it = transfers.erase(it);
      }
      const int g = below(3);
      Group& group = *groups[g];
      while (!group.queue.empty() && group.batcher.admit(group.queue.front()))
        group.queue.pop_front();
      const auto under_way = [&](RequestId id) {
        return std::any_of(transfers.begin(), transfers.end(),
                           [&](const Transfer& t) { return t.id == id; });
      };
      group.step(results);
      const auto decoding = group.batcher.decoding();
      if (decoding.empty() || below(3) != 0) continue;
      const RequestId id = decoding[below(decoding.size())].id;
      if (under_way(id)) continue;
      const int to = (g + 1 + below(2)) % 3;
      (void)group.runner.run(group.batcher.kv_work());
      Departure departure = group.batcher.leave(id);
      ++moves;
      const kv::Parcel parcel = departure.parcel;
      const int way = below(3);
      if (way == 0 || !groups[to]->batcher.admit(departure.request)) {
        groups[to]->queue.push_back(std::move(departure.request));
        group.batcher.release(parcel);
        continue;
      }
      std::int32_t first = groups[to]->batcher.own_from(id);
      if (way == 1) first += kBlock * below(3);
      if (first >= parcel.positions) {
        group.batcher.release(parcel);
        continue;
      }
      partly += first > 0 ? 1 : 0;
      groups[to]->batcher.expect(id, {first, parcel.positions});
      transfers.push_back({g, to, id, parcel, first, 1 + below(6)});
    }
    expect_same(expected, results);
    for (const auto& g : groups) EXPECT_TRUE(g->queue.empty());
  }
  EXPECT_GT(moves, 500);
  EXPECT_GT(partly, 50);
}

}  // namespace
}  // namespace paceline::engine
