#include "io/run/left_over.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/manifest_json.hpp"
#include "io/run/prompt_table.hpp"
#include "io/run/shard_index.hpp"
#include "io/run/shard_writer.hpp"
#include "io/run/stored_run.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

std::string folder_of(const std::string& directory) {
  return (fs::path(directory) / "left").string();
}
std::string versions_of(const std::string& folder) {
  return (fs::path(folder) / "versions.json").string();
}

/// Throws UsageError if settings for sampling differ, except weights, prompts and machines.
void require_alike(const std::string& directory, const RunManifest& then, RunManifest now) {
  now.model_fingerprint = then.model_fingerprint;
  now.weight_version = then.weight_version;
  now.prompts_fingerprint = then.prompts_fingerprint;
  now.prompts = then.prompts;
  now.samples = then.samples;
  now.own_samples = then.own_samples;
  now.by_line = then.by_line;
  now.longest_response = then.longest_response;
  now.choice = then.choice;
  now.begun = then.begun;
  now.backend = then.backend;
  now.isa = then.isa;
  now.dtype = then.dtype;
  if (const auto difference = first_difference(then, now)) {
    throw UsageError("prompts.begun: " + directory +
                     " began its responses by other settings: " + *difference);
  }
  if (then.vocabulary != now.vocabulary)
    throw UsageError("prompts.begun: " + directory + " is of a model of another vocabulary");
}

/// The sampling parameters among `fields` that a prompt's line sets for itself.
Json own_sampling(const Prompt& prompt, const std::set<std::string>& fields) {
  const Json line = Json::parse(prompt.extra_json, nullptr, false);
  Json own = Json::object();
  if (!line.is_object()) return own;
  for (const std::string& field : fields)
    if (const Json value = line.value(field, Json()); !value.is_null()) own[field] = value;
  return own;
}

EarlierSpans read_versions(const std::string& path) {
  try {
    EarlierSpans spans;
    for (const Json& row : Json::parse(read_whole(path))) {
      const RequestId id{row.at(0).get<std::uint32_t>(), row.at(1).get<std::uint32_t>()};
      for (const Json& span : row.at(2))
        spans[id].push_back({span.at(0).get<std::uint32_t>(), span.at(1).get<std::uint64_t>()});
    }
    return spans;
  } catch (const Json::exception& error) {
    throw IoError("cannot read " + path + ": it is damaged: " + error.what());
  }
}

}  // namespace

std::vector<VersionSpan> spans_of(RequestId id, std::uint32_t length, const EarlierSpans& earlier,
                                  std::uint64_t version) {
  std::vector<VersionSpan> spans;
  if (const auto at = earlier.find(id); at != earlier.end()) spans = at->second;
  const std::uint32_t begun = spans.empty() ? 0 : spans.back().end;
  if (begun == length && begun > 0) return spans;
  if (!spans.empty() && spans.back().version == version) spans.pop_back();
  spans.push_back({length, version});
  return spans;
}

