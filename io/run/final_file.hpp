// DIR/trajectories.h5: every trajectory of a complete run in (prompt, sample) order. Its bytes are
// a function of manifest, prompts and trajectories alone.
//
//   /prompts/tokens i32 [tokens]   /prompts/offsets i64 [P+1]
//   /prompts/index i32 [P], of runs with prompts.enough, which keep only some prompts: the number
//       of each prompt among all prompts of the run, from 0; elsewhere in this file, prompt numbers
//       count the kept prompts only
//   /prompts/{uid,ground_truth,extra} u8, UTF-8 bytes of P strings one after the other;
//       /prompts/{uid,ground_truth,extra}_offsets i64 [P+1]; extra is a JSON object
//   /trajectories/{prompt_index,sample_index} i32 [N]   /trajectories/offsets i64 [N+1]
//   /trajectories/tokens i32, {logprob,sampling_logprob} f32 [tokens]
//   /trajectories/kept_ids i32, kept_offsets i64 [tokens + 1], of runs with sampling.keep_masks:
//       token t could have been any of kept_ids [kept_offsets[t], kept_offsets[t + 1])
//   /trajectories/top_ids i32, top_logprob f32 [tokens * K], of runs with sampling.logprobs: the K
//       most probable tokens at each token's position, best first, and their log-probabilities at
//       temperature 1 over the full vocabulary; for given tokens -1 and 0. In compressed chunks;
//       top_ids has the attribute width: K
//   of runs with an environment, all of them or none:
//     /trajectories/loss_mask u8 [tokens]: 1 for a sampled token, 0 for a given one, whose
//         log-probabilities are 0
//     /trajectories/turn_offsets i64 [N+1]: the answered turns of each response
//     /trajectories/{turn_given,turn_end} i32 [turns]: given tokens of the response, from
//         turn_given to before turn_end; turn_seconds, turn_reward f32 (NaN: none), turn_by and
//         turn_reason u8 [turns]: the wait for the answer, its reward, who gave it, and why the
//         turn had ended
//   /trajectories/finish_reason u8 [N]; its attributes name the values
//   /trajectories/reward f32 [N] (NaN: none); its attribute checksum: checksum_of_rewards() in
//       shard_format.hpp
//   /trajectories/weight_version u64 [N]
//   /trajectories/reward_extra u8, reward_extra_offsets i64 [N+1]: strings stored as in /prompts,
//       for each response a JSON object with its reward's extras, or ""; absent: no response has
//       any. Its attribute checksum: checksum_of_extras()
//   of runs with sampling.keep_routing: /trajectories/routed_experts, /trajectories/routed_layers,
//       /prompts/routed_experts: see routing.hpp
//   /trajectories/checksum u64 [N]: checksum_of() in shard_format.hpp
//   of runs that went on with responses of earlier runs (left_over.hpp): /trajectories/
//       version_offsets i64 [N+1]: the spans of each response; span_end i32, span_version u64
//       [spans]: the version of the weights that sampled the tokens up to span_end
//   attributes of /: the manifest
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/run/left_over.hpp"
#include "io/run/manifest.hpp"
#include "io/run/stored_response.hpp"
#include "runtime/core/request.hpp"

namespace paceline::io {

struct FinalFileReport {
  std::string path;
  std::uint64_t trajectories = 0;
  std::uint64_t tokens = 0;           ///< tokens of all responses
  std::uint64_t rewards = 0;          ///< responses with a reward
  std::uint64_t bytes = 0;            ///< size of the file
  std::optional<KeptPrompts> choice;  ///< nullopt: all prompts count
  std::vector<std::string> warnings;
};

/// Chooses the prompts of a run that count (KeptPrompts::kept, ascending), and counts those that
/// were decided and dropped. Called with every finished response, ascending.
using ChoosePrompts = std::function<KeptPrompts(std::span<const StoredResponse>)>;

/// Merges the shards of `directory` into trajectories.h5: writes a temporary file, calls fsync and
/// renames it. Every ShardWriter of this process must be closed; those of other ranks must at least
/// be flushed. Memory: 48 bytes a trajectory, `window_bytes` of responses and the prompts. Called
/// by one rank, on any one thread. If it throws, no final file appears: IoError if reading or
/// writing fails or a trajectory is damaged in all shards; Error(internal) if one is missing,
/// naming the first. `earlier`: spans of responses that earlier runs began. `choose`: null if all
/// prompts count; otherwise the file has only the chosen ones, as if the run had no others, and its
/// manifest says so.
FinalFileReport write_final_file(const std::string& directory, const RunManifest& manifest,
                                 std::span<const Prompt> prompts,
                                 std::size_t window_bytes = std::size_t{32} << 20,
                                 const ChoosePrompts& choose = nullptr,
                                 const EarlierSpans& earlier = {});

/// Writes the final file of a complete run again with these rewards and extras added. Its bytes are
/// as if they had been there from the start. Otherwise like write_final_file().
FinalFileReport add_rewards(const std::string& directory, std::span<const Reward> rewards,
                            const RewardExtras& extras = {},
                            std::size_t window_bytes = std::size_t{32} << 20);

/// Writes a file with the layout of the run's final file for `tokens` response tokens, but without
/// their values, which take no space if the file system has holes. Returns its temporary name; the
/// caller removes the file. Throws IoError.
[[nodiscard]] std::string write_hollow_file(const std::string& path, const RunManifest& manifest,
                                            std::span<const Prompt> prompts, std::uint64_t tokens);

/// Reads the prompts of a final file, or of a run in progress.
[[nodiscard]] std::vector<Prompt> read_prompts(const std::string& path);
/// Reads only the prompts' tokens.
[[nodiscard]] std::vector<std::vector<TokenId>> read_prompt_tokens(const std::string& path);

}  // namespace paceline::io
