// A complete run that a disk has damaged: whatever is whole is kept, and the rest makes the same
// file again.
#include "io/run/salvage.hpp"

#include <cmath>

#include "io/hdf5/file.hpp"
#include "io/run/digest.hpp"
#include "io/run/final_file.hpp"
#include "io/run/stored_run.hpp"
#include "io/telemetry/telemetry.hpp"
#include "io/telemetry/telemetry_reader.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

class SalvageTest : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    path_ = at("run");
    {
      const RunDirectory directory(path_, run_.manifest, run_.prompts, false);
      generate(run_.ids, 0);
      write_final_file(path_, run_.manifest, run_.prompts);
      write_telemetry(path_, {});
      directory.tidy();
    }
    file_ = path_ + "/trajectories.h5";
    whole_ = bytes_of(file_);
    digest_ = digest_report(path_).hex;
  }

  void generate(std::span<const RequestId> ids, std::uint32_t attempt) {
    ShardWriter writer(path_, attempt, 0);
    for (const RequestId id : ids) writer.append(sample::finished(id));
  }

  /// Goes on with a damaged file; how many responses were kept. The run is whole then.
  std::size_t resume(const std::string& bytes) {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
    const RunDirectory directory(path_, run_.manifest, run_.prompts, true);
    note_ = directory.note();
    if (directory.complete()) {
      EXPECT_EQ(digest_report(path_).hex, digest_);
      return run_.ids.size();
    }
    const ResumeState state = directory.read_state();
    std::vector<RequestId> left;
    std::set_difference(run_.ids.begin(), run_.ids.end(), state.finished.begin(),
                        state.finished.end(), std::back_inserter(left));
    generate(left, directory.attempt());
    write_final_file(path_, run_.manifest, run_.prompts);
    directory.tidy();
    EXPECT_FALSE(std::filesystem::exists(path_ + "/shards"));
    return state.finished.size();
  }

  const SampleRun run_{5, 4};
  std::string path_, file_, whole_, digest_, note_;
};

TEST_F(SalvageTest, AFlippedBitCostsTwoResponsesAtMostWhereverItIs) {
  const std::size_t step = kSanitizer ? 613 : 307;
  std::size_t damaged = 0;
  for (std::size_t at = 0; at < whole_.size(); at += step) {
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    const std::size_t kept = resume(bytes);
    EXPECT_GE(kept, run_.ids.size() - 2) << at;
    damaged += kept < run_.ids.size() ? 1 : 0;
    ASSERT_EQ(digest_report(path_).hex, digest_) << at;
  }
  EXPECT_GT(damaged, 3U);
}

TEST_F(SalvageTest, WhatIsLeftOfAFileThatWasCutShortIsKept) {
  // Behind the last column nothing is left out but the end of its responses.
  EXPECT_GE(resume(whole_.substr(0, whole_.size() - 1)), run_.ids.size() - 1);
  EXPECT_TRUE(bytes_of(file_) == whole_);
  EXPECT_NE(note_.find("responses are whole and kept, the others are generated again"),
            std::string::npos)
      << note_;
  EXPECT_LT(resume(whole_.substr(0, whole_.size() / 2)), run_.ids.size());
  EXPECT_TRUE(bytes_of(file_) == whole_);
  EXPECT_EQ(resume("") + resume("no HDF5"), 0U);
  EXPECT_TRUE(bytes_of(file_) == whole_);
  EXPECT_EQ(resume(std::string(whole_.size(), '\0')), 0U);
  EXPECT_TRUE(bytes_of(file_) == whole_);
}

// Never is a reward kept, and with it the response known as scored, without what was said beside
// it.
TEST_F(SalvageTest, WhatWasSaidBesideRewardsIsKeptOrTheyAreLeftOutToo) {
  std::vector<Reward> rewards;
  RewardExtras extras;
  for (const RequestId id : run_.ids) {
    if (!std::isnan(sample::finished(id).reward)) continue;
    rewards.push_back({id, 0.5F});
    extras[id] = R"({"why": )" + std::to_string(id.prompt * 10 + id.sample) + "}";
  }
  ASSERT_FALSE(extras.empty());
  add_rewards(path_, rewards, extras);
  whole_ = bytes_of(file_);
  std::size_t kept = 0;
  std::size_t tried = 0;
  const std::size_t step = kSanitizer ? 2309 : 769;
  for (std::size_t at = 11; at < whole_.size(); at += step, ++tried) {
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    EXPECT_GE(resume(bytes), run_.ids.size() - 2) << at;
    const StoredRun run = open_stored_run(path_);
    EXPECT_TRUE(run.extras.empty() || run.extras == extras ||
                run.extras.size() + 2 >= extras.size())
        << at;
    for (const StoredResponse& entry : run.finished) {
      if (!extras.contains(entry.id())) continue;
      ASSERT_EQ(std::isnan(entry.reward), !run.extras.contains(entry.id())) << at;
      const auto kept_extra = run.extras.find(entry.id());
      const bool its_own =
          kept_extra == run.extras.end() || kept_extra->second == extras.at(entry.id());
      EXPECT_TRUE(its_own) << at;
    }
    kept += run.extras == extras ? 1 : 0;
  }
  EXPECT_GT(kept, tried / 2);
}

TEST_F(SalvageTest, LayoutsAreThoseOfRealFiles) {
  std::uint64_t tokens = 0;
  for (const RequestId id : run_.ids) tokens += sample::finished(id).tokens.size();
  const std::string hollow = write_hollow_file(at("hollow"), run_.manifest, run_.prompts, tokens);
  EXPECT_EQ(std::filesystem::file_size(hollow), whole_.size());
}

TEST_F(SalvageTest, ExaminingSaysWhatResumingWillDo) {
  std::string bytes = whole_;
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
  const std::string said = RunDirectory::examine(path_, &run_.manifest);
  EXPECT_NE(said.find("--resume keeps the responses that are whole"), std::string::npos) << said;
  EXPECT_TRUE(bytes_of(file_) == bytes);
}

TEST_F(SalvageTest, DamagedTelemetryIsPutAsideAndWrittenAnew) {
  const std::string telemetry = path_ + "/telemetry.h5";
  const std::string was = bytes_of(telemetry);
  const std::string zeros(was.size(), '\0');
  std::ofstream(telemetry, std::ios::binary | std::ios::trunc) << zeros;
  {
    const RunDirectory directory(path_, run_.manifest, run_.prompts, true);
    EXPECT_TRUE(directory.complete());
    EXPECT_NE(directory.note().find("telemetry.h5.damaged now"), std::string::npos)
        << directory.note();
    write_telemetry(path_, {});
    directory.tidy();
  }
  EXPECT_TRUE(bytes_of(telemetry + ".damaged") == zeros);
  EXPECT_NO_THROW((void)read_telemetry(path_));
  EXPECT_TRUE(bytes_of(file_) == whole_);
}

}  // namespace
}  // namespace paceline::io
