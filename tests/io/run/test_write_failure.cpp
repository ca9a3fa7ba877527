// A full disk, or a limit on file sizes: one clear error, no crash, and what was flushed stays.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "io/hdf5/file.hpp"
#include "io/run/digest.hpp"
#include "io/run/final_file.hpp"
#include "io/telemetry/telemetry.hpp"
#include "tests/io/run/fixture.hpp"

// HDF5 1.10 itself leaks the chunk buffers whose writing failed.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace paceline::io {
namespace {

/// Appends and flushes until writing fails; then checks what is left, in this process and anew.
/// Returns 0, or the line that failed.
#define REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 256

int fill(const std::string& path, const SampleRun& run, bool flush_each, const char* cause) {
  std::size_t flushed = 0;
  std::string message;
  {
    ShardWriter writer(path, 0, 0);
    std::size_t appended = 0;
    try {
      for (const RequestId id : run.ids) {
        writer.append(sample::finished(id, 3000));
        ++appended;
        if (flush_each || appended % 10 == 0) {
          writer.flush();
          flushed = appended;
        }
      }
      writer.close();
    } catch (const IoError& error) {
      message = error.what();
    }
    REQUIRE(message.find(writer.path()) != std::string::npos);
    REQUIRE(message.find(cause) != std::string::npos);
    // It stays failed, and says so.
    REQUIRE(message_of<IoError>([&] { writer.flush(); }) == message);
    REQUIRE(message_of<IoError>([&] { writer.append(sample::finished({0, 0})); }) == message);
  }
  REQUIRE(flushed > 0);
  const RunDirectory again(path, run.manifest, run.prompts, true);
  const ResumeState state = again.read_state();
  REQUIRE(state.finished.size() >= flushed);
  for (std::size_t i = 0; i < flushed; ++i) REQUIRE(state.finished[i] == run.ids[i]);
  REQUIRE(digest_report(path).trajectories == state.finished.size());
  const auto lock = h5::lock_hdf5();
  REQUIRE(H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), H5F_OBJ_ALL) == 0);
  H5close();  // what an exit handler would do
  return 0;
}

using WriteFailureTest = Scratch;

TEST_F(WriteFailureTest, ALimitOnFileSizesIsAnIoError) {
  const SampleRun run(200, 1);
  for (const bool flush_each : {true, false}) {
    for (const rlim_t limit : {rlim_t{1} << 20, (rlim_t{3} << 20) / 2 + 100}) {
      const std::string path = at("run" + std::to_string(limit) + (flush_each ? "a" : "b"));
      { const RunDirectory directory(path, run.manifest, run.prompts, false); }
      const int status = in_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        rlimit sizes{limit, RLIM_INFINITY};
        ::setrlimit(RLIMIT_FSIZE, &sizes);
        return fill(path, run, flush_each, "File too large");
      });
      EXPECT_EQ(status, 0) << "line " << WEXITSTATUS(status) << " mod 256";
    }
  }
}

TEST_F(WriteFailureTest, WhereverTheLimitFallsNothingCrashesAndTheRestIsReadable) {
  const SampleRun run(120, 1);
  for (rlim_t limit = 0; limit < 700000; limit += limit < 8000 ? 331 : 23456) {
    const std::string path = at("run" + std::to_string(limit));
    { const RunDirectory directory(path, run.manifest, run.prompts, false); }
    const int status = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      rlimit sizes{limit, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &sizes);
      std::size_t flushed = 0;
      try {
        ShardWriter writer(path, 0, 0);
        for (std::size_t i = 0; i < run.ids.size(); ++i) {
          writer.append(sample::finished(run.ids[i], 900));
          writer.flush();
          flushed = i + 1;
        }
        return 1;  // 120 x 900 x 12 bytes do not fit
      } catch (const IoError&) {
      }
      sizes.rlim_cur = RLIM_INFINITY;
      ::setrlimit(RLIMIT_FSIZE, &sizes);
      const RunDirectory again(path, run.manifest, run.prompts, true);
      const ResumeState state = again.read_state();
      REQUIRE(state.finished.size() >= flushed);
      REQUIRE(state.warnings.empty());
      const auto lock = h5::lock_hdf5();
      REQUIRE(H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), H5F_OBJ_ALL) == 0);
      H5close();
      return 0;
    });
    EXPECT_EQ(status, 0) << limit << ": line " << WEXITSTATUS(status) << " mod 256";
  }
}

