// Shards: what was flushed is there, live, after kill -9 and behind a torn tail.
#include "io/run/shard_writer.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "io/hdf5/file.hpp"
#include "io/run/digest.hpp"
#include "io/run/shard_index.hpp"
#include "io/telemetry/telemetry.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

using ShardTest = Scratch;

/// Every finished response that the shards of a directory give, checked against the formula.
std::set<RequestId> check_finished(const std::string& directory) {
  std::set<RequestId> ids;
  const ShardIndex index = read_shard_index(directory, read_manifest(directory));
  read_in_order(index.paths, "", index.finished, 4096, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      const RequestId id = window.entries[i].id();
      EXPECT_TRUE(same(window.trajectory(i), sample::finished(id)))
          << id.prompt << " " << id.sample;
      ids.insert(id);
    }
  });
  return ids;
}

TEST_F(ShardTest, FlushedIsVisibleWhileTheWriterIsOpen) {
  const SampleRun run(4, 3);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  ShardWriter writer(directory.path(), directory.attempt(), 5);
  EXPECT_TRUE(writer.path().ends_with("shards/trajectories-0-5.h5"));
  for (std::size_t i = 0; i < 6; ++i) writer.append(sample::finished(run.ids[i]));
  writer.flush();
  writer.append(sample::finished(run.ids[6]));  // not flushed
  // Another process, as HDF5 shares files that one process opens twice.
  const int status = in_child([&] {
    const auto lock = h5::lock_hdf5();
    return static_cast<int>(check_finished(directory.path()).size());
  });
  EXPECT_EQ(WEXITSTATUS(status), 6);
  writer.close();
  EXPECT_EQ(check_finished(directory.path()).size(), 7U);
}

TEST_F(ShardTest, ResponsesLargerThanTheBufferAreWholeAndEmptyOnesToo) {
  const SampleRun run(3, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  ShardWriter writer(directory.path(), 0, 0);
  writer.append(sample::finished({0, 0}, 300000));
  writer.append(sample::finished({1, 0}, 0));
  writer.append(sample::finished({2, 0}, 7));
  writer.close();
  writer.close();
  const ShardIndex index = read_shard_index(directory.path(), run.manifest);
  ASSERT_EQ(index.finished.size(), 3U);
  EXPECT_EQ(index.warnings, std::vector<std::string>{});
  std::vector<Trajectory> read;
  read_in_order(index.paths, "", index.finished, 1000, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) read.push_back(window.trajectory(i));
  });
  ASSERT_EQ(read.size(), 3U);
  EXPECT_TRUE(same(read[0], sample::finished({0, 0}, 300000)));
  EXPECT_TRUE(same(read[1], sample::finished({1, 0}, 0)));
  EXPECT_TRUE(same(read[2], sample::finished({2, 0}, 7)));
}

TEST_F(ShardTest, ALaterResponseReplacesAnEarlierPartialOne) {
  const SampleRun run(3, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  {
    ShardWriter writer(directory.path(), 0, 0);
    writer.append(sample::prefix({0, 0}, 4));
    writer.append(sample::prefix({1, 0}, 9));
    writer.append(sample::finished({0, 0}, 11));
    writer.append(sample::prefix({1, 0}, 3));
    writer.append(sample::prefix({2, 0}, 0));
  }
  const ResumeState state = directory.read_state();
  EXPECT_EQ(state.finished, (std::vector<RequestId>{{0, 0}}));
  ASSERT_EQ(state.partial.size(), 2U);
  EXPECT_TRUE(same(state.partial[0], sample::prefix({1, 0}, 9)));
  EXPECT_TRUE(same(state.partial[1], sample::prefix({2, 0}, 0)));
}

TEST_F(ShardTest, KilledAtRandomPointsNothingFlushedIsLost) {
  const SampleRun run(5000, 1);
  std::mt19937 random(17);
  std::size_t most = 0;
  for (int round = 0; round < 25; ++round) {
    const std::string path = at("run" + std::to_string(round));
    { const RunDirectory directory(path, run.manifest, run.prompts, false); }
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        ShardWriter writer(path, 0, 0);
        for (std::uint32_t i = 0; i < run.ids.size(); ++i) {
          writer.append(sample::finished(run.ids[i]));
          if (i % 7 == 6) {
            writer.flush();
            const std::uint32_t flushed = i + 1;
            if (::write(report[1], &flushed, sizeof flushed) != sizeof flushed) ::_exit(1);
          }
        }
      } catch (const std::exception&) {
        ::_exit(1);
      }
      ::kill(::getpid(), SIGKILL);
    }
    ::close(report[1]);
    ::usleep((2000 + random() % 30000) * (kSanitizer ? 16 : 1));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    std::uint32_t flushed = 0;
    std::uint32_t next = 0;
    while (::read(report[0], &next, sizeof next) == sizeof next) flushed = next;
    ::close(report[0]);

    const std::set<RequestId> ids = check_finished(path);
    for (std::uint32_t i = 0; i < flushed; ++i) ASSERT_TRUE(ids.contains(run.ids[i])) << i;
    most = std::max<std::size_t>(most, flushed);
    const ShardIndex index = read_shard_index(path, run.manifest);
    EXPECT_EQ(index.warnings, std::vector<std::string>{});
  }
  EXPECT_GT(most, 0U);
}

