// Who may use an output directory, which attempt it is, and what a resumed run starts from.
#include "io/hdf5/run_directory.hpp"

#include "io/hdf5/final_file.hpp"
#include "tests/io/hdf5/fixture.hpp"

namespace paceline::io {
namespace {

using RunDirectoryTest = Scratch;

TEST_F(RunDirectoryTest, ANewRunIsStartedOnceAndResumedAfter) {
  const SampleRun run(2, 2);
  const std::string path = at("a/b/run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    EXPECT_EQ(directory.attempt(), 0U);
    EXPECT_FALSE(directory.complete());
    EXPECT_EQ(directory.note(), "");
    EXPECT_EQ(to_json(read_manifest(path)), to_json(run.manifest));
    EXPECT_EQ(read_prompts(path).size(), 2U);
  }
  EXPECT_EQ(message_of<UsageError>([&] { RunDirectory(path, run.manifest, run.prompts, false); }),
            path + " already holds a run: --resume continues it, or choose another directory");
  for (std::uint32_t attempt = 1; attempt < 4; ++attempt) {
    const RunDirectory again(path, run.manifest, run.prompts, true);
    EXPECT_EQ(again.attempt(), attempt);
    EXPECT_FALSE(again.note().empty());
    EXPECT_TRUE(again.read_state().finished.empty());
  }
}

TEST_F(RunDirectoryTest, ResumeWithoutARunStartsOne) {
  const SampleRun run(1, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, true);
  EXPECT_EQ(directory.attempt(), 0U);
  EXPECT_EQ(directory.note(), "");
}

TEST_F(RunDirectoryTest, AnotherSettingIsRefusedAndNamed) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  RunManifest other = run.manifest;
  other.sampling.top_k = 50;
  const std::string message =
      message_of<UsageError>([&] { RunDirectory(path, other, run.prompts, true); });
  EXPECT_NE(message.find("sampling.top_k: 0, now 50"), std::string::npos) << message;
  other = run.manifest;
  other.config_text = "another layout";
  EXPECT_EQ(RunDirectory(path, other, run.prompts, true).attempt(), 1U);
}

TEST_F(RunDirectoryTest, ARunInProgressIsNotJoined) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  const RunDirectory directory(path, run.manifest, run.prompts, false);
  const std::string message =
      message_of<UsageError>([&] { RunDirectory(path, run.manifest, run.prompts, true); });
  EXPECT_NE(message.find("in use"), std::string::npos) << message;
}

TEST_F(RunDirectoryTest, FinishedAndPartialResponsesComeBack) {
  const SampleRun run(6, 2);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter a(path, 0, 0);
    ShardWriter b(path, 0, 3);
    a.append(sample::finished({3, 1}));
    b.append(sample::finished({0, 1}));
    a.append(sample::prefix({2, 0}, 5));
    b.append(sample::prefix({5, 1}, 2));
  }
  {
    const RunDirectory directory(path, run.manifest, run.prompts, true);
    const ResumeState state = directory.read_state();
    EXPECT_EQ(state.finished, (std::vector<RequestId>{{0, 1}, {3, 1}}));
    ASSERT_EQ(state.partial.size(), 2U);
    EXPECT_TRUE(same(state.partial[0], sample::prefix({2, 0}, 5)));
    EXPECT_TRUE(same(state.partial[1], sample::prefix({5, 1}, 2)));
    EXPECT_TRUE(state.warnings.empty());
    ShardWriter c(path, directory.attempt(), 0);
    c.append(sample::finished({2, 0}, 9));
    c.append(sample::prefix({5, 1}, 4));
  }
  const RunDirectory directory(path, run.manifest, run.prompts, true);
  const ResumeState state = directory.read_state();
  EXPECT_EQ(state.finished, (std::vector<RequestId>{{0, 1}, {2, 0}, {3, 1}}));
  ASSERT_EQ(state.partial.size(), 1U);
  EXPECT_TRUE(same(state.partial[0], sample::prefix({5, 1}, 4)));
}

TEST_F(RunDirectoryTest, ResponsesOfAnotherRunAreAnError) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    writer.append(sample::finished({2, 0}, 3));
  }
  const RunDirectory directory(path, run.manifest, run.prompts, true);
  message_of<IoError>([&] { static_cast<void>(directory.read_state()); });
}

TEST_F(RunDirectoryTest, ACompleteRunIsLeftAlone) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id));
  }
  write_final_file(path, run.manifest, run.prompts);
  const std::string before = bytes_of(path + "/trajectories.h5");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, true);
    EXPECT_TRUE(directory.complete());
    EXPECT_NE(directory.note().find("complete"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path + "/shards"));
  EXPECT_EQ(bytes_of(path + "/trajectories.h5"), before);
  message_of<UsageError>([&] { RunDirectory(path, run.manifest, run.prompts, false); });
  // Without run.json the final file itself says what it is.
  std::filesystem::remove(path + "/run.json");
  RunManifest other = run.manifest;
  EXPECT_TRUE(RunDirectory(path, other, run.prompts, true).complete());
  other.isa = "avx2";
  message_of<UsageError>([&] { RunDirectory(path, other, run.prompts, true); });
}

TEST_F(RunDirectoryTest, AStartThatWasKilledHalfWayIsStartedAgain) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  std::filesystem::remove(path + "/run.json");
  std::filesystem::remove(path + "/shards/attempt-0.json");
  std::ofstream(path + "/.run.json.tmp") << "{ \"half";
  const RunDirectory directory(path, run.manifest, run.prompts, false);
  EXPECT_EQ(directory.attempt(), 0U);
  EXPECT_EQ(to_json(read_manifest(path)), to_json(run.manifest));
}

TEST_F(RunDirectoryTest, AManifestThatCannotBeReadIsAnIoError) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  std::ofstream(path + "/run.json") << "{ \"half";
  const std::string message =
      message_of<IoError>([&] { RunDirectory(path, run.manifest, run.prompts, true); });
  EXPECT_NE(message.find(path + "/run.json"), std::string::npos) << message;
}

}  // namespace
}  // namespace paceline::io
