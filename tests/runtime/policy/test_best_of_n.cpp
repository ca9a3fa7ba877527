// Algorithm 3: by hand, and against the paper's pseudocode.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "runtime/policy/schedule/best_of_n.hpp"

namespace paceline::policy {
namespace {

using Added = std::set<std::tuple<std::size_t, int, int>>;

Added as_set(const std::vector<RacerAssignment>& added) {
  Added set;
  for (const RacerAssignment& a : added) set.insert({a.request, a.method, a.worker});
  return set;
}

/// Lines 1 to 11 as they stand there, but that a request is not given a method twice.
Added pseudocode(const BestOfNFacts& f) {
  std::vector<std::vector<int>> workers(static_cast<std::size_t>(f.methods));  // W_d
  std::map<int, int> load;
  for (const Racer& r : f.racers) {
    workers[r.method].push_back(r.worker);
    load[r.worker] = r.load;
  }
  for (const int w : f.freed) {
    const auto least = std::min_element(
        workers.begin(), workers.end(),
        [](const std::vector<int>& a, const std::vector<int>& b) { return a.size() < b.size(); });
    least->push_back(w);
  }
  Added m;
  for (int d = 0; d < f.methods; ++d) {
    std::vector<std::size_t> sorted;
    for (std::size_t r = 0; r < f.requests.size(); ++r) {
      const std::vector<int>& has = f.requests[r].methods;
      if (std::find(has.begin(), has.end(), d) == has.end()) sorted.push_back(r);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
      return f.requests[a].acceptance < f.requests[b].acceptance;
    });
    auto next = sorted.begin();
    for (const int w : workers[d]) {
      while (load[w] < f.max_batch && next != sorted.end()) {
        m.insert({*next++, d, w});
        ++load[w];
      }
    }
  }
  return m;
}

void print(const BestOfNFacts& f, const BestOfN& answer) {
  fmt::print("{:>6} {:>6} {:>5}  {}\n", "worker", "method", "load", "requests (accepted)");
  for (const Racer& r : answer.racers) {
    std::string requests;
    for (const RacerAssignment& a : answer.added) {
      if (a.worker == r.worker)
        requests += fmt::format(" {} ({:.2f})", a.request, f.requests[a.request].acceptance);
    }
    fmt::print("{:>6} {:>6} {:>5} {}\n", r.worker, r.method, r.load, requests);
  }
}

const std::vector<TailRequest> kTail = {
    {0.7, {0}}, {0.2, {0}}, {0.5, {0}}, {0.4, {0, 1}}, {0.9, {0}}};

TEST(BestOfN, ByHand) {
  // Every tail request has method 0. Freed: 7, 8, 9; one racer, 5, of method 1 has room for one.
  const std::vector<Racer> racers = {{0, 0, 2}, {5, 1, 1}};
  const std::vector<int> freed = {7, 8, 9};
  const BestOfNFacts f{kTail, 3, racers, freed, 2};
  const BestOfN answer = assign_best_of_n(f);
  print(f, answer);
  // 7 takes method 2, which nobody has, 8 and 9 then 0 and 1. Nobody lacks method 0.
  ASSERT_EQ(answer.racers.size(), 2U);
  EXPECT_EQ(answer.racers[0].worker, 7);
  EXPECT_EQ(answer.racers[0].method, 2);
  EXPECT_EQ(answer.racers[1].worker, 9);
  EXPECT_EQ(answer.racers[1].method, 1);
  const std::vector<RacerAssignment> expected = {
      {1, 1, 5}, {1, 2, 7}, {3, 2, 7}, {2, 1, 9}, {0, 1, 9}};
  EXPECT_EQ(answer.added, expected);
}

struct RandomCase {
  std::vector<TailRequest> requests;
  std::vector<Racer> racers;
  std::vector<int> freed;
  int methods = 1;
  int max_batch = 1;
};

RandomCase random_case(std::mt19937_64& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  RandomCase c;
  c.methods = 1 + below(4);
  c.max_batch = 1 + below(4);
  for (int i = below(12); i > 0; --i) {
    TailRequest r{below(10) / 10.0, {}};
    for (int d = 0; d < c.methods; ++d) {
      if (below(3) == 0) r.methods.push_back(d);
    }
    c.requests.push_back(r);
  }
  for (int i = below(4); i > 0; --i)
    c.racers.push_back({i, below(c.methods), below(c.max_batch + 1)});
  for (int i = below(6); i > 0; --i) c.freed.push_back(100 + i);
  return c;
}

TEST(BestOfN, IsThePapersAssignment) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 2000; ++trial) {
    const RandomCase c = random_case(random);
    const BestOfNFacts f{c.requests, c.methods, c.racers, c.freed, c.max_batch};
    EXPECT_EQ(as_set(assign_best_of_n(f).added), pseudocode(f));
  }
}

TEST(BestOfN, NothingToDo) {
  const std::vector<int> freed = {3};
  EXPECT_TRUE(assign_best_of_n({{}, 2, {}, freed, 4}).racers.empty());
  EXPECT_TRUE(assign_best_of_n({kTail, 0, {}, freed, 4}).added.empty());
  EXPECT_TRUE(assign_best_of_n({kTail, 2, {}, {}, 4}).added.empty());
}

}  // namespace
}  // namespace paceline::policy
