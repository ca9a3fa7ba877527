#include "io/hdf5/final_file.hpp"

#include <filesystem>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/manifest_json.hpp"
#include "io/hdf5/prompt_table.hpp"
#include "io/hdf5/shard_format.hpp"
#include "io/hdf5/shard_index.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

void check_complete(const std::vector<Entry>& finished, std::uint64_t prompts,
                    std::uint32_t samples) {
  std::size_t next = 0;
  for (std::uint64_t prompt = 0; prompt < prompts; ++prompt) {
    for (std::uint32_t sample = 0; sample < samples; ++sample, ++next) {
      const RequestId expected{static_cast<std::uint32_t>(prompt), sample};
      if (next < finished.size() && finished[next].id() == expected) continue;
      throw Error(ExitCode::internal, "cannot write the final file: the response to prompt " +
                                          std::to_string(prompt) + ", sample " +
                                          std::to_string(sample) + " is in no shard");
    }
  }
  if (next != finished.size()) {
    throw Error(ExitCode::internal,
                "cannot write the final file: shards hold responses that belong to no prompt, "
                "first to prompt " +
                    std::to_string(finished[next].prompt));
  }
}

/// Contiguous and unfiltered: deflate would save a fifth of the file (token ids halve, float32
/// log-probabilities hardly shrink) but be written at 50 MB/s by one core while the job waits, and
/// be read ten times slower; contiguous rows are read without touching their neighbours.
template <typename T>
h5::Dataset column(const h5::File& file, const std::string& name, std::uint64_t size) {
  return h5::Dataset::create<T>(file, "trajectories/" + name, {size});
}

/// A column with one value a response.
template <typename T, typename Value>
void write_column(const h5::File& file, const std::string& name, const std::vector<Entry>& entries,
                  const Value& value) {
  std::vector<T> values;
  values.reserve(entries.size());
  for (const Entry& entry : entries) values.push_back(static_cast<T>(value(entry)));
  h5::Dataset dataset = column<T>(file, name, values.size());
  dataset.template append<T>(values);
  dataset.flush();
}

void write_rows(const h5::File& file, const std::vector<Entry>& entries) {
  write_column<std::int32_t>(file, "prompt_index", entries, [](auto& e) { return e.prompt; });
  write_column<std::int32_t>(file, "sample_index", entries, [](auto& e) { return e.sample; });
  write_column<float>(file, "reward", entries, [](auto& e) { return e.reward; });
  write_column<std::uint64_t>(file, "weight_version", entries,
                              [](auto& e) { return e.weight_version; });
  write_column<std::uint8_t>(file, "finish_reason", entries,
                             [](auto& e) { return e.finish_reason; });
  const h5::Handle reasons(H5Dopen2(file.id(), "trajectories/finish_reason", H5P_DEFAULT),
                           H5Dclose);
  for (const auto reason : {FinishReason::stop_id, FinishReason::length, FinishReason::stop_string,
                            FinishReason::context, FinishReason::partial}) {
    h5::write_attribute(reasons.get(), file.path(), name_of(reason),
                        static_cast<std::uint8_t>(reason));
  }
  std::vector<std::int64_t> offsets{0};
  offsets.reserve(entries.size() + 1);
  for (const Entry& entry : entries) offsets.push_back(offsets.back() + entry.length);
  h5::Dataset dataset = column<std::int64_t>(file, "offsets", offsets.size());
  dataset.append<std::int64_t>(offsets);
  dataset.flush();
}

void write_tokens(const h5::File& file, const ShardIndex& index, std::uint64_t tokens,
                  std::size_t window_bytes) {
  h5::Dataset ids = column<TokenId>(file, "tokens", tokens);
  h5::Dataset logprob = column<float>(file, "logprob", tokens);
  h5::Dataset sampling = column<float>(file, "sampling_logprob", tokens);
  read_in_order(index.paths, "", index.finished, window_bytes, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      if (window.intact(i)) continue;
      const Entry& entry = window.entries[i];
      throw IoError("cannot read " + index.paths[entry.source] + ": the response to prompt " +
                    std::to_string(entry.prompt) + ", sample " + std::to_string(entry.sample) +
                    " is damaged: --resume generates it again");
    }
    ids.append<TokenId>(window.tokens);
    logprob.append<float>(window.logprob);
    sampling.append<float>(window.sampling_logprob);
  });
  for (h5::Dataset* dataset : {&ids, &logprob, &sampling}) dataset->flush();
}

void remove_trajectory_shards(const std::string& directory) {
  std::error_code ignored;  // what cannot be removed does no harm
  for (const ShardName& shard : list_shards(directory, "trajectories")) {
    fs::remove(shard.path, ignored);
  }
  tidy_shard_folder(directory);
}

}  // namespace

FinalFileReport write_final_file(const std::string& directory, const RunManifest& manifest,
                                 std::span<const Prompt> prompts, const FinalFileOptions& options) {
  const auto lock = h5::lock_hdf5();
  FinalFileReport report;
  report.path = (fs::path(directory) / kFinalName).string();
  if (!fs::is_directory(shard_folder(directory))) {
    throw IoError("cannot read " + shard_folder(directory) + ": it is gone");
  }
  ShardIndex index = read_shard_index(directory, false);
  check_complete(index.finished, prompts.size(), manifest.samples);
  for (const Entry& entry : index.finished) report.tokens += entry.length;
  report.trajectories = index.finished.size();
  report.warnings = std::move(index.warnings);

  h5::File file = h5::File::create(report.path, h5::File::Kind::final);
  try {
    write_manifest_attributes(file, manifest);
    write_prompt_table(file, prompts);
    {
      const h5::Handle group = file.group("trajectories");
      write_rows(file, index.finished);
    }
    write_tokens(file, index, report.tokens, options.window_bytes);
    file.close();
    commit_temporary(report.path);
  } catch (...) {
    file.abandon();
    discard_temporary(report.path);
    throw;
  }
  std::error_code ignored;
  report.bytes = fs::file_size(report.path, ignored);
  if (!options.keep_shards) remove_trajectory_shards(directory);
  return report;
}

}  // namespace paceline::io
