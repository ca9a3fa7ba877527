// Scores beside a finished run: whole or not at all, in the run's order.
#include "io/run/scores_file.hpp"
#include "io/run/spool.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <set>

#include <iterator>
#include <set>

#include "io/hdf5/file.hpp"
#include "io/run/final_file.hpp"
#include "io/run/stored_run.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

class ScoresFile : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    const RunDirectory directory(at("run"), sample_.manifest, sample_.prompts, false);
    ShardWriter writer(at("run"), 0, 0);
    for (const RequestId id : sample_.ids) writer.append(sample::finished(id));
    writer.close();
    write_final_file(at("run"), sample_.manifest, sample_.prompts);
    directory.tidy();
    run_ = open_finished_run(at("run"));
    path_ = scores_path(at("run"), "ref");
  }

  /// -1, -2, ... plus `shift`, over all responses.
  [[nodiscard]] std::vector<float> values(std::size_t response, float shift) const {
    std::vector<float> all;
    for (std::uint32_t i = 0; i < run_.finished[response].length; ++i)
      all.push_back(shift - static_cast<float>(run_.finished[response].offset + i));
    return all;
  }
  void write_all(float shift, bool commit) const {
    ScoresWriter writer(path_, run_, sample_.manifest);
    for (std::size_t r = run_.finished.size(); r-- > 0;)
      writer.write(r, values(r, shift), values(r, shift - 0.5F));
    if (commit) writer.commit();
  }
  /// Files of the run's directory, hidden ones included.
  [[nodiscard]] std::size_t files() const {
    const std::filesystem::directory_iterator all(at("run"));
    return std::distance(begin(all), end(all));
  }

  SampleRun sample_{5, 3};
  StoredRun run_;
  std::string path_;
};

TEST_F(ScoresFile, IsInTheRunsOrderWhateverTheOrderOfWriting) {
  write_all(0, true);
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path_);
  std::vector<std::int64_t> offsets{0};
  std::vector<std::uint64_t> checksums;
  std::vector<float> expected;
  for (std::size_t r = 0; r < run_.finished.size(); ++r) {
    offsets.push_back(offsets.back() + run_.finished[r].length);
    checksums.push_back(run_.finished[r].checksum);
    for (const float value : values(r, 0)) expected.push_back(value);
  }
  EXPECT_EQ(h5::read_all<std::int64_t>(file, "scores/offsets"), offsets);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "scores/checksum"), checksums);
  EXPECT_EQ(h5::read_all<float>(file, "scores/logprob"), expected);
  EXPECT_EQ(h5::read_all<float>(file, "scores/sampling_logprob").at(1), expected.at(1) - 0.5F);
  EXPECT_EQ(read_manifest(path_).model_fingerprint, sample_.manifest.model_fingerprint);
}

// The first sibling that says anything has all experts of the prompt, and others those of its end.
TEST_F(ScoresFile, ExpertsOfPromptsAndResponses) {
  const RoutingShape shape{{0, 1, 1}, 2};
  RunManifest manifest = sample_.manifest;
  manifest.sampling.keep_routing = true;
  manifest.routing = shape;
  ScoresWriter writer(path_, run_, manifest);
  std::vector<std::int16_t> prompts, responses;
  std::set<std::uint32_t> read;  // prompts
  for (std::size_t r = 0; r < run_.finished.size(); ++r) {
    writer.write(r, values(r, 0), values(r, 0));
    const StoredResponse& entry = run_.finished[r];
    const std::size_t prompt = run_.prompts[entry.prompt].tokens.size();
    if (entry.length == 0) continue;
    std::vector<std::int16_t> all;
    for (std::size_t i = 0; i < (prompt + entry.length - 1) * 4; ++i)
      all.push_back(
          static_cast<std::int16_t>(i < prompt * 4 ? 10 * entry.prompt + i : 500 * r + i));
    const std::size_t first = read.insert(entry.prompt).second ? 0 : prompt - 1;
    writer.write_routing(r, first, std::span(all).subspan(first * 4));
    if (first == 0) prompts.insert(prompts.end(), all.begin(), all.begin() + prompt * 4);
    responses.insert(responses.end(), all.begin() + prompt * 4, all.end());
    responses.insert(responses.end(), 4, -1);
  }
  writer.commit();
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path_);
  EXPECT_EQ(h5::read_all<std::int16_t>(file, "prompts/routed_experts"), prompts);
  EXPECT_EQ(h5::read_all<std::int16_t>(file, "scores/routed_experts"), responses);
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "scores/routed_layers"), shape.layers);
}

