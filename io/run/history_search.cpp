#include "io/run/history_search.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "io/hdf5/shards.hpp"
#include "io/run/final_file.hpp"
#include "io/run/stored_run.hpp"
#include "io/steps/step_folder.hpp"
#include "runtime/core/fields.hpp"
#include "runtime/core/wire.hpp"

namespace paceline::io {
namespace {

namespace fs = std::filesystem;

bool is_finished(const fs::path& directory) { return fs::exists(directory / kFinalName); }

bool is_run(const fs::path& path) {
  return !fs::is_directory(path) || is_finished(path) || fs::exists(path / kManifestName);
}

/// Runs of the folder that come before this run, newest first; texts pregenerated for this run
/// precede them. This run's place is that of its name, even if the name is a link to another
/// folder.
std::vector<std::string> earlier_runs(const fs::path& folder, const fs::path& output) {
  const fs::path given = fs::absolute(output.has_filename() ? output : output.parent_path());
  const fs::path own = fs::weakly_canonical(given);
  const bool beside = fs::weakly_canonical(given.parent_path()) == fs::canonical(folder);
  const std::string now = given.extension() == ".part" ? given.stem() : given.filename();
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool earlier =
        beside ? step_before(name, now) : fs::weakly_canonical(entry.path()) != own;
    if (earlier && is_finished(entry.path())) names.push_back(name);
  }
  std::sort(names.rbegin(), names.rend(), step_before);
  std::vector<std::string> runs;
  // Texts that the step before has pregenerated for this one are the newest.
  const fs::path ahead = folder / (now + kAhead);
  if (beside && fs::exists(ahead / kManifestName)) runs.push_back(ahead.string());
  for (const std::string& name : names) runs.push_back((folder / name).string());
  return runs;
}

}  // namespace

FoundRun FoundRun::part(std::uint32_t reader, std::uint32_t readers) const {
  FoundRun part{age, complete, paths, {}, {}};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i] % readers != reader) continue;
    part.prompts.push_back(prompts[i]);
    part.responses.push_back(responses[i]);
  }
  return part;
}

std::vector<std::byte> FoundRun::encode() const {
  WireWriter writer;
  with_fields(*this, [&](const auto&... field) { writer.put_all(field...); });
  return writer.take();
}

FoundRun FoundRun::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  FoundRun found;
  with_fields(found, [&](auto&... field) { reader.get_all(field...); });
  const bool sound = reader.empty() && found.prompts.size() == found.responses.size() &&
                     std::all_of(found.responses.begin(), found.responses.end(),
                                 [&](const auto& r) { return r.source < found.paths.size(); });
  if (!sound) throw std::logic_error("no run that was found");
  return found;
}

HistorySearch::HistorySearch(HistoryOptions options, std::span<const std::string> contents,
                             HistoryWarning warn)
    : options_(std::move(options)), warn_(std::move(warn)), steps_(contents.size()) {
  for (std::uint32_t p = 0; p < contents.size(); ++p) by_content_[contents[p]].push_back(p);
  try {
    const fs::path path = options_.path;
    if (!fs::exists(path) || fs::canonical(path) == fs::weakly_canonical(options_.output)) return;
    one_run_ = is_run(path);
    paths_ = one_run_ ? std::vector{options_.path} : earlier_runs(path, options_.output);
    paths_.resize(std::min(paths_.size(), options_.most_runs));
  } catch (const std::exception& error) {  // an error of the file system
    warn_(options_.path + ": " + error.what());
  }
}

bool HistorySearch::over() const {
  return next_ >= paths_.size() || idle_ >= options_.most_idle || full_ >= steps_.size();
}

FoundRun HistorySearch::look() {
  const std::string& path = paths_[next_++];
  FoundRun found;
  try {
    find(path, found);
  } catch (const std::exception& error) {
    warn_(error.what());
    found = {};
  }
  found.age = static_cast<std::uint32_t>(next_);
  idle_ = found.prompts.empty() ? idle_ + 1 : 0;
  runs_ += found.prompts.empty() ? 0 : 1;
  return found;
}

void HistorySearch::find(const std::string& path, FoundRun& found) {
  const RunManifest manifest = read_run_manifest(path);
  if (manifest.vocabulary != options_.vocabulary) {
    warn_(path + ": the run's vocabulary has " + std::to_string(manifest.vocabulary) +
          " tokens; the model's has " + std::to_string(options_.vocabulary));
    return;
  }
  const std::vector<std::vector<TokenId>> prompts = read_prompt_tokens(path);
  std::vector<const std::vector<std::uint32_t>*> same(prompts.size());  // prompts of this run
  bool any = false;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const auto at = by_content_.find(content_uid(prompts[p]));
    if (at == by_content_.end()) continue;
    same[p] = &at->second;
    any = true;
  }
  if (!any) {
    if (one_run_) warn_(path + ": it has no responses to any prompt of this run");
    return;
  }
  StoredRun run = open_stored_responses(path);
  // Unfinished responses serve drafts too, as far as they go.
  std::vector<StoredResponse> texts;
  std::merge(run.finished.begin(), run.finished.end(), run.partial.begin(), run.partial.end(),
             std::back_inserter(texts),
             [](const StoredResponse& a, const StoredResponse& b) { return a.id() < b.id(); });
  for (const std::string& warning : run.warnings) warn_(warning);
  found.complete = run.complete ? 1 : 0;
  found.paths = std::move(run.paths);
  std::vector<bool> here(steps_.size());
  for (auto at = texts.begin(); at != texts.end();) {
    const std::uint32_t prompt = at->prompt;
    const auto end =
        std::find_if(at, texts.end(), [&](const StoredResponse& r) { return r.prompt != prompt; });
    const std::span<const StoredResponse> own(at, end);
    at = end;
    if (prompt >= same.size() || same[prompt] == nullptr) continue;
    for (const std::uint32_t p : *same[prompt]) {
      // If an earlier run has a prompt twice, only the first one's responses count.
      if (here[p] || steps_[p] == options_.most_steps) continue;
      here[p] = true;
      if (steps_[p]++ == 0) ++prompts_;
      if (steps_[p] == options_.most_steps) ++full_;
      found.prompts.insert(found.prompts.end(), own.size(), p);
      found.responses.insert(found.responses.end(), own.begin(), own.end());
    }
  }
}

}  // namespace paceline::io
