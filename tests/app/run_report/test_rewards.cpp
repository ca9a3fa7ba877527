#include "app/run_report/rewards.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/run_report/reports.hpp"
#include "app/run_report/views.hpp"

namespace paceline::app {
namespace {

/// Three prompts: one response of four passes, none does though one comes near, both that are
/// scored do.
std::vector<RewardedResponse> some_responses() {
  return {{{0, 0}, 10, 0},     {{0, 1}, 20, 1},    {{0, 2}, 30, 0},     {{0, 3}, 40, 0},
          {{1, 0}, 50, -0.25}, {{1, 1}, 60, 0},    {{1, 2}, 70, 0.25F}, {{1, 3}, 80, 0},
          {{2, 0}, 90, 1},     {{2, 1}, 100, NAN}, {{2, 2}, 110, 1},    {{2, 3}, 0, NAN}};
}

TEST(RewardFigures, CountWhatWasScored) {
  const RewardFigures f = reward_figures(some_responses(), 0.5);
  EXPECT_EQ(f.responses, 12U);
  EXPECT_EQ(f.scored, 10U);
  EXPECT_DOUBLE_EQ(f.mean, 0.3);
  EXPECT_DOUBLE_EQ(f.deviation, std::sqrt(3.125 / 10 - 0.09));
  EXPECT_DOUBLE_EQ(f.least, -0.25);
  EXPECT_DOUBLE_EQ(f.most, 1);
  EXPECT_EQ(f.groups, 3U);
  EXPECT_EQ(f.equal, 1U);
  EXPECT_EQ(f.all_pass, 1U);
  EXPECT_EQ(f.none_pass, 1U);
  EXPECT_EQ(reward_figures(some_responses(), 0).none_pass, 0U);
  const RewardFigures none = reward_figures(std::vector<RewardedResponse>{{{0, 0}, 5}}, 0.5);
  EXPECT_EQ(none.responses, 1U);
  EXPECT_EQ(none.scored, 0U);
  EXPECT_TRUE(none.pass.empty());
}

TEST(RewardFigures, PassAtKIsTheUnbiasedEstimate) {
  const RewardFigures f = reward_figures(some_responses(), 0.5);
  ASSERT_EQ(f.pass.size(), 3U);
  EXPECT_DOUBLE_EQ(f.pass_at(1), (0.25 + 0 + 1) / 3);
  EXPECT_DOUBLE_EQ(f.pass_at(2), (0.5 + 0 + 1) / 3);
  EXPECT_DOUBLE_EQ(f.pass_at(4), (1.0 + 0) / 2);  // the third prompt has two
  EXPECT_EQ(f.pass[2].prompts, 2U);
  EXPECT_TRUE(std::isnan(f.pass_at(3)));

  // Against all subsets of k responses.
  for (std::uint32_t n = 1; n <= 9; ++n) {
    for (std::uint32_t right = 0; right <= n; ++right) {
      std::vector<RewardedResponse> responses;
      for (std::uint32_t s = 0; s < n; ++s)
        responses.push_back({{0, s}, 1, s < right ? 1.0F : 0.0F});
      for (const auto& [k, rate, prompts] : reward_figures(responses, 0.5).pass) {
        double sets = 0;
        double pass = 0;
        for (std::uint32_t set = 0; set < 1U << n; ++set) {
          if (std::popcount(set) != static_cast<int>(k)) continue;
          ++sets;
          pass += (set & ((1U << right) - 1)) != 0 ? 1 : 0;
        }
        EXPECT_NEAR(rate, pass / sets, 1e-12) << n << " " << right << " " << k;
      }
    }
  }
  // Of very many, without overflow.
  std::vector<RewardedResponse> many;
  for (std::uint32_t s = 0; s < 4096; ++s) many.push_back({{0, s}, 1, s == 0 ? 1.0F : 0.0F});
  EXPECT_NEAR(reward_figures(many, 0.5).pass_at(1024), 0.25, 1e-9);
}

TEST(RewardFigures, LengthsAreTenthsWhereTheyDiffer) {
  const RewardFigures f = reward_figures(some_responses(), 0.5);
  ASSERT_EQ(f.by_length.size(), 10U);
  EXPECT_EQ(f.by_length[1].from, 20U);
  EXPECT_EQ(f.by_length[1].mean, 1);
  EXPECT_EQ(f.by_length[9].to, 110U);
  EXPECT_NEAR(f.correlation, 0.39753, 1e-5);
  std::vector<RewardedResponse> alike;
  for (std::uint32_t s = 0; s < 40; ++s) alike.push_back({{0, s}, s < 30 ? 5U : 6U + s, 1});
  const RewardFigures g = reward_figures(alike, 0.5);
  ASSERT_EQ(g.by_length.size(), 4U);
  EXPECT_EQ(g.by_length[0].from, 5U);
  EXPECT_EQ(g.by_length[0].to, 5U);
  EXPECT_EQ(g.by_length[0].responses, 30U);
  EXPECT_EQ(g.by_length[1].responses, 4U);
  EXPECT_TRUE(std::isnan(g.correlation));
}

/// Two steps of a training, the second going on still.
std::vector<NamedRun> two_steps() {
  std::vector<NamedRun> runs(2);
  for (std::size_t i = 0; i < 2; ++i) {
    runs[i].name = "step-" + std::to_string(i);
    runs[i].rewards = reward_figures(some_responses(), 0.5);
    runs[i].rewards->complete = i == 0;
    runs[i].rewards->expected = i == 0 ? 12 : 20;
    runs[i].rewards->weight_version = i;
  }
  return runs;
}

TEST(RewardFigures, ComeFirstInAReport) {
  const std::string text = text_of(two_steps());
  EXPECT_EQ(text.find("Rewards; a response passes with a reward of 0.5 or more (--pass)\n"), 0U)
      << text;
  EXPECT_NE(text.find("  step-1        1   12 of 20      10  0.3000"), std::string::npos) << text;
  EXPECT_NE(text.find("12 of 20 responses are finished: the run is still going, or was stopped\n"),
            std::string::npos);
  const std::string html = html_of(two_steps());
  EXPECT_NE(html.find("Mean reward, run by run"), std::string::npos);
  EXPECT_NE(html.find("Mean reward by response length"), std::string::npos);
  std::vector<NamedRun> none(1);
  none[0].rewards = RewardFigures();
  EXPECT_EQ(text_of(none).find("Rewards"), std::string::npos);
  EXPECT_EQ(html_of(none).find("reward"), std::string::npos);
}

TEST(RewardFigures, AreJsonForScripts) {
  std::vector<NamedRun> runs = two_steps();
  runs.emplace_back().name = "simulated \xff";
  const auto json = nlohmann::json::parse(json_of(runs));
  EXPECT_EQ(json["schema_version"], 1);
  ASSERT_EQ(json["runs"].size(), 3U);
  const auto& run = json["runs"][1];
  EXPECT_EQ(run["complete"], false);
  EXPECT_EQ(run["weight_version"], 1);
  EXPECT_EQ(run["responses"]["expected"], 20);
  const auto& rewards = run["rewards"];
  EXPECT_EQ(rewards["scored"], 10);
  EXPECT_EQ(rewards["missing"], 2);
  EXPECT_DOUBLE_EQ(rewards["mean"], 0.3);
  EXPECT_DOUBLE_EQ(rewards["pass_at"]["4"]["rate"], 0.5);
  EXPECT_EQ(rewards["prompts"]["all_equal"], 1);
  EXPECT_EQ(rewards["by_length"].size(), 10U);
  EXPECT_EQ(json["runs"][2]["rewards"], nullptr);
  EXPECT_EQ(json["runs"][2]["complete"], nullptr);
}

}  // namespace
}  // namespace paceline::app
