// Telemetry: buffered while the run goes on, merged over ranks and attempts.
#include "io/telemetry/telemetry.hpp"

#include <signal.h>

#include "io/hdf5/file.hpp"
#include "io/hdf5/shard_file.hpp"
#include "io/telemetry/telemetry_format.hpp"
#include "io/telemetry/telemetry_reader.hpp"
#include "runtime/core/role.hpp"
#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

using TelemetryTest = Scratch;

StepRecord step_at(double start, std::uint32_t requests) {
  StepRecord record;
  record.start = start;
  record.duration = 0.125;
  record.draft_duration = 0.015625;
  record.forward_duration = 0.03125;
  record.sample_duration = 0.0625;
  record.sum_duration = 0.0078125;
  record.exchange_duration = 0.00390625;
  record.group_bytes = std::uint64_t{1} << 35;
  record.requests = requests;
  record.prefill_tokens = requests + 1;
  record.decode_tokens = requests + 2;
  record.drafted = requests + 3;
  record.accepted = requests + 4;
  record.draft_calls = requests + 8;
  record.kv_blocks_used = requests + 5;
  record.role = 1;
  record.late = requests + 6;
  record.queued = requests + 7;
  record.waited = 0.25;
  return record;
}

RankSummary summary_of(std::uint32_t rank) {
  RankSummary summary;
  summary.rank = rank;
  summary.role = 1;
  summary.leader = rank < 2 ? 0 : -1;
  summary.tp = rank < 2 ? 2 : 0;
  summary.busy_seconds = 3.5;
  summary.idle_seconds = 0.5;
  summary.loading_seconds = 1.25;
  summary.communication_seconds = 0.75;
  summary.flush_seconds = 0.125;
  summary.group_bytes = 25;
  summary.steps = 11;
  summary.prefill_tokens = 12;
  summary.decode_tokens = 13;
  summary.drafted = 19;
  summary.accepted = 20;
  summary.messages_sent = 14;
  summary.bytes_sent = 15;
  summary.peak_rss_bytes = 16;
  summary.weight_bytes = 17;
  summary.late = 21;
  summary.waited_seconds = 2.5;
  summary.transfers_sent = 22;
  summary.most_queued = 23;
  summary.pool_stored_bytes = 24;
  summary.pool_restoring_seconds = 1.5;
  summary.kv_bytes = std::uint64_t{18} << 40;
  return summary;
}

class TelemetryRun : public TelemetryTest {
 protected:
  void SetUp() override {
    TelemetryTest::SetUp();
    path_ = at("run");
    const RunDirectory directory(path_, run_.manifest, run_.prompts, false);
    for (std::uint32_t attempt = 0; attempt < 2; ++attempt) {
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        TelemetryWriter writer(path_, attempt, rank,
                               {.plan = rank == 1 ? "plan " + std::to_string(attempt) : "",
                                .host = "node-" + std::to_string(rank / 2),
                                .cores = 4 * rank,
                                .gpus = rank == 0 ? 1U : 0U,
                                .started = 1e9 + 1000 * attempt + rank});
        for (std::uint32_t i = 0; i < 10 * (rank + 1); ++i) {
          writer.step(step_at(0.5 * i, 100 * attempt + i));
        }
        writer.event({3.0 - rank, {rank, attempt}, RequestEventKind::leased, 0});
        writer.transfer({.start = 5.0 - rank,
                         .duration = 0.5,
                         .key = 70 + rank,
                         .bytes = std::uint64_t{1} << 33,
                         .peer = rank + 1,
                         .sends = static_cast<std::uint8_t>(rank % 2),
                         .complete = 1});
        writer.pool({.start = 7.0 - rank,
                     .duration = 0.25,
                     .key = 80 + rank,
                     .bytes = 5,
                     .memory_bytes = std::uint64_t{1} << 34,
                     .disk_bytes = 6,
                     .use = rank == 0 ? KvPoolUse::sent : KvPoolUse::restored,
                     .complete = static_cast<std::uint8_t>(rank != 1)});
        writer.role({.start = 0, .preparing = 0, .role = 0, .epoch = 0, .leader = 0, .tp = 2});
        writer.role({.start = 4,
                     .preparing = 0.5,
                     .loading = 0.25,
                     .role = 2,
                     .epoch = 3,
                     .leader = -1,
                     .tp = 0});
        writer.draft_memory({.start = 4.5,
                             .duration = 0.5,
                             .longest_pause = 0.25,
                             .blocks = 70 + rank,
                             .moved = 3,
                             .kind = DraftMemoryRecord::Kind::contracted});
        StopPoint point;
        point.id = {rank, 5};
        point.first = 30 + attempt;
        point.states[6][9] = -3;
        point.lengths[7][8] = 0.5F;
        point.accepted[7] = static_cast<std::uint8_t>(rank);
        writer.stop_point(point);
        writer.write({4.0 - rank, 0.5, WriteRecord::Kind::trajectories});
        writer.write({20.0 + rank, 0.25, WriteRecord::Kind::telemetry});
        writer.event({9.0, {rank, attempt}, RequestEventKind::finished, 40 + rank});
        if (attempt == 1) writer.summary(summary_of(rank));
        writer.close();
        writer.close();
      }
    }
  }

  SampleRun run_{4, 1};
  std::string path_;
};

