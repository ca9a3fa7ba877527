#include "io/run/final_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "io/hdf5/atomic_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/shards.hpp"
#include "io/run/final_entries.hpp"
#include "io/run/manifest_json.hpp"
#include "io/run/prompt_table.hpp"
#include "io/run/routing.hpp"
#include "io/run/shard_format.hpp"
#include "io/run/shard_index.hpp"
#include "io/run/top_columns.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace fs = std::filesystem;
namespace {

/// Throws unless `index` holds every response of the run.
void check_complete(const ShardIndex& index, const RunManifest& manifest) {
  const ResponseOrder order(manifest);
  if (index.finished.size() == order.size()) return;
  // Finds the first missing one: index entries are responses of the run, each once, in its order.
  std::uint64_t next = 0;
  for (const StoredResponse& entry : index.finished) {
    if (entry.id() != order.at(next)) break;
    ++next;
  }
  const RequestId missing = order.at(next);
  const std::string what = "cannot write the final file: the response to prompt " +
                           std::to_string(missing.prompt) + ", sample " +
                           std::to_string(missing.sample);
  if (index.warnings.empty()) throw Error(ExitCode::internal, what + " is in no shard");
  throw IoError(what + " cannot be read: --resume generates it again (" + index.warnings.front() +
                ")");
}

/// Sources of a final file's responses, in its order.
struct Responses {
  std::span<const std::string> paths;
  std::string prefix;  ///< as TokenColumns takes it
  const std::vector<StoredResponse>& entries;
  const RewardExtras& extras;
  std::span<const RoutingPlace> routing;  ///< [entries] in shards that keep experts; else empty
  const EarlierSpans* earlier = nullptr;  ///< null: the run goes on with no earlier responses
};

/// Creates a contiguous, unfiltered column. Deflate would save a fifth of the file: token ids
/// halve, float32 log-probabilities hardly shrink. But one core would write it at 50 MB/s while the
/// job waits, and reading would be ten times slower. Contiguous rows are read without touching
/// their neighbours.
template <typename T>
h5::Dataset column(const h5::File& file, const std::string& name, std::uint64_t size) {
  return h5::Dataset::create<T>(file, "trajectories/" + name, {size});
}

/// Writes a column with one value a response.
template <typename T, typename Value>
void write_column(const h5::File& file, const std::string& name,
                  const std::vector<StoredResponse>& entries, const Value& value) {
  std::vector<T> values;
  values.reserve(entries.size());
  for (const StoredResponse& entry : entries) values.push_back(static_cast<T>(value(entry)));
  h5::write_all(file, "trajectories/" + name, values);
}

/// Writes the checksum of rewards, which the responses' own checksums do not cover.
void write_reward_checksum(const h5::File& file, const std::vector<StoredResponse>& entries) {
  h5::write_attribute_of(file, "trajectories/reward", "checksum", checksum_of_rewards(entries));
}

void write_extras(const h5::File& file, const std::vector<StoredResponse>& entries,
                  const RewardExtras& extras) {
  if (extras.empty()) return;
  std::vector<std::string> texts;
  texts.reserve(entries.size());
  for (const StoredResponse& entry : entries) {
    const auto extra = extras.find(entry.id());
    texts.push_back(extra == extras.end() ? "" : extra->second);
  }
  h5::write_strings(file, "trajectories/reward_extra", texts);
  h5::write_attribute_of(file, "trajectories/reward_extra", "checksum", checksum_of_extras(texts));
}

/// Names the values of a column of reasons. `conversations`: include reasons that only
/// conversations have.
void name_reasons(const h5::File& file, const std::string& column, bool conversations) {
  for (const FinishReason reason : kFinishReasons) {
    const bool of_conversations = reason == FinishReason::turns || reason == FinishReason::failed;
    if (of_conversations && !conversations) continue;
    h5::write_attribute_of(file, "trajectories/" + column, name_of(reason),
                           static_cast<std::uint8_t>(reason));
  }
}

void write_rows(const h5::File& file, const std::vector<StoredResponse>& entries,
                bool conversations) {
  write_column<std::int32_t>(file, "prompt_index", entries, [](auto& e) { return e.prompt; });
  write_column<std::int32_t>(file, "sample_index", entries, [](auto& e) { return e.sample; });
  write_column<float>(file, "reward", entries, [](auto& e) { return e.reward; });
  write_reward_checksum(file, entries);
  write_column<std::uint64_t>(file, "weight_version", entries,
                              [](auto& e) { return e.weight_version; });
  write_column<std::uint64_t>(file, "checksum", entries, [](auto& e) { return e.checksum; });
  write_column<std::uint8_t>(file, "finish_reason", entries,
                             [](auto& e) { return e.finish_reason; });
  name_reasons(file, "finish_reason", conversations);
  std::vector<std::int64_t> offsets{0};
  offsets.reserve(entries.size() + 1);
  for (const StoredResponse& entry : entries) offsets.push_back(offsets.back() + entry.length);
  h5::write_all(file, "trajectories/offsets", offsets);
}

/// Columns of kept ids. The number of ids is known only at the end.
class KeptColumns {
 public:
  KeptColumns(const h5::File& file, std::uint64_t tokens)
      : ids_(h5::Dataset::create<TokenId>(file, "trajectories/kept_ids", {0, true, kChunk})),
        offsets_(column<std::int64_t>(file, "kept_offsets", tokens + 1)) {
    offsets_.append<std::int64_t>(std::vector<std::int64_t>{0});
  }
  void append(const Kept& kept) {
    std::vector<std::int64_t> ends;
    ends.reserve(kept.counts.size());
    for (const std::int32_t count : kept.counts) ends.push_back(end_ += count);
    ids_.append<TokenId>(kept.ids);
    offsets_.append<std::int64_t>(ends);
  }
  void flush() {
    ids_.flush();
    offsets_.flush();
  }

