// Responses of earlier runs, found by their prompts, whatever is wrong with the runs.
#include "io/run/run_history.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "io/run/final_file.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

using Text = std::vector<TokenId>;

class History : public Scratch {
 protected:
  /// A run whose responses to prompt p begin with `mark`. `finish`: with its final file.
  void make(const std::string& name, const SampleRun& run, TokenId mark, bool finish = true) {
    const RunDirectory directory(at(name), run.manifest, run.prompts, false);
    ShardWriter writer(at(name), 0, 0);
    for (const RequestId id : run.ids) {
      Trajectory response = sample::finished(id, 4);
      response.tokens.front() = mark;
      writer.append(response);
    }
    writer.close();
    if (finish) write_final_file(at(name), run.manifest, run.prompts);
  }

  RunHistory history(const std::string& path, HistoryOptions options = {},
                     HistoryReader reader = {}) {
    options.path = at(path);
    options.output = at(output_);
    if (options.vocabulary == 0) options.vocabulary = run_.manifest.vocabulary;
    if (options.most_tokens == 0) options.most_tokens = 1000;
    std::vector<std::string> contents;
    for (const Prompt& prompt : run_.prompts) contents.push_back(content_uid(prompt.tokens));
    runs_ = prompts_ = 0;
    return {options, contents, reader,
            [this](const std::string& text) { warnings_.push_back(text); },
            [this](std::size_t runs, std::size_t prompts) {
              runs_ = runs;
              prompts_ = prompts;
            }};
  }

  /// Searches to the end. Returns runs with responses of use.
  std::size_t search(RunHistory history) {
    while (history.work(nobody, nothing)) {
    }
    return runs_;
  }
  static void nobody(std::uint32_t, std::span<const std::byte>) { FAIL() << "there is one reader"; }
  static void nothing(RequestId, std::uint32_t, std::span<const TokenId>) {
    FAIL() << "nothing was asked for";
  }

  /// First tokens of the responses to a prompt, by age and sample, in the order in which they come.
  static std::vector<std::array<std::int64_t, 3>> taken(
      RunHistory& history, std::uint32_t prompt, const EarlierResponses::Tell& tell = nobody) {
    std::vector<std::array<std::int64_t, 3>> taken;
    history.want(prompt);
    while (history.work(tell, [&](RequestId id, std::uint32_t age, std::span<const TokenId> t) {
      EXPECT_EQ(id.prompt, prompt);
      EXPECT_EQ(t.size(), 4U);
      taken.push_back({age, id.sample, t.front()});
    })) {
    }
    EXPECT_FALSE(history.awaits(prompt));
    return taken;
  }

  using Taken = std::vector<std::array<std::int64_t, 3>>;
  SampleRun run_{4, 2};
  std::string output_ = "steps/step-10.part";
  std::vector<std::string> warnings_;
  std::size_t runs_ = 0;     ///< with responses of use, when the search is over
  std::size_t prompts_ = 0;  ///< with such responses
};

