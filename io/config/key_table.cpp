#include "io/config/key_table.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <utility>

#include "io/config/codecs.hpp"
#include "io/config/drafter_list.hpp"
#include "io/config/map_of.hpp"
#include "io/config/sampling_ranges.hpp"

namespace paceline::io {
namespace {

constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
constexpr std::uint64_t unsigned_max = std::numeric_limits<std::uint64_t>::max();

// Arguments of key() for a field with the key's name: section, name, and access to the field.
#define PACELINE_FIELD(section, name) \
#section, #name, [](auto& config) -> auto& { return config.section.name; }

// Wraps a value's codec into a key.
template <typename Field, typename Codec>
Key key(std::string_view section, std::string_view name, Field field, Codec codec,
        std::string_view help, std::vector<std::string> details = {}, bool required = false) {
  Key row;
  row.section = section;
  row.name = name;
  row.type = codec.type();
  row.required = required;
  row.set = [field, codec](RunConfig& config, const YamlNode& node, const std::string& directory) {
    field(config) = codec.read(node, directory);
  };
  row.get = [field, codec](const RunConfig& config) { return codec.write(field(config)); };
  row.help = help;
  row.details = std::move(details);
  return row;
}

/// A count for which other programs write -1 if there is no limit.
struct CountOrOff : Count {
  [[nodiscard]] std::int32_t read(const YamlNode& node, const std::string& directory) const {
    if (is_plain(node) && node.scalar == "-1") throw BadValue(node, type(), "0 is off here");
    return Count::read(node, directory);
  }
};

/// A chunk in tokens, or "grow", for KV that grows.
struct CountOrGrow {
  Count count;
  [[nodiscard]] std::string type() const { return "grow, or " + count.type(); }
  [[nodiscard]] std::int32_t read(const YamlNode& node, const std::string& directory) const {
    return is_word(node, "grow") ? ScheduleSection::kGrow : count.read(node, directory);
  }
  [[nodiscard]] static std::string write(std::int32_t value) {
    return value == ScheduleSection::kGrow ? "grow" : Count::write(value);
  }
};

/// The source of lengths: a path, or parameters of a lognormal distribution.
struct Lengths {
  MapOf<SimulatedLengths> lognormal;
  Path path;
  [[nodiscard]] std::string type() const { return path.type() + ", or " + lognormal.type(); }
  [[nodiscard]] SimulatedLengths read(const YamlNode& node, const std::string& directory) const {
    if (!is_scalar(node)) return lognormal.read(node, directory);
    SimulatedLengths lengths;
    lengths.path = path.read(node, directory);
    return lengths;
  }
  [[nodiscard]] std::string write(const SimulatedLengths& lengths) const {
    return lengths.path.empty() ? lognormal.write(lengths) : Path::write(lengths.path);
  }
};

/// Keys of the section about the programs that answer turns of responses.
std::vector<Key> environment_keys() {
  return {
      key(PACELINE_FIELD(environment, method), in_order<EnvironmentMethod>("none", "command"),
          "Whether responses are conversations, whose turns programs of yours answer."),
      key(PACELINE_FIELD(environment, command), Command{},
          "A program that reads turns and writes answers, a JSON line each.",
          {"[python3, -m, tool_worker, ./my_tools.py] calls the functions in that file by name. "
           "Words",
           "are as in reward.command. python/README.md beside configs/ has the lines of others."}),
      key(PACELINE_FIELD(environment, workers), Count{1, 1024},
          "How many of the program every rank that verifies runs: turns answered at once."),
      key(PACELINE_FIELD(environment, timeout), Duration{0.01, 86400},
          "How long an answer may take; then the worker is replaced."),
      key(PACELINE_FIELD(environment, attempts), Count{1, 100},
          "How often a turn is told of which workers fail; then its conversation fails."),
      key(PACELINE_FIELD(environment, max_turns), Count{1, 1 << 20},
          "Turns that a response may have, without those of the environment."),
      key(PACELINE_FIELD(environment, max_tokens_turn), OrNone{Count{1, int_max}},
          "Tokens after which a turn ends; none is what sampling.max_tokens leaves.",
          {"sampling.max_tokens is of the whole response, with what it is given."})};
}

/// Keys of the section about the simulated machine and work.
std::vector<Key> simulation_keys() {
  const Real<double> share{"a number from 0 to 1", [](double v) { return v >= 0 && v <= 1; }};
  const Real<double> seconds{"seconds, at least 0", [](double v) { return v >= 0 && v <= 1e6; }};
  const Real<double> bandwidth{"bytes a second, above 0", [](double v) { return v > 0; }};
  const Real<double> tokens{"tokens, at least 1", [](double v) { return v >= 1 && v <= 1e9; }};
  const Path directory{"the path of a directory"};
  using L = SimulatedLengths;
  const MapOf<L> lognormal{
      {member("median", &L::median, OrAuto{tokens},
              "Of responses, before max_tokens cuts them; auto is 595."),
       member("p99", &L::p99, OrAuto{tokens}, "One in a hundred is longer; auto is 16,483."),
       member("correlation", &L::correlation, share,
              "Rank correlation of the lengths of two responses to a prompt.")}};
  const Real<double> turns{"turns, at least 1", [](double v) { return v >= 1 && v <= 1e6; }};
  const Real<double> waits{"seconds, above 0", [](double v) { return v > 0 && v <= 1e6; }};
  using T = SimulatedTurns;
  const MapOf<T> conversations{
      {member("median", &T::median, OrAuto{turns},
              "Turns of a response, up to environment.max_turns; auto is 4."),
       member("p99", &T::p99, OrAuto{turns}, "One response in a hundred has more; auto is 16."),
       member("seconds", &T::seconds, OrAuto{waits}, "Median of an answer; auto is 1."),
       member("seconds_p99", &T::seconds_p99, OrAuto{waits},
              "One answer in a hundred takes longer; auto is 60."),
       member("tokens", &T::tokens, OrAuto{tokens}, "Median of an answer; auto is 128."),
       member("tokens_p99", &T::tokens_p99, OrAuto{tokens},
              "One answer in a hundred has more; auto is 2048.")}};
  return {key(PACELINE_FIELD(simulation, nodes), Count{1, 1 << 16}, "Nodes that are modelled."),
          key(PACELINE_FIELD(simulation, ranks_per_node), Count{1, 1024}, "Ranks of each."),
          key(PACELINE_FIELD(simulation, gpus_per_rank), Count{1, 1024},
              "GPUs that a rank stands for, by gpu_tables: they share the model's tensors (TP).",
              {"engine.kv_memory and kv_pool.memory are of all of them."}),
          key(PACELINE_FIELD(simulation, instance), Count{1, 1024},
              "Ranks of an instance, by gpu_tables: they share a model by its routed experts.",
              {"Each is a GPU with requests and KV of its own (DP and EP); all of them step "
               "together."}),
          key(PACELINE_FIELD(simulation, gpu_memory), OrAuto{Size{}},
              "Memory of each GPU, into which weights, buffers and KV must fit; auto is 80GiB."),
          key(PACELINE_FIELD(simulation, context), OrAuto{Count{2, 1 << 30}},
              "Positions that a sequence may have; auto is what config.json says."),
          key(PACELINE_FIELD(simulation, cores), OrAuto{Count{1, 1 << 16}},
              "Ranks of a node that can work at once; auto is all."),
          key(PACELINE_FIELD(simulation, gpu_tables), OrNone{directory},
              "Measured times of a GPU's kernels, as CSV; none is engine.profile."),
          key(PACELINE_FIELD(simulation, step_overhead), seconds,
              "Of each step beside what its costs say."),
          key(PACELINE_FIELD(simulation, link.node_bandwidth), bandwidth,
              "Within a node, of each GPU in each direction."),
          key(PACELINE_FIELD(simulation, link.network_bandwidth), bandwidth,
              "Between nodes, of each GPU in each direction."),
          key(PACELINE_FIELD(simulation, workload.prompts), OrAuto{Count{1, 1 << 24}},
              "Prompts, each with prompts.samples responses; auto is as many as prompts.path has, "
              "or 512."),
          key(PACELINE_FIELD(simulation, workload.lengths),
              Lengths{lognormal, Path{"the path of a finished run or of a CSV file"}},
              "Of a run, with its acceptance; as counted (CSV: field,tokens,weight); or lognormal.",
              lognormal.details()),
          key(PACELINE_FIELD(simulation, workload.prompt_tokens), OrAuto{Count{1, 1 << 24}},
              "Length of every prompt; auto is as in workload.lengths, else as in prompts.path, or "
              "512."),
          key(PACELINE_FIELD(simulation, workload.turns), conversations,
              "Of conversations (environment.method), whose turns share a response's length: "
              "lognormal.",
              conversations.details()),
          key(PACELINE_FIELD(simulation, workload.acceptance),
              OrAuto{List<Real<double>>{share, "numbers from 0 to 1"}},
              "Mean share of tokens accepted, of each of speculation.drafters."),
          key(PACELINE_FIELD(simulation, workload.history), share,
              "Of the tokens that suffix trees would miss, the share that earlier steps' responses "
              "have right; 0 is a first step."),
          key(PACELINE_FIELD(simulation, workload.stop_points), OrNone{directory},
              "A run with record_stops of its head, by whose trees heads draft.")};
}

/// Keys of the section for tests of the program itself.
std::vector<Key> test_keys() {
  const Real<double> share{"a number from 0 to 1", [](double v) { return v >= 0 && v <= 1; }};
  const Real<double> seconds{"seconds, at least 0", [](double v) { return v >= 0 && v <= 1e6; }};
  const Real<double> factor{"a number, at least 1", [](double v) { return v >= 1; }};
  using F = TestFaults;
  const MapOf<F> faults{
      {member("delayed", &F::delayed, share, "Share of messages that take longer."),
       member("delay", &F::delay, seconds, "By so much at most."),
       member("duplicated", &F::duplicated, share,
              "Share of messages that come twice (simulated)."),
       member("lost_blocks", &F::lost_blocks, share,
              "Share of transfers of KV that fail (simulated)."),
       member("damaged_blocks", &F::damaged_blocks, share,
              "Blocks in the KV pool that are damaged when they are taken (simulated)."),
       member("slow_ranks", &F::slow_ranks, share, "Share of ranks that are slow (simulated)."),
       member("slow_factor", &F::slow_factor, factor, "Times as long as others that these take."),
       member("stalled_drafters", &F::stalled_drafters, share,
              "Share of drafter ranks that stand still once (simulated)."),
       member("stall", &F::stall, seconds, "For so long."),
       member("kill", &F::kill, OrNone{seconds},
              "When a rank dies; the run is then resumed (simulated)."),
       member("drafters", &F::drafters, words("none", "stall", "flood", "garbage"),
              "Misbehaviour of drafter ranks."),
       member("draft_servers", &F::draft_servers, words("none", "stall"),
              "Misbehaviour of draft servers.")}};
  const auto decisions = in_order<Shuffle>("moves", "roles", "races", "memory", "outcomes");
  return {key(PACELINE_FIELD(test, shuffle),
              List<Choice<Shuffle, 5>>{decisions, "moves, roles, races, memory and outcomes"},
              "At random: requests move between groups, ranks change roles, groups generate "
              "others' requests too, draft models lend their memory to KV, drafter ranks draft for "
              "what the target may say instead."),
          key(PACELINE_FIELD(test, seed), Whole<std::uint64_t>{0, unsigned_max},
              "Seed of all that is at random; no token depends on it."),
          key(PACELINE_FIELD(test, faults), faults,
              "Faults; those that are left out do not happen.", faults.details()),
          key(PACELINE_FIELD(test, check_kv), Flag{},
              "Every simulated step looks at all KV that it attends to: slow.")};
}

/// A rule, or a map of rules by data_source, whose key `default` is for all other sources.
struct Rules {
  Choice<AnswerRule, 5> rule =
      in_order<AnswerRule>("exact", "numeric", "last_number", "boxed", "regex");
  [[nodiscard]] std::string type() const {
    return rule.type() + "; or a map of such by data_source, and `default` for others";
  }
  [[nodiscard]] AnswerRules read(const YamlNode& node, const std::string& directory) const {
    if (node.kind == YamlNode::Kind::scalar) return {rule.read(node, directory), {}};
    if (node.kind != YamlNode::Kind::map || node.entries.empty()) throw BadValue(node, type());
    AnswerRules rules{std::nullopt, {}};
    for (const YamlEntry& entry : node.entries) {
      try {
        const AnswerRule of_source = rule.read(entry.value, directory);
        if (entry.key == "default") {
          rules.otherwise = of_source;
        } else {
          rules.by_source.emplace(entry.key, of_source);
        }
      } catch (BadValue& bad) {
        bad.part = "." + entry.key;
        throw;
      }
    }
    return rules;
  }
  [[nodiscard]] std::string write(const AnswerRules& rules) const {
    if (rules.by_source.empty()) return rule.write(*rules.otherwise);
    std::string text;
    for (const auto& [source, of_source] : rules.by_source)
      text += (text.empty() ? "{" : ", ") + quote_yaml(source) + ": " + rule.write(of_source);
    if (rules.otherwise) text += ", default: " + rule.write(*rules.otherwise);
    return text + "}";
  }
};

/// Keys of the section about scoring responses.
std::vector<Key> reward_keys() {
  const Real<double> tolerance{"a number, at least 0", [](double v) { return v >= 0; }};

  return {
      key(PACELINE_FIELD(reward, method), in_order<RewardMethod>("none", "match", "command"),
          "How responses are scored: not, by their answers, or by programs of yours."),
      key(PACELINE_FIELD(reward, ground_truth), OrAuto{Text{}},
          "Field of a prompt's line that holds the true answer, as extra_info.answer.",
          {"auto: ground_truth, or reward_model.ground_truth (verl), or answer."}),
      key(PACELINE_FIELD(reward, rule), Rules{},
          "match: what of a response is its answer, which scores 1 when true, else 0.",
          {"exact: all of it. numeric: all of it, a number. last_number: the number after",
           "the last \"####\", or the last one. boxed: the last \\boxed{...}. regex: by pattern.",
           "By data_source: {openai/gsm8k: last_number, lighteval/MATH: boxed, default: exact}."}),
      key(PACELINE_FIELD(reward, pattern), OrNone{Text{}},
          "match by regex (PCRE2): the answer is the first group of the last match."),
      key(PACELINE_FIELD(reward, tolerance), tolerance,
          "match: how far numbers may be off, times the true one or 1; 0 is not at all."),
      key(PACELINE_FIELD(reward, command), Command{},
          "command: a program that reads responses and writes scores, a JSON line each.",
          {"[python3, -m, score_worker, ./my_reward.py] calls verl's compute_score in that file;",
           "python/README.md beside configs/ has the lines of others. What begins with ./, ../, ~/",
           "or $VARIABLE is a path, relative to this file."}),
      key(PACELINE_FIELD(reward, workers), Count{1, 1024},
          "command: how many of the program every rank that verifies runs."),
      key(PACELINE_FIELD(reward, timeout), Duration{0.01, 86400},
          "command: how long a response may take; then the worker is replaced."),
      key(PACELINE_FIELD(reward, attempts), Count{1, 100},
          "command: how often a response is tried of which workers fail."),
      key(PACELINE_FIELD(reward, send_tokens), Flag{},
          "command: token ids of prompt and response are part of what workers read."),
      key(PACELINE_FIELD(reward, required), in_order<RewardsRequired>("none", "some", "all"),
          "How many responses must have a reward, or the run ends with exit code 65.",
          {"some: one at least. none: a command that fails when it is tried is a warning, too. The",
           "trajectories are there in any case, and --resume scores what is missing."})};
}

std::vector<Key> run_keys() {
  const Path directory{"the path of a directory"};
  const Path file{"the path of a file"};
  const Choice<DType, 2> dtype{{"bf16", "fp32"}, {DType::bf16, DType::f32}};
  return {
      key(PACELINE_FIELD(model, path), directory,
          "Hugging Face model: config.json, *.safetensors, tokenizer.json.", {}, true),
      key(PACELINE_FIELD(model, tokenizer), OrAuto{directory},
          "Tokenizer, chat template, and end tokens where path has none; auto is path."),
      key(PACELINE_FIELD(model, dtype), OrAuto{dtype},
          "Type to compute in; auto is the type of the stored weights, bf16 where that is fp16 or "
          "fp8."),
      key(PACELINE_FIELD(model, weight_version), Whole<std::uint64_t>{0, unsigned_max},
          "Training step of the weights; raise it at every step, or the same noise is drawn "
          "again."),

      key(PACELINE_FIELD(prompts, path), file, "Prompts, one JSON object a line.", {}, true),
      key(PACELINE_FIELD(prompts, keys.prompt), OrAuto{Text{}},
          "Field of a line that is its prompt, as question; auto is what has this name."),
      key(PACELINE_FIELD(prompts, keys.messages), OrAuto{Text{}},
          "The same of messages; where it is text, this is what the user says."),
      key(PACELINE_FIELD(prompts, keys.prompt_tokens), OrAuto{Text{}}, "The same of token ids."),
      key(PACELINE_FIELD(prompts, keys.uid), OrAuto{Text{}}, "The same of the uid."),
      key(PACELINE_FIELD(prompts, keys.ground_truth), OrAuto{Text{}},
          "The same of the true answer, which reward.ground_truth too may name."),
      key(PACELINE_FIELD(prompts, samples), Count{1, 1000000}, "Responses to each prompt."),
      key(PACELINE_FIELD(prompts, overlong), in_order<Overlong>("error", "skip", "truncate"),
          "A prompt that leaves no room for a response; truncate keeps its last tokens."),
      key(PACELINE_FIELD(prompts, max_prompt_tokens), Count{0, int_max},
          "Longest prompt, in tokens; 0 is what the context leaves beside max_tokens."),
      key(PACELINE_FIELD(prompts, shuffle), Flag{},
          "Start prompts in a seeded random order; results stay in file order."),
      key(PACELINE_FIELD(prompts, enough), OrNone{Count{1, int_max}},
          "Prompts that pass the filter after which the run ends (DAPO's dynamic sampling); none "
          "is all prompts, whatever their rewards.",
          {"Kept are the first ones that pass, in the order in which prompts start. "
           "trajectories.h5",
           "has these alone; the others may be left undone."}),
      key(PACELINE_FIELD(prompts, filter), in_order<PromptFilter>("none", "mixed_rewards"),
          "Prompts that prompts.enough counts: those whose responses' rewards differ."),
      key(PACELINE_FIELD(prompts, partial), in_order<PartialResponses>("drop", "keep"),
          "Responses that are unfinished when enough prompts pass; keep leaves them in DIR/left "
          "for the next step."),
      key(PACELINE_FIELD(prompts, begun), OrNone{directory},
          "A finished run with prompts.partial: keep, whose unfinished responses go on under the "
          "weights of this one."),
      key(PACELINE_FIELD(prompts, chat.enable_thinking), OrAuto{Flag{}},
          "Whether Qwen3 is to think; auto is as its template does, which is to think."),
      key(PACELINE_FIELD(prompts, chat.date), OrAuto{Text{}},
          "The day that Llama 3.1 to 3.3 are told it is; auto is '26 Jul 2024'."),
      key(PACELINE_FIELD(prompts, chat.continue_final_message), OrAuto{Flag{}},
          "Whether a last message of the assistant's goes on, rather than be closed and a new turn "
          "begun; auto closes it and warns."),
      key(PACELINE_FIELD(prompts, add_special_tokens), OrAuto{Flag{}},
          "Whether text gets the tokenizer's special tokens (a bos); auto is unless it begins with "
          "them. Messages have those of their template."),

      key(PACELINE_FIELD(sampling, temperature), kTemperature,
          "Divides the logits; 0 takes the most probable token."),
      key(PACELINE_FIELD(sampling, top_k), CountOrOff{{0, int_max}},
          "Sample from the k most probable tokens; 0 is off."),
      key(PACELINE_FIELD(sampling, top_p), kTopP,
          "Sample from the fewest tokens with this probability together; 1 is off."),
      key(PACELINE_FIELD(sampling, min_p), kMinP,
          "Sample from tokens this probable relative to the best one; 0 is off."),
      key(PACELINE_FIELD(sampling, repetition_penalty), kRepetition,
          "Divides positive logits of tokens that the prompt or the response has, and multiplies "
          "negative ones; 1 is off."),
      key(PACELINE_FIELD(sampling, presence_penalty), kPenalty,
          "Subtracted from the logits of tokens that the response has; 0 is off."),
      key(PACELINE_FIELD(sampling, frequency_penalty), kPenalty,
          "Subtracted as often as the response has the token; 0 is off."),
      key(PACELINE_FIELD(sampling, logit_bias), Biases{},
          "Added to the logits of these tokens, before penalties."),
      key(PACELINE_FIELD(sampling, min_tokens), Count{0, 1 << 24},
          "Tokens before which a response cannot stop."),
      key(PACELINE_FIELD(sampling, max_tokens), Count{1, 1 << 24},
          "Longest response, in tokens; a line of the prompts may have its own, and much else."),
      key(PACELINE_FIELD(sampling, seed), Whole<std::uint64_t>{0, unsigned_max},
          "Seed of the noise that decides every sampled token."),
      key(PACELINE_FIELD(sampling, ignore_eos), Flag{},
          "The model's own end tokens do not end a response."),
      key(PACELINE_FIELD(sampling, stop_ids),
          List<Count>{{0, int_max}, "token ids (whole numbers, at least 0)"},
          "Further tokens that end a response, and stay in it."),
      key(PACELINE_FIELD(sampling, stop_strings), List<Text>{{}, "non-empty texts"},
          "Texts that end a response; the token that completes one stays in it. Special tokens "
          "count by their spelling; one that is a special token acts as its id."),
      key(PACELINE_FIELD(sampling, banned_ids),
          List<Count>{{0, int_max}, "token ids (whole numbers, at least 0)"},
          "Tokens that are not sampled: the others share their probability."),
      key(PACELINE_FIELD(sampling, allowed_ids),
          List<Count>{{0, int_max}, "token ids (whole numbers, at least 0)"},
          "Where there are some, no other token is sampled, an end token neither."),
      key(
          "sampling", "unused_ids",
          [](auto& config) -> auto& { return config.sampling.mask_unused; },
          Choice<bool, 2>{{"mask", "keep"}, {true, false}},
          "Rows of the vocabulary that no token of the tokenizer has, and placeholders of images "
          "and the like that config.json names: as sampling.banned_ids, or not."),
      key(PACELINE_FIELD(sampling, keep_masks), Flag{},
          "Of each token the ids are recorded that it could have been, after top-k, top-p and "
          "min-p, for trainers that normalise over them; takes a top_k from 1 to 1024."),
      key(PACELINE_FIELD(sampling, logprobs), Count{0, SamplingParams::kMostLogprobs},
          "Of each position so many of the most probable tokens are recorded, with their "
          "log-probabilities at temperature 1, for distillation; 0: none."),
      key(PACELINE_FIELD(sampling, keep_routing), Flag{},
          "Of each token of a mixture the experts are recorded that it uses, for trainers that "
          "replay them."),

      key(PACELINE_FIELD(layout, verifier_tp), OrAuto{OneOrMore{PowerOfTwo{64}}},
          "Ranks of a verifier group, which share one copy of the weights (tensor parallelism); a "
          "list: of each group."),
      key(PACELINE_FIELD(layout, expert_parallel), OrAuto{PowerOfTwo{64}},
          "Ranks that have a part of a layer's experts each, whole ones; auto, and so far no "
          "other, is all of a verifier group."),
      key(PACELINE_FIELD(layout, attention), OrAuto{in_order<AttentionLayout>("tensor", "data")},
          "Ranks of a verifier group have some heads of all its requests (tensor), or all heads of "
          "requests of their own (data), and share the rest of each layer; auto is tensor."),
      key(PACELINE_FIELD(layout, verifier_groups), OrAuto{Count{1, 1 << 20}},
          "Groups that hold a copy of the weights and generate; ranks in none are spare."),
      key(PACELINE_FIELD(layout, drafters), OrAuto{Count{0, 1 << 20}},
          "Ranks that draft for the groups, ahead of them; auto is as many as pay."),
      key(PACELINE_FIELD(layout, tail_tp), OrAuto{PowerOfTwo{64}},
          "Ranks of the largest group into which groups join for the last requests, where that "
          "ends sooner; auto is that of engine.tail_profile, 1: none join."),

      key(PACELINE_FIELD(engine, backend), words("auto", "cpu", "cuda"),
          "What computes; auto is cuda where every rank has a GPU of a kind that was measured (an "
          "H100), else cpu."),
      key(PACELINE_FIELD(engine, isa),
          words("auto", "amx_bf16", "avx512_bf16", "avx512", "avx2", "portable"),
          "Instruction set of the cpu backend; auto is the best this machine has."),
      key(PACELINE_FIELD(engine, threads), OrAuto{Count{1, 1024}}, "Threads of each rank."),
      key(PACELINE_FIELD(engine, max_batch), Count{1, 65536}, "Most requests in one step."),
      key(PACELINE_FIELD(engine, prefill_chunk), Count{1, 1 << 20},
          "Most prompt tokens in one step."),
      key(PACELINE_FIELD(engine, kv_block), Count{16, 1024, 16},
          "Positions in one block of the KV cache."),
      key(PACELINE_FIELD(engine, kv_memory), OrAuto{Size{}},
          "KV cache of each rank, in bytes; that of draft models is part of it."),
      key(PACELINE_FIELD(engine, profile), OrAuto{Path{"the path of a file"}},
          "Costs measured by paceline profile; auto measures for up to 2 s at the start."),
      key(PACELINE_FIELD(engine, tail_profile), OrAuto{Path{"the path of a file"}},
          "Costs of groups of twice layout.verifier_tp, by paceline profile; see layout.tail_tp."),

      key(PACELINE_FIELD(speculation, drafters), DrafterList{},
          "Sources of draft tokens; with none every step decodes plainly.", DrafterList::details()),
      key(PACELINE_FIELD(speculation, policy), named(kSpeculationPolicies),
          "How far to draft; goodput is as far as is expected to pay, for each request.",
          {"nightjar: a bandit learns the best length of each batch size; banditspec: a bandit "
           "without",
           "the batch; dsd: one length, by mean acceptance and linear costs; tetris: max_length "
           "tokens,",
           "the likelier half of which is verified; fixed: max_length tokens."}),
      key(PACELINE_FIELD(speculation, mode),
          OrAuto{in_order<SpeculationMode>("plain", "coupled", "decoupled")},
          "Draft not at all, in turn with verifying, or on ranks of their own; auto is by costs."),
      key(PACELINE_FIELD(speculation, max_length), Count{1, 1024}, "Longest draft, in tokens."),
      key(PACELINE_FIELD(speculation, paths), OrAuto{Count{1, 1024}},
          "Branches of a draft side by side; 1 drafts chains.",
          {"auto: 1 to 4 under goodput, by load and each request's",
           "acceptance, of n-grams and suffix trees; else 1."}),
      key(PACELINE_FIELD(speculation, window), OrAuto{Count{1, 1024}},
          "Tokens that a drafter rank sends at a time, at most two windows ahead; auto is what "
          "pays best."),
      key(PACELINE_FIELD(speculation, outcomes), Flag{},
          "Drafter ranks that send each token at once also draft for what the target may say "
          "instead."),
      key(PACELINE_FIELD(speculation, best_of_n), Flag{},
          "Groups that run dry generate others' last requests too, by another drafter.",
          {"Of several draft models, at costs by engine.profile, their ranks draft for",
           "others by those that these have not, where that is worth more."}),
      key(PACELINE_FIELD(speculation, elastic_memory), Flag{},
          "Verifiers' draft models give their memory to KV while KV is short and nothing is "
          "drafted.",
          {"They are suspended meanwhile, and load again when no request waits and as",
           "much KV is free (Nightjar)."}),
      key(PACELINE_FIELD(speculation, keep_history), Flag{},
          "Adds how often drafts were accepted to the history beside engine.profile."),
      key(PACELINE_FIELD(speculation, history),
          OrNone{PathOrAuto{Path{"the path of a run, or of a folder of runs"}}},
          "Runs of earlier steps, whose responses suffix trees begin with; auto is the folder of "
          "output.directory."),
      key(PACELINE_FIELD(speculation, pregenerate), Flag{},
          "Groups of a resident job that run dry begin the next step's responses, for its drafts.",
          {"It takes speculation.history: auto, and the next request in time."}),

      key(PACELINE_FIELD(schedule, policy),
          in_order<SchedulePolicy>("context", "no_context", "oracle", "group", "fcfs"),
          "Which of the requests that wait are generated first.",
          {"context: of each prompt one to learn from, then those whose siblings became longest "
           "(Seer);",
           "fcfs: as they come; no_context: those that were at it last; oracle: the longest, by",
           "schedule.lengths; group: prompts are dealt out to groups beforehand (veRL)."}),
      key(PACELINE_FIELD(schedule, chunk), OrAuto{CountOrGrow{{0, 1 << 24}}},
          "Tokens after which a request may give way to another; 0 is never.",
          {"auto: where KV memory holds no full batch at its longest an eighth of the positions",
           "that the request has, 64 at least; else 0. A request is given KV for a chunk at",
           "once; what gives way is stored. grow: never, but a request is given KV a block at a",
           "time, and the last to come gives way where there is none, to be computed again "
           "(vLLM)."}),
      key(PACELINE_FIELD(schedule, lengths), OrNone{directory},
          "For oracle: a finished run of the same prompts."),
      key(PACELINE_FIELD(schedule, rebalance), Flag{},
          "Groups that run out of requests, or would end sooner, get some of other groups."),
      key(PACELINE_FIELD(schedule, move_kv),
          in_order<MoveKvBy>("cost", "transfer", "recompute", "both"),
          "How a moving request's KV gets there; cost is whichever is soonest."),

      key(PACELINE_FIELD(kv_pool, memory), OrAuto{SizeOrNone{}},
          "Host memory of each rank for KV of requests that wait for their next chunk.",
          {"auto: half of what weights and KV leave, and no more than all responses",
           "could want. It is taken when it is used."}),
      key(PACELINE_FIELD(kv_pool, disk), OrNone{Path{"the path of a directory"}},
          "On a disk of each node's own: takes KV that memory has no room for.",
          {"Its files have no names, so that nothing is left of them after any end."}),
      key(PACELINE_FIELD(kv_pool, disk_size), OrAuto{Size{}},
          "Of that disk on each node, for all ranks there; auto is half of what is free.")};
}

std::vector<Key> ending_keys() {
  return {
      key(PACELINE_FIELD(output, directory), Path{"the path of a directory"},
          "Where trajectories.h5, telemetry.h5 and paceline.log go; made when missing. A "
          "simulation without it writes nothing.",
          {}, true),
      key(PACELINE_FIELD(output, flush_seconds), Duration{0, 86400},
          "Finished responses reach the disk at least this often, in seconds."),

      key(PACELINE_FIELD(limits, wall_clock), OrAuto{Duration{1, 366.0 * 86400}},
          "Time the run has; auto is what Slurm gave the job, or no limit."),
      key(PACELINE_FIELD(limits, margin), Duration{0, 86400},
          "How long before the limit the run stops cleanly, in seconds."),
      key(PACELINE_FIELD(limits, stall), OrNone{Duration{1, 366.0 * 86400}},
          "A run in which nothing at all has gone on for so long is ended.",
          {"No step, response or move of any rank: it must be longer than any step. So is a job of "
           "which",
           "rank 0, or before that any rank, is stopped or waits for a file system for so long."})};
}

std::vector<Key> make_table() {
  std::vector<Key> table = run_keys();
  for (std::vector<Key>& more :
       std::array{reward_keys(), environment_keys(), ending_keys(), simulation_keys(), test_keys()})
    std::ranges::move(more, std::back_inserter(table));
  return table;
}
#undef PACELINE_FIELD

}  // namespace

std::span<const Key> key_table() {
  static const std::vector<Key> table = make_table();
  return table;
}

}  // namespace paceline::io