 private:
  static constexpr std::uint64_t kChunk = 262144;  // elements: 1 MiB
  h5::Dataset ids_, offsets_;
  std::int64_t end_ = 0;
};

/// Columns of conversations, written after the columns of tokens. The number of turns is known only
/// at the end.
class TurnColumns {
 public:
  TurnColumns(const h5::File& file, std::uint64_t tokens)
      : file_(file), mask_(column<std::uint8_t>(file, "loss_mask", tokens)) {}
  void append(const Window& window) {
    std::vector<std::uint8_t> mask(window.tokens.size(), 1);
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      const auto first = mask.begin() + static_cast<std::ptrdiff_t>(window.start[i]);
      for (const AnsweredTurn& turn : window.turns[i])
        std::fill(first + turn.given, first + turn.end, 0);
      turns_.insert(turns_.end(), window.turns[i].begin(), window.turns[i].end());
      offsets_.push_back(static_cast<std::int64_t>(turns_.size()));
    }
    mask_.append<std::uint8_t>(mask);
  }
  void flush() {
    mask_.flush();
    h5::write_all(file_, "trajectories/turn_offsets", offsets_);
    write<std::int32_t>("turn_given", [](const AnsweredTurn& t) { return t.given; });
    write<std::int32_t>("turn_end", [](const AnsweredTurn& t) { return t.end; });
    write<float>("turn_seconds", [](const AnsweredTurn& t) { return t.seconds; });
    write<float>("turn_reward", [](const AnsweredTurn& t) { return t.reward; });
    write<std::uint8_t>("turn_by", [](const AnsweredTurn& t) { return t.by; });
    write<std::uint8_t>("turn_reason", [](const AnsweredTurn& t) { return t.reason; });
    name_reasons(file_, "turn_reason", true);

    for (const auto& [name, value] : {std::pair("nobody", GivenBy::nobody),
                                      {"tool", GivenBy::tool},
                                      {"user", GivenBy::user},
                                      {"tokens", GivenBy::tokens}})
      h5::write_attribute_of(file_, "trajectories/turn_by", name, static_cast<std::uint8_t>(value));
  }

