// A recorded run comes back as a workload with its lengths, and drafters that are as good as its
// were.
#include "runtime/sim/replay.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/core/error.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::sim {
namespace {

/// 40 prompts of 5 responses; a model that gets better along a response, a lookup that is seldom
/// right, and one that was never asked.
RecordedRun recorded() {
  RecordedRun run;
  run.vocabulary = 600;
  for (int p = 0; p < 40; ++p) {
    run.prompts.push_back({"line-" + std::to_string(p), {p, p + 1, p + 2}, {}, {}});
    auto& lengths = run.lengths.emplace_back();
    for (int s = 0; s < 5; ++s) lengths.push_back(p == 7 && s == 2 ? 0 : 10 * p + s + 1);
  }
  run.drafters = {"model:draft", "ngram", "suffix"};
  for (const std::uint32_t batch : {1U, 8U}) {
    run.acceptance.push_back({0, 1, batch, 0, 5000, 2000});
    run.acceptance.push_back({0, 1, batch, 64, 10000, 6000});
    run.acceptance.push_back({0, 1, batch, 256, 5000, 4000});
    run.acceptance.push_back({0, 2, batch, 64, 9000, 10});  // not a first token
    run.acceptance.push_back({1, 1, batch, 64, 10000, 100});
  }
  return run;
}

TEST(Replay, PromptsAndLengthsAreTheRuns) {
  const RecordedRun run = recorded();
  const Workload workload = replayed_workload(run, {}, 1);
  ASSERT_EQ(workload.prompts.size(), 40U);
  EXPECT_EQ(workload.vocabulary, 600);
  for (int p = 0; p < 40; ++p) {
    EXPECT_EQ(workload.prompts[p].uid, run.prompts[p].uid);
    EXPECT_EQ(workload.prompts[p].tokens, run.prompts[p].tokens);
    ASSERT_EQ(workload.requests[p].size(), 5U);
    for (int s = 0; s < 5; ++s)
      EXPECT_EQ(workload.requests[p][s].length, std::max(1, run.lengths[p][s]));
  }
}

TEST(Replay, DraftersAreAsGoodAsTheyWereAlongAResponse) {
  AcceptanceSettings assumed;
  assumed.methods = {ngram_acceptance(), suffix_acceptance()};
  assumed.methods[0].length_correlation = -0.5;
  const Workload workload = replayed_workload(recorded(), assumed, 1);
  const auto& methods = workload.acceptance.methods;
  ASSERT_EQ(methods.size(), 3U);
  EXPECT_EQ(methods[0].name, "model:draft");
  EXPECT_DOUBLE_EQ(methods[0].mean, 0.6);
  EXPECT_DOUBLE_EQ(methods[0].spread, MethodAcceptance{}.spread);
  const double mean = (200 + 64 * 0.15) / (20000 + 64);
  EXPECT_DOUBLE_EQ(methods[1].mean, mean);
  EXPECT_EQ(methods[1].length_correlation, -0.5);
  EXPECT_FALSE(methods[1].scores);
  // The a + b that are assumed with a mean of 0.15.
  const auto both = [](double m, double s) { return m * (1 - m) / (s * s); };
  EXPECT_NEAR(both(mean, methods[1].spread), both(0.15, 0.12), 1e-9);
  EXPECT_DOUBLE_EQ(methods[2].mean, suffix_acceptance().mean);  // never asked
  EXPECT_TRUE(methods[2].by_references.empty());

  // What the requests together draft at a place in the response.
  const auto share = [&](int method, std::int32_t index) {
    int agreed = 0;
    int count = 0;
    for (std::size_t p = 0; p < workload.requests.size(); ++p) {
      for (std::uint32_t s = 0; s < 5; ++s) {
        const NoiseKey noise = noise_key(3, 4, workload.prompts[p].uid, s);
        const RequestDrafts drafts(workload.acceptance, noise, workload.requests[p][s].acceptance);
        for (std::int32_t at = index; at < index + 40; ++at, ++count)
          agreed += drafts.drafted(method, at, drafts.rate(method, at)).agrees ? 1 : 0;
      }
    }
    return static_cast<double>(agreed) / count;
  };
  EXPECT_NEAR(share(0, 75), 0.6, 0.03);  // the middle of 64 to 127
  EXPECT_NEAR(share(0, 1000), 0.8, 0.03);
  EXPECT_NEAR(share(1, 75), 0.01, 0.005);
  const RequestDrafts first(workload.acceptance, {}, workload.requests[0][0].acceptance);
  EXPECT_LT(first.rate(0, 0), first.rate(0, 1000));
}

TEST(Replay, WhereLittleWasTriedTheMeanCounts) {
  RecordedRun run = recorded();
  run.acceptance = {{0, 1, 1, 0, 6400, 3200}, {0, 1, 1, 4096, 4, 4}};
  const Workload workload = replayed_workload(run, {}, 1);
  const MethodAcceptance& method = workload.acceptance.methods[0];
  EXPECT_NEAR(method.mean, 0.5, 0.002);
  ASSERT_EQ(method.by_progress.size(), 2U);
  EXPECT_EQ(method.by_progress[1].at, 6143.5);
  EXPECT_NEAR(method.by_progress[1].factor * method.mean, (4 + 32) / 68.0, 0.002);
  // Three tokens are no reason to think that it is never right.
  run.acceptance = {{0, 1, 1, 0, 3, 0}};
  EXPECT_NEAR(replayed_workload(run, {}, 1).acceptance.methods[0].mean, 0.6 * 64 / 67, 1e-12);
}

TEST(Replay, ADrafterThatWasNeverRightOrAlwaysIsReplayedAsSuch) {
  RecordedRun run = recorded();
  const auto often = std::uint64_t{1} << 40;
  run.acceptance = {{0, 1, 1, 0, often, 0}, {1, 1, 1, 0, often, often}};
  const Workload workload = replayed_workload(run, {}, 1);
  for (const auto& siblings : workload.requests) {
    for (const ModelledRequest& request : siblings) {
      EXPECT_LT(request.acceptance[0], 1e-6);
      EXPECT_GT(request.acceptance[1], 1 - 1e-6);
    }
  }
}

TEST(Replay, BadAssumptionsAreNamed) {
  AcceptanceSettings assumed{.drift = 3};
  EXPECT_EQ(test::message_of<UsageError>([&] { (void)replayed_workload(recorded(), assumed, 1); }),
            "acceptance: drift is 3, expected 0 to 1");
}

}  // namespace
}  // namespace paceline::sim
