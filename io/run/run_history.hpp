// Responses of earlier runs to the prompts of this one, from the runs' own files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/run/stored_run.hpp"
#include "runtime/core/earlier_responses.hpp"

namespace paceline::io {

struct HistoryOptions {
  /// A run (its directory or final file, finished or not), or a folder of runs: those in it that
  /// are finished, by their names (step_before()).
  std::string path = {};
  /// The run's own directory. Of its folder, only runs that come before it by name count; a
  /// resident job's NAME.part is named NAME.
  std::string output = {};
  std::uint64_t vocabulary = 0;  ///< as RunManifest's
  std::size_t most_tokens = 0;   ///< of a prompt
  std::size_t most_steps = 4;    ///< of a prompt
  std::size_t most_runs = 64;    ///< looked into for them, newest first
};

/// Reads at once which responses there are, and a prompt's tokens when it is asked for. A prompt is
/// the same where its tokens are: trainers deal out uids anew. The newest run is one step old, the
/// one before it two. Memory: 48 bytes a response. Throws nothing: `warn` is told, with the path,
/// of runs and responses that cannot be used. Without anything at the path there are no responses.
class RunHistory final : public EarlierResponses {
 public:
  using Warn = std::function<void(const std::string&)>;
  /// `contents`: [prompts] content_uid() of each prompt of this run.
  RunHistory(const HistoryOptions& options, std::span<const std::string> contents, Warn warn);

  void take(std::uint32_t prompt, const Use& use) override;

  [[nodiscard]] std::size_t runs() const { return runs_.size(); }  ///< with responses of use
  [[nodiscard]] std::size_t prompts() const { return known_; }     ///< with such responses

 private:
  struct Source {
    std::uint32_t age = 0;
    std::size_t run = 0;
    std::vector<StoredResponse> responses;  ///< by sample
  };
  struct KnownRun {
    StoredRun files;  ///< without prompts and responses
    bool warned = false;
  };

  void find(const HistoryOptions& options);
  void add(StoredRun run, std::uint32_t age, const HistoryOptions& options);
  void read(const Source& source, std::size_t& left, const Use& use);

  Warn warn_;
  std::size_t most_tokens_;
  std::map<std::string, std::vector<std::uint32_t>> by_content_;  ///< prompts of this run
  std::vector<KnownRun> runs_;                                    ///< newest first
  std::vector<std::vector<Source>> sources_;                      ///< [prompts] newest first
  std::size_t known_ = 0;
  std::size_t full_ = 0;  ///< prompts with the most steps
};

}  // namespace paceline::io