 private:
  template <typename T, typename Value>
  void write(const std::string& name, const Value& value) {
    std::vector<T> values;
    values.reserve(turns_.size());
    for (const AnsweredTurn& turn : turns_) values.push_back(static_cast<T>(value(turn)));
    h5::write_all(file_, "trajectories/" + name, values);
  }
  const h5::File& file_;
  h5::Dataset mask_;
  std::vector<std::int64_t> offsets_{0};
  std::vector<AnsweredTurn> turns_;
};

/// Columns of tokens. Each takes its space in the file when its first value is written.
struct TokenDatasets {
  TokenDatasets(const h5::File& file, std::uint64_t tokens, const SamplingParams& sampled,
                bool conversations)
      : ids(column<TokenId>(file, "tokens", tokens)),
        logprob(column<float>(file, "logprob", tokens)),
        sampling(column<float>(file, "sampling_logprob", tokens)) {
    if (sampled.keep_masks) kept.emplace(file, tokens);
    if (sampled.logprobs > 0) top.emplace(file, "trajectories", tokens, sampled.logprobs);
    if (conversations) turns.emplace(file, tokens);
  }
  void flush() {
    for (h5::Dataset* dataset : {&ids, &logprob, &sampling}) dataset->flush();
    if (kept) kept->flush();
    if (top) top->flush();
    if (turns) turns->flush();
  }
  h5::Dataset ids, logprob, sampling;
  std::optional<KeptColumns> kept;
  std::optional<TopColumns> top;
  std::optional<TurnColumns> turns;
};

[[noreturn]] void refuse_damaged(const std::string& path, const StoredResponse& entry) {
  throw IoError("cannot read " + path + ": the response to prompt " + std::to_string(entry.prompt) +
                ", sample " + std::to_string(entry.sample) +
                " is damaged: --resume generates it again");
}

void write_tokens(const Responses& from, std::size_t window_bytes, TokenDatasets& to) {
  read_in_order(from.paths, from.prefix, from.entries, window_bytes, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      if (window.intact(i)) continue;
      refuse_damaged(from.paths[window.entries[i].source], window.entries[i]);
    }
    to.ids.append<TokenId>(window.tokens);
    to.logprob.append<float>(window.logprob);
    to.sampling.append<float>(window.sampling_logprob);
    if (to.kept) to.kept->append(window.kept);
    if (to.top) to.top->append(window.top_ids, window.top_logprob);
    if (to.turns) to.turns->append(window);
  });
}

/// Writes the experts of runs that keep them: from shards, or copied from an earlier final file.
void write_routing(const h5::File& file, const RunManifest& manifest,
                   std::span<const Prompt> prompts, const Responses& from, std::uint64_t tokens,
                   std::size_t window_bytes) {
  if (!manifest.sampling.keep_routing) return;
  if (!from.prefix.empty()) {
    const h5::File earlier = h5::File::open(from.paths.front());
    for (const char* name :
         {"prompts/routed_experts", "trajectories/routed_experts", "trajectories/routed_layers"}) {
      h5::must(H5Ocopy(earlier.id(), name, file.id(), name, H5P_DEFAULT, H5P_DEFAULT), "write",
               file.path());
    }
    return;
  }
  RoutingColumns columns(file, "trajectories", manifest.routing, prompts, tokens);
  std::uint64_t offset = 0;
  read_routing_in_order(from.paths, from.routing, window_bytes,
                        [&](std::size_t index, std::span<const std::int16_t> experts) {
                          const StoredResponse& entry = from.entries[index];
                          const std::size_t first =
                              first_routed(entry.id(), prompts[entry.prompt].tokens.size());
                          columns.write(entry.prompt, offset, entry.length, first, experts);
                          offset += entry.length;
                        });
  columns.flush();
}

/// Writes a temporary file; `fill` writes the values of tokens and everything per token. Removes
/// the file when it throws.
void write_temporary(const std::string& path, const RunManifest& manifest,
                     std::span<const Prompt> prompts, const std::vector<StoredResponse>& entries,
                     const RewardExtras& extras, std::uint64_t tokens,
                     const std::function<void(TokenDatasets&, const h5::File&)>& fill) {
  h5::File file = h5::File::create(path, h5::File::Kind::final);
  try {
    write_manifest_attributes(file, manifest);
    write_prompt_table(file, prompts);
    if (manifest.choice) write_prompt_index(file, manifest.choice->kept);
    {
      const h5::Handle group = file.group("trajectories");
      write_rows(file, entries, manifest.environment.has_value());
    }
    TokenDatasets datasets(file, tokens, manifest.sampling, manifest.environment.has_value());
    fill(datasets, file);
    write_extras(file, entries, extras);  // last, to leave all else in its usual place
    file.close();
  } catch (...) {
    file.abandon();
    discard_temporary(path);
    throw;
  }
}