TEST_F(ScoresFile, RecordsWaitOnDiskInTheirOrder) {
  const std::size_t before = files();
  Spool spool(at("run"));
  EXPECT_EQ(files(), before);
  std::vector<std::byte> all;
  for (std::size_t size : {0U, 7U, 1U << 20, 300U, (1U << 20) + 1, 3U, 9U}) {
    std::vector<std::byte> record(size);
    for (std::size_t i = 0; i < size; ++i) record[i] = static_cast<std::byte>(i * 7 + size);
    spool.put(record);
    all.insert(all.end(), record.begin(), record.end());
  }
  std::vector<std::byte> read;
  for (std::vector<std::byte> part = spool.next(1000); !part.empty(); part = spool.next(1000)) {
    EXPECT_TRUE(part.size() <= 1000 || part.size() >= 1U << 20);
    read.insert(read.end(), part.begin(), part.end());
  }
  EXPECT_EQ(read, all);
}

TEST_F(ScoresFile, WhatIsNotCommittedIsNotThere) {
  const std::size_t before = files();
  write_all(0, false);
  EXPECT_EQ(files(), before);
  write_all(1, true);
  EXPECT_EQ(files(), before + 1);
  const std::string first = bytes_of(path_);
  write_all(2, false);
  EXPECT_EQ(bytes_of(path_), first);  // what was there stays
  write_all(2, true);
  EXPECT_NE(bytes_of(path_), first);
  write_all(1, true);
  EXPECT_EQ(bytes_of(path_), first);
  EXPECT_EQ(files(), before + 1);
}

// A process that was killed leaves a hidden file, which the next one replaces.
TEST_F(ScoresFile, SurvivesAKill) {
  const std::size_t before = files();
  in_child([&] {
    ScoresWriter writer(path_, run_, sample_.manifest);
    ::_exit(0);
    return 0;
  });
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(files(), before + 1);
  write_all(0, true);
  EXPECT_EQ(files(), before + 1);
}

// A limit on file sizes stands for a full disk.
TEST_F(ScoresFile, WhereverTheDiskIsFullNothingIsLeft) {
  write_all(0, true);
  const auto whole = static_cast<rlim_t>(std::filesystem::file_size(path_));
  std::filesystem::remove(path_);
  const std::size_t before = files();
  for (rlim_t limit = 0; limit < whole; limit += 331) {
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit sizes{limit, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &sizes);
      try {
        write_all(0, true);
        return 1;
      } catch (const IoError& error) {
        if (std::string(error.what()).find(path_) == std::string::npos) return 2;
      }
      const auto lock = h5::lock_hdf5();
      if (H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), H5F_OBJ_ALL) != 0) return 3;
      H5close();
      return 0;
    });
    EXPECT_EQ(status, 0) << limit << ": " << WEXITSTATUS(status);
    EXPECT_EQ(files(), before) << limit;
  }
}

TEST_F(ScoresFile, ANameIsAFilesName) {
  EXPECT_EQ(scores_path("a", "step-17.b_c"), "a/scores-step-17.b_c.h5");
  for (const char* name : {"", ".", "../x", "a/b", ".hidden", "a b"}) {
    EXPECT_NE(message_of<UsageError>([&] { (void)scores_path("a", name); }).find("--name"),
              std::string::npos)
        << name;
  }
}

TEST_F(ScoresFile, AFinishedRunIsReadInPart) {
  EXPECT_EQ(run_.prompts.size(), 5U);
  ASSERT_EQ(run_.finished.size(), 15U);
  std::vector<Trajectory> some;
  read_responses(run_, std::span(run_.finished).subspan(4, 3),
                 [&](Trajectory&& t) { some.push_back(std::move(t)); });
  ASSERT_EQ(some.size(), 3U);
  for (const Trajectory& t : some) EXPECT_TRUE(same(t, sample::finished(t.id)));
  EXPECT_EQ(some.front().id, (RequestId{1, 1}));
  EXPECT_EQ(message_of<UsageError>([&] { (void)open_finished_run(at("nowhere")); }),
            at("nowhere") + ": not a finished run: it has no trajectories.h5");
}

TEST_F(ScoresFile, ADamagedResponseIsRefused) {
  std::string bytes = bytes_of(run_.paths.front());
  const std::vector<TokenId> tokens = sample::finished({1, 1}).tokens;
  const std::string stored(reinterpret_cast<const char*>(tokens.data()),
                           tokens.size() * sizeof(TokenId));
  const std::size_t place = bytes.find(stored);
  ASSERT_NE(place, std::string::npos);
  bytes[place] ^= 1;
  std::ofstream(run_.paths.front(), std::ios::binary | std::ios::trunc) << bytes;
  const std::string said =
      message_of<IoError>([&] { read_responses(run_, run_.finished, [](Trajectory&&) {}); });
  EXPECT_NE(said.find("prompt 1, sample 1 is damaged"), std::string::npos) << said;
}

}  // namespace
}  // namespace paceline::io
