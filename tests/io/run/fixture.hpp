// What the tests of this folder share: a scratch directory, a small run in it, equality to the bit.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "io/run/run_directory.hpp"
#include "io/run/shard_writer.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/run/sample.hpp"

/// Sanitizers take many times the time, and memory that is not ours.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif

namespace paceline::io {

class Scratch : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "paceline-hdf5-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  [[nodiscard]] std::string at(const std::string& name) const { return (root_ / name).string(); }

  std::filesystem::path root_;
};

/// A run of `prompts` x `samples` responses made by formula.
struct SampleRun {
  SampleRun(std::uint32_t prompt_count, std::uint32_t sample_count)
      : prompts(sample::prompts(prompt_count)), manifest(sample::manifest(prompts, sample_count)) {
    for (std::uint32_t p = 0; p < prompt_count; ++p) {
      for (std::uint32_t s = 0; s < sample_count; ++s) ids.push_back({p, s});
    }
  }
  std::vector<Prompt> prompts;
  RunManifest manifest;
  std::vector<RequestId> ids;
};

/// Equal to the bit (a NaN reward equals itself).
inline bool same(const Trajectory& a, const Trajectory& b) {
  const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  };
  return a.id == b.id && a.tokens == b.tokens && equal(a.logprob, b.logprob) &&
         equal(a.sampling_logprob, b.sampling_logprob) && a.kept == b.kept &&
         a.kept_ids == b.kept_ids && a.top_ids == b.top_ids &&
         equal(a.top_logprob, b.top_logprob) && a.finish_reason == b.finish_reason &&
         equal({a.reward}, {b.reward}) && a.weight_version == b.weight_version;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The message of the error of type E that `call` throws.
template <typename E>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// Runs `body` in a process of its own, which ends without exit handlers; its wait status. `body`
/// returns the exit code; an exception makes it 99.
inline int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

}  // namespace paceline::io