/// Writes the spans of responses: which weights sampled which tokens.
void write_spans(const h5::File& file, const std::vector<StoredResponse>& entries,
                 const EarlierSpans& earlier) {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> ends;
  std::vector<std::uint64_t> versions;
  for (const StoredResponse& entry : entries) {
    for (const VersionSpan& span :
         spans_of(entry.id(), entry.length, earlier, entry.weight_version)) {
      ends.push_back(static_cast<std::int32_t>(span.end));
      versions.push_back(span.version);
    }
    offsets.push_back(static_cast<std::int64_t>(ends.size()));
  }
  h5::write_all(file, "trajectories/version_offsets", offsets);
  h5::write_all(file, "trajectories/span_end", ends);
  h5::write_all(file, "trajectories/span_version", versions);
}

/// Keeps only the responses to these prompts, ascending, under the prompts' numbers among the kept
/// ones. Checksums cover these numbers, so all responses are read to compute new ones.
void keep_prompts(ShardIndex& index, EarlierSpans& spans, std::span<const std::uint32_t> kept,
                  std::size_t window_bytes) {
  const auto number = [&](std::uint32_t prompt) -> std::optional<std::uint32_t> {
    const auto at = std::lower_bound(kept.begin(), kept.end(), prompt);
    if (at == kept.end() || *at != prompt) return std::nullopt;
    return static_cast<std::uint32_t>(at - kept.begin());
  };
  std::vector<StoredResponse> entries;
  std::vector<RoutingPlace> routing;
  RewardExtras extras;
  for (std::size_t i = 0; i < index.finished.size(); ++i) {
    const StoredResponse& entry = index.finished[i];
    const auto prompt = number(entry.prompt);
    if (!prompt) continue;
    if (!index.routing.empty()) routing.push_back(index.routing[i]);
    if (auto extra = index.extras.extract(entry.id())) {
      extra.key().prompt = *prompt;
      extras.insert(std::move(extra));
    }
    entries.push_back(entry);
  }
  std::vector<std::uint64_t> checksums;
  read_in_order(index.paths, "", entries, window_bytes, [&](const Window& window) {
    for (std::size_t i = 0; i < window.entries.size(); ++i) {
      const StoredResponse& entry = window.entries[i];
      if (!window.intact(i)) refuse_damaged(index.paths[entry.source], entry);
      IndexRow row = entry;
      row.prompt = *number(entry.prompt);
      checksums.push_back(window.checksum(i, row));
    }
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].prompt = *number(entries[i].prompt);
    entries[i].checksum = checksums[i];
  }
  EarlierSpans of_kept;
  for (auto& [id, of] : spans) {
    if (const auto prompt = number(id.prompt))
      of_kept[RequestId{*prompt, id.sample}] = std::move(of);
  }
  spans = std::move(of_kept);
  index.finished = std::move(entries);
  index.routing = std::move(routing);
  index.extras = std::move(extras);
}

/// The manifest of a run that has only the kept prompts.
RunManifest manifest_of_kept(RunManifest manifest, const KeptPrompts& choice,
                             std::span<const Prompt> prompts) {
  manifest.choice = choice;
  manifest.choice->fingerprint = manifest.prompts_fingerprint;
  manifest.prompts = choice.kept.size();
  manifest.prompts_fingerprint = prompts_fingerprint(prompts);
  if (manifest.own_samples.empty()) return manifest;
  std::vector<std::uint32_t> samples;
  for (const std::uint32_t prompt : choice.kept) samples.push_back(manifest.own_samples[prompt]);
  manifest.own_samples = std::move(samples);
  return manifest;
}

