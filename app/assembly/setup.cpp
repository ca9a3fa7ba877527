#include "app/assembly/setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "app/assembly/broadcast.hpp"
#include "app/assembly/checkpoint_findings.hpp"
#include "app/assembly/coordination.hpp"
#include "app/assembly/cost_conditions.hpp"
#include "app/assembly/draft_history.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/kv_storage.hpp"
#include "app/assembly/scoring.hpp"
#include "app/assembly/token_sets.hpp"
#include "app/assembly/weight_store.hpp"
#include "app/commands/version.hpp"
#include "app/terminal/pulse.hpp"
#include "app/terminal/standing.hpp"
#include "app/terminal/terminal.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/config/cost_profile.hpp"
#include "io/config/path_text.hpp"
#include "io/config/yaml_tree.hpp"
#include "io/text/chat_template.hpp"
#include "kernels/limits.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::app {
io::RunConfig read_config(const RunArguments& arguments, io::Purpose purpose) {
  std::vector<std::string> overrides = arguments.overrides;
  if (!arguments.output.empty()) {  // taken as it is: the shell has expanded it
    const std::string path = std::filesystem::absolute(arguments.output).string();
    overrides.push_back("output.directory=" + io::quote_yaml(io::path_text(path)));
  }
  return io::read_run_config(arguments.config, overrides, purpose);
}

namespace {

/// Checks that some token is left to sample before sampling.min_tokens, where no token that ends a
/// response may be sampled.
void require_way_on(const Setup& setup) {
  const SamplingParams& sampling = setup.config.sampling;
  if (sampling.min_tokens == 0 ||
      std::ssize(banned_early(sampling, setup.stops)) < setup.model.vocab)
    return;
  throw UsageError(fmt::format(
      "sampling.min_tokens: expected 0 where every token of the model ends a response (its end "
      "tokens and sampling.stop_ids) or cannot be sampled, found {}",
      sampling.min_tokens));
}

}  // namespace

void read_tokenizer(Setup& setup, Standing& standing) {
  io::TokenizerFiles files = io::TokenizerFiles::read(tokenizer_directory(setup.config));
  setup.no_tokenizer = files.absence();
  if (!setup.no_tokenizer.empty()) {
    if (setup.config.model.tokenizer) throw DataError("model.tokenizer: " + setup.no_tokenizer);
    setup.tokenizer_state =
        files.other_kind.empty() ? TokenizerState::absent : TokenizerState::unreadable;
    return;
  }
  try {
    setup.tokenizer = standing.tokenizer(std::move(files));
  } catch (const DataError& error) {
    setup.tokenizer_state = TokenizerState::unreadable;
    setup.no_tokenizer = error.what();
    return;
  }
  setup.tokenizer->require_fits(setup.model.vocab);
}

namespace {

/// Reads the model and drafters. `plans`: a run is only planned, and files may be absent.
void read_model(Setup& setup, Standing& standing, bool plans) {
  const std::string& path = setup.config.model.path;
  setup.model = io::load_model_config(model::families(), path, tokenizer_directory(setup.config));
  if (plans && !io::Checkpoint::is_there(path)) {
    setup.absent.push_back("weights of " + path);
  } else {
    setup.weights = std::make_unique<io::Checkpoint>(path);
    io::check_tensor_shapes(setup.model, *setup.weights);
  }
  setup.compute =
      setup.config.model.dtype.value_or(compute_of(stored_dtype(setup.model, setup.weights.get())));
  read_tokenizer(setup, standing);

  SamplingParams& sampling = setup.config.sampling;
  setup.stops = stop_set(setup.model, sampling, setup.tokenizer.get());
  sampling.masked = masked_tokens(setup.model, sampling, setup.tokenizer.get(), setup.stops);
  require_way_on(setup);
  setup.earlier_eos = standing.eos(setup.model.eos);
  settle_mode(setup);
  setup.drafters = read_drafters(setup.config.speculation, setup.model, setup.tokenizer.get(),
                                 plans ? &setup.absent : nullptr);
  const bool without = plans && setup.tokenizer_state == TokenizerState::absent;
  if (!setup.given && !sampling.stop_strings.empty() && !without)
    require_tokenizer(setup, "sampling.stop_strings");
}

// The longest prompt that leaves room for a response.
std::int32_t prompt_limit(const Setup& setup) {
  const std::int32_t context = setup.model.max_position;
  const std::int32_t set = setup.config.prompts.max_prompt_tokens;
  if (set >= context) {
    throw UsageError(
        fmt::format("prompts.max_prompt_tokens: {} leaves no room for a response in the model's "
                    "context of {} tokens",
                    set, context));
  }
  if (set > 0) return set;
  const std::int32_t beside = context - setup.config.sampling.max_tokens;
  if (beside < 1) {
    throw UsageError(
        fmt::format("sampling.max_tokens: {} leaves no room for a prompt in the model's context of "
                    "{} tokens; lower it, or set "
                    "prompts.max_prompt_tokens (responses then end where the context does)",
                    setup.config.sampling.max_tokens, context));
  }
  return beside;
}

/// Reads the chat template. An unreadable template, as an unknown one, fails only the prompts that
/// need it.
io::ChatTemplate read_chat_template(const std::string& directory) {
  try {
    return io::ChatTemplate::load(directory);
  } catch (const DataError& error) {
    return io::ChatTemplate::refused(error.what());
  }
}

/// Sets the lengths of prompts, and those that sequences may reach.
void measure_prompts(Setup& setup) {
  double most = 0;
  for (const Prompt& prompt : setup.prompts.prompts) {
    const auto tokens = static_cast<std::int32_t>(prompt.tokens.size());
    const std::int32_t response =
        prompt.sampling.max_tokens.value_or(setup.config.sampling.max_tokens);
    setup.longest_prompt = std::max(setup.longest_prompt, tokens);
    setup.longest_sequence =
        std::max(setup.longest_sequence, std::min(setup.model.max_position, tokens + response));
    most += response;
  }
  setup.mean_max_tokens = most / static_cast<double>(setup.prompts.prompts.size());
}

}  // namespace

