// The run's configuration: the YAML file's sections, one struct each. Names are a contract with
// users. Every key can be overridden by --set section.key=value, or section.group.key=value for a
// key in a group, as prompts.chat.date.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/text/prompt_settings.hpp"
#include "io/workers/worker_settings.hpp"
#include "runtime/core/attention_layout.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/speculation_mode.hpp"
#include "runtime/core/speculation_policy.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

struct ModelSection {
  std::string path;                  ///< Hugging Face directory
  Auto<std::string> tokenizer;       ///< directory of the tokenizer; auto: path
  Auto<DType> dtype;                 ///< compute dtype: bf16 | fp32 | auto (as stored)
  std::uint64_t weight_version = 0;  ///< recorded with every trajectory; part of the noise key
};
/// Condition for a prompt to count: none, or its responses' rewards are not all alike.
enum class PromptFilter : std::uint8_t { none, mixed_rewards };

/// Treatment of responses that a run leaves unfinished: drop them, or keep them in DIR/left.
enum class PartialResponses : std::uint8_t { drop, keep };

struct PromptsSection {
  std::string path;  ///< JSONL file
  PromptKeys keys;
  std::int32_t samples = 1;  ///< responses to each prompt (n)
  Overlong overlong = Overlong::error;
  /// Longest prompt, tokens; 0: as long as the context minus max_tokens.
  std::int32_t max_prompt_tokens = 0;
  bool shuffle = false;  ///< lease prompts in a seeded random order; results stay in file order
  /// Prompts that pass the filter, after which a run ends (dynamic sampling); nullopt: run all.
  std::optional<std::int32_t> enough;
  PromptFilter filter = PromptFilter::none;
  /// Treatment of responses that are unfinished once enough prompts pass.
  PartialResponses partial = PartialResponses::drop;
  std::optional<std::string> begun;  ///< directory of a run whose kept responses go on
  ChatSettings chat;
  /// Whether text gets the tokenizer's special tokens; auto: unless it begins with them.
  Auto<bool> add_special_tokens;
};
struct LayoutSection {
  /// Tensor-parallel degree of all verifier groups, or of each; auto: chosen by memory.
  Auto<std::vector<std::int32_t>> verifier_tp;
  /// Ranks that share a layer's experts; any number other than the group's is refused.
  Auto<std::int32_t> expert_parallel;
  Auto<AttentionLayout> attention;  ///< auto: tensor
  Auto<std::int32_t> verifier_groups;
  Auto<std::int32_t> drafters;  ///< drafter ranks
  /// Largest degree of the groups into which groups join for the last requests. Up to verifier_tp:
  /// no groups join.
  Auto<std::int32_t> tail_tp;
};
struct EngineSection {
  std::string backend = "auto";  ///< auto | cpu | cuda
  std::string isa = "auto";      ///< cpu: auto | amx_bf16 | avx512_bf16 | avx512 | avx2 | portable
  Auto<std::int32_t> threads;    ///< threads a rank
  std::int32_t max_batch = 64;   ///< requests in a step
  std::int32_t prefill_chunk = 256;  ///< prompt tokens in a step
  /// Positions in a KV block, a multiple of 16. Attention reads pieces of 32 up to 1.3 times as
  /// fast as pieces of 16 (tests/bench), and the tile unit multiplies 32 at a time. A request
  /// leaves half a block unused on average.
  std::int32_t kv_block = 32;
  /// Bytes on each rank, with KV of draft models; "2GiB", "512MiB" or a plain number.
  Auto<std::uint64_t> kv_memory;
  Auto<std::string> profile;       ///< cost table; auto: measure for a short time, if needed
  Auto<std::string> tail_profile;  ///< cost table of groups of twice the degree; auto: none
};
/// Sources of draft tokens: a DFlash or EAGLE-3 head on the target, the target's own next-token
/// layer, a smaller model, n-gram lookup in the request's own text, or suffix trees over the
/// responses to its prompt.
enum class DrafterMethod : std::uint8_t { dflash, eagle3, model, mtp, ngram, suffix };
[[nodiscard]] constexpr const char* name_of(DrafterMethod method) {
  return name_in(std::array{"dflash", "eagle3", "model", "mtp", "ngram", "suffix"}, method);
}