FinalFileReport write_file(const std::string& path, const RunManifest& manifest,
                           std::span<const Prompt> prompts, const Responses& from,
                           std::size_t window_bytes) {
  FinalFileReport report;
  report.path = path;
  for (const StoredResponse& entry : from.entries) {
    report.tokens += entry.length;
    report.rewards += std::isnan(entry.reward) ? 0 : 1;
  }
  report.trajectories = from.entries.size();
  write_temporary(path, manifest, prompts, from.entries, from.extras, report.tokens,
                  [&](TokenDatasets& to, const h5::File& file) {
                    write_tokens(from, window_bytes, to);
                    to.flush();
                    write_routing(file, manifest, prompts, from, report.tokens, window_bytes);
                    if (from.earlier != nullptr) write_spans(file, from.entries, *from.earlier);
                  });
  try {
    commit_temporary(path);
  } catch (...) {
    discard_temporary(path);
    throw;
  }
  std::error_code ignored;
  report.bytes = fs::file_size(path, ignored);
  return report;
}

}  // namespace

FinalFileReport write_final_file(const std::string& directory, const RunManifest& manifest,
                                 std::span<const Prompt> prompts, std::size_t window_bytes,
                                 const ChoosePrompts& choose, const EarlierSpans& earlier) {
  const auto lock = h5::lock_hdf5();
  if (!fs::is_directory(shard_folder(directory))) {
    throw IoError("cannot read " + shard_folder(directory) + ": it is gone");
  }
  ShardIndex index = read_shard_index(directory, manifest);
  EarlierSpans spans = earlier;
  std::optional<RunManifest> of_kept;
  std::vector<Prompt> kept;
  if (choose) {
    const KeptPrompts choice = choose(index.finished);
    for (const std::uint32_t prompt : choice.kept) kept.push_back(prompts[prompt]);
    of_kept = manifest_of_kept(manifest, choice, kept);
    prompts = kept;
    keep_prompts(index, spans, choice.kept, window_bytes);
  }
  const RunManifest& written = of_kept ? *of_kept : manifest;
  check_complete(index, written);
  FinalFileReport report = write_file((fs::path(directory) / kFinalName).string(), written, prompts,
                                      {index.paths, "", index.finished, index.extras, index.routing,
                                       manifest.begun.empty() ? nullptr : &spans},
                                      window_bytes);
  report.choice = written.choice;
  report.warnings = std::move(index.warnings);
  return report;
}

std::string write_hollow_file(const std::string& path, const RunManifest& manifest,
                              std::span<const Prompt> prompts, std::uint64_t tokens) {
  const auto lock = h5::lock_hdf5();
  write_temporary(path, manifest, prompts,
                  std::vector<StoredResponse>(ResponseOrder(manifest).size()), {}, tokens,
                  [tokens](TokenDatasets& to, const h5::File& /*file*/) {
                    if (tokens == 0) return to.flush();
                    const TokenId id = 0;
                    const float value = 0;
                    to.ids.write(tokens - 1, 1, &id);
                    to.logprob.write(tokens - 1, 1, &value);
                    to.sampling.write(tokens - 1, 1, &value);
                    to.flush();
                  });
  return temporary_name(path);
}

FinalFileReport add_rewards(const std::string& directory, std::span<const Reward> rewards,
                            const RewardExtras& extras, std::size_t window_bytes) {
  const auto lock = h5::lock_hdf5();
  const std::string path = (fs::path(directory) / kFinalName).string();
  RunManifest manifest = read_manifest(path);
  if (manifest.choice) manifest.choice->kept = read_prompt_index(path);
  const std::vector<Prompt> prompts = read_prompts(path);
  std::vector<StoredResponse> entries = final_entries(path, manifest);
  RewardExtras all = final_extras(path, entries);
  const ResponseOrder order(manifest);
  for (const Reward& reward : rewards) {
    entries.at(order.place(reward.id)).reward = reward.value;
    all.erase(reward.id);
  }
  all.insert(extras.begin(), extras.end());
  const std::vector<std::string> paths{path};
  return write_file(path, manifest, prompts, {paths, "trajectories/", entries, all, {}},
                    window_bytes);
}

}  // namespace paceline::io