void read_prompts(Setup& setup, bool plans) {
  const io::ChatTemplate chat = read_chat_template(tokenizer_directory(setup.config));
  io::PromptOptions options;
  options.no_tokenizer = setup.no_tokenizer;
  options.keys = setup.config.prompts.keys;
  options.overlong = setup.config.prompts.overlong;
  options.max_tokens = prompt_limit(setup);
  options.vocab_size = setup.model.vocab;
  options.chat = setup.config.prompts.chat;
  options.add_special_tokens = setup.config.prompts.add_special_tokens;
  options.estimate = plans && setup.tokenizer_state == TokenizerState::absent;
  options.request.sampling = setup.config.sampling;
  options.request.samples = setup.config.prompts.samples;
  if (setup.config.prompts.max_prompt_tokens == 0)
    options.request.context = setup.model.max_position;
  options.request.stops = [&setup](const SamplingParams& sampling) {
    return stop_set(setup.model, sampling, setup.tokenizer.get());
  };
  setup.prompts =
      io::read_prompts(setup.config.prompts.path, setup.tokenizer.get(), &chat, options);
  if (setup.prompts.prompts.empty()) {
    throw DataError(fmt::format("{}: every prompt is longer than {} tokens and was skipped",
                                setup.config.prompts.path, options.max_tokens));
  }
  if (setup.prompts.encoded)
    for (const std::string& warning : setup.tokenizer->warnings()) say("warning: {}", warning);
  if (setup.tokenizer_state == TokenizerState::unreadable) {
    say("warning: the tokenizer is not read, so that the run has token ids and no text, and may "
        "sample ids that no token has: {}",
        setup.no_tokenizer);
  }
  setup.turn_end = turn_end(chat, setup.tokenizer.get(), setup.prompts.prompts);
  if (setup.prompts.estimated)
    setup.absent.push_back("tokenizer of " + tokenizer_directory(setup.config));
  measure_prompts(setup);
}

