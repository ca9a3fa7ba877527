#include <gtest/gtest.h>

#include "runtime/engine/stop_matcher.hpp"

namespace paceline::engine {
namespace {

TEST(StopMatcher, FindsAStringAcrossAnyCutOnce) {
  const std::vector<std::string> strings{"</answer>", "\n\n"};
  const std::string text = "so <answer>12</answer>";
  for (std::size_t a = 0; a <= text.size(); ++a) {
    for (std::size_t b = a; b <= text.size(); ++b) {
      StopMatcher matcher(strings);
      int found = 0;
      for (const auto part :
           {std::string_view(text).substr(0, a), std::string_view(text).substr(a, b - a),
            std::string_view(text).substr(b)}) {
        found += matcher.append(part) ? 1 : 0;
      }
      EXPECT_EQ(found, 1) << a << " " << b;
      EXPECT_FALSE(matcher.append("x"));
    }
  }
}

TEST(StopMatcher, SeesOverlappingBeginnings) {
  const std::vector<std::string> strings{"aab"};
  StopMatcher matcher(strings);
  EXPECT_FALSE(matcher.append("a"));
  EXPECT_FALSE(matcher.append("a"));
  EXPECT_FALSE(matcher.append("a"));
  EXPECT_TRUE(matcher.append("b"));
}

TEST(StopMatcher, NoStringsNeverMatch) {
  StopMatcher matcher({});
  EXPECT_FALSE(matcher.append("anything"));
}

}  // namespace
}  // namespace paceline::engine