/// One entry of speculation.drafters. Keys that its method does not have keep their defaults.
struct DrafterSetting {
  DrafterMethod method = DrafterMethod::suffix;
  std::string path;  ///< dflash, eagle3, model: Hugging Face directory
  /// dflash, eagle3, model: name in costs and acceptance; nullopt: the path
  std::optional<std::string> name;
  // Heads; stop and record_stops of eagle3 and mtp alone:
  std::optional<std::string> stop;  ///< directory of a network that ends drafts
  bool noise = false;               ///< tokens are ranked under the target's noise
  Auto<std::int32_t> max_tokens;    ///< tokens of a tree; auto: max_length * paths
  std::int32_t record_stops = 0;    ///< tokens between two recorded drafts; 0: none recorded
  std::int32_t min_match = 1;       ///< ngram (2), suffix (1): shortest match, tokens
  std::int32_t max_match = 64;      ///< ngram (5), suffix (64): longest match tried, tokens
  double min_probability = 0.1;     ///< suffix: paths less probable are not drafted
  std::int32_t depth = 64;  ///< suffix: depth of the trees, tokens; >= min_match + max_length
  std::uint64_t max_memory = std::uint64_t{2} << 30;  ///< suffix: bytes of all trees on a rank
  Auto<std::int32_t> servers;  ///< suffix: number of draft servers; auto: one a node if they help

  /// Whether it is a head on the target, that is, reads the target's features.
  [[nodiscard]] bool is_head() const {
    return method == DrafterMethod::dflash || method == DrafterMethod::eagle3 ||
           method == DrafterMethod::mtp;
  }
  bool operator==(const DrafterSetting&) const = default;
};

/// Speculative decoding. It changes when tokens are generated, never which.
struct SpeculationSection {
  /// Empty: plain decoding, as with mode plain. Several may be of method model, at most one of each
  /// other method; at most one is a head.
  std::vector<DrafterSetting> drafters;
  SpeculationPolicy policy = SpeculationPolicy::goodput;
  Auto<SpeculationMode> mode;   ///< auto: the mode that is expected to be fastest
  std::int32_t max_length = 8;  ///< longest draft, tokens
  /// Branches of a draft tree; 1: chains; auto: up to kMostPaths for lookup methods, where it pays.
  Auto<std::int32_t> paths;
  static constexpr std::int32_t kMostPaths = 4;  ///< the most in Seer's table 2
  Auto<std::int32_t> window;    ///< tokens that drafter ranks send at a time; auto: as planned
  bool outcomes = true;         ///< eager drafter ranks draft second choices too
  bool best_of_n = false;       ///< groups without requests race or draft for others' requests
  bool elastic_memory = false;  ///< draft models lend their memory to KV while KV is short
  bool keep_history = true;     ///< how often drafts were accepted is kept next to engine.profile
  /// A run, or a folder of runs, with whose responses suffix trees begin; kBeside: the folder of
  /// output.directory.
  std::optional<std::string> history;
  static constexpr std::string_view kBeside = "auto";
  bool pregenerate = false;  ///< idle groups of a resident job begin the next step's responses

  /// The first drafter of a method; null: there is none.
  [[nodiscard]] const DrafterSetting* find(DrafterMethod method) const {
    const auto at = std::ranges::find(drafters, method, &DrafterSetting::method);
    return at == drafters.end() ? nullptr : &*at;
  }
  /// The head; null: there is none.
  [[nodiscard]] const DrafterSetting* head() const {
    const auto at =
        std::ranges::find_if(drafters, [](const DrafterSetting& d) { return d.is_head(); });
    return at == drafters.end() ? nullptr : &*at;
  }
  /// Most tokens of one request's draft; auto: max_length * paths.
  [[nodiscard]] Auto<std::int32_t> max_tokens() const {
    const DrafterSetting* head = this->head();
    return head == nullptr ? std::nullopt : head->max_tokens;
  }
  [[nodiscard]] std::int32_t record_stops() const {
    const DrafterSetting* head = this->head();
    return head == nullptr ? 0 : head->record_stops;
  }
};
/// Ways for the KV of a request that moves between groups: send it, compute it again, both at once,
/// or the cheapest way.
enum class MoveKvBy : std::uint8_t { cost, transfer, recompute, both };

/// Order in which requests get room (runtime/policy/schedule/request_order.hpp).
enum class SchedulePolicy : std::uint8_t { context, no_context, oracle, group, fcfs };

