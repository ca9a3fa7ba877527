#include "io/config/other_names.hpp"

#include <algorithm>
#include <array>

namespace paceline::io {
namespace {

constexpr std::string_view stops =
    "is sampling.stop_strings (texts) or sampling.stop_ids (token ids) here";
constexpr std::string_view stop_ids = "is sampling.stop_ids here";
constexpr std::string_view max_tokens = "is sampling.max_tokens here";
constexpr std::string_view samples = "is prompts.samples here";
constexpr std::string_view lengths =
    "is simulation.workload.lengths: DIRECTORY, or {median: N, p99: N, correlation: SHARE}";
constexpr std::string_view measured =
    "is no key any more: it is as measured (runtime/sim/acceptance.hpp)";
constexpr std::string_view unsupported = "is not supported";
constexpr std::string_view constraint = "is not supported: responses are free text";

/// Names in vLLM, SGLang and transformers, and in verl, slime and TRL.
constexpr std::array table = {
    OtherName{"stop", stops, true},
    OtherName{"stop_words", stops, true},
    OtherName{"stop_sequences", stops, true},
    OtherName{"stop_token_ids", stop_ids, true},
    OtherName{"eos_token_id", stop_ids, true},
    OtherName{"max_new_tokens", max_tokens, true},
    OtherName{"max_completion_tokens", max_tokens, true},
    OtherName{"max_completion_length", max_tokens, true},
    OtherName{"max_response_length", max_tokens, true},
    OtherName{"max_response_len", max_tokens, true},
    OtherName{"max_gen_len", max_tokens, true},
    OtherName{"response_length", max_tokens},
    OtherName{"min_new_tokens", "is sampling.min_tokens here", true, 0},
    OtherName{"n", samples, true},
    OtherName{"best_of", "is not supported; prompts.samples is how many responses there are", true},
    OtherName{"num_return_sequences", samples, true},
    OtherName{"num_generations", samples},
    OtherName{"n_samples_per_prompt", samples},
    OtherName{"do_sample", "is not needed: sampling.temperature 0 takes the most probable token",
              true, 1},
    OtherName{"num_beams", "is not supported: responses are sampled", true, 1},
    OtherName{"use_beam_search", "is not supported: responses are sampled", true, 0},
    OtherName{"length_penalty", unsupported, true, 1},
    OtherName{"no_repeat_ngram_size", unsupported, true, 0},
    OtherName{"typical_p", unsupported, true, 1},
    OtherName{"bad_words", unsupported, true},
    OtherName{"bad_words_ids", "is sampling.banned_ids here", true},
    OtherName{"allowed_token_ids", "is sampling.allowed_ids here", true},
    OtherName{"response_format", constraint, true},
    OtherName{"guided_decoding", constraint, true},
    OtherName{"guided_json", constraint, true},
    OtherName{"guided_regex", constraint, true},
    OtherName{"guided_choice", constraint, true},
    OtherName{"json_schema", constraint, true},
    OtherName{"structured_outputs", constraint, true},
    OtherName{"max_prompt_length", "is prompts.max_prompt_tokens here"},
    OtherName{"prompt_length", "is prompts.max_prompt_tokens here"},
    OtherName{"tensor_parallel_size", "is layout.verifier_tp here"},
    OtherName{"tensor_model_parallel_size", "is layout.verifier_tp here"},
    OtherName{"tp_size", "is layout.verifier_tp here"},
    OtherName{"data_parallel_size", "is layout.verifier_groups here"},
    OtherName{"dp_size", "is layout.verifier_groups here"},
    OtherName{"max_num_seqs", "is engine.max_batch here"},
    OtherName{"max_running_requests", "is engine.max_batch here"},
    OtherName{"max_num_batched_tokens", "is engine.prefill_chunk here (of prompts alone)"},
    OtherName{"chunked_prefill_size", "is engine.prefill_chunk here"},
    OtherName{"block_size", "is engine.kv_block here"},
    OtherName{"page_size", "is engine.kv_block here"},
    OtherName{"gpu_memory_utilization", "is engine.kv_memory here (bytes a rank)"},
    OtherName{"mem_fraction_static", "is engine.kv_memory here (bytes a rank)"},
    OtherName{"num_speculative_tokens", "is speculation.max_length here"},
    OtherName{"speculative_num_steps", "is speculation.max_length here"},
    OtherName{"speculative_num_draft_tokens",
              "is max_tokens of the dflash, eagle3 or mtp drafter here"},
    OtherName{"speculative_eagle_topk", "is speculation.paths here"},
    // Keys of earlier versions.
    OtherName{"simulation.seed", "is sampling.seed"},
    OtherName{"simulation.telemetry", "is no key any more: a simulation with --output writes it"},
    OtherName{"simulation.gpu_sharing",
              "is no key any more: see simulation.gpus_per_rank, simulation.instance"},
    OtherName{"simulation.faults", "is test.faults"},
    OtherName{"simulation.check_kv", "is test.check_kv"},
    OtherName{"simulation.message_seconds", "is no key any more: reading messages takes no time"},
    OtherName{"simulation.tiers",
              "is no key any more: host memory and disks are those of a DGX H100"},
    OtherName{"simulation.link.node_latency", "is no key any more: it is 3 us"},
    OtherName{"simulation.link.network_latency", "is no key any more: it is 5 us"},
    OtherName{"simulation.workload.acceptance_spread", measured},
    OtherName{"simulation.workload.drift", measured},
    OtherName{"simulation.workload.token_agreement", measured},
    OtherName{"simulation.workload.request_agreement", measured},
    OtherName{"simulation.workload.replay", lengths},
    OtherName{"simulation.workload.median_tokens", lengths},
    OtherName{"simulation.workload.p99_tokens", lengths},
    OtherName{"simulation.workload.length_correlation", lengths},
    OtherName{"engine.kv_growth", "is schedule.chunk: grow"},
    OtherName{"speculation.max_tokens",
              "is max_length * paths, or speculation.drafters: [{method: eagle3, max_tokens: N}]"},
    OtherName{"speculation.servers", "is speculation.drafters: [{method: suffix, servers: N}]"},
    OtherName{"speculation.record_stops",
              "is speculation.drafters: [{method: eagle3, record_stops: N}]"},
    OtherName{"schedule.shuffle", "is test.shuffle: [moves]"},
    OtherName{"schedule.shuffle_roles", "is test.shuffle: [roles]"},
    OtherName{"schedule.shuffle_races", "is test.shuffle: [races]"},
    OtherName{"schedule.shuffle_memory", "is test.shuffle: [memory]"},
    OtherName{"schedule.shuffle_seed", "is test.seed"},
    OtherName{"speculation.race_batch", "is no key any more: a group races for 8 requests at most"},
    OtherName{
        "speculation.reconfigure",
        "is no key any more: rollouts were no faster by modes and windows of single requests"},
};

}  // namespace

const OtherName* find_other_name(std::string_view name) {
  const auto* const at = std::ranges::find(table, name, &OtherName::name);
  return at == table.end() ? nullptr : &*at;
}

}  // namespace paceline::io
