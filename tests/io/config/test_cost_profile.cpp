// Cost tables as files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/config/cost_profile.hpp"
#include "io/config/yaml_tree.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

CostTable example() {
  CostTable table;
  table.conditions = {"cpu", "avx512", 2, 8, "0123456789abcdef"};
  table.decode = CostCurve({{1, 0.02}, {64, 0.03}, {128, 0.06}}, {{500, 0}, {32000, 5e-5}}, 500);
  table.drafted_position = 5e-10;
  table.prefill = CostCurve({{256, 0.1}}, 2e-10);
  table.drafters.push_back({"suffix", CostCurve({{1, 1e-6}}), CostCurve({{1, 1e-9}}), {}});
  table.drafters.push_back({"model:/a \"b\"", CostCurve({{1, 3e-3}}),
                            CostCurve({{1, 1e-3}, {64, 2e-3}}, 3e-11), CostCurve({{16, 4e-3}})});
  table.drafters.back().model = "qwen2 3 layers, bf16";
  table.drafters.back().next = CostCurve({{1, 2e-3}, {8, 3e-3}});
  table.transfer = TransferCosts{1e-5, 1.25e10};
  return table;
}

template <typename Expected, typename Action, typename... Parts>
void expect_error(const Action& action, const Parts&... parts) {
  const std::string message = test::message_of<Expected>(action);
  for (const std::string part : {parts...})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

void expect_equal(const CostCurve& a, const CostCurve& b) {
  EXPECT_DOUBLE_EQ(a.context(), b.context());
  ASSERT_EQ(a.attention().size(), b.attention().size());
  for (std::size_t i = 0; i < a.attention().size(); ++i) {
    EXPECT_DOUBLE_EQ(a.attention()[i].positions, b.attention()[i].positions);
    EXPECT_DOUBLE_EQ(a.attention()[i].seconds, b.attention()[i].seconds);
  }
  ASSERT_EQ(a.points().size(), b.points().size());
  for (std::size_t i = 0; i < a.points().size(); ++i) {
    EXPECT_DOUBLE_EQ(a.points()[i].rows, b.points()[i].rows);
    EXPECT_DOUBLE_EQ(a.points()[i].seconds, b.points()[i].seconds);
  }
}

TEST(CostProfile, ReadsBackWhatWasWritten) {
  const std::string path = testing::TempDir() + "/" + std::to_string(getpid()) + ".profile.yaml";
  const CostTable table = example();
  write_cost_profile(path, table);
  const CostTable read = parse_cost_profile(read_yaml_file(path, "the cost profile"), path);
  std::filesystem::remove(path);
  EXPECT_EQ(read.conditions, table.conditions);
  expect_equal(read.decode, table.decode);
  expect_equal(read.prefill, table.prefill);
  EXPECT_DOUBLE_EQ(read.drafted_position, table.drafted_position);
  ASSERT_EQ(read.drafters.size(), 2U);
  for (int d = 0; d < 2; ++d) {
    EXPECT_EQ(read.drafters[d].name, table.drafters[d].name);
    EXPECT_EQ(read.drafters[d].model, table.drafters[d].model);
    expect_equal(read.drafters[d].first, table.drafters[d].first);
    expect_equal(read.drafters[d].round, table.drafters[d].round);
    expect_equal(read.drafters[d].catch_up, table.drafters[d].catch_up);
    expect_equal(read.drafters[d].next, table.drafters[d].next);
  }
  ASSERT_TRUE(read.transfer);
  EXPECT_DOUBLE_EQ(read.transfer->latency, 1e-5);
  EXPECT_DOUBLE_EQ(read.transfer->bandwidth, 1.25e10);
}

TEST(CostProfile, WhatWasNotMeasuredIsLeftOut) {
  CostTable table = example();
  table.prefill = {};
  table.drafters[0].first = table.drafters[0].round = table.drafters[0].catch_up = {};
  const CostTable read = parse_cost_profile(cost_profile_text(table), "p.yaml");
  EXPECT_TRUE(read.prefill.empty());
  ASSERT_EQ(read.drafters.size(), 2U);
  EXPECT_TRUE(read.drafters[0].first.empty() && read.drafters[0].round.empty());
  expect_equal(read.decode, table.decode);
  expect_equal(read.drafters[1].round, table.drafters[1].round);
}

TEST(CostProfile, OfOneGroupKnowsNoTransfers) {
  CostTable table = example();
  table.transfer.reset();
  EXPECT_FALSE(parse_cost_profile(cost_profile_text(table), "p.yaml").transfer);
}

TEST(CostProfile, SaysWhatIsWrongAndWhere) {
  const std::string good = cost_profile_text(example());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return [text] { static_cast<void>(parse_cost_profile(text, "p.yaml")); };
  };
  expect_error<UsageError>(with("decode:", "decoed:"), "p.yaml:10:1: a cost profile",
                           "found 'decoed'", "did you mean 'decode'?");
  expect_error<UsageError>(with("[64, 0.03]", "[64, -1]"), "p.yaml:13:12: decode.points",
                           "expected a number above 0, found '-1'");
  expect_error<UsageError>(with("[500, 0]", "[0, 0]"), "decode.attention",
                           "expected a number above 0, found '0'");
  expect_error<UsageError>(with("decode:\n  points:", "decode:\n  per_position: 0\n  points:"),
                           "decode.per_position", "run `paceline profile` again");
  expect_error<UsageError>(with("[64, 0.03]", "[64]"), "decode.points",
                           "expected two numbers, [rows, seconds], found a list");
  expect_error<UsageError>(with("latency: 1e-05", "latency: -1"), "transfer.latency",
                           "expected a number of at least 0, found '-1'");
  expect_error<UsageError>(with("bandwidth: 1.25e+10", "bandwidth: 0"), "transfer.bandwidth",
                           "expected a number above 0, found '0'");
  expect_error<UsageError>(with("  latency: 1e-05\n", ""), "transfer", "expected the key latency");
  expect_error<UsageError>(with("  tp: 2\n", ""), "p.yaml:5:3: conditions", "expected the key tp");
  expect_error<UsageError>([] { static_cast<void>(parse_cost_profile("", "p.yaml")); }, "p.yaml",
                           "found nothing");
  expect_error<IoError>([&] { write_cost_profile("/no/such/file", example()); },
                        "/no/such/file: cannot write the cost profile");
}

}  // namespace
}  // namespace paceline::io
