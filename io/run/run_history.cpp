#include "io/run/run_history.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <utility>

#include "io/hdf5/shards.hpp"
#include "io/steps/step_folder.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

bool is_finished(const fs::path& directory) { return fs::exists(directory / kFinalName); }

/// Runs that come before this one, newest first.
std::vector<std::string> earlier_runs(const fs::path& path, const fs::path& output) {
  const fs::path own = fs::weakly_canonical(output.has_filename() ? output : output.parent_path());
  if (!fs::exists(path) || fs::canonical(path) == own) return {};
  if (!fs::is_directory(path) || is_finished(path) || fs::exists(path / kManifestName))
    return {path.string()};
  const bool beside = own.parent_path() == fs::canonical(path);
  const std::string now = own.extension() == ".part" ? own.stem() : own.filename();
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (is_finished(entry.path()) && (!beside || step_before(name, now))) names.push_back(name);
  }
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return step_before(b, a); });
  std::vector<std::string> runs;
  for (const std::string& name : names) runs.push_back((path / name).string());
  return runs;
}

}  // namespace

RunHistory::RunHistory(const HistoryOptions& options, std::span<const std::string> contents,
                       Warn warn)
    : warn_(std::move(warn)), most_tokens_(options.most_tokens), sources_(contents.size()) {
  for (std::uint32_t p = 0; p < contents.size(); ++p) by_content_[contents[p]].push_back(p);
  try {
    find(options);
  } catch (const std::exception& error) {  // of the file system
    warn_(options.path + ": " + error.what());
  }
  by_content_.clear();
}

void RunHistory::find(const HistoryOptions& options) {
  const std::vector<std::string> paths = earlier_runs(options.path, options.output);
  const std::size_t most = std::min(paths.size(), options.most_runs);
  std::size_t readable = 0;
  for (std::size_t i = 0; i < most && full_ < sources_.size(); ++i) {
    try {
      StoredRun run = open_stored_run(paths[i]);
      if (run.manifest.vocabulary != options.vocabulary) {
        warn_(paths[i] + ": its tokens are of a vocabulary of " +
              std::to_string(run.manifest.vocabulary) + ", the model's has " +
              std::to_string(options.vocabulary));
        continue;
      }
      for (const std::string& warning : run.warnings) warn_(warning);
      ++readable;
      add(std::move(run), static_cast<std::uint32_t>(i + 1), options);
    } catch (const std::exception& error) {
      warn_(error.what());
    }
  }
  if (readable > 0 && runs_.empty())
    warn_(options.path + ": it has no responses to any prompt of this run");
}

void RunHistory::add(StoredRun run, std::uint32_t age, const HistoryOptions& options) {
  const std::vector<Prompt> prompts = std::move(run.prompts);
  const std::vector<StoredResponse> responses = std::move(run.finished);
  StoredRun files;
  files.complete = run.complete;
  files.paths = std::move(run.paths);
  bool any = false;
  for (auto at = responses.begin(); at != responses.end();) {
    const std::uint32_t prompt = at->prompt;
    const auto end = std::find_if(at, responses.end(),
                                  [&](const StoredResponse& r) { return r.prompt != prompt; });
    const std::vector<StoredResponse> own(at, end);
    at = end;
    const auto same = by_content_.find(content_uid(prompts.at(prompt).tokens));
    if (same == by_content_.end()) continue;
    for (const std::uint32_t p : same->second) {
      std::vector<Source>& sources = sources_[p];
      // Of a prompt that is there twice, the first one's responses.
      if (sources.size() == options.most_steps || (!sources.empty() && sources.back().age == age))
        continue;
      if (sources.empty()) ++known_;
      sources.push_back({age, runs_.size(), own});
      if (sources.size() == options.most_steps) ++full_;
      any = true;
    }
  }
  if (any) runs_.push_back({std::move(files)});
}

void RunHistory::take(std::uint32_t prompt, const Use& use) {
  if (prompt >= sources_.size()) return;
  std::size_t left = most_tokens_;
  for (const Source& source : std::exchange(sources_[prompt], {})) read(source, left, use);
}

/// Reads a prompt's responses of one run, as far as there is room for them.
void RunHistory::read(const Source& source, std::size_t& left, const Use& use) {
  std::vector<StoredResponse> wanted;
  for (const StoredResponse& response : source.responses) {
    if (response.length > left) continue;
    left -= response.length;
    wanted.push_back(response);
  }
  KnownRun& run = runs_[source.run];
  try {
    read_responses(run.files, wanted, [&](Trajectory&& response) {
      use(source.age, response.id.sample, response.tokens);
    });
  } catch (const std::exception& error) {
    if (!std::exchange(run.warned, true)) warn_(error.what());
  }
}

}  // namespace paceline::io
