// Writes runs made by formula (sample.hpp) for the tests of the Python reader.
//   hdf5_sample_run complete DIR PROMPTS SAMPLES     a complete run
//   hdf5_sample_run live DIR PROMPTS SAMPLES         appends for ever, a line "flushed N" each time
//   hdf5_sample_run stopped DIR 1 2                  one finished, of the other two pieces
//   hdf5_sample_run scores DIR NAME                  scores of a complete run
//   hdf5_sample_run pictured DIR FILE SAMPLES        of two prompts, the second with two pictures
//   hdf5_sample_run digest PATH
#include <unistd.h>
#include <xxhash.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "io/run/digest.hpp"
#include "io/run/final_file.hpp"
#include "io/run/run_directory.hpp"
#include "io/run/scores_file.hpp"
#include "io/run/shard_writer.hpp"
#include "io/run/stored_run.hpp"
#include "io/telemetry/telemetry.hpp"
#include "tests/io/run/sample.hpp"

namespace {

using namespace paceline;
using namespace paceline::io;

std::vector<RequestId> all_ids(std::uint32_t prompts, std::uint32_t samples) {
  std::vector<RequestId> ids;
  for (std::uint32_t p = 0; p < prompts; ++p) {
    for (std::uint32_t s = 0; s < samples; ++s) ids.push_back({p, s});
  }
  return ids;
}

/// Of sample 1 the reward comes by itself, with what else was said.
void append(ShardWriter& writer, Trajectory response) {
  const Reward reward{response.id, response.reward};
  const bool apart = response.id.sample == 1 && !std::isnan(reward.value);
  if (apart) response.reward = NAN;
  writer.append(response);
  if (apart)
    writer.reward(reward,
                  R"({"acc": )" + std::to_string(reward.id.prompt) + R"(, "why": "\u00e9"})");
}

void complete(const RunDirectory& run, const RunManifest& manifest,
              const std::vector<Prompt>& prompts) {
  ShardWriter first(run.path(), run.attempt(), 0);
  ShardWriter second(run.path(), run.attempt(), 1);
  const std::vector<std::string> drafters = {"ngram", "suffix"};
  TelemetryWriter telemetry(
      run.path(), run.attempt(), 1,
      {.plan = "one group", .drafter_names = drafters, .host = "node-a", .started = 1000.0});
  double time = 0;
  const auto ids = all_ids(static_cast<std::uint32_t>(manifest.prompts), manifest.samples);
  for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
    append((id->prompt + id->sample) % 2 == 0 ? first : second, sample::finished(*id));
    telemetry.step({.start = time, .duration = 0.25, .requests = 1, .decode_tokens = 2});
    time += 0.25;
    telemetry.event({time, *id, RequestEventKind::finished, sample::length_of(*id)});
  }
  for (const auto& [after, kind, method] : {std::tuple(2.0, RequestEventKind::race_begun, 1),
                                            {3.0, RequestEventKind::race_won, -1},
                                            {4.0, RequestEventKind::race_begun, 0},
                                            {6.5, RequestEventKind::race_left, -1},
                                            {7.0, RequestEventKind::race_begun, -1}})
    telemetry.event({.time = time + after,
                     .id = ids[1],
                     .kind = kind,
                     .tokens = static_cast<std::uint32_t>(after),
                     .method = method});
  telemetry.score({.start = 9, .duration = 2, .id = ids[2], .reward = NAN, .outcome = 1});
  telemetry.score({.start = 8, .duration = 0.5, .id = ids[1], .reward = 0.75F, .outcome = 0});
  first.close();
  second.close();
  RankSummary summary;
  summary.rank = 1;
  summary.role = 1;
  summary.busy_seconds = time;
  summary.idle_seconds = 1;
  summary.communication_seconds = 0.5;
  summary.loading_seconds = 0.25;
  summary.flush_seconds = 0.125;
  summary.group_bytes = 4096;
  summary.draft_update_bytes = 300;
  summary.draft_fetch_bytes = 200;
  summary.draft_fetches = 4;
  summary.draft_heard = 42;
  summary.draft_most_behind = 20;
  summary.draft_fetch_seconds = 2;
  StepRecord drafting;
  drafting.start = 100;
  drafting.duration = drafting.draft_duration = 2;
  drafting.waited = 1.5;
  drafting.role = 2;
  telemetry.step(drafting);
  StepRecord verifying;
  verifying.start = 110;
  verifying.duration = 3;
  verifying.draft_duration = 1;
  telemetry.step(verifying);
  StepRecord later;
  later.start = 125;
  later.duration = 2;
  telemetry.step(later);
  telemetry.transfer({.start = 101,
                      .duration = 0.5,
                      .key = 7,
                      .bytes = 4096,
                      .peer = 3,
                      .sends = 1,
                      .complete = 1});
  telemetry.transfer(
      {.start = 100.5, .duration = 4, .key = 8, .bytes = 64, .peer = 2, .sends = 0, .complete = 0});
  telemetry.transfer({.start = 124,
                      .duration = 0.25,
                      .key = 9,
                      .bytes = 128,
                      .peer = 2,
                      .sends = 0,
                      .complete = 1});
  telemetry.draft_memory({.start = 127,
                          .duration = 2,
                          .longest_pause = 0.25,
                          .blocks = 40,
                          .moved = 6,
                          .kind = DraftMemoryRecord::Kind::contracted});
  StopPoint point;
  point.id = {3, 1};
  point.first = 20;
  for (int c = 0; c < StopPoint::kCalls; ++c) {
    point.accepted[c] = static_cast<std::uint8_t>(c / 2);
    point.lengths[c][c / 2] = 1;
    if (c + 1 < StopPoint::kCalls) point.states[c][0] = -0.25F * static_cast<float>(c);
  }
  telemetry.stop_point(point);
  telemetry.pool({.start = 126,
                  .duration = 0.5,
                  .key = 10,
                  .bytes = 32,
                  .memory_bytes = 64,
                  .disk_bytes = 96,
                  .use = KvPoolUse::restored,
                  .complete = 1});
  telemetry.write({130, 0.5, WriteRecord::Kind::telemetry});
  telemetry.role({.start = 0, .preparing = 0, .role = 1, .epoch = 0, .leader = 1, .tp = 1});
  telemetry.role(
      {.start = 120, .preparing = 2, .loading = 0.5, .role = 1, .epoch = 4, .leader = 0, .tp = 2});
  const AcceptanceCell cells[] = {
      {1, 2, 4, 16, 50, 20}, {0, 1, 4, 16, 10, 6}, {1, 1, 4, 16, 100, 80}, {1, 1, 1, 0, 20, 10}};
  telemetry.acceptance(cells);
  telemetry.summary(summary);
  telemetry.close();
  write_final_file(run.path(), manifest, prompts);
  const std::string roles[] = {"coordinator", "verifier"};
  const std::string outcomes[] = {"scored", "refused"};
  write_telemetry(run.path(), roles, outcomes);
  run.tidy();
}