TEST_F(ShardTest, ATornTailCostsOnlyItself) {
  const SampleRun run(400, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  const std::string copy = at("whole.h5");
  std::string path;
  const int status = in_child([&] {
    ShardWriter writer(directory.path(), 0, 0);
    for (const RequestId id : run.ids) {
      writer.append(sample::finished(id, 400));
      writer.flush();
    }
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  path = directory.path() + "/shards/trajectories-0-0.h5";
  std::filesystem::copy_file(path, copy);
  const auto size = std::filesystem::file_size(copy);
  std::size_t before = 0;
  std::size_t partial_losses = 0;
  for (int percent = 0; percent <= 100; percent += 2) {
    std::filesystem::copy_file(copy, path, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path, size * static_cast<std::uintmax_t>(percent) / 100);
    const ResumeState state =
        directory.read_state();  // whatever is missing: no error, no wrong one
    EXPECT_EQ(state.warnings.empty(), state.finished.size() == run.ids.size());
    if (!state.finished.empty() && state.finished.size() < run.ids.size()) ++partial_losses;
    for (const RequestId id : state.finished) ASSERT_LT(id.prompt, run.ids.size());
    EXPECT_GE(state.finished.size(), before);
    before = state.finished.size();
  }
  EXPECT_EQ(before, run.ids.size());
  EXPECT_GT(partial_losses, 5U);
}

TEST_F(ShardTest, DamagedBytesAreFoundAndGeneratedAgain) {
  const SampleRun run(20, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  {
    ShardWriter writer(directory.path(), 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id, 50));
  }
  const std::string path = directory.path() + "/shards/trajectories-0-0.h5";
  std::string bytes = bytes_of(path);
  // The tokens of prompt 11 start with 1100, 1101.
  const std::int32_t needle[2] = {1100, 1101};
  const std::size_t place = bytes.find(std::string(reinterpret_cast<const char*>(needle), 8));
  ASSERT_NE(place, std::string::npos);
  bytes[place] = 'x';
  std::ofstream(path, std::ios::binary) << bytes;
  ResumeState state = directory.read_state();
  EXPECT_EQ(state.finished.size(), 19U);
  ASSERT_EQ(state.warnings.size(), 1U);
  EXPECT_NE(state.warnings[0].find(path + ": 1 damaged"), std::string::npos) << state.warnings[0];
  // The next attempt writes it again; the later one counts.
  {
    ShardWriter writer(directory.path(), 1, 0);
    writer.append(sample::finished({11, 0}, 50));
  }
  EXPECT_EQ(directory.read_state().finished.size(), 20U);
}

TEST_F(ShardTest, SamplesThatAPromptDoesNotHaveAreLeftOut) {
  SampleRun run(3, 4);
  run.manifest.own_samples = {2, 4, 3};
  const std::string path = at("run");
  const RunDirectory directory(path, run.manifest, run.prompts, false);
  {
    ShardWriter writer(path, 0, 0);  // as of a run whose prompts all had four
    for (const RequestId id : run.ids) writer.append(sample::finished(id, 50));
  }
  std::vector<RequestId> read;
  for (const StoredResponse& entry : read_shard_index(path, run.manifest).finished)
    read.push_back(entry.id());
  EXPECT_EQ(read, (std::vector<RequestId>{
                      {0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, 2}, {1, 3}, {2, 0}, {2, 1}, {2, 2}}));
}

// Sizes are taken from what the file has room for, and rows are believed when their response is
// there: neither memory nor time is spent on what a file merely says.
TEST_F(ShardTest, ForgedSizesCostNothing) {
  const SampleRun run(20, 1);
  const std::string path = at("run");
  const RunDirectory directory(path, run.manifest, run.prompts, false);
  {
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id, 50));
    TelemetryWriter telemetry(path, 0, 0);
    telemetry.event({1, {0, 0}, RequestEventKind::leased, 0});
  }
  const int status = in_child([&] {
    const rlimit memory{std::size_t{1} << 30, std::size_t{1} << 30};
    if (!kSanitizer) ::setrlimit(RLIMIT_AS, &memory);
    const auto lock = h5::lock_hdf5();
    for (const hsize_t size : {hsize_t{1} << 33, hsize_t{1} << 62}) {
      for (const char* name : {"index", "tokens", "logprob", "rewards", "events", "steps"}) {
        const bool tokens = std::string(name) != "events" && std::string(name) != "steps";
        const std::string shard =
            path + "/shards/" + (tokens ? "trajectories" : "telemetry") + "-0-0.h5";
        const hid_t file = H5Fopen(shard.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
        const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
        H5Dset_extent(dataset, &size);
        H5Dclose(dataset);
        if (H5Fclose(file) < 0) return 1;
      }
      if (directory.read_state().finished.size() != 20) return 2;
    }
    return write_telemetry(path, {}).warnings.empty() ? 0 : 3;
  });
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

// Rewards of earlier attempts' responses are in a later one's shard.
TEST_F(ShardTest, RewardsComeLaterAndElsewhere) {
  const SampleRun run(4, 2);  // prompt 0's and 3's responses come without a reward
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  const auto unscored = [&] {
    std::vector<RequestId> ids;
    read_unscored(directory.read_state().unscored, [&](const Trajectory& t) {
      EXPECT_TRUE(same(t, sample::finished(t.id)));
      ids.push_back(t.id);
    });
    return ids;
  };
  {
    ShardWriter writer(directory.path(), 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id));
    writer.flush();
    EXPECT_EQ(unscored(), (std::vector<RequestId>{{0, 0}, {0, 1}, {3, 0}, {3, 1}}));
    writer.reward({{0, 1}, 0.25F}, R"({"acc":false})");
    writer.reward({{1, 1}, 7}, R"({"acc":1})");
    writer.flush();  // with nothing else to write
  }
  ShardWriter writer(directory.path(), 1, 2);
  writer.reward({{3, 0}, -2}, R"({"acc":true})");
  writer.flush();
  writer.reward({{0, 1}, 0.5F});  // of two the later attempt's stands
  writer.close();
  EXPECT_EQ(unscored(), (std::vector<RequestId>{{0, 0}, {3, 1}}));
  const ShardIndex index = read_shard_index(directory.path(), run.manifest);
  EXPECT_EQ(index.finished[1].reward, 0.5F);
  EXPECT_EQ(index.finished[2].reward, 1);
  EXPECT_EQ(index.finished[6].reward, -2);
  EXPECT_EQ(index.finished[3].reward, 7);
  const RewardExtras extras{{{1, 1}, R"({"acc":1})"}, {{3, 0}, R"({"acc":true})"}};
  EXPECT_EQ(index.extras, extras);

  // A flipped bit: that reward is missing, and nothing else.
  const std::string text = R"({"acc":true})";
  const std::uint64_t checksum = RewardRow({{3, 0}, -2}, text, 0).checksum;
  const std::string whole = bytes_of(writer.path());
  std::string bytes = whole;
  const std::size_t found =
      bytes.find(std::string(reinterpret_cast<const char*>(&checksum), sizeof checksum));
  ASSERT_NE(found, std::string::npos);
  bytes[found + 16] ^= 1;
  std::ofstream(writer.path(), std::ios::binary) << bytes;
  EXPECT_EQ(unscored(), (std::vector<RequestId>{{0, 0}, {3, 0}, {3, 1}}));

  // One in what was said beside it likewise.
  bytes = whole;
  const std::size_t said = bytes.find(text);
  ASSERT_NE(said, std::string::npos);
  bytes[said + 2] ^= 1;
  std::ofstream(writer.path(), std::ios::binary) << bytes;
  EXPECT_EQ(unscored(), (std::vector<RequestId>{{0, 0}, {3, 0}, {3, 1}}));
}

TEST_F(ShardTest, AShardThatCannotBeOpenedIsReported) {
  const SampleRun run(3, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  {
    ShardWriter writer(directory.path(), 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id));
  }
  const std::string bad = directory.path() + "/shards/trajectories-0-1.h5";
  std::ofstream(bad) << "not HDF5";
  const ResumeState state = directory.read_state();
  EXPECT_EQ(state.finished.size(), 3U);
  ASSERT_EQ(state.warnings.size(), 1U);
  EXPECT_NE(state.warnings[0].find(bad), std::string::npos) << state.warnings[0];
}

TEST_F(ShardTest, WritersOfDifferentThreadsMayWorkAtOnce) {
  const SampleRun run(300, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ShardWriter writer(directory.path(), 0, rank);
      TelemetryWriter telemetry(directory.path(), 0, rank);
      for (std::size_t i = rank; i < run.ids.size(); i += 3) {
        writer.append(sample::finished(run.ids[i]));
        writer.flush();
        telemetry.step({.start = static_cast<double>(i), .duration = 0.5});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(check_finished(directory.path()).size(), 300U);
}

TEST_F(ShardTest, ADeletedShardIsNoticed) {
  const SampleRun run(2, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  ShardWriter writer(directory.path(), 0, 0);
  writer.append(sample::finished(run.ids[0]));
  writer.flush();
  std::filesystem::remove_all(directory.path());
  writer.append(sample::finished(run.ids[1]));
  const std::string message = message_of<IoError>([&] { writer.flush(); });
  EXPECT_NE(message.find("trajectories-0-0.h5: it is gone"), std::string::npos) << message;
}

TEST_F(ShardTest, AShardOfTheSameNameIsNotReplaced) {
  const SampleRun run(1, 1);
  const RunDirectory directory(at("run"), run.manifest, run.prompts, false);
  const ShardWriter writer(directory.path(), 0, 0);
  const std::string message = message_of<IoError>([&] { ShardWriter(directory.path(), 0, 0); });
  EXPECT_NE(message.find("trajectories-0-0.h5"), std::string::npos) << message;
}

}  // namespace
}  // namespace paceline::io