namespace {

void require_supported(const std::string& backend, const std::string& path,
                       const ModelConfig& config) {
  const std::string why = kernels::unsupported(backend, config);
  if (!why.empty())
    throw DataError((std::filesystem::path(path) / "config.json").string() + ": " + why);
}

/// A norm over the features of several layers is wider than any of a model.
void require_supported_norm(const std::string& backend, const std::string& path,
                            const Eagle3Config& head) {
  const std::int64_t width = std::int64_t{head.features()} * head.target_hidden;
  constexpr int most = kernels::cuda::kMaxNormWidth;
  if (backend != "cuda" || head.feature_norm != FeatureNorm::joined || width <= most) return;
  throw DataError(
      fmt::format("{}: norm_before_fc: expected at most {} elements of features on a GPU, found {} "
                  "(engine.backend: cpu takes any)",
                  (std::filesystem::path(path) / "config.json").string(), most, width));
}

void choose_compute(const fabric::MpiEnvironment& mpi, Setup& setup,
                    const PlannedMachine* planned) {
  const fabric::RankFacts& me = setup.facts[mpi.rank()];
  setup.threads = setup.config.engine.threads.value_or(std::max(1, me.cores / me.sharers));
  together(mpi, [&] {
    setup.backend = choose_backend(mpi, setup.config.engine, setup.facts, planned);
    require_supported(setup.backend.name, setup.config.model.path, setup.model);
    for (const ConfiguredDrafter& drafter : setup.drafters) {
      const ModelConfig* config = drafter.model != nullptr  ? &drafter.model->config
                                  : drafter.head != nullptr ? &drafter.head->checkpoint.config.layer
                                                            : nullptr;
      if (config != nullptr) require_supported(setup.backend.name, drafter.setting.path, *config);
      if (drafter.head != nullptr)
        require_supported_norm(setup.backend.name, drafter.setting.path,
                               drafter.head->checkpoint.config);
    }
  });
}

/// Plans which ranks get which roles. `drafters_reason`: why so many ranks draft; empty:
/// layout.drafters says so.
void lay_out(Setup& setup, std::optional<int> drafters, const std::string& drafters_reason) {
  policy::LayoutFacts facts;
  facts.ranks = static_cast<int>(setup.facts.size());
  facts.segments = setup.model.segments();
  facts.weight_bytes = target_bytes(setup, 1);
  facts.sharers = weight_sharers(setup);
  facts.memory_per_rank = setup.backend.memory;
  for (const fabric::RankFacts& rank : setup.facts) facts.node_of_rank.push_back(rank.node);
  const io::LayoutSection& layout = setup.config.layout;
  setup.layout =
      policy::plan_layout(facts, {layout.verifier_tp.value_or(std::vector<std::int32_t>()),
                                  layout.verifier_groups, drafters, drafters_reason});
}

/// Reads engine.profile, on rank 0 for all. A profile that does not hold here is reported and not
/// used, for it could only slow the run down. Its threads are compared with rank 0's.
void check_profile(const fabric::MpiEnvironment& mpi, Setup& setup) {
  setup.conditions = {setup.backend.name, setup.backend.isa, setup.layout.placement.least_tp(),
                      setup.threads, shape_text(setup.model, setup.compute)};
  if (!setup.config.engine.profile) return;
  const std::string& path = *setup.config.engine.profile;
  std::string text;
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    text = io::read_yaml_file(path, "the cost profile");
    setup.profile = io::parse_cost_profile(text, path);
    setup.profile_fault = difference(*setup.profile, setup.conditions,
                                     setup.layout.placement.degrees(), setup.drafters, "this run");
  });
  broadcast(mpi, text, setup.profile_fault);
  if (mpi.rank() != 0) setup.profile = io::parse_cost_profile(text, path);
  // Drop the costs of drafters that this run does not have.
  std::erase_if(setup.profile->drafters, [&](const DrafterCosts& costs) {
    return std::none_of(
        setup.drafters.begin(), setup.drafters.end(),
        [&](const ConfiguredDrafter& drafter) { return drafter.name == costs.name; });
  });
}

/// Resets the settings for generating responses and for rewards.
void forget_generation(io::RunConfig& config) {
  config.layout.drafters = 0;
  config.engine.profile.reset();
  config.speculation = {};
  config.schedule = {};
  config.kv_pool = {};
  config.reward = {};
  config.sampling.keep_masks = false;
}

/// Takes the sizes of the run's responses, and checks that the model can have generated them.
void take_responses(Setup& setup, const io::StoredRun& run) {
  const std::string& path = setup.config.model.path;
  const auto vocabulary = static_cast<std::uint64_t>(setup.model.vocab);
  if (run.manifest.vocabulary != vocabulary) {
    throw DataError(fmt::format("{}: its tokens are of a vocabulary of {}, that of {} has {}",
                                run.paths.front(), run.manifest.vocabulary, path, vocabulary));
  }
  setup.config.prompts.path = run.paths.front();  // as the banner names it
  setup.config.prompts.samples = static_cast<std::int32_t>(run.manifest.samples);
  setup.responses = run.finished.size();
  for (const io::StoredResponse& response : run.finished) {
    const auto prompt = static_cast<std::int32_t>(run.prompts[response.prompt].tokens.size());
    const std::int64_t sequence = std::int64_t{prompt} + response.length;
    if (sequence > setup.model.max_position) {
      throw DataError(fmt::format(
          "{}: the response to prompt {}, sample {} ends after {} tokens, prompt included; {} has "
          "a context of {}",
          run.paths.front(), response.prompt, response.sample, sequence, path,
          setup.model.max_position));
    }
    setup.longest_prompt = std::max(setup.longest_prompt, prompt);
    setup.longest_sequence = std::max(setup.longest_sequence, static_cast<std::int32_t>(sequence));
  }
}

/// Rank 0 chooses for all: sums of floating point may differ from node to node, and ranks that lay
/// the job out differently would wait for each other.
void share_choice(const fabric::MpiEnvironment& mpi, Setup& setup) {
  together(mpi, [&] {
    if (mpi.rank() == 0) choose_speculation(setup, earlier_drafts(setup.config));
  });
  SpeculationChoice& choice = setup.speculation;
  broadcast(mpi, choice.drafter_ranks, choice.reason, choice.order, choice.acceptance,
            setup.config.speculation.window);
  put_drafters_in_order(setup);
}

