// Errors that reach the user, and the exit codes that are part of the command line's interface.
#pragma once

#include <array>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace paceline {

/// Exit codes (sysexits.h where one fits). Public interface: job scripts branch on them.
enum class ExitCode : int {
  done = 0,
  usage = 64,
  bad_data = 65,
  internal = 70,
  io = 74,
  try_again = 75,
};

/// Meaning of each code, as in --help and README.md. A missing file is a mistake of the user who
/// named it, not a failure to read.
struct ExitCodeMeaning {
  ExitCode code;
  std::string_view meaning;
};
inline constexpr std::array<ExitCodeMeaning, 6> kExitCodes{{
    {ExitCode::done, "done"},
    {ExitCode::usage, "bad usage or configuration, or no such configuration"},
    {ExitCode::bad_data, "bad prompts, weights or tokenizer, or no such files"},
    {ExitCode::internal, "internal fault"},
    {ExitCode::io, "reading or writing failed"},
    {ExitCode::try_again, "stopped cleanly: run again with --resume"},
}};

/// An expected failure with one clear message: place, found and expected value. Thrown within a
/// rank and handled once, at the top of the program.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

/// Bad usage or configuration (64).
struct UsageError : Error {
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};
/// Bad input data (65); the message names file and place.
struct DataError : Error {
  explicit DataError(const std::string& message) : Error(ExitCode::bad_data, message) {}
};
/// Reading or writing failed (74).
struct IoError : Error {
  explicit IoError(const std::string& message) : Error(ExitCode::io, message) {}
};

/// The candidate nearest to `name` by edit distance (insert, delete, substitute, transpose); empty
/// when none is near enough to be a plausible typing error.
[[nodiscard]] std::string_view nearest_name(std::string_view name,
                                            std::span<const std::string_view> candidates);

}  // namespace paceline