TEST_F(History, TheNewestRunsOfAFolderAreReadThatComeBefore) {
  make("steps/step-1", run_, 1);
  make("steps/step-8", run_, 8);
  make("steps/step-9", run_, 9);
  make("steps/step-9b", run_, 7, false);  // not finished
  make("steps/step-10.part", run_, 10);
  make("steps/step-11", run_, 11);
  std::filesystem::create_directory(at("steps/other"));
  RunHistory all = history("steps");
  const Taken three{{1, 0, 9}, {1, 1, 9}, {2, 0, 8}, {2, 1, 8}, {3, 0, 1}, {3, 1, 1}};
  EXPECT_EQ(taken(all, 2), three);
  EXPECT_EQ(runs_, 3U);
  EXPECT_EQ(prompts_, 4U);
  EXPECT_EQ(taken(all, 2), three) << "as often as it is asked for";
  EXPECT_TRUE(taken(all, 99).empty());
  RunHistory two = history("steps", {.most_steps = 2});
  EXPECT_EQ(taken(two, 0), (Taken{{1, 0, 9}, {1, 1, 9}, {2, 0, 8}, {2, 1, 8}}));
  RunHistory few = history("steps", {.most_tokens = 14});
  EXPECT_EQ(taken(few, 0), (Taken{{1, 0, 9}, {1, 1, 9}, {2, 0, 8}})) << "the newest";
  output_ = "elsewhere/step-10";
  RunHistory elsewhere = history("steps", {.most_steps = 1});
  EXPECT_EQ(taken(elsewhere, 0), (Taken{{1, 0, 11}, {1, 1, 11}}));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(History, WhatWasPregeneratedForThisRunIsTheNewestAsFarAsItGoes) {
  make("steps/step-9", run_, 9);
  make("steps/step-11.ahead", run_, 11, false);
  SampleRun begun = run_;
  std::erase(begun.ids, RequestId{1, 0});
  make("steps/step-10.ahead", begun, 10, false);
  Trajectory cut = sample::finished({1, 0}, 4);
  cut.finish_reason = FinishReason::partial;
  cut.tokens.front() = 12;
  ShardWriter writer(at("steps/step-10.ahead"), 0, 1);
  writer.append(cut);
  writer.close();
  RunHistory all = history("steps");
  EXPECT_EQ(taken(all, 0), (Taken{{1, 0, 10}, {1, 1, 10}, {2, 0, 9}, {2, 1, 9}}));
  EXPECT_EQ(taken(all, 1), (Taken{{1, 0, 12}, {1, 1, 10}, {2, 0, 9}, {2, 1, 9}}));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(History, ARunOfItsOwnIsReadFinishedOrNot) {
  make("one", run_, 5);
  make("killed", run_, 6, false);
  for (const auto& [path, mark] :
       {std::pair("one", 5), {"one/trajectories.h5", 5}, {"killed", 6}}) {
    RunHistory one = history(path);
    EXPECT_EQ(taken(one, 1), (Taken{{1, 0, mark}, {1, 1, mark}})) << path;
  }
  output_ = "one";
  EXPECT_EQ(search(history("one")), 0U);
  EXPECT_EQ(search(history("nowhere")), 0U);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(History, PromptsAreTheSameWhereTheirTokensAre) {
  SampleRun other(4, 2);
  std::reverse(other.prompts.begin(), other.prompts.end());
  for (Prompt& prompt : other.prompts) prompt.uid += "-of-this-step";
  other.prompts[0].tokens.back() += 1;
  other.manifest = sample::manifest(other.prompts, 2);
  make("one", other, 5);
  RunHistory one = history("one");
  EXPECT_TRUE(taken(one, 3).empty());
  EXPECT_EQ(prompts_, 3U);
  EXPECT_EQ(taken(one, 0).size(), 2U);
  EXPECT_TRUE(warnings_.empty());

  // Of a step without the prompt there is no source, but it counts as a step.
  make("steps/1", run_, 1);
  make("steps/2", other, 2);
  RunHistory both = history("steps");
  EXPECT_EQ(taken(both, 3), (Taken{{2, 0, 1}, {2, 1, 1}}));
}

TEST_F(History, WhatIsOfNoUseIsTold) {
  SampleRun other(4, 2);
  for (Prompt& prompt : other.prompts) prompt.tokens.push_back(3);
  other.manifest = sample::manifest(other.prompts, 2);
  make("one", other, 5);
  EXPECT_EQ(search(history("one")), 0U);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(warnings_[0], at("one") + ": it has no responses to any prompt of this run");

  make("two", run_, 5);
  EXPECT_EQ(search(history("two", {.vocabulary = 77})), 0U);
  ASSERT_EQ(warnings_.size(), 2U);
  EXPECT_EQ(warnings_[1],
            at("two") + ": the run's vocabulary has 1073741824 tokens; the model's has 77");
  std::filesystem::create_directory(at("three"));
  std::ofstream(at("three/trajectories.h5")) << "no HDF5";
  EXPECT_EQ(search(history("three")), 0U);
  ASSERT_EQ(warnings_.size(), 3U);
  EXPECT_NE(warnings_[2].find(at("three/trajectories.h5")), std::string::npos) << warnings_[2];
}

// Step 10 is written elsewhere, through a link, and is done when step 9 is done once more.
TEST_F(History, ARunIsWhereItsNameIs) {
  make("steps/step-8", run_, 8);
  make("scratch/10", run_, 10);
  make("steps/step-11", run_, 11);
  std::filesystem::create_directory_symlink(at("scratch/10"), at("steps/step-10"));
  output_ = "steps/step-10";
  RunHistory now = history("steps");
  EXPECT_EQ(taken(now, 0), (Taken{{1, 0, 8}, {1, 1, 8}}));
  output_ = "scratch/10";
  RunHistory elsewhere = history("steps");
  EXPECT_EQ(taken(elsewhere, 0), (Taken{{1, 0, 11}, {1, 1, 11}, {2, 0, 8}, {2, 1, 8}}))
      << "but never itself";
}

TEST_F(History, OneReaderSearchesForAll) {
  make("steps/step-1", run_, 1);
  make("steps/step-2", run_, 2);
  RunHistory first = history("steps", {}, {0, 2});
  RunHistory second({.most_tokens = 1000}, {}, {1, 2}, [](const std::string&) {});
  EXPECT_FALSE(second.work(nobody, nothing));
  second.want(3);
  EXPECT_TRUE(second.awaits(3));
  EXPECT_FALSE(second.awaits(1)) << "nobody wants it";
  EXPECT_FALSE(second.work(nobody, nothing)) << "nothing was found yet";
  int told = 0;
  const auto tell = [&](std::uint32_t reader, std::span<const std::byte> found) {
    EXPECT_EQ(reader, 1U);
    EXPECT_TRUE(second.learn(found));
    EXPECT_FALSE(second.learn(found.first(found.size() - 1))) << "no sense";
    ++told;
  };
  EXPECT_EQ(taken(first, 2, tell), (Taken{{1, 0, 2}, {1, 1, 2}, {2, 0, 1}, {2, 1, 1}}));
  EXPECT_EQ(told, 3) << "two runs, and that there are no more";
  EXPECT_TRUE(taken(first, 1).empty()) << "the other reader's";
  EXPECT_EQ(taken(second, 3), (Taken{{1, 0, 2}, {1, 1, 2}, {2, 0, 1}, {2, 1, 1}}));
  EXPECT_EQ(taken(second, 1).size(), 4U);
  EXPECT_TRUE(warnings_.empty());
}

// What is found in the newest run is read before the next is looked into; of several prompts each
// has a part before any has the next.
TEST_F(History, SearchAndReadingTakeTurns) {
  make("steps/step-1", run_, 1);
  make("steps/step-2", run_, 2);
  RunHistory all = history("steps");
  all.want(0);
  all.want(1);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;  // prompt, age
  std::vector<std::size_t> after;                              // [parts] responses read by then
  while (all.work(nobody, [&](RequestId id, std::uint32_t age, std::span<const TokenId>) {
    if (id.sample == 0) order.emplace_back(id.prompt, age);
  }))
    after.push_back(order.size());
  EXPECT_EQ(order,
            (std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {1, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(after, (std::vector<std::size_t>{0, 1, 2, 2, 3, 4, 4}));
}

TEST_F(History, ASearchEndsWhereRunsHaveNoneInARow) {
  SampleRun other(4, 2);
  for (Prompt& prompt : other.prompts) prompt.tokens.push_back(3);
  other.manifest = sample::manifest(other.prompts, 2);
  make("steps/1", run_, 1);
  make("steps/2", other, 2);
  make("steps/3", other, 3);
  make("steps/4", run_, 4);
  RunHistory two = history("steps", {.most_idle = 2});
  EXPECT_EQ(taken(two, 0), (Taken{{1, 0, 4}, {1, 1, 4}}));
  RunHistory three = history("steps", {.most_idle = 3});
  EXPECT_EQ(taken(three, 0), (Taken{{1, 0, 4}, {1, 1, 4}, {4, 0, 1}, {4, 1, 1}}));
  EXPECT_TRUE(warnings_.empty()) << "new prompts are nothing odd in a training";
}

TEST_F(History, DamagedResponsesAreLeftOut) {
  make("one", run_, 77);
  // Every first token of a response, wherever it lies in the file.
  std::string bytes = bytes_of(at("one/trajectories.h5"));
  std::size_t damaged = 0;
  for (std::size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    if (bytes.compare(i, 4, std::string("\x4d\0\0\0", 4)) != 0) continue;
    bytes[i] = 'x';
    ++damaged;
  }
  ASSERT_GE(damaged, 8U);
  std::ofstream(at("one/trajectories.h5"), std::ios::binary) << bytes;
  RunHistory one = history("one");
  for (std::uint32_t p = 0; p < 4; ++p) EXPECT_TRUE(taken(one, p).empty());
  ASSERT_EQ(warnings_.size(), 1U) << "once a run";
  EXPECT_NE(warnings_[0].find(at("one/trajectories.h5")), std::string::npos) << warnings_[0];
}

}  // namespace
}  // namespace paceline::io