/// The tokenizer's text, where it lies outside the model's directory and stop strings end
/// responses.
std::string text_that_decides(const Setup& setup) {
  if (!setup.config.model.tokenizer || setup.config.sampling.stop_strings.empty()) return "";
  return io::TokenizerFiles::read(*setup.config.model.tokenizer).tokenizer.value_or("");
}

}  // namespace

Setup prepare(const fabric::MpiEnvironment& mpi, const RunArguments& arguments, Standing& standing,
              const PlannedMachine* planned) {
  Setup setup;
  setup.facts = mpi.gather_facts();
  if (planned != nullptr) together(mpi, [&] { setup.facts = facts_of(*planned, setup.facts[0]); });
  const bool plans = planned != nullptr && planned->stated;
  together(mpi, [&] {
    setup.config = read_config(arguments, io::Purpose::run);
    set_patience(setup.config.limits.stall);
    read_model(setup, standing, plans);
    if (mpi.rank() == 0) read_prompts(setup, plans);
    if (!plans || setup.tokenizer_state != TokenizerState::absent) prepare_scoring(setup);
  });
  settle_checkpoints(mpi, setup);
  share_subjects(mpi, setup);

  setup.responses = setup.requests();
  broadcast(mpi, setup.longest_prompt, setup.longest_sequence, setup.mean_max_tokens,
            setup.responses);

  choose_compute(mpi, setup, planned);
  // A first layout settles the degree, by whose costs speculation is planned.
  together(mpi, [&] { lay_out(setup, setup.config.layout.drafters, ""); });
  check_profile(mpi, setup);
  share_choice(mpi, setup);
  together(mpi, [&] {
    const SpeculationChoice& choice = setup.speculation;
    lay_out(setup, choice.drafter_ranks, choice.reason);
    require_chains(setup);
    place_draft_servers(setup);
    plan_memory(setup);
    if (planned == nullptr) check_kv_disk(setup, setup.facts[mpi.rank()].host);
    if (mpi.rank() == 0) (void)known_lengths(setup);
  });
  return setup;
}

Setup prepare_given(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
                    const io::StoredRun& run) {
  Setup setup;
  setup.given = true;
  setup.facts = mpi.gather_facts();
  together(mpi, [&] {
    setup.config = read_config(arguments, io::Purpose::given);
    set_patience(setup.config.limits.stall);
    forget_generation(setup.config);
    Standing standing;
    read_model(setup, standing, false);
    take_responses(setup, run);
    if (mpi.rank() == 0) setup.prompts.prompts = run.prompts;
  });
  settle_checkpoints(mpi, setup);
  choose_compute(mpi, setup, nullptr);
  together(mpi, [&] {
    lay_out(setup, 0, "");
    plan_memory(setup);
  });
  return setup;
}

const std::string& tokenizer_directory(const io::RunConfig& config) {
  return config.model.tokenizer ? *config.model.tokenizer : config.model.path;
}

void require_tokenizer(const Setup& setup, const char* what) {
  switch (setup.tokenizer_state) {
    case TokenizerState::read:
      return;
    case TokenizerState::absent:
      throw UsageError(fmt::format("{}: the text of tokens is needed, but {} has no tokenizer.json",
                                   what, tokenizer_directory(setup.config)));
    case TokenizerState::unreadable:
      throw DataError(
          fmt::format("{}: the text of tokens is needed, but {}", what, setup.no_tokenizer));
  }
}

io::RunManifest manifest_of(const Setup& setup) {
  io::RunManifest manifest;
  manifest.program_version = version();
  manifest.config_text = setup.config.text;
  manifest.model_fingerprint =
      setup.weights->fingerprint(tokenizer_directory(setup.config), text_that_decides(setup));
  manifest.vocabulary = static_cast<std::uint64_t>(setup.model.vocab);
  manifest.prompts_fingerprint = io::prompts_fingerprint(setup.prompts.prompts);
  manifest.prompts = setup.prompts.prompts.size();
  manifest.samples = setup.config.prompts.samples;
  manifest.sampling = setup.config.sampling;
  manifest.stops = setup.stops;
  const std::set<std::string>& own = setup.prompts.fields.honoured;
  manifest.by_line.assign(own.begin(), own.end());
  manifest.longest_response = manifest.sampling.max_tokens;
  for (const Prompt& prompt : setup.prompts.prompts) {
    manifest.longest_response =
        std::max(manifest.longest_response, prompt.sampling.max_tokens.value_or(0));
  }
  manifest.weight_version = setup.config.model.weight_version;
  manifest.backend = setup.backend.name;
  manifest.isa = setup.backend.isa;
  manifest.dtype = setup.compute;
  return manifest;
}

}  // namespace paceline::app
