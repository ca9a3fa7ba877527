// The first time that is foreseen, of runs whose end is known.
#include "app/terminal/time_left.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace paceline::app {
namespace {

constexpr double kLoading = 40;  // seconds before the first token
constexpr double kStep = 0.02;   // seconds of a token of all that are active

struct Foreseen {
  double left = 0;    ///< as foreseen
  double really = 0;  ///< and as it came
};

/// Responses of these lengths, so many at a time, looked at after each token; the first that is
/// foreseen.
Foreseen first_of(const std::vector<int>& lengths, std::size_t at_once) {
  TimeLeft time;
  Foreseen first;
  double now = 0;
  for (; now < kLoading; now += 1)
    EXPECT_FALSE(time.look(now, {0, 0, lengths.size(), 0}).has_value());
  std::vector<int> active;
  std::size_t next = 0;
  RunSoFar run;
  double found = -1;
  while (run.finished < lengths.size()) {
    while (active.size() < at_once && next < lengths.size()) active.push_back(lengths[next++]);
    now += kStep;
    run.tokens += active.size();
    for (int& left : active) --left;
    run.finished += static_cast<std::size_t>(std::erase(active, 0));
    run.active = active.size();
    run.left = lengths.size() - run.finished;
    const std::optional<double> left = time.look(now, run);
    if (left && found < 0) {
      first.left = *left;
      found = now;
    }
  }
  EXPECT_GE(found, 0) << "nothing was foreseen";
  EXPECT_FALSE(time.look(now, run).has_value());
  first.really = now - found;
  return first;
}

double factor(const Foreseen& first) {
  return std::max(first.left / first.really, first.really / first.left);
}

/// Mixed, so that neighbours are not alike: 0 to below `count`, in an order of their own.
std::vector<int> order(int count) {
  std::vector<int> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(i * 101 % count);
  return numbers;
}

TEST(TimeLeft, ResponsesThatAreNearlyAlike) {
  std::vector<int> lengths;
  for (const int i : order(256)) lengths.push_back(400 + i);
  lengths.front() = 3;  // says nothing of the others
  EXPECT_LT(factor(first_of(lengths, 256)), 10);
  EXPECT_LT(factor(first_of(lengths, 32)), 3);
}

TEST(TimeLeft, ResponsesOfAHeavyTail) {
  std::vector<int> lengths;
  for (const int i : order(512))
    lengths.push_back(1 + static_cast<int>(-300 * std::log(1 - (i + 0.5) / 512)));
  EXPECT_LT(factor(first_of(lengths, 512)), 10);
  EXPECT_LT(factor(first_of(lengths, 16)), 2);
}

TEST(TimeLeft, EarlierStartsCountForNothing) {
  TimeLeft time;
  EXPECT_FALSE(time.look(5, {.finished = 0, .active = 4, .left = 8, .tokens = 0}).has_value());
  EXPECT_FALSE(time.look(6, {.finished = 1, .active = 4, .left = 7, .tokens = 50}).has_value());
  const auto left = time.look(15, {.finished = 2, .active = 4, .left = 6, .tokens = 400});
  ASSERT_TRUE(left.has_value());
  EXPECT_DOUBLE_EQ(*left, 30);  // two in the ten seconds since the first token
}

}  // namespace
}  // namespace paceline::app
