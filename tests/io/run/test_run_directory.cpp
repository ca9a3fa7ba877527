// Who may use an output directory, which attempt it is, and what a resumed run starts from.
#include "io/run/run_directory.hpp"

#include <algorithm>
#include <random>

#include "io/hdf5/file.hpp"
#include "io/run/digest.hpp"
#include "io/run/final_file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "tests/io/run/fixture.hpp"

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
    EXPECT_EQ(again.note(),
              "resuming " + path + ": start " + std::to_string(attempt + 1) + " of this run");
    EXPECT_TRUE(again.read_state().finished.empty());
  }
}

TEST_F(RunDirectoryTest, ExaminingSaysWhatOpeningWouldAndChangesNothing) {
  const SampleRun run(2, 2);
  const std::string path = at("a/run");
  EXPECT_EQ(RunDirectory::examine(path, nullptr), path + ": will be made");
  EXPECT_FALSE(std::filesystem::exists(at("a")));
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  EXPECT_EQ(message_of<UsageError>([&] { (void)RunDirectory::examine(path, nullptr); }),
            message_of<UsageError>([&] { RunDirectory(path, run.manifest, run.prompts, false); }));
  EXPECT_EQ(RunDirectory::examine(path, &run.manifest),
            "resuming " + path + ": start 2 of this run");
  RunManifest other = run.manifest;
  ++other.sampling.seed;
  EXPECT_EQ(message_of<UsageError>([&] { (void)RunDirectory::examine(path, &other); }),
            message_of<UsageError>([&] { RunDirectory(path, other, run.prompts, true); }));
  {
    const RunDirectory in_use(path, run.manifest, run.prompts, true);
    EXPECT_NE(message_of<UsageError>([&] {
                (void)RunDirectory::examine(path, &run.manifest);
              }).find("is in use by another run"),
              std::string::npos);
  }
  std::ofstream(at("file")) << "x";
  for (const std::string& blocked : {at("file"), at("file/run")}) {
    EXPECT_EQ(message_of<IoError>([&] { (void)RunDirectory::examine(blocked, nullptr); }),
              "cannot create the directory " + blocked + ": Not a directory");
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

TEST_F(RunDirectoryTest, ResponsesThatCannotBeOfThisRunAreDamage) {
  SampleRun run(4, 1);
  run.manifest.sampling.max_tokens = 8;
  run.manifest.vocabulary = 400;
  const std::string path = at("run");
  const RunDirectory directory(path, run.manifest, run.prompts, false);
  {
    ShardWriter writer(path, 0, 0);
    writer.append(sample::finished({4, 0}, 3));  // no such prompt
    writer.append(sample::finished({0, 1}, 3));  // no such sample
    writer.append(sample::finished({0, 0}, 9));  // too long
    writer.append(sample::prefix({0, 0}, 8));    // would have ended
    Trajectory response = sample::finished({1, 0}, 3);
    response.weight_version = 13;
    writer.append(response);
    response = sample::finished({1, 0}, 3);
    response.finish_reason = static_cast<FinishReason>(7);
    writer.append(response);
    for (const TokenId token : {-1, 400}) {
      response = sample::finished({2, 0}, 3);
      response.tokens[1] = token;
      writer.append(response);
    }
    writer.append(sample::finished({3, 0}, 8));
    writer.append(sample::prefix({2, 0}, 7));
  }
  const ResumeState state = directory.read_state();
  EXPECT_EQ(state.finished, (std::vector<RequestId>{{3, 0}}));
  ASSERT_EQ(state.partial.size(), 1U);
  EXPECT_TRUE(same(state.partial[0], sample::prefix({2, 0}, 7)));
  ASSERT_EQ(state.warnings.size(), 1U);
  EXPECT_NE(state.warnings[0].find(": 8 damaged"), std::string::npos) << state.warnings[0];
}

TEST_F(RunDirectoryTest, ACompleteRunIsLeftAlone) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    {
      ShardWriter writer(path, 0, 0);
      for (const RequestId id : run.ids) writer.append(sample::finished(id));
    }
    write_final_file(path, run.manifest, run.prompts);
    write_telemetry(path, {});
    directory.tidy();
  }
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

// Killed between the two final files, or before the shards were gone.
TEST_F(RunDirectoryTest, WhatIsMissingOfACompleteRunIsFinished) {
  const SampleRun run(3, 1);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id));
    TelemetryWriter telemetry(path, 0, 0);
    telemetry.step({.start = 1, .duration = 2});
  }
  write_final_file(path, run.manifest, run.prompts);
  const std::string before = bytes_of(path + "/trajectories.h5");
  for (const char* left :
       {".trajectories.h5.tmp", ".telemetry.h5.tmp", ".run.json.12.tmp", ".paceline-probe",
        "shards/.prompts.h5.tmp", "shards/.attempt-3.json.77.tmp"}) {
    std::ofstream(path + "/" + left) << "half";
  }
  std::ofstream(path + "/shards/mine") << "kept";
  {
    const RunDirectory directory(path, run.manifest, run.prompts, true);
    EXPECT_TRUE(directory.complete());
    // While it is being finished nobody else does.
    message_of<UsageError>([&] { RunDirectory(path, run.manifest, run.prompts, true); });
    EXPECT_TRUE(write_telemetry(path, {}).warnings.empty());
    directory.tidy();
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    names.push_back(std::filesystem::relative(entry.path(), path).string());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"run.json", "shards", "shards/mine", "telemetry.h5",
                                             "trajectories.h5"}));
  EXPECT_EQ(bytes_of(path + "/trajectories.h5"), before);
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path + "/telemetry.h5");
  EXPECT_EQ(h5::read_all<double>(file, "ranks/0/steps/start"), std::vector<double>{1});
}

