// Histograms of lengths from files, and what is wrong with files.
#include "io/measured/length_histogram_file.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/core/error.hpp"
#include "runtime/sim/workload.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

class LengthHistogramFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "paceline-traces-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    path_ = (root_ / "lengths.csv").string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  LengthHistogram read(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return read_length_histogram(path_);
  }
  /// What is said of a file with that text, without the file's name.
  std::string message(const std::string& text) const {
    const std::string said = test::message_of<DataError>([&] { (void)read(text); });
    EXPECT_TRUE(said.starts_with(path_ + ": ")) << said;
    return said.substr(std::min(said.size(), path_.size() + 2));
  }

  std::filesystem::path root_;
  std::string path_;
};

const std::string kGood =
    "field,tokens,weight\ninput_tokens,4,0.5\ninput_tokens,7,2e-3\noutput_tokens,9,3\n";

TEST_F(LengthHistogramFile, IsReadAsItIs) {
  const LengthHistogram histogram = read(kGood);
  ASSERT_EQ(histogram.prompts.size(), 2U);
  EXPECT_EQ(histogram.prompts[0].tokens, 4);
  EXPECT_EQ(histogram.prompts[0].weight, 0.5);
  EXPECT_EQ(histogram.prompts[1].tokens, 7);
  EXPECT_EQ(histogram.prompts[1].weight, 2e-3);
  ASSERT_EQ(histogram.responses.size(), 1U);
  EXPECT_EQ(histogram.responses[0].tokens, 9);
  EXPECT_EQ(histogram.responses[0].weight, 3);
  // Rows of the fields in any order, lines as Windows ends them, no end of the last.
  const LengthHistogram other =
      read("field,tokens,weight\r\noutput_tokens,9,3\r\ninput_tokens,4,1\r\noutput_tokens,10,1");
  EXPECT_EQ(other.responses.size(), 2U);
  EXPECT_EQ(other.prompts.size(), 1U);
}

TEST_F(LengthHistogramFile, WhatIsWrongIsNamedWithItsLine) {
  const std::string columns = "line 1: expected the columns field,tokens,weight";
  EXPECT_EQ(message(""), columns);
  EXPECT_EQ(message("tokens,weight\n"), columns);
  EXPECT_EQ(message("field,tokens,weight\n"),
            "line 2: expected rows of input_tokens, found the end");
  const std::string field = "line 5: field: expected input_tokens or output_tokens, found '";
  EXPECT_EQ(message(kGood + "output,10,1\n"), field + "output'");
  EXPECT_EQ(message(kGood + std::string(1000, 'x') + ",1,1"),
            field + std::string(60, 'x') + "...'");
  EXPECT_EQ(message(kGood + "\n"), "line 5: expected 3 fields, found 1");
  EXPECT_EQ(message(kGood + "output_tokens"), "line 5: expected 3 fields, found 1");
  EXPECT_EQ(message(kGood + "output_tokens,10"), "line 5: expected 3 fields, found 2");
  EXPECT_EQ(message(kGood + "output_tokens,10,1,2"), "line 5: expected 3 fields, found 4");
  const std::string tokens = "line 5: tokens: expected a whole number of at least 10, found '";
  for (const std::string said : {"9", "10.5", "", "99999999999"})
    EXPECT_EQ(message(kGood + "output_tokens," + said + ",1"), tokens + said + "'");
  EXPECT_EQ(message("field,tokens,weight\noutput_tokens,0,1\n"),
            "line 2: tokens: expected a whole number of at least 1, found '0'");
  EXPECT_EQ(message(kGood + "output_tokens,2147483647,1\noutput_tokens,2147483647,1"),
            "line 6: tokens: expected a whole number of at least 2147483648, found '2147483647'");
  const std::string weight = "line 5: weight: expected a number above 0, found '";
  for (const std::string said : {"0", "-1", "inf", "nan", ""})
    EXPECT_EQ(message(kGood + "output_tokens,10," + said), weight + said + "'");
  EXPECT_EQ(message("field,tokens,weight\ninput_tokens,4,1\n"),
            "line 3: expected rows of output_tokens, found the end");
}

TEST_F(LengthHistogramFile, AFileThatIsNotThereIsBadData) {
  for (const std::string& path : {path_, root_.string()}) {
    EXPECT_EQ(test::message_of<DataError>([&] { (void)read_length_histogram(path); }),
              path + ": no such file, expected a histogram of lengths");
  }
}

// ServeGen's figures of DeepSeek-R1: p50 595, p90 1815, p99 16483, longest 32768.
TEST(DeepSeekR1Lengths, AreDrawnAsTheyWereCounted) {
  const LengthHistogram histogram =
      read_length_histogram(PACELINE_SOURCE_DIR "/configs/simulated/lengths/deepseek_r1.csv");
  const auto responses = sim::LengthDistribution::of(histogram.responses);
  EXPECT_EQ(responses.quantile(0.5), 595);
  EXPECT_EQ(responses.quantile(0.9), 1815);
  EXPECT_EQ(responses.quantile(0.99), 16483);
  EXPECT_EQ(responses.limit(), 32768);
  sim::WorkloadSettings settings;
  settings.prompts = 8192;
  settings.samples = 2;
  settings.max_tokens = 32768;
  const sim::Workload workload =
      sim::make_workload(settings, responses, sim::LengthDistribution::of(histogram.prompts));
  for (const double share : {0.5, 0.9, 0.99}) {
    double count = 0;
    for (const auto& siblings : workload.requests)
      for (const auto& request : siblings)
        count += request.length <= responses.quantile(share) ? 1 : 0;
    EXPECT_NEAR(count / 16384, share, 4 * std::sqrt(share * (1 - share) / 8192) + 0.001);
  }
}

}  // namespace
}  // namespace paceline::io