TEST_F(TelemetryRun, IsMergedOverRanksAndAttempts) {
  const std::string roles[] = {"coordinator", "verifier"};
  const TelemetryReport report = write_telemetry(path_, roles);
  EXPECT_EQ(report.path, path_ + "/telemetry.h5");
  EXPECT_TRUE(report.warnings.empty());
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(report.path);
  using U32 = std::vector<std::uint32_t>;
  const std::string steps = "ranks/1/steps/";
  const auto start = h5::read_all<double>(file, steps + "start");
  const auto attempt = h5::read_all<std::uint32_t>(file, steps + "attempt");
  const auto requests = h5::read_all<std::uint32_t>(file, steps + "requests");
  const auto blocks = h5::read_all<std::uint32_t>(file, steps + "kv_blocks_used");
  ASSERT_EQ(start.size(), 40U);
  for (std::uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(start[i], 0.5 * (i % 20));
    EXPECT_EQ(attempt[i], i / 20);
    EXPECT_EQ(requests[i], i / 20 * 100 + i % 20);
    EXPECT_EQ(blocks[i], requests[i] + 5);
  }
  EXPECT_EQ(h5::read_all<double>(file, steps + "sample_duration"), std::vector<double>(40, 0.0625));
  EXPECT_EQ(h5::read_all<double>(file, steps + "draft_duration"),
            std::vector<double>(40, 0.015625));
  EXPECT_EQ(h5::read_all<double>(file, steps + "forward_duration"),
            std::vector<double>(40, 0.03125));
  EXPECT_EQ(h5::read_all<double>(file, steps + "sum_duration"), std::vector<double>(40, 0.0078125));
  EXPECT_EQ(h5::read_all<double>(file, steps + "exchange_duration"),
            std::vector<double>(40, 0.00390625));
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, steps + "group_bytes")[7], std::uint64_t{1} << 35);
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, steps + "role"), U32(40, 1));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "ranks/2/steps/accepted").size(), 60U);

  EXPECT_EQ(h5::read_all<std::uint32_t>(file, steps + "late")[3], requests[3] + 6);
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, steps + "draft_calls")[3], requests[3] + 8);
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, steps + "queued")[3], requests[3] + 7);
  EXPECT_EQ(h5::read_all<double>(file, steps + "waited"), std::vector<double>(40, 0.25));

  EXPECT_EQ(h5::read_all<double>(file, "transfers/start"), (std::vector<double>{3, 4, 5, 3, 4, 5}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "transfers/attempt"), (U32{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "transfers/rank"), (U32{2, 1, 0, 2, 1, 0}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "transfers/peer"), (U32{3, 2, 1, 3, 2, 1}));
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "transfers/key")[0], 72U);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "transfers/bytes")[0], std::uint64_t{1} << 33);
  EXPECT_EQ(h5::read_all<double>(file, "kv_pool/start"), (std::vector<double>{5, 6, 7, 5, 6, 7}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "kv_pool/rank"), (U32{2, 1, 0, 2, 1, 0}));
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "kv_pool/use"),
            (std::vector<std::uint8_t>{1, 1, 2, 1, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "kv_pool/complete"),
            (std::vector<std::uint8_t>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "kv_pool/memory_bytes")[3], std::uint64_t{1} << 34);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "kv_pool/disk_bytes")[3], 6U);
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "draft_memory/rank"), (U32{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "draft_memory/blocks"),
            (U32{70, 71, 72, 70, 71, 72}));
  EXPECT_EQ(h5::read_all<double>(file, "draft_memory/longest_pause"), std::vector<double>(6, 0.25));
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "draft_memory/kind"), std::vector<std::uint8_t>(6, 1));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "stop_points/prompt_index"), (U32{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "stop_points/first"), (U32{30, 30, 30, 31, 31, 31}));
  const auto read_points = [&file](int field, auto* values) {
    const h5::Field read = fields_of<StopPoint>()[field];
    h5::Dataset::open(file, std::string("stop_points/") + read.name, h5::type_of(read).get(), 0)
        .read(0, 6, values);
  };
  std::array<std::array<float, StopPoint::kStates>, StopPoint::kCalls - 1> states[6];
  read_points(3, states);
  EXPECT_EQ(states[5][6][9], -3);
  EXPECT_EQ(states[5][0][0], 0);
  StopPoint::Lengths lengths[6];
  read_points(4, lengths);
  EXPECT_EQ(lengths[4][7][8], 0.5F);
  EXPECT_EQ(lengths[4][7][7], 0);
  StopPoint::Accepted accepted[6];
  read_points(5, accepted);
  EXPECT_EQ(accepted[5], (StopPoint::Accepted{0, 0, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(h5::read_all<double>(file, "roles/start"),
            (std::vector<double>{0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "roles/rank"),
            (U32{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "roles/epoch")[1], 3U);
  EXPECT_EQ(h5::read_all<double>(file, "roles/loading")[1], 0.25);
  EXPECT_EQ(h5::read_all<std::int32_t>(file, "roles/leader")[1], -1);
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "transfers/sends"),
            (std::vector<std::uint8_t>{0, 1, 0, 0, 1, 0}));

  EXPECT_EQ(h5::read_all<double>(file, "requests/time"),
            (std::vector<double>{1, 2, 3, 9, 9, 9, 1, 2, 3, 9, 9, 9}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "requests/attempt"),
            (U32{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "requests/rank"),
            (U32{2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "requests/prompt_index"),
            (U32{2, 1, 0, 0, 1, 2, 2, 1, 0, 0, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "requests/tokens"),
            (U32{0, 0, 0, 40, 41, 42, 0, 0, 0, 40, 41, 42}));
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "requests/kind"),
            (std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));

  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "summary/rank"), (U32{0, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "summary/attempt"), (U32{1, 1, 1}));
  // Without a group, as whoever reads the file by its own types sees it.
  const h5::Dataset leader =
      h5::Dataset::open(file, "summary/leader", h5::native<std::int64_t>(), 0);
  std::vector<std::int64_t> leaders(leader.size());
  leader.read(0, leaders.size(), leaders.data());
  EXPECT_EQ(leaders, (std::vector<std::int64_t>{0, 0, -1}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "summary/tp"), (U32{2, 2, 0}));
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/kv_bytes")[2], std::uint64_t{18} << 40);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/drafted")[2], 19U);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/accepted")[2], 20U);
  EXPECT_EQ(h5::read_all<double>(file, "summary/busy_seconds")[0], 3.5);
  EXPECT_EQ(h5::read_all<double>(file, "summary/loading_seconds")[0], 1.25);
  EXPECT_EQ(h5::read_all<double>(file, "summary/communication_seconds")[0], 0.75);
  EXPECT_EQ(h5::read_all<double>(file, "summary/flush_seconds")[0], 0.125);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/group_bytes")[0], 25U);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/late")[0], 21U);
  EXPECT_EQ(h5::read_all<double>(file, "summary/waited_seconds")[0], 2.5);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/transfers_sent")[0], 22U);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/pool_stored_bytes")[0], 24U);
  EXPECT_EQ(h5::read_all<double>(file, "summary/pool_restoring_seconds")[0], 1.5);
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "summary/most_queued")[0], 23U);
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "attempts/ranks"), (U32{3, 3}));
  EXPECT_EQ(h5::read_strings(file, "attempts/plan"),
            (std::vector<std::string>{"plan 0", "plan 1"}));
  EXPECT_EQ(h5::read_all<double>(file, "attempts/started"), (std::vector<double>{1e9, 1e9 + 1000}));
  EXPECT_EQ(h5::read_all<double>(file, "attempts/ended"),
            (std::vector<double>{1e9 + 22.25, 1e9 + 1022.25}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "processes/attempt"), (U32{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "processes/rank"), (U32{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "processes/cores"), (U32{0, 4, 8, 0, 4, 8}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "processes/gpus"), (U32{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(h5::read_strings(file, "processes/host"),
            (std::vector<std::string>{"node-0", "node-0", "node-1", "node-0", "node-0", "node-1"}));
  EXPECT_EQ(h5::read_all<std::uint32_t>(file, "writes/rank"),
            (U32{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(h5::read_all<double>(file, "writes/start"),
            (std::vector<double>{4, 20, 3, 21, 2, 22, 4, 20, 3, 21, 2, 22}));
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "writes/kind"),
            (std::vector<std::uint8_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(h5::read_strings(file, "role_names"),
            (std::vector<std::string>{"coordinator", "verifier"}));
}

/// Datasets below an object whose attributes say neither a unit nor the names of their values.
std::vector<std::string> without_unit(const h5::File& file) {
  std::vector<std::string> found;
  const auto look = [](hid_t object, const char* name, const H5O_info_t* info, void* to) -> herr_t {
    if (info->type != H5O_TYPE_DATASET) return 0;
    const std::string text(name);
    const bool named = text.ends_with("/kind") || text == "requests/reason" ||
                       text == "kv_pool/use" || text == "scores/outcome";
    const bool unit = H5Aexists_by_name(object, name, "unit", H5P_DEFAULT) > 0;
    if (unit == named) static_cast<std::vector<std::string>*>(to)->push_back(text);
    return 0;
  };
  EXPECT_GE(H5Ovisit(file.id(), H5_INDEX_NAME, H5_ITER_NATIVE, look, &found), 0);
  return found;
}

TEST_F(TelemetryRun, EveryColumnHasAUnitOrNamesItsValues) {
  const TelemetryReport report = write_telemetry(path_, {});
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(report.path);
  EXPECT_EQ(without_unit(file), std::vector<std::string>());
  for (const auto& [name, unit] : {std::pair("ranks/0/steps/sum_duration", "s"),
                                   {"ranks/0/steps/kv_blocks", "blocks"},
                                   {"summary/group_bytes", "bytes"},
                                   {"summary/response_tokens", "tokens"},
                                   {"attempts/ended", "s"},
                                   {"processes/cores", "cores"},
                                   {"processes/rank", "1"}}) {
    const h5::Handle dataset(H5Dopen2(file.id(), name, H5P_DEFAULT), H5Dclose);
    EXPECT_EQ(h5::read_string_attribute(dataset.get(), file.path(), "unit"), unit) << name;
  }
}

class HandClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time += 0.5; }  // each look takes as long
  mutable double time = 0;
};

TEST_F(TelemetryRun, TheEndOfTheLastAttemptIsWhenAllWasWritten) {
  HandClock clock;
  clock.time = 100;
  const TelemetryReport report = write_telemetry(
      path_, {}, {},
      TelemetryEnding{1, 0, &clock, {{50, 2, WriteRecord::Kind::final_trajectories}}});
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(report.path);
  const auto start = h5::read_all<double>(file, "writes/start");
  const auto kind = h5::read_all<std::uint8_t>(file, "writes/kind");
  ASSERT_EQ(start.size(), 14U);
  EXPECT_EQ(std::vector<double>(start.begin() + 6, start.begin() + 10),
            (std::vector<double>{4, 20, 50, 100.5}));
  EXPECT_EQ(kind[8], static_cast<std::uint8_t>(WriteRecord::Kind::final_trajectories));
  EXPECT_EQ(kind[9], static_cast<std::uint8_t>(WriteRecord::Kind::final_telemetry));
  EXPECT_EQ(h5::read_all<double>(file, "writes/duration")[9], 0.5);
  EXPECT_EQ(h5::read_all<double>(file, "attempts/ended"),
            (std::vector<double>{1e9 + 22.25, 1e9 + 1101}));
}

// What is written at the end is recorded too, and nothing where there is nothing to write.
TEST_F(TelemetryTest, AWriterRecordsItsOwnWritesByTheClockItIsGiven) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  HandClock clock;
  {
    TelemetryWriter writer(path, 0, 0, {.clock = &clock});
    writer.flush();
    EXPECT_EQ(writer.write_seconds(), 0);
    writer.step({.start = 0.25, .duration = 0.5});
    writer.flush();
    EXPECT_GT(writer.write_seconds(), 0);
    writer.close();
  }
  write_telemetry(path, {});
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path + "/telemetry.h5");
  const auto start = h5::read_all<double>(file, "writes/start");
  const auto duration = h5::read_all<double>(file, "writes/duration");
  ASSERT_EQ(start.size(), 2U);
  EXPECT_LT(start[0] + duration[0], start[1] + duration[1]);
  EXPECT_EQ(duration[1], 0.5);  // of closing: from one look to the next
  EXPECT_EQ(h5::read_all<std::uint8_t>(file, "writes/kind"), (std::vector<std::uint8_t>{1, 1}));
}

TEST_F(TelemetryTest, AFileOfAnotherSchemaIsRefusedByName) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  { const TelemetryWriter writer(path, 0, 0, {.host = "here"}); }
  write_telemetry(path, {});
  EXPECT_EQ(read_telemetry(path).processes.at(0).host, "here");
  {
    const auto lock = h5::lock_hdf5();
    const h5::Handle file(H5Fopen((path + "/telemetry.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT),
                          H5Fclose);
    const h5::Handle version(H5Aopen(file.get(), "schema_version", H5P_DEFAULT), H5Aclose);
    const std::int32_t old = kTelemetrySchemaVersion - 1;
    ASSERT_GE(H5Awrite(version.get(), H5T_NATIVE_INT32, &old), 0);
  }
  const std::string message = message_of<IoError>([&] { static_cast<void>(read_telemetry(path)); });
  EXPECT_NE(message.find("telemetry.h5: it is of schema version 12, expected 13"),
            std::string::npos)
      << message;
}

TEST_F(TelemetryRun, ARowOfAnAttemptThatIsNotThereIsDamage) {
  const std::string path = write_telemetry(path_, {}).path;
  {
    const auto lock = h5::lock_hdf5();
    const h5::Handle file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    const h5::Handle column(H5Dopen2(file.get(), "summary/attempt", H5P_DEFAULT), H5Dclose);
    const std::uint32_t attempts[] = {1, 7, 1};
    ASSERT_GE(H5Dwrite(column.get(), H5T_NATIVE_UINT32, H5S_ALL, H5S_ALL, H5P_DEFAULT, attempts),
              0);
  }
  EXPECT_EQ(message_of<IoError>([&] { static_cast<void>(read_telemetry(path_)); }),
            "cannot read " + path + ":/summary: its columns are damaged");
}

TEST_F(TelemetryRun, IsReadFromItsShardsAsFromTheMergedFile) {
  std::vector<std::string> warnings;
  const RecordedTelemetry live = read_telemetry(path_, &warnings);
  write_telemetry(path_, {});
  const RecordedTelemetry merged = read_telemetry(path_, &warnings);
  EXPECT_TRUE(warnings.empty());
  const auto same = [](const auto& a, const auto& b, const auto& key) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
      return x.attempt == y.attempt && x.rank == y.rank && key(x.row) == key(y.row);
    });
  };
  const auto start = [](const auto& row) { return row.start; };
  ASSERT_EQ(merged.steps.size(), 120U);
  EXPECT_TRUE(same(live.steps, merged.steps, start));
  EXPECT_TRUE(same(live.roles, merged.roles, start));
  EXPECT_TRUE(same(live.writes, merged.writes, start));
  EXPECT_TRUE(same(live.events, merged.events, [](const auto& e) { return e.time; }));
  ASSERT_EQ(live.attempts.size(), 2U);
  EXPECT_EQ(live.attempts[1].started, merged.attempts[1].started);
  EXPECT_EQ(live.attempts[1].ended, merged.attempts[1].ended);
  EXPECT_EQ(live.attempts[1].plan, "plan 1");
  EXPECT_EQ(live.processes.at(5).host, merged.processes.at(5).host);
  // The first attempt's ranks have not ended: they have their last role, and what their steps made.
  ASSERT_EQ(live.summaries.size(), 6U);
  EXPECT_EQ(merged.summaries.size(), 3U);
  for (const OfRank<RankSummary>& summary : live.summaries) {
    EXPECT_EQ(summary.row.rank, summary.rank);
    if (summary.attempt == 1) continue;
    EXPECT_EQ(summary.row.role, 2U);
    EXPECT_EQ(summary.row.response_tokens, 0U);  // its steps are those of a member
  }
}

TEST_F(TelemetryTest, WhatARankThatGoesOnHasDoneIsRead) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  TelemetryWriter writer(path, 0, 0, {.host = "here"});
  StepRecord step = step_at(2, 5);
  step.role = static_cast<std::uint32_t>(Role::verifier);
  step.drafted = 3;
  step.accepted = 2;
  writer.step(step);
  writer.flush();
  const RecordedTelemetry live = read_telemetry(path);
  ASSERT_EQ(live.steps.size(), 1U);
  ASSERT_EQ(live.summaries.size(), 1U);
  EXPECT_EQ(live.summaries[0].row.response_tokens, 7U - 3 + 2);
  EXPECT_EQ(live.attempts.at(0).ended - live.attempts.at(0).started, 2.125);
}

