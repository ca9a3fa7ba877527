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
  /// A run (its directory or final file, finished or not), or a folder of runs: those in it that
  /// are finished, by their names (step_before()).
  std::string path = {};
  /// The run's own directory. Of its folder, only runs that come before it by name count; a
  /// resident job's NAME.part is named NAME.
  std::string output = {};
  std::uint64_t vocabulary = 0;                ///< as RunManifest's
  std::size_t most_tokens = 0;                 ///< of a prompt
  std::size_t most_steps = kMostEarlierSteps;  ///< of a prompt
  std::size_t most_runs = kOldestStep;         ///< looked into for them, newest first
  std::size_t most_idle = 32;                  ///< of them in a row that have none
};

/// Told, with the path, of runs and responses that cannot be used.
using HistoryWarning = std::function<void(const std::string&)>;

/// Responses of one earlier run to prompts of this one.
struct FoundRun {
  std::uint32_t age = 0;               ///< in runs; 0: none, the search is over
  std::uint8_t complete = 0;           ///< 1: paths is its final file
  std::vector<std::string> paths;      ///< of StoredResponse::source
  std::vector<std::uint32_t> prompts;  ///< [responses] of this run; those to one are together
  std::vector<StoredResponse> responses;

  /// Those to prompts of a reader (EarlierResponses).
  [[nodiscard]] FoundRun part(std::uint32_t reader, std::uint32_t readers) const;
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Throws std::logic_error on bytes that no run was encoded as.
  [[nodiscard]] static FoundRun decode(std::span<const std::byte> bytes);
};

/// Looks into runs one by one, newest first: into the prompts of each, and the places of responses
/// of those that have prompts of this one. A prompt is the same where its tokens are: trainers deal
/// out uids anew. The newest run is one step old, the one before it two. Throws nothing.
class HistorySearch {
 public:
  /// `contents`: [prompts] content_uid() of each prompt of this run.
  HistorySearch(HistoryOptions options, std::span<const std::string> contents, HistoryWarning warn);

  [[nodiscard]] bool over() const;
  /// Looks into the next run. The search is not over.
  [[nodiscard]] FoundRun look();

  [[nodiscard]] std::size_t runs() const { return runs_; }        ///< with responses of use
  [[nodiscard]] std::size_t prompts() const { return prompts_; }  ///< with such responses

 private:
  void find(const std::string& path, FoundRun& found);

  HistoryOptions options_;
  HistoryWarning warn_;
  std::map<std::string, std::vector<std::uint32_t>> by_content_;  ///< prompts of this run
  std::vector<std::string> paths_;                                ///< newest first
  bool one_run_ = false;            ///< the path is of a run, not of a folder of them
  std::size_t next_ = 0;            ///< of paths_
  std::size_t idle_ = 0;            ///< runs in a row without responses of use
  std::vector<std::size_t> steps_;  ///< [prompts] with responses to it
  std::size_t full_ = 0;            ///< prompts with the most steps
  std::size_t runs_ = 0;
  std::size_t prompts_ = 0;
};

}  // namespace paceline::io
