#include "io/run/scores_file.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <vector>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/run/manifest_json.hpp"
#include "io/run/routing.hpp"
#include "io/run/top_columns.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

std::string scores_path(const std::string& directory, const std::string& name) {
  const bool sound = !name.empty() && name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                     });
  if (!sound) {
    throw UsageError(
        "--name: expected letters, digits, '-', '_' and, but for the first, '.', found '" + name +
        "'");
  }
  return (std::filesystem::path(directory) / ("scores-" + name + ".h5")).string();
}

struct ScoresWriter::State {
  std::string path;
  std::span<const StoredResponse> responses;
  h5::File file;
  h5::Dataset logprob, sampling_logprob;
  std::optional<TopColumns> top;
  std::optional<RoutingColumns> routing;
};

ScoresWriter::ScoresWriter(const std::string& path, const StoredRun& run,
                           const RunManifest& manifest)
    : state_(std::make_unique<State>()) {
  const auto lock = h5::lock_hdf5();
  state_->path = path;
  state_->responses = run.finished;
  h5::File& file = state_->file;
  try {
    file = h5::File::create(path, h5::File::Kind::final);
    write_manifest_attributes(file, manifest);
    const h5::Handle group = file.group("scores");
    std::vector<std::int64_t> offsets{0};
    std::vector<std::uint64_t> checksums;
    for (const StoredResponse& entry : run.finished) {
      offsets.push_back(offsets.back() + entry.length);
      checksums.push_back(entry.checksum);
    }
    h5::write_all(file, "scores/offsets", offsets);
    h5::write_all(file, "scores/checksum", checksums);
    const h5::Shape shape{static_cast<std::uint64_t>(offsets.back())};
    state_->logprob = h5::Dataset::create<float>(file, "scores/logprob", shape);
    state_->sampling_logprob = h5::Dataset::create<float>(file, "scores/sampling_logprob", shape);
    if (manifest.sampling.logprobs > 0)
      state_->top.emplace(file, "scores", shape.size, manifest.sampling.logprobs);
    if (manifest.routing.width() == 0) return;
    const h5::Handle prompts = file.group("prompts");
    state_->routing.emplace(file, "scores", manifest.routing, run.prompts, shape.size);
    // Prompts without a response of any token are never computed.
    std::vector<bool> answered(run.prompts.size());
    for (const StoredResponse& entry : state_->responses) {
      if (entry.length > 0) answered[entry.prompt] = true;
    }
    for (std::uint32_t prompt = 0; prompt < answered.size(); ++prompt) {
      if (!answered[prompt]) state_->routing->write_unknown(prompt);
    }
  } catch (...) {
    discard();
    throw;
  }
}

ScoresWriter::~ScoresWriter() {
  const auto lock = h5::lock_hdf5();
  if (state_) discard();
}

void ScoresWriter::discard() {
  state_->file.abandon();
  discard_temporary(state_->path);
  state_.reset();
}

void ScoresWriter::write(std::size_t response, std::span<const float> logprob,
                         std::span<const float> sampling_logprob) {
  const StoredResponse& entry = state_->responses[response];
  if (logprob.size() != entry.length || sampling_logprob.size() != entry.length)
    throw std::logic_error("scores of another response");
  const auto lock = h5::lock_hdf5();
  state_->logprob.write(entry.offset, entry.length, logprob.data());
  state_->sampling_logprob.write(entry.offset, entry.length, sampling_logprob.data());
}

void ScoresWriter::write_top(std::size_t response, std::span<const TokenId> ids,
                             std::span<const float> logprob) {
  const auto lock = h5::lock_hdf5();
  state_->top->write(state_->responses[response].offset, ids, logprob);
}

void ScoresWriter::write_routing(std::size_t response, std::size_t first,
                                 std::span<const std::int16_t> experts) {
  const StoredResponse& entry = state_->responses[response];
  const auto lock = h5::lock_hdf5();
  state_->routing->write(entry.prompt, entry.offset, entry.length, first, experts);
}

void ScoresWriter::commit() {
  const auto lock = h5::lock_hdf5();
  if (state_->routing) {
    state_->routing->flush();
    state_->routing->close();
  }
  if (state_->top) {
    state_->top->flush();
    state_->top->close();
  }
  for (h5::Dataset* dataset : {&state_->logprob, &state_->sampling_logprob}) {
    dataset->flush();
    dataset->close();
  }
  state_->file.close();
  commit_temporary(state_->path);
  state_.reset();
}

}  // namespace paceline::io