TEST_F(TelemetryRun, MergingAgainChangesNothing) {
  write_telemetry(path_, {});
  const std::string before = bytes_of(path_ + "/telemetry.h5");
  std::filesystem::remove(path_ + "/shards/telemetry-0-0.h5");  // killed while removing
  write_telemetry(path_, {});
  EXPECT_EQ(bytes_of(path_ + "/telemetry.h5"), before);
}

TEST_F(TelemetryRun, ABrokenShardIsReported) {
  std::ofstream(path_ + "/shards/telemetry-1-0.h5") << "broken";
  const TelemetryReport report = write_telemetry(path_, {});
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find("telemetry-1-0.h5"), std::string::npos);
}

// Found before anything is written: a shard is in the file whole or not at all.
TEST_F(TelemetryRun, ADamagedShardIsLeftOutWhole) {
  const std::string shard = path_ + "/shards/telemetry-0-1.h5";
  std::string bytes = bytes_of(shard);
  std::size_t blocks = 0;  // of the indexes of chunks
  for (std::size_t at = 0; (at = bytes.find("EAHD", at)) != std::string::npos; ++at, ++blocks) {
    bytes[at + 6] ^= 1;
  }
  ASSERT_GT(blocks, 0U);
  std::ofstream(shard, std::ios::binary) << bytes;
  const TelemetryReport report = write_telemetry(path_, {});
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find("telemetry-0-1.h5"), std::string::npos);
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(report.path);
  EXPECT_EQ(h5::read_all<double>(file, "ranks/0/steps/start").size(), 20U);
  EXPECT_EQ(h5::read_all<double>(file, "ranks/1/steps/start").size(), 20U);  // of attempt 1
  EXPECT_EQ(h5::read_all<double>(file, "requests/time").size(), 10U);
}

