#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/core/draft_history.hpp"

namespace paceline {
namespace {

TEST(DraftHistory, RatesLeanOnThePriorWhereLittleIsKnown) {
  DraftHistory history;
  EXPECT_EQ(history.rate("ngram", 0.6), 0.6);
  history.update("ngram", 64, 0);
  EXPECT_DOUBLE_EQ(history.rate("ngram", 0.6), 0.3);
  history.update("ngram", 936, 500);
  EXPECT_NEAR(history.rate("ngram", 0.6), 0.506, 0.001);
  EXPECT_TRUE(history.knows("ngram"));
  EXPECT_FALSE(history.knows("suffix"));
}

TEST(DraftHistory, MergesByMethodAndForgets) {
  DraftHistory history({{"suffix", 100, 70}, {"ngram", 10, 1}, {"suffix", 100, 90}});
  history.merge(DraftHistory({{"model:/m", 1000, 800}, {"ngram", 10, 3}}));
  ASSERT_EQ(history.records().size(), 3U);
  EXPECT_EQ(history.records()[0].method, "model:/m");
  EXPECT_EQ(history.records()[1].method, "ngram");
  EXPECT_EQ(history.records()[1].tried, 20);
  EXPECT_EQ(history.records()[1].accepted, 4);
  EXPECT_EQ(history.records()[2].accepted, 160);
  history.decay(0.5);
  EXPECT_EQ(history.records()[2].tried, 100);
  EXPECT_EQ(history.records()[2].accepted, 80);
  // As much is known of a rate, and less surely.
  history.decay(0);
  EXPECT_EQ(history.rate("suffix", 0.6), 0.6);
}

TEST(DraftHistory, RefusesWhatCannotBe) {
  DraftHistory history;
  EXPECT_THROW(history.update("ngram", 1, 2), std::invalid_argument);
  EXPECT_THROW(history.update("ngram", 1, -1), std::invalid_argument);
  EXPECT_THROW(history.update("", 1, 1), std::invalid_argument);
  EXPECT_THROW(history.decay(1.5), std::invalid_argument);
  EXPECT_TRUE(history.records().empty());
}

}  // namespace
}  // namespace paceline
