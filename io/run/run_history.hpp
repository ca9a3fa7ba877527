// Responses of earlier runs to the prompts of this run, read from those runs' files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/run/history_search.hpp"
#include "io/run/stored_run.hpp"
#include "runtime/core/earlier_responses.hpp"

namespace paceline::io {

/// One of `count` readers (EarlierResponses).
struct HistoryReader {
  std::uint32_t own = 0;
  std::uint32_t count = 1;
};

/// Memory: 52 bytes a response to the reader's prompts and, during the search, the index of one
/// run. Throws nothing. `warn` is called at most once for each run that cannot be read.
class RunHistory final : public EarlierResponses {
 public:
  /// Called on reader 0 after the search: number of runs used, and of prompts with responses.
  using Over = std::function<void(std::size_t runs, std::size_t prompts)>;
  /// `contents`: as for HistorySearch; only reader 0 uses it.
  RunHistory(const HistoryOptions& options, std::span<const std::string> contents,
             HistoryReader reader, HistoryWarning warn, Over over = {});

  void want(std::uint32_t prompt) override;
  [[nodiscard]] bool awaits(std::uint32_t prompt) const override;
  bool work(const Tell& tell, const Use& use) override;
  bool learn(std::span<const std::byte> found) override;

 private:
  struct Source {
    std::uint32_t age = 0;
    std::size_t run = 0;
    std::vector<StoredResponse> responses;  ///< in order of samples
  };
  struct Known {
    std::vector<Source> sources;  ///< newest first
    bool wanted = false;
    std::size_t next = 0;  ///< next source to read
    std::size_t left = 0;  ///< number of tokens for which there is room
  };
  struct KnownRun {
    StoredRun files;  ///< without prompts and responses
    bool warned = false;
  };

  void add(const FoundRun& found);
  void look(const Tell& tell);
  bool read_next(const Use& use);
  void read(std::uint32_t prompt, const Source& source, std::size_t& left, const Use& use);

  HistoryReader reader_;
  HistoryWarning warn_;
  Over told_;
  std::size_t most_tokens_;
  std::optional<HistorySearch> search_;  ///< on reader 0 while it searches; else nullopt
  bool over_ = false;                    ///< the search is over, and its results are known
  std::vector<KnownRun> runs_;           ///< newest first
  std::map<std::uint32_t, Known> prompts_;
  std::vector<std::uint32_t> wanted_;  ///< wanted prompts, next to read first
};

}  // namespace paceline::io