// Attempts may be configured with other drafters; the merged file has one numbering.
TEST_F(TelemetryTest, AcceptanceIsMergedByDrafterName) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  const auto write = [&](std::uint32_t attempt, std::uint32_t rank,
                         const std::vector<std::string>& names,
                         const std::vector<AcceptanceCell>& cells) {
    TelemetryWriter writer(path, attempt, rank, {.drafter_names = names});
    writer.acceptance(cells);
    writer.close();
  };
  const std::uint64_t many = std::uint64_t{1} << 40;
  write(1, 0, {"suffix", "model:small"}, {{0, 1, 1, 8, 30, 20}, {1, 3, 4, 1024, many, many - 1}});
  write(0, 1, {"suffix", "ngram"}, {{1, 1, 2, 0, 10, 5}});
  write(0, 0, {"suffix", "ngram"}, {});
  write(0, 2, {}, {});
  EXPECT_TRUE(write_telemetry(path, {}).warnings.empty());

  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path + "/telemetry.h5");
  EXPECT_EQ(h5::read_strings(file, "drafter_names"),
            (std::vector<std::string>{"suffix", "ngram", "model:small"}));
  const auto column = [&](const std::string& name) {
    return h5::read_all<std::uint32_t>(file, "acceptance/" + name);
  };
  using U32 = std::vector<std::uint32_t>;
  using U64 = std::vector<std::uint64_t>;
  EXPECT_EQ(column("attempt"), (U32{0, 1, 1}));
  EXPECT_EQ(column("rank"), (U32{1, 0, 0}));
  EXPECT_EQ(column("drafter"), (U32{1, 0, 2}));
  EXPECT_EQ(column("position"), (U32{1, 1, 3}));
  EXPECT_EQ(column("batch"), (U32{2, 1, 4}));
  EXPECT_EQ(column("progress"), (U32{0, 8, 1024}));
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "acceptance/drafted"), (U64{10, 30, many}));
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "acceptance/accepted"), (U64{5, 20, many - 1}));
  std::int32_t version = 0;
  h5::read_attribute(file.id(), file.path(), "schema_version", h5::native<std::int32_t>(),
                     &version);
  EXPECT_EQ(version, kTelemetrySchemaVersion);
}