TEST_F(WriteFailureTest, AFullDiskIsAnIoError) {
  const SampleRun run(200, 1);
  for (const bool flush_each : {true, false}) {
    for (const char* size : {"size=1500k", "size=2m", "size=2100k"}) {
      const std::string disk = at(std::string("disk") + size + (flush_each ? "a" : "b"));
      std::filesystem::create_directory(disk);
      if (::mount("none", disk.c_str(), "tmpfs", 0, size) != 0) {
        GTEST_SKIP() << "mounting needs privileges";
      }
      const std::string path = disk + "/run";
      { const RunDirectory directory(path, run.manifest, run.prompts, false); }
      // A little is left for the claim of the next attempt.
      const std::string ballast = disk + "/ballast";
      std::ofstream(ballast) << std::string(32768, 'x');
      const int status = in_child([&] {
        try {
          return fill(path, run, flush_each, "No space left on device");
        } catch (const IoError&) {
          // Resuming on a disk that is still full is refused, as it should be.
          std::filesystem::remove(ballast);
          const RunDirectory again(path, run.manifest, run.prompts, true);
          return again.read_state().finished.empty() ? 1 : 0;
        }
      });
      EXPECT_EQ(status, 0) << "line " << WEXITSTATUS(status) << " mod 256";
      ::umount(disk.c_str());
    }
  }
}

TEST_F(WriteFailureTest, AFullDiskDuringTheMergeLeavesTheShards) {
  const SampleRun run(60, 1);
  const std::string path = at("run");
  {
    const RunDirectory directory(path, run.manifest, run.prompts, false);
    ShardWriter writer(path, 0, 0);
    for (const RequestId id : run.ids) writer.append(sample::finished(id, 3000));
  }
  const std::string before = digest_report(path).hex;
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit sizes{rlim_t{1} << 20, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &sizes);
    const std::string message =
        message_of<IoError>([&] { write_final_file(path, run.manifest, run.prompts); });
    REQUIRE(message.find("File too large") != std::string::npos);
    REQUIRE(message.find("trajectories.h5") != std::string::npos);
    REQUIRE(!std::filesystem::exists(path + "/trajectories.h5"));
    REQUIRE(!std::filesystem::exists(path + "/.trajectories.h5.tmp"));
    sizes.rlim_cur = RLIM_INFINITY;
    ::setrlimit(RLIMIT_FSIZE, &sizes);
    write_final_file(path, run.manifest, run.prompts);  // now there is room
    return 0;
  });
  EXPECT_EQ(status, 0) << "line " << WEXITSTATUS(status) << " mod 256";
  EXPECT_EQ(digest_report(path).hex, before);
}

TEST_F(WriteFailureTest, TelemetryToo) {
  const SampleRun run(1, 1);
  const std::string path = at("run");
  { const RunDirectory directory(path, run.manifest, run.prompts, false); }
  const int status = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit sizes{rlim_t{1} << 20, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &sizes);
    const std::string message = message_of<IoError>([&] {
      TelemetryWriter writer(path, 0, 0);
      for (int i = 0; i < 1000000; ++i) writer.step({.start = 0.001 * i, .duration = 0.001});
    });
    REQUIRE(message.find("telemetry-0-0.h5: File too large") != std::string::npos);
    sizes.rlim_cur = RLIM_INFINITY;
    ::setrlimit(RLIMIT_FSIZE, &sizes);
    const TelemetryReport report = write_telemetry(path, {});
    REQUIRE(report.warnings.empty());
    return 0;
  });
  EXPECT_EQ(status, 0) << "line " << WEXITSTATUS(status) << " mod 256";
}

TEST_F(WriteFailureTest, AnUnwritableDirectoryIsRefusedAtOnce) {
  const SampleRun run(1, 1);
  std::ofstream(at("file")) << "x";
  const std::string message = message_of<IoError>(
      [&] { RunDirectory(at("file") + "/run", run.manifest, run.prompts, false); });
  EXPECT_NE(message.find(at("file") + "/run"), std::string::npos) << message;
  message_of<IoError>([&] { RunDirectory(at("file"), run.manifest, run.prompts, false); });
  message_of<IoError>([&] { RunDirectory("/proc/nowhere", run.manifest, run.prompts, false); });
}

}  // namespace
}  // namespace paceline::io
