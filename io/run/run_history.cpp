#include "io/run/run_history.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

namespace paceline::io {

RunHistory::RunHistory(const HistoryOptions& options, std::span<const std::string> contents,
                       HistoryReader reader, HistoryWarning warn, Over over)
    : reader_(reader),
      warn_(std::move(warn)),
      told_(std::move(over)),
      most_tokens_(options.most_tokens) {
  if (reader.own == 0) search_.emplace(options, contents, warn_);
}

void RunHistory::want(std::uint32_t prompt) {
  Known& known = prompts_[prompt];
  known.next = 0;
  known.left = most_tokens_;
  if (!std::exchange(known.wanted, true)) wanted_.push_back(prompt);
}

bool RunHistory::awaits(std::uint32_t prompt) const {
  const auto at = prompts_.find(prompt);
  return at != prompts_.end() && at->second.wanted;
}

bool RunHistory::work(const Tell& tell, const Use& use) {
  if (read_next(use)) return true;
  if (!search_) return false;
  look(tell);
  return true;
}

/// Continues the search, or ends it.
void RunHistory::look(const Tell& tell) {
  const bool over = search_->over();
  const FoundRun found = over ? FoundRun() : search_->look();
  for (std::uint32_t reader = 0; reader < reader_.count; ++reader) {
    const FoundRun part = found.part(reader, reader_.count);
    if (part.prompts.empty() && !over) continue;
    if (reader == reader_.own) {
      add(part);
    } else {
      tell(reader, part.encode());
    }
  }
  if (!over) return;
  if (told_) told_(search_->runs(), search_->prompts());
  search_.reset();
}

bool RunHistory::learn(std::span<const std::byte> found) {
  try {
    add(FoundRun::decode(found));
  } catch (const std::logic_error&) {
    return false;
  }
  return true;
}

void RunHistory::add(const FoundRun& found) {
  over_ = over_ || found.age == 0;
  if (found.prompts.empty()) return;
  StoredRun files;
  files.complete = found.complete != 0;
  files.paths = found.paths;
  for (std::size_t i = 0; i < found.prompts.size(); ++i) {
    std::vector<Source>& sources = prompts_[found.prompts[i]].sources;
    if (sources.empty() || sources.back().run != runs_.size())
      sources.push_back({found.age, runs_.size(), {}});
    sources.back().responses.push_back(found.responses[i]);
  }
  runs_.push_back({std::move(files)});
}

/// Reads one source of the first prompt that has one left; the prompt then becomes the last.
bool RunHistory::read_next(const Use& use) {
  for (auto at = wanted_.begin(); at != wanted_.end();) {
    const std::uint32_t prompt = *at;
    Known& known = prompts_.at(prompt);
    if (known.next == known.sources.size()) {
      if (over_) known.wanted = false;
      at = over_ ? wanted_.erase(at) : at + 1;
      continue;
    }
    std::rotate(at, at + 1, wanted_.end());
    read(prompt, known.sources[known.next++], known.left, use);
    return true;
  }
  return false;
}

/// Reads a prompt's responses of one run, as long as there is room for them.
void RunHistory::read(std::uint32_t prompt, const Source& source, std::size_t& left,
                      const Use& use) {
  std::vector<StoredResponse> wanted;
  for (const StoredResponse& response : source.responses) {
    if (response.length > left) continue;
    left -= response.length;
    wanted.push_back(response);
  }
  KnownRun& run = runs_[source.run];
  try {
    read_responses(run.files, wanted, [&](Trajectory&& response) {
      use({prompt, response.id.sample}, source.age, response.tokens);
    });
  } catch (const std::exception& error) {
    if (!std::exchange(run.warned, true)) warn_(error.what());
  }
}

}  // namespace paceline::io
