// The search for responses of earlier runs to the prompts of this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/run/stored_response.hpp"
#include "runtime/core/earlier_responses.hpp"

namespace paceline::io {

struct HistoryOptions {
  /// A run (its directory or final file, finished or not), or a folder of runs. In a folder,
  /// finished runs count, in the order of their names (step_before()).
  std::string path = {};
  /// The directory of this run. If it is in that folder, only runs whose names come before its own
  /// count; NAME.part of a resident job is named NAME.
  std::string output = {};
  std::uint64_t vocabulary = 0;                ///< RunManifest::vocabulary of this run
  std::size_t most_tokens = 0;                 ///< most tokens of one prompt's responses
  std::size_t most_steps = kMostEarlierSteps;  ///< most runs with responses to one prompt
  std::size_t most_runs = kOldestStep;         ///< most runs to look into, newest first
  std::size_t most_idle = 32;                  ///< most runs in a row without responses of use
};

/// Called with a text that names the path, for runs and responses that cannot be used.
using HistoryWarning = std::function<void(const std::string&)>;

/// Responses of one earlier run to prompts of this one.
struct FoundRun {
  std::uint32_t age = 0;               ///< age in runs; 0: no run, the search is over
  std::uint8_t complete = 0;           ///< 1: paths is its final file
  std::vector<std::string> paths;      ///< files that StoredResponse::source indexes
  std::vector<std::uint32_t> prompts;  ///< [responses] prompts of this run, each one's together
  std::vector<StoredResponse> responses;

  /// Responses to the prompts of one reader (EarlierResponses).
  [[nodiscard]] FoundRun part(std::uint32_t reader, std::uint32_t readers) const;
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Throws std::logic_error on bytes that encode() did not make.
  [[nodiscard]] static FoundRun decode(std::span<const std::byte> bytes);
};

/// Looks into runs one by one, newest first. It reads a run's prompts and, if some are also prompts
/// of this run, the places of their responses. Prompts with the same tokens are the same: trainers
/// give out new uids. The newest run is one step old, the one before it two. Throws nothing.
class HistorySearch {
 public:
  /// `contents`: [prompts] content_uid() of each prompt of this run.
  HistorySearch(HistoryOptions options, std::span<const std::string> contents, HistoryWarning warn);

  [[nodiscard]] bool over() const;
  /// Looks into the next run. Call only while the search is not over().
  [[nodiscard]] FoundRun look();

  [[nodiscard]] std::size_t runs() const { return runs_; }        ///< runs with responses of use
  [[nodiscard]] std::size_t prompts() const { return prompts_; }  ///< prompts of these responses

 private:
  void find(const std::string& path, FoundRun& found);

  HistoryOptions options_;
  HistoryWarning warn_;
  std::map<std::string, std::vector<std::uint32_t>> by_content_;  ///< prompts of this run
  std::vector<std::string> paths_;                                ///< newest first
  bool one_run_ = false;            ///< the path is a run, not a folder of runs
  std::size_t next_ = 0;            ///< next index into paths_
  std::size_t idle_ = 0;            ///< runs in a row without responses of use
  std::vector<std::size_t> steps_;  ///< [prompts] runs with responses to it
  std::size_t full_ = 0;            ///< number of prompts with most_steps runs
  std::size_t runs_ = 0;
  std::size_t prompts_ = 0;
};

}  // namespace paceline::io