// Many jobs start at once in one directory, each with prompts of its own.
TEST_F(RunDirectoryTest, OfManyThatStartTheOneThatWinsIsWhole) {
  for (int round = 0; round < 8; ++round) {
    const std::string path = at("run" + std::to_string(round));
    int go[2];
    ASSERT_EQ(::pipe(go), 0);
    std::vector<pid_t> children;
    for (std::uint32_t job = 0; job < 4; ++job) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::close(go[1]);
      const SampleRun run(2 + job, 1);
      char byte = 0;
      static_cast<void>(::read(go[0], &byte, 1));  // until the other end is closed
      try {
        const RunDirectory directory(path, run.manifest, run.prompts, false);
        ::_exit(0);
      } catch (const UsageError&) {
        ::_exit(64);
      } catch (...) {
        ::_exit(1);
      }
    }
    ::close(go[0]);
    ::close(go[1]);
    int winners = 0;
    for (std::size_t job = 0; job < children.size(); ++job) {
      int status = 0;
      ::waitpid(children[job], &status, 0);
      EXPECT_TRUE(status == 0 || WEXITSTATUS(status) == 64) << status;
      winners += status == 0 ? 1 : 0;
    }
    EXPECT_EQ(winners, 1);
    const auto prompts = read_prompts(path);
    EXPECT_EQ(read_manifest(path).prompts_fingerprint, prompts_fingerprint(prompts));
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
    }
  }
}

TEST_F(RunDirectoryTest, NothingIsWrittenThroughSymbolicLinks) {
  const SampleRun run(2, 1);
  const std::string path = at("run");
  const std::string outside = at("outside");
  std::ofstream(outside) << "precious";
  std::filesystem::create_directories(path + "/shards");
  for (const char* name : {".run.json.tmp", ".paceline-probe.tmp", ".paceline-probe",
                           ".trajectories.h5.tmp", ".telemetry.h5.tmp", "shards/prompts.h5",
                           "shards/.prompts.h5.tmp", "shards/.attempt-0.json.tmp",
                           "shards/.trajectories-0-0.h5.tmp", "shards/.telemetry-0-0.h5.tmp"}) {
    std::filesystem::create_symlink(outside, path + "/" + name);
  }
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    {
      ShardWriter writer(path, 0, 0);
      for (const RequestId id : run.ids) writer.append(sample::finished(id));
      const TelemetryWriter telemetry(path, 0, 0);
    }
    write_final_file(path, run.manifest, run.prompts);
    write_telemetry(path, {});
    directory.tidy();
  }
  EXPECT_EQ(bytes_of(outside), "precious");
  EXPECT_FALSE(std::filesystem::exists(path + "/shards"));
  EXPECT_EQ(digest_report(path).trajectories, 2U);

  // A link to nothing.
  for (const std::string name : {"dangling", "dangling/run"}) {
    std::filesystem::create_symlink(at("nowhere"), at("dangling"));
    const auto refuses = [&](const std::function<void()>& call) {
      const std::string message = message_of<IoError>(call);
      EXPECT_NE(message.find(at("dangling") + " is a symbolic link to " + at("nowhere") +
                             ", which is not there"),
                std::string::npos)
          << message;
    };
    refuses([&] { RunDirectory(at(name), run.manifest, run.prompts, false); });
    refuses([&] { (void)RunDirectory::examine(at(name), nullptr); });
    std::filesystem::remove(at("dangling"));
  }
  EXPECT_FALSE(std::filesystem::exists(at("nowhere")));

  // A folder of shards elsewhere.
  const std::string other = at("other");
  std::filesystem::create_directories(other);
  std::filesystem::create_directories(at("elsewhere"));
  std::filesystem::create_directory_symlink(at("elsewhere"), other + "/shards");
  const std::string message =
      message_of<IoError>([&] { RunDirectory(other, run.manifest, run.prompts, false); });
  EXPECT_NE(message.find(other + "/shards is a symbolic link"), std::string::npos) << message;
  EXPECT_TRUE(std::filesystem::is_empty(at("elsewhere")));
  EXPECT_FALSE(std::filesystem::exists(other + "/run.json"));  // so it may be started again
}

TEST_F(RunDirectoryTest, DamagedPromptsAreWrittenAgain) {
  const SampleRun run(40, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  const std::string file = path + "/shards/prompts.h5";
  const std::string whole = bytes_of(file);
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::string bytes = whole;
    if (round % 5 == 0) bytes.resize(random() % bytes.size());
    for (int i = 0; i <= round % 3 && !bytes.empty(); ++i) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << random() % 8);
    }
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    // Never taken for others.
    try {
      static_cast<void>(digest_report(path));
    } catch (const IoError&) {
    }
    { const RunDirectory directory(path, run.manifest, run.prompts, true); }
    EXPECT_EQ(prompts_fingerprint(read_prompts(path)), run.manifest.prompts_fingerprint);
  }
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