void live(const RunDirectory& run, const RunManifest& manifest) {
  ShardWriter writer(run.path(), run.attempt(), 0);
  std::size_t flushed = 0;
  for (const RequestId id :
       all_ids(static_cast<std::uint32_t>(manifest.prompts), manifest.samples)) {
    if (flushed % 5 == 0) writer.append(sample::prefix(id, 2));
    append(writer, sample::finished(id));
    writer.flush();
    std::printf("flushed %zu\n", ++flushed);
    std::fflush(stdout);
    ::usleep(2000);
  }
  for (;;) ::pause();
}

void stopped(const RunDirectory& run) {
  ShardWriter first(run.path(), run.attempt(), 0);
  ShardWriter second(run.path(), run.attempt(), 1);
  first.append(sample::prefix({0, 1}, 3));
  second.append(sample::prefix({0, 1}, 2));
  second.append(sample::finished({0, 0}));
}

/// Complete, with its shards still there.
void masks(const RunDirectory& run, const RunManifest& manifest,
           const std::vector<Prompt>& prompts) {
  ShardWriter writer(run.path(), run.attempt(), 0, {}, {.masks = true});
  for (const RequestId id : all_ids(static_cast<std::uint32_t>(manifest.prompts), manifest.samples))
    append(writer, sample::masked(sample::finished(id)));
  writer.close();
  write_final_file(run.path(), manifest, prompts);
}

