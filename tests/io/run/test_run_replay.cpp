// A finished run's lengths and acceptance, as its files say them.
#include "io/run/run_replay.hpp"

#include <array>

#include "io/hdf5/file.hpp"
#include "io/run/final_file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

/// Two ranks, each with numbers of its own for drafters.
class RunReplay : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    path_ = at("run");
    const RunDirectory directory(path_, run_.manifest, run_.prompts, false);
    ShardWriter writer(path_, 0, 0);
    for (const RequestId id : run_.ids) writer.append(sample::finished(id));
    writer.close();
    const std::string both[] = {"ngram", "suffix"};
    const std::string one[] = {"suffix"};
    const AcceptanceCell first[] = {
        {0, 1, 4, 0, 10, 6}, {1, 1, 4, 16, 100, 80}, {1, 2, 4, 16, 50, 20}};
    const AcceptanceCell second[] = {{0, 1, 4, 16, 7, 5}, {0, 1, 1, 16, 3, 0}};
    TelemetryWriter(path_, 0, 0, {.drafter_names = both}).acceptance(first);
    TelemetryWriter(path_, 0, 1, {.drafter_names = one}).acceptance(second);
    write_final_file(path_, run_.manifest, run_.prompts);
    write_telemetry(path_, {});
  }

  /// What is said of the run when its telemetry has these cells.
  std::string refused(const AcceptanceCell& cell) const {
    const std::string telemetry = path_ + "/telemetry.h5";
    std::filesystem::remove(telemetry);
    const std::string name[] = {"ngram"};
    TelemetryWriter(path_, 1, 0, {.drafter_names = name}).acceptance({&cell, 1});
    write_telemetry(path_, {});
    return message_of<IoError>([&] { (void)read_recorded_run(path_); });
  }

  SampleRun run_{6, 3};
  std::string path_;
};

TEST_F(RunReplay, LengthsAndPromptsAreTheRuns) {
  const RecordedRun recorded = read_recorded_run(path_);
  EXPECT_EQ(recorded.vocabulary, run_.manifest.vocabulary);
  ASSERT_EQ(recorded.prompts.size(), 6U);
  for (std::uint32_t p = 0; p < 6; ++p) {
    EXPECT_EQ(recorded.prompts[p].uid, run_.prompts[p].uid);
    EXPECT_EQ(recorded.prompts[p].tokens, run_.prompts[p].tokens);
    ASSERT_EQ(recorded.lengths[p].size(), 3U);
    for (std::uint32_t s = 0; s < 3; ++s)
      EXPECT_EQ(recorded.lengths[p][s], static_cast<std::int32_t>(sample::length_of({p, s})));
  }
}

TEST_F(RunReplay, AcceptanceIsSummedOverRanks) {
  const RecordedRun recorded = read_recorded_run(path_);
  EXPECT_EQ(recorded.drafters, (std::vector<std::string>{"ngram", "suffix"}));
  using Row = std::array<std::uint64_t, 6>;
  std::vector<Row> rows;
  for (const AcceptanceCell& cell : recorded.acceptance)
    rows.push_back(
        {cell.drafter, cell.position, cell.batch, cell.progress, cell.drafted, cell.accepted});
  EXPECT_EQ(rows, (std::vector<Row>{{0, 1, 4, 0, 10, 6},
                                    {1, 1, 1, 16, 3, 0},
                                    {1, 1, 4, 16, 107, 85},
                                    {1, 2, 4, 16, 50, 20}}));
}

TEST_F(RunReplay, ARunThatIsNotFinishedIsRefused) {
  const auto refused = [&](const std::string& path, const std::string& file) {
    EXPECT_EQ(message_of<UsageError>([&] { (void)read_recorded_run(path); }),
              path + ": not a finished run: it has no " + file);
  };
  refused(at("nowhere"), "trajectories.h5");
  std::filesystem::remove(path_ + "/telemetry.h5");
  refused(path_, "telemetry.h5");
  std::filesystem::remove(path_ + "/trajectories.h5");
  refused(path_, "trajectories.h5");
}

TEST_F(RunReplay, CountsThatCannotBeAreRefused) {
  EXPECT_EQ(refused({0, 1, 1, 0, 5, 6}),
            "cannot read " + path_ + "/telemetry.h5:/acceptance: its columns are damaged");
}

TEST_F(RunReplay, AnotherSchemaIsRefused) {
  const std::string telemetry = path_ + "/telemetry.h5";
  {
    const auto lock = h5::lock_hdf5();
    const h5::Handle file(H5Fopen(telemetry.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    const h5::Handle version(H5Aopen(file.get(), "schema_version", H5P_DEFAULT), H5Aclose);
    const std::int32_t other = 6;
    ASSERT_GE(H5Awrite(version.get(), H5T_NATIVE_INT32, &other), 0);
  }
  EXPECT_EQ(message_of<IoError>([&] { (void)read_recorded_run(path_); }),
            "cannot read " + telemetry + ": it is of schema version 6, expected " +
                std::to_string(kTelemetrySchemaVersion));
}

// Whatever a disk does, the answer is the run or an error that says so.
TEST_F(RunReplay, DamageIsAnError) {
  for (const std::string name : {"/trajectories.h5", "/telemetry.h5"}) {
    const std::string whole = bytes_of(path_ + name);
    int refused_count = 0;
    for (std::size_t at = 0; at < whole.size(); at += 101) {
      std::string bytes = whole;
      bytes[at] ^= 4;
      std::ofstream(path_ + name, std::ios::binary | std::ios::trunc) << bytes;
      try {
        EXPECT_EQ(read_recorded_run(path_).prompts.size(), 6U);
      } catch (const IoError&) {
        ++refused_count;
      }
    }
    EXPECT_GT(refused_count, 10) << name;
    std::ofstream(path_ + name, std::ios::binary | std::ios::trunc) << whole;
  }
}

}  // namespace
}  // namespace paceline::io