/// Placement of requests over groups and time. It changes when tokens are generated, never which.
struct ScheduleSection {
  SchedulePolicy policy = SchedulePolicy::context;
  /// Response tokens of a lease; 0: all; kGrow: all, with KV block by block; auto: by KV memory.
  Auto<std::int32_t> chunk;
  static constexpr std::int32_t kGrow = -1;
  std::optional<std::string> lengths;  ///< oracle: directory of the run with the lengths
  bool rebalance = true;               ///< groups that run dry or are ahead get requests
  MoveKvBy move_kv = MoveKvBy::cost;
};
/// Stores for the KV of requests that wait for their next chunk.
struct KvPoolSection {
  Auto<std::uint64_t> memory;       ///< bytes of host memory a rank; 0: no pool
  std::optional<std::string> disk;  ///< directory on each node's own disk
  Auto<std::uint64_t> disk_size;    ///< bytes of it on each node
};
struct OutputSection {
  std::string directory;       ///< empty: a simulation that writes nothing
  double flush_seconds = 1.0;  ///< finished responses are flushed at least this often
};
struct LimitsSection {
  Auto<double> wall_clock;  ///< seconds ("90", "30m", "2h", "HH:MM:SS"); auto: Slurm's own
  double margin = 30.0;     ///< seconds before the limit at which the run is stopped
  /// Seconds without any step, response or move after which the run is ended; nullopt: never. File
  /// systems come back after minutes, and no step takes this long; a night of idle nodes costs
  /// more.
  std::optional<double> stall = 600.0;
};

/// Links between ranks, for each GPU and each direction: seconds, and bytes a second.
struct SimulatedLinks {
  static constexpr double kNodeLatency = 3e-6;     ///< UCX over shared memory
  static constexpr double kNetworkLatency = 5e-6;  ///< UCX over InfiniBand
  double node_bandwidth = 200e9;    ///< NVLink in SpecActor's and Seer's nodes: 400 GB/s both ways
  double network_bandwidth = 50e9;  ///< 400 Gb/s for each GPU in these nodes
};
/// Lengths of responses: those of a finished run, with its acceptance; counted; or lognormal.
struct SimulatedLengths {
  std::string path;          ///< a run's directory, or a CSV file; empty: lognormal
  Auto<double> median;       ///< tokens
  Auto<double> p99;          ///< tokens; one in a hundred is longer
  double correlation = 0.7;  ///< rank correlation of two responses to a prompt
};
/// Turns of conversations, and the tokens and seconds of answers: lognormal.
struct SimulatedTurns {
  Auto<double> median;       ///< turns
  Auto<double> p99;          ///< one response in a hundred has more
  Auto<double> seconds;      ///< seconds of an answer: median
  Auto<double> seconds_p99;  ///< one in a hundred takes longer
  Auto<double> tokens;       ///< tokens of an answer: median
  Auto<double> tokens_p99;   ///< one in a hundred has more
};
/// Properties of requests. Those that are auto or not set are as in runtime/sim/workload.hpp and
/// acceptance.hpp, with sources.
struct SimulatedWorkload {
  Auto<std::int32_t> prompts;  ///< auto: as many as prompts.path has, or 512
  SimulatedLengths lengths;
  Auto<std::int32_t> prompt_tokens;      ///< of each; auto: by `lengths`, prompts.path, or 512
  SimulatedTurns turns;                  ///< used if environment.method answers turns
  Auto<std::vector<double>> acceptance;  ///< [speculation.drafters] mean rates
  /// Of the tokens that suffix trees miss by this step's texts, the share that they have right by
  /// those of earlier steps.
  double history = 0;
  std::optional<std::string> stop_points;  ///< directory of a run that recorded a head's trees
};
/// Settings of `paceline simulate`: the modelled machine and its work.
struct SimulationSection {
  std::int32_t nodes = 1;
  std::int32_t ranks_per_node = 8;
  std::int32_t gpus_per_rank = 1;
  std::int32_t instance = 1;       ///< ranks that share a mixture by its experts; 1: none do
  Auto<std::uint64_t> gpu_memory;  ///< bytes of each GPU; auto: kGpuMemory
  static constexpr std::uint64_t kGpuMemory = std::uint64_t{80} << 30;  ///< an H100 has this
  Auto<std::int32_t> context;             ///< most positions of a sequence; auto: config.json's
  Auto<std::int32_t> cores;               ///< cores of a node, shared by its ranks; auto: one each
  std::optional<std::string> gpu_tables;  ///< directory of measured times; nullopt: engine.profile
  double step_overhead = 0;               ///< seconds of each step in addition to its costs
  SimulatedLinks link;
  SimulatedWorkload workload;
};