/// Likewise, with the most probable tokens.
void top(const RunDirectory& run, const RunManifest& manifest, const std::vector<Prompt>& prompts) {
  ShardWriter writer(run.path(), run.attempt(), 0, {}, {.logprobs = sample::kTop});
  for (const RequestId id : all_ids(static_cast<std::uint32_t>(manifest.prompts), manifest.samples))
    append(writer, sample::with_top(sample::finished(id)));
  writer.close();
  write_final_file(run.path(), manifest, prompts);
}

/// Likewise, of conversations.
void turns(const RunDirectory& run, const RunManifest& manifest,
           const std::vector<Prompt>& prompts) {
  ShardWriter writer(run.path(), run.attempt(), 0, {}, {.turns = true});
  for (const RequestId id : all_ids(static_cast<std::uint32_t>(manifest.prompts), manifest.samples))
    append(writer, sample::conversation(sample::finished(id)));
  writer.close();
  write_final_file(run.path(), manifest, prompts);
}

/// Prompts of which the second has two pictures, both of this file, of 2 x 3 and 2 x 2 rows.
std::vector<Prompt> with_pictures(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  std::vector<Prompt> prompts = sample::prompts(2);
  prompts[1].tokens = {5, 9, 9, 9, 9, 9, 9, 6, 7, 9, 9, 9, 9, 8};
  prompts[1].pictures = {{{hash.low64, hash.high64}, {4, 6}, 1},
                         {{hash.low64, hash.high64}, {4, 4}, 9}};
  prompts[1].extra_json = "{\"images\":[\"" + path + "\",\"" + path + "\"]}";
  return prompts;
}

void plain(const RunDirectory& run, const RunManifest& manifest,
           const std::vector<Prompt>& prompts) {
  ShardWriter writer(run.path(), run.attempt(), 0);
  for (const RequestId id : all_ids(static_cast<std::uint32_t>(manifest.prompts), manifest.samples))
    append(writer, sample::finished(id));
  writer.close();
  write_final_file(run.path(), manifest, prompts);
}

/// An eighth less than the run's own; every third token could not have been sampled.
void scores(const std::string& directory, const std::string& name) {
  const StoredRun run = open_finished_run(directory);
  RunManifest manifest = run.manifest;
  manifest.model_fingerprint = std::string(32, 'f');
  ScoresWriter writer(scores_path(directory, name), run, manifest);
  for (std::size_t r = 0; r < run.finished.size(); ++r) {
    Trajectory t = sample::finished(run.finished[r].id());
    for (float& x : t.logprob) x -= 0.125F;
    for (std::size_t i = 0; i < t.tokens.size(); i += 3) t.sampling_logprob[i] = -INFINITY;
    writer.write(r, t.logprob, t.sampling_logprob);
    if (manifest.sampling.logprobs == 0) continue;
    const Trajectory top = sample::with_top(t);
    writer.write_top(r, top.top_ids, top.top_logprob);
  }
  writer.commit();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (mode == "digest" && count == 3) {
    std::printf("%s\n", digest_report(arguments[2]).hex.c_str());
    return 0;
  }
  if (mode == "scores" && count == 4) {
    scores(arguments[2], arguments[3]);
    return 0;
  }
  if (count != 5) return 64;
  const auto prompts = mode == "pictured"
                           ? with_pictures(arguments[3])
                           : sample::prompts(static_cast<std::uint32_t>(std::atoi(arguments[3])));
  auto manifest = sample::manifest(prompts, static_cast<std::uint32_t>(std::atoi(arguments[4])));
  manifest.sampling.keep_masks = mode == "masks";
  if (mode == "top") manifest.sampling.logprobs = sample::kTop;
  if (mode == "turns") manifest.environment = {{"./talk"}, 4, 0};
  const RunDirectory run(arguments[2], manifest, prompts, false);
  if (mode == "complete") complete(run, manifest, prompts);
  if (mode == "pictured") plain(run, manifest, prompts);
  if (mode == "live") live(run, manifest);
  if (mode == "stopped") stopped(run);
  if (mode == "masks") masks(run, manifest, prompts);
  if (mode == "top") top(run, manifest, prompts);
  if (mode == "turns") turns(run, manifest, prompts);
  return 0;
}