TEST_F(TelemetryTest, ADrafterWithoutANameIsRefused) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  const std::vector<std::string> names{"ngram"};
  TelemetryWriter writer(path, 0, 0, {.drafter_names = names});
  EXPECT_THROW(writer.acceptance(std::vector<AcceptanceCell>{{1, 1, 1, 0, 1, 1}}),
               std::out_of_range);
}

TEST_F(TelemetryTest, AShardWhoseDrafterHasNoNameIsLeftOutWhole) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  {
    const std::vector<std::string> names{"ngram"};
    TelemetryWriter writer(path, 0, 1, {.drafter_names = names});
    writer.acceptance(std::vector<AcceptanceCell>{{0, 1, 1, 0, 4, 3}});
  }
  {
    const auto lock = h5::lock_hdf5();
    ShardFile shard(path, "telemetry", 0, 0);
    const auto add = [&]<typename Record>(Table<Record> table) {
      return &shard.add(table.name, fields_of<Record>(), sizeof(Record), 16);
    };
    const auto datasets =
        std::apply([&](auto... table) { return std::array{add(table)...}; }, kTables);
    h5::write_strings(shard.file(), "drafter_names", std::vector<std::string>{"suffix"});
    const AcceptanceCell bad{1, 1, 1, 0, 7, 7};
    datasets[9]->append(1, &bad);
    shard.publish();
    shard.close([] {});
  }
  const TelemetryReport report = write_telemetry(path, {});
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find("telemetry-0-0.h5:/acceptance: drafter 1 of 1"),
            std::string::npos)
      << report.warnings[0];
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path + "/telemetry.h5");
  EXPECT_EQ(h5::read_all<std::uint64_t>(file, "acceptance/drafted"), std::vector<std::uint64_t>{4});
  EXPECT_EQ(h5::read_strings(file, "drafter_names"), std::vector<std::string>{"ngram"});
}

TEST_F(TelemetryTest, IsWrittenAboutOnceASecondAndSurvivesKill) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  const int status = in_child([&]() -> int {
    TelemetryWriter writer(path, 0, 0);
    for (int i = 0; i < 1000; ++i) writer.step(step_at(0.01 * i, 1));
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  write_telemetry(path, {});
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path + "/telemetry.h5");
  const std::size_t kept = h5::read_all<double>(file, "ranks/0/steps/start").size();
  EXPECT_GE(kept, 880U);  // all but the last second
  EXPECT_LT(kept, 1000U);
}

TEST_F(TelemetryTest, ARunWithoutStepsHasEmptyColumns) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  { const TelemetryWriter writer(path, 0, 0); }
  write_telemetry(path, {});
  const auto lock = h5::lock_hdf5();
  const h5::File file = h5::File::open(path + "/telemetry.h5");
  EXPECT_TRUE(h5::read_all<double>(file, "ranks/0/steps/start").empty());
  EXPECT_TRUE(h5::read_all<double>(file, "requests/time").empty());
  EXPECT_TRUE(h5::read_all<std::uint64_t>(file, "acceptance/drafted").empty());
}

}  // namespace
}  // namespace paceline::io
