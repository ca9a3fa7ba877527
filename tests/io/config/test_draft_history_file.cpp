// The history of drafts as a file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "io/config/draft_history_file.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

TEST(DraftHistoryFile, ReadsBackWhatWasWritten) {
  const std::string path = testing::TempDir() + "/" + std::to_string(getpid()) + ".drafts.yaml";
  const DraftHistory history({{"suffix", 1000.4, 700}, {"model:/a \"b\"", 12, 0}});
  write_draft_history(path, history);
  const DraftHistory read = read_draft_history(path);
  std::filesystem::remove(path);
  ASSERT_EQ(read.records().size(), 2U);
  EXPECT_EQ(read.records()[0].method, "model:/a \"b\"");
  EXPECT_EQ(read.records()[0].tried, 12);
  EXPECT_EQ(read.records()[0].accepted, 0);
  EXPECT_EQ(read.records()[1].tried, 1000);
  EXPECT_EQ(read.records()[1].accepted, 700);
  EXPECT_TRUE(parse_draft_history(draft_history_text({}), "h.yaml").records().empty());
}

TEST(DraftHistoryFile, IsBesideTheProfile) {
  EXPECT_EQ(draft_history_path("/runs/costs.yaml"), "/runs/costs.drafts.yaml");
  EXPECT_EQ(draft_history_path("costs"), "costs.drafts.yaml");
}

TEST(DraftHistoryFile, SaysWhatIsWrongAndWhere) {
  const auto error = [](const std::string& text) {
    return test::message_of<UsageError>(
        [&] { static_cast<void>(parse_draft_history(text, "h.yaml")); });
  };
  EXPECT_EQ(error("drafts:\n  - {method: ngram, tried: 3, acepted: 1}\n"),
            "h.yaml:2:31: drafts: expected one of method, tried, accepted, found 'acepted'; did "
            "you mean 'accepted'?");
  EXPECT_EQ(error("drafts:\n  - {method: ngram, tried: 3, accepted: 4}\n"),
            "h.yaml:2:41: drafts.accepted: expected at most what was tried (3), found '4'");
  EXPECT_EQ(error("drafts:\n  - {method: ngram, tried: -3, accepted: 4}\n"),
            "h.yaml:2:28: drafts.tried: expected a number of at least 0, found '-3'");
  EXPECT_EQ(error("drafts:\n  - {method: ngram, tried: 3}\n"),
            "h.yaml:2:5: drafts: expected the key accepted, found a map");
  EXPECT_EQ(error("3"), "h.yaml:1:1: a history of drafts: expected a map with drafts, found '3'");
  EXPECT_EQ(test::message_of<UsageError>([] {
              static_cast<void>(read_draft_history("/no/such"));
            }).substr(0, 41),
            "/no/such: cannot read the history of draf");
}

}  // namespace
}  // namespace paceline::io