/// Decisions that tests make at random: requests move between groups, ranks change roles, groups
/// race, draft models lend memory to KV, drafter ranks draft for outcomes.
enum class Shuffle : std::uint8_t { moves, roles, races, memory, outcomes };

/// Faults that tests cause. A simulation knows all of them. A real run knows delayed messages, and
/// drafter ranks and draft servers that misbehave.
struct TestFaults {
  double delayed = 0;             ///< share of messages that are delayed
  double delay = 0.01;            ///< seconds of a delay at most
  double duplicated = 0;          ///< share of messages that arrive twice
  double lost_blocks = 0;         ///< share of block transfers that fail
  double damaged_blocks = 0;      ///< share of stored blocks that are damaged when they are taken
  double slow_ranks = 0;          ///< share of ranks that are slow
  double slow_factor = 2;         ///< factor by which their work takes longer
  double stalled_drafters = 0;    ///< share of drafter ranks that stall once
  double stall = 3;               ///< seconds of a stall
  std::optional<double> kill;     ///< second at which a rank and its job die; then it is resumed
  std::string drafters = "none";  ///< misbehaviour: none | stall | flood | garbage
  std::string draft_servers = "none";  ///< misbehaviour: none | stall
};

/// Settings for tests of the program itself. No token depends on them.
struct TestSection {
  std::vector<Shuffle> shuffle;
  std::uint64_t seed = 1;  ///< seed of random decisions, and of faults in a real run
  TestFaults faults;
  bool check_kv = false;  ///< every simulated step checks all KV that it attends to

  [[nodiscard]] bool shuffles(Shuffle what) const {
    return std::ranges::find(shuffle, what) != shuffle.end();
  }
};

struct RunConfig {
  ModelSection model;
  PromptsSection prompts;
  SamplingParams sampling;
  LayoutSection layout;
  EngineSection engine;
  SpeculationSection speculation;
  ScheduleSection schedule;
  KvPoolSection kv_pool;
  RewardSection reward;
  EnvironmentSection environment;
  OutputSection output;
  LimitsSection limits;
  SimulationSection simulation;
  TestSection test;

  /// Whether responses are conversations with an environment.
  [[nodiscard]] bool converses() const { return environment.method != EnvironmentMethod::none; }
  /// Whether draft models may lend their memory to KV.
  [[nodiscard]] bool elastic() const {
    return speculation.elastic_memory || test.shuffles(Shuffle::memory);
  }

  std::string text;  ///< the effective configuration as YAML with every key, for records
};

/// The purpose for which a configuration is read. A simulation needs no prompts. For given
/// responses, prompts and output directory are known.
enum class Purpose : std::uint8_t { run, simulation, given };

/// Reads the file, applies the overrides, checks every key, type and range. An override is
/// "section.key=value", whose value is parsed as YAML, or "@file", a file like the first. If two
/// set one key, the later one wins. Relative paths in a file are relative to it; in an override, to
/// the working directory. All paths of the result are absolute, so that `text` reads back to the
/// same configuration from anywhere. Throws UsageError with one line for each problem, at most 20:
/// file:line:column (or the override), the key, what was expected, what was found and the nearest
/// valid key; also if there is no such file. Throws IoError if the file is unreadable. Thread-safe.
[[nodiscard]] RunConfig read_run_config(const std::string& path,
                                        std::span<const std::string> overrides,
                                        Purpose purpose = Purpose::run);

/// The keys that a configuration file sets, as "section.key". The file is one that
/// read_run_config() takes as "@file"; throws as that does.
[[nodiscard]] std::vector<std::string> keys_in_file(const std::string& path);

/// Does what read_run_config() does, for a text; `name` is the file's in messages, `directory` is
/// what relative paths are relative to.
[[nodiscard]] RunConfig parse_run_config(const std::string& text, const std::string& name,
                                         const std::string& directory,
                                         std::span<const std::string> overrides,
                                         Purpose purpose = Purpose::run);

/// Every section and key with its type, default and one line of help, for `--help-config`.
[[nodiscard]] std::string config_reference();

}  // namespace paceline::io