std::string BegunResponses::fingerprint() const {
  if (responses.empty()) return "";
  XXH128_hash_t hash{0, 0};
  const auto feed = [&hash](const auto& values) {
    const XXH128_hash_t part = XXH3_128bits(values.data(), values.size() * sizeof values[0]);
    const std::uint64_t words[5] = {hash.low64, hash.high64, part.low64, part.high64,
                                    values.size()};
    hash = XXH3_128bits(words, sizeof words);
  };
  for (const Trajectory& t : responses) {
    std::vector<std::uint64_t> about{t.id.prompt, t.id.sample};
    for (const VersionSpan& span : spans.at(t.id)) {
      about.push_back(span.end);
      about.push_back(span.version);
    }
    feed(about);
    feed(t.tokens);
    feed(t.logprob);
    feed(t.sampling_logprob);
  }
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::size_t write_left_over(const std::string& directory, const RunManifest& manifest,
                            std::span<const Prompt> prompts, const BegunResponses& begun) {
  const auto lock = h5::lock_hdf5();
  const std::string folder = folder_of(directory);
  std::error_code error;
  fs::remove_all(folder, error);
  ShardIndex index = read_shard_index(directory, manifest);
  std::erase_if(index.partial, [](const StoredResponse& entry) { return entry.length == 0; });
  std::vector<Trajectory> waiting;  // responses that the run did not continue
  for (const Trajectory& t : begun.responses) {
    const auto is_it = [&](const StoredResponse& entry) { return entry.id() == t.id; };
    if (std::ranges::none_of(index.partial, is_it) && std::ranges::none_of(index.finished, is_it))
      waiting.push_back(t);
  }
  if (index.partial.empty() && waiting.empty()) return 0;
  fs::create_directories(shard_folder(folder), error);
  if (error) throw IoError("cannot create " + folder + ": " + error.message());
  write_prompt_file(folder, prompts);
  ShardWriter writer(
      folder, 0, 0, {},
      {.masks = manifest.sampling.keep_masks, .logprobs = manifest.sampling.logprobs});
  Json versions = Json::array();
  const auto write = [&](Trajectory response, const std::vector<VersionSpan>& spans) {
    Json of = Json::array();
    for (const VersionSpan& span : spans) of.push_back({span.end, span.version});
    versions.push_back({response.id.prompt, response.id.sample, of});
    response.weight_version = manifest.weight_version;
    writer.append(response);
  };
  read_in_order(index.paths, "", index.partial, std::size_t{32} << 20, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      const StoredResponse& entry = window.entries[i];
      if (!window.intact(i)) continue;
      write(window.trajectory(i),
            spans_of(entry.id(), entry.length, begun.spans, manifest.weight_version));
    }
  });
  for (Trajectory& response : waiting) {
    const RequestId id = response.id;
    write(std::move(response), begun.spans.at(id));
  }
  writer.close();
  write_whole(versions_of(folder), versions.dump() + "\n");
  write_whole((fs::path(folder) / kManifestName).string(), to_json(manifest));
  return versions.size();
}

BegunResponses read_left_over(const std::string& directory, const RunManifest& now,
                              std::span<const Prompt> prompts) {
  const auto lock = h5::lock_hdf5();
  (void)file_of_run(directory, kFinalName);
  BegunResponses begun;
  const std::string folder = folder_of(directory);
  if (!fs::exists((fs::path(folder) / kManifestName).string())) return begun;
  const StoredRun run = open_stored_run(folder);
  require_alike(directory, run.manifest, now);
  std::map<std::string, std::uint32_t> by_uid;
  for (std::size_t p = 0; p < prompts.size(); ++p)
    by_uid[prompts[p].uid] = static_cast<std::uint32_t>(p);
  const EarlierSpans spans = read_versions(versions_of(folder));
  // Lengths and numbers of responses may differ.
  std::set<std::string> fields(run.manifest.by_line.begin(), run.manifest.by_line.end());
  fields.insert(now.by_line.begin(), now.by_line.end());
  for (const char* free : {"max_tokens", "samples", "n"}) fields.erase(free);
  // Lines that only repeat the run's own value sample as lines without one did.
  for (const std::string& field : now.repeated)
    if (std::ranges::find(run.manifest.by_line, field) == run.manifest.by_line.end())
      fields.erase(field);
  read_responses(run, run.partial, [&](Trajectory&& response) {
    const Prompt& then = run.prompts.at(response.id.prompt);
    const auto at = by_uid.find(then.uid);
    if (at == by_uid.end() || prompts[at->second].tokens != then.tokens ||
        prompts[at->second].pictures != then.pictures ||
        own_sampling(prompts[at->second], fields) != own_sampling(then, fields) ||
        response.id.sample >= now.samples_of(at->second))
      return;
    const std::int32_t most =
        prompts[at->second].sampling.max_tokens.value_or(now.sampling.max_tokens);
    if (std::ssize(response.tokens) >= most) return;
    const auto of = spans.find(response.id);
    if (of == spans.end() || of->second.empty() || of->second.back().end != response.tokens.size())
      throw IoError("cannot read " + versions_of(folder) + ": it is of other responses");
    const RequestId id{at->second, response.id.sample};
    begun.spans[id] = of->second;
    response.id = id;
    begun.responses.push_back(std::move(response));
  });
  std::ranges::sort(begun.responses, {}, &Trajectory::id);
  return begun;
}

}  // namespace paceline::io
