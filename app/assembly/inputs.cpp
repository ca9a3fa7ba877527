#include "app/assembly/inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/assembly/communicator.hpp"
#include "app/assembly/conversing.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/scoring.hpp"
#include "app/terminal/pulse.hpp"
#include "app/terminal/standing.hpp"
#include "app/terminal/terminal.hpp"
#include "io/checkpoint/image_processor_reader.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/config/path_text.hpp"
#include "io/config/yaml_tree.hpp"
#include "io/text/chat_template.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::app {
io::RunConfig read_config(const RunArguments& arguments, io::Purpose purpose) {
  std::vector<std::string> overrides = arguments.overrides;
  if (!arguments.output.empty()) {  // taken literally, because the shell has expanded it already
    const std::string path = std::filesystem::absolute(arguments.output).string();
    overrides.push_back("output.directory=" + io::quote_yaml(io::path_text(path)));
  }
  return io::read_run_config(arguments.config, overrides, purpose);
}

io::RunConfig read_config(const fabric::MpiEnvironment& mpi, const RunArguments& arguments,
                          io::Purpose purpose) {
  io::RunConfig config;
  together(mpi, [&] {
    config = read_config(arguments, purpose);
    set_patience(config.limits.stall);
  });
  return config;
}

namespace {

/// Throws UsageError if sampling.min_tokens leaves no token that can be sampled first. Before a
/// response has sampling.min_tokens tokens, tokens that end a response are banned.
void require_way_on(const Inputs& inputs) {
  const SamplingParams& sampling = inputs.config.sampling;
  if (sampling.min_tokens == 0 ||
      std::ssize(banned_early(sampling, inputs.ends.stops)) < inputs.target.config.vocab)
    return;
  throw UsageError(fmt::format(
      "sampling.min_tokens: found {}, but no token of this model may be sampled first: each ends a "
      "response (an end token, or one of sampling.stop_ids) or is banned. Expected 0",
      sampling.min_tokens));
}

}  // namespace

LoadedTokenizer read_tokenizer(const io::RunConfig& config, const ModelConfig& target,
                               Standing& standing) {
  LoadedTokenizer text;
  io::TokenizerFiles files = io::TokenizerFiles::read(tokenizer_directory(config));
  text.absence = files.absence();
  if (!text.absence.empty()) {
    if (config.model.tokenizer) throw DataError("model.tokenizer: " + text.absence);
    text.state = files.other_kind.empty() ? LoadedTokenizer::State::absent
                                          : LoadedTokenizer::State::unreadable;
    return text;
  }
  try {
    text.tokenizer = standing.tokenizer(std::move(files));
  } catch (const DataError& error) {
    text.state = LoadedTokenizer::State::unreadable;
    text.absence = error.what();
    return text;
  }
  text.tokenizer->require_fits(target.vocab);
  return text;
}

namespace {

/// Reads the target's description and weights. `plans`: as in read_inputs().
ModelCheckpoint read_target(const io::RunConfig& config, bool plans,
                            std::vector<std::string>& absent) {
  const std::string& path = config.model.path;
  ModelCheckpoint target;
  target.config = io::load_model_config(model::families(), path, tokenizer_directory(config));
  if (plans && !io::Checkpoint::is_there(path)) {
    absent.push_back("weights of " + path);
  } else {
    target.read_weights(path);
  }
  target.compute = config.model.dtype.value_or(compute_of(target.stored()));
  return target;
}

/// Reads the settings by which pictures become input of the target. If they are missing or wrong,
/// media_refusal gets the reason, and only prompts with pictures fail.
void read_picture_processor(Inputs& inputs) {
  const std::optional<VisionConfig>& vision = inputs.target.config.vision;
  if (!vision) return;
  try {
    if (!vision->tower)
      throw DataError(inputs.config.model.path + ": config.json has no vision tower");
    if (vision->image_token < 0)
      throw DataError(inputs.config.model.path + ": config.json has no image_token_id");
    const std::string& path = inputs.config.model.path;
    const ImageProcessorConfig processor = io::load_image_processor(path);
    const TowerConfig& tower = *vision->tower;
    if (processor.patch != tower.patch || processor.temporal_patch != tower.temporal_patch ||
        processor.merge != tower.merge) {
      throw DataError(fmt::format(
          "{}: preprocessor_config.json has patches of {} x {} x {} and merge size {}; config.json "
          "has patches of {} x {} x {} and merge size {}; expected the same sizes",
          path, processor.temporal_patch, processor.patch, processor.patch, processor.merge,
          tower.temporal_patch, tower.patch, tower.patch, tower.merge));
    }
    inputs.picture_processor = processor;
    inputs.media_refusal = "the model is given text, and pictures under 'images'";
  } catch (const DataError& error) {
    inputs.media_refusal = std::string("pictures cannot be read: ") + error.what();
  }
}

/// Reads the target, its tokenizer and the drafters. `plans`: as in read_inputs().
void read_models(Inputs& inputs, Standing& standing, bool plans) {
  inputs.target = read_target(inputs.config, plans, inputs.absent);
  const ModelConfig& target = inputs.target.config;
  read_picture_processor(inputs);
  inputs.text = read_tokenizer(inputs.config, target, standing);
  const io::Tokenizer* tokenizer = inputs.text.tokenizer.get();

  SamplingParams& sampling = inputs.config.sampling;
  inputs.ends.stops = stop_set(target, sampling, tokenizer);
  sampling.masked = masked_tokens(target, sampling, tokenizer, inputs.ends.stops);
  require_way_on(inputs);
  if (sampling.keep_routing && !target.experts && !inputs.given)
    throw UsageError("sampling.keep_routing: expected a mixture of experts, found a dense model");
  inputs.ends.earlier_eos = standing.eos(target.eos);
  inputs.drafters = read_drafters(inputs.config.speculation, inputs.config.model.path,
                                  inputs.target, tokenizer, plans ? &inputs.absent : nullptr);
  const bool without = plans && inputs.text.state == LoadedTokenizer::State::absent;
  if (!inputs.given && !sampling.stop_strings.empty() && !without)
    require_tokenizer(inputs, "sampling.stop_strings");
}

// Returns the greatest length of a prompt in tokens. Throws UsageError if the settings leave no
// room in the context for a prompt or for a response.
std::int32_t prompt_limit(const Inputs& inputs) {
  const std::int32_t context = inputs.target.config.max_position;
  const std::int32_t set = inputs.config.prompts.max_prompt_tokens;
  if (set >= context) {
    throw UsageError(
        fmt::format("prompts.max_prompt_tokens: {} leaves no room for a response in the model's "
                    "context of {} tokens",
                    set, context));
  }
  if (set > 0) return set;
  const std::int32_t beside = context - inputs.config.sampling.max_tokens;
  if (beside < 1) {
    throw UsageError(
        fmt::format("sampling.max_tokens: {} leaves no room for a prompt in the model's context of "
                    "{} tokens; lower it, or set "
                    "prompts.max_prompt_tokens (responses then end where the context does)",
                    inputs.config.sampling.max_tokens, context));
  }
  return beside;
}

/// Number of patches of the prompt's largest picture; 0: the prompt has no pictures.
std::int32_t largest_picture(const Prompt& prompt) {
  std::int64_t most = 0;
  for (const PromptPicture& picture : prompt.pictures)
    most = std::max(most, picture.grid.patches());
  return static_cast<std::int32_t>(most);
}

RequestSizes sizes_of(const Inputs& inputs) {
  const std::vector<Prompt>& prompts = inputs.prompts.prompts;
  RequestSizes sizes;
  double most = 0;
  for (const Prompt& prompt : prompts) {
    const auto tokens = static_cast<std::int32_t>(prompt.tokens.size());
    const std::int32_t response =
        prompt.sampling.max_tokens.value_or(inputs.config.sampling.max_tokens);
    sizes.responses += inputs.samples_of(prompt);
    sizes.own_samples |=
        std::cmp_not_equal(inputs.samples_of(prompt), inputs.config.prompts.samples);
    sizes.largest_picture = std::max(sizes.largest_picture, largest_picture(prompt));
    sizes.longest_prompt = std::max(sizes.longest_prompt, tokens);
    sizes.longest_sequence = std::max(
        sizes.longest_sequence, std::min(inputs.target.config.max_position, tokens + response));
    most += response;
  }
  sizes.mean_max_tokens = most / static_cast<double>(prompts.size());
  return sizes;
}

}  // namespace

void read_prompts(Inputs& inputs, bool plans) {
  const io::ChatTemplate chat = read_chat_template(tokenizer_directory(inputs.config));
  io::PromptOptions options;
  options.no_tokenizer = inputs.text.absence;
  options.keys = inputs.config.prompts.keys;
  options.overlong = inputs.config.prompts.overlong;
  options.max_tokens = prompt_limit(inputs);
  options.vocab_size = inputs.target.config.vocab;
  if (inputs.target.config.vision)
    options.placeholders = inputs.target.config.vision->placeholders();
  if (inputs.picture_processor)
    options.pictures = {inputs.target.config.vision->image_token, *inputs.picture_processor};
  options.request.no_media = inputs.media_refusal;
  options.chat = inputs.config.prompts.chat;
  options.add_special_tokens = inputs.config.prompts.add_special_tokens;
  options.estimate = plans && inputs.text.state == LoadedTokenizer::State::absent;
  options.request.sampling = inputs.config.sampling;
  options.request.samples = inputs.config.prompts.samples;
  if (inputs.config.prompts.max_prompt_tokens == 0)
    options.request.context = inputs.target.config.max_position;
  options.request.stops = [&inputs](const SamplingParams& sampling) {
    return stop_set(inputs.target.config, sampling, inputs.text.tokenizer.get());
  };
  inputs.prompts =
      io::read_prompts(inputs.config.prompts.path, inputs.text.tokenizer.get(), &chat, options);
  if (inputs.prompts.prompts.empty()) {
    throw DataError(fmt::format("{}: every prompt is longer than {} tokens and was skipped",
                                inputs.config.prompts.path, options.max_tokens));
  }
  if (inputs.prompts.encoded)
    for (const std::string& warning : inputs.text.tokenizer->warnings())
      say("warning: {}", warning);
  if (inputs.text.state == LoadedTokenizer::State::unreadable) {
    say("warning: the tokenizer cannot be read: {}. Responses have token ids but no text, and may "
        "contain ids without a token",
        inputs.text.absence);
  }
  inputs.ends.turn = turn_end(chat, inputs.text.tokenizer.get(), inputs.prompts.prompts);
  if (inputs.prompts.estimated)
    inputs.absent.push_back("tokenizer of " + tokenizer_directory(inputs.config));
  inputs.sizes = sizes_of(inputs);
}

namespace {

/// Resets the settings that `paceline score` does not need: drafting, scheduling, the KV pool,
/// rewards, environments, profiles and kept masks.
void forget_generation(io::RunConfig& config) {
  config.layout.drafters = 0;
  config.engine.profile.reset();
  config.speculation = {};
  config.schedule = {};
  config.kv_pool = {};
  config.reward = {};
  config.environment = {};
  config.sampling.keep_masks = false;
}

/// Sets the size of the run's largest picture. Throws DataError if pictures do not fit the model.
void take_pictures(Inputs& inputs, const io::StoredRun& run) {
  const std::optional<VisionConfig>& vision = inputs.target.config.vision;
  const auto is_place = [&](TokenId id) { return vision && id == vision->image_token; };
  for (const Prompt& prompt : run.prompts) {
    const auto fail = [&](const std::string& why) {
      throw DataError(fmt::format("{}: prompt {}: {}", run.paths.front(), prompt.uid, why));
    };
    const auto places = std::ranges::count_if(prompt.tokens, is_place);
    if (prompt.pictures.empty() && places == 0) continue;
    if (prompt.pictures.empty())
      fail("expected the hashes and grids of its pictures, found none in /prompts");
    if (!inputs.picture_processor) fail("it has pictures, but " + inputs.media_refusal);
    const std::int64_t merge = inputs.picture_processor->merge;
    const auto end = static_cast<std::int64_t>(prompt.tokens.size());
    std::int64_t rows = 0;
    for (const PromptPicture& picture : prompt.pictures) {
      const std::int64_t own = picture.grid.patches() / (merge * merge);
      const std::int64_t first = picture.first;
      rows += own;
      if (first < 0 || first + own >= end ||
          !std::all_of(prompt.tokens.begin() + first, prompt.tokens.begin() + first + own,
                       is_place)) {
        fail(fmt::format(
            "expected {} image tokens ({}, as in {}) from token {} on, for a picture of {} x {} "
            "patches",
            own, vision->image_token, inputs.config.model.path, first + 1, picture.grid.rows,
            picture.grid.columns));
      }
    }
    if (rows != places) fail(fmt::format("expected {} image tokens, found {}", rows, places));
    inputs.sizes.largest_picture = std::max(inputs.sizes.largest_picture, largest_picture(prompt));
  }
}

/// Sets the sizes of the run's responses. Throws DataError if the model cannot have generated them.
void take_responses(Inputs& inputs, const io::StoredRun& run) {
  const std::string& path = inputs.config.model.path;
  const auto vocabulary = static_cast<std::uint64_t>(inputs.target.config.vocab);
  if (run.manifest.vocabulary != vocabulary) {
    throw DataError(
        fmt::format("{}: the run's vocabulary has {} tokens; the vocabulary of {} has {}",
                    run.paths.front(), run.manifest.vocabulary, path, vocabulary));
  }
  take_pictures(inputs, run);
  inputs.config.prompts.path = run.paths.front();  // for the banner
  inputs.config.prompts.samples = static_cast<std::int32_t>(run.manifest.samples);
  inputs.sizes.responses = run.finished.size();
  for (const io::StoredResponse& response : run.finished) {
    const auto prompt = static_cast<std::int32_t>(run.prompts[response.prompt].tokens.size());
    const std::int64_t sequence = std::int64_t{prompt} + response.length;
    if (sequence > inputs.target.config.max_position) {
      throw DataError(fmt::format(
          "{}: the response to prompt {}, sample {} ends after {} tokens, prompt included; {} has "
          "a context of {}",
          run.paths.front(), response.prompt, response.sample, sequence, path,
          inputs.target.config.max_position));
    }
    inputs.sizes.longest_prompt = std::max(inputs.sizes.longest_prompt, prompt);
    inputs.sizes.longest_sequence =
        std::max(inputs.sizes.longest_sequence, static_cast<std::int32_t>(sequence));
  }
}

}  // namespace

Inputs read_inputs(const fabric::MpiEnvironment& mpi, io::RunConfig config, Standing& standing,
                   bool plans) {
  Inputs inputs;
  inputs.config = std::move(config);
  together(mpi, [&] {
    read_models(inputs, standing, plans);
    if (mpi.rank() == 0) read_prompts(inputs, plans);
    if (plans && inputs.text.state == LoadedTokenizer::State::absent) return;
    prepare_scoring(inputs);
    prepare_environment(inputs);
  });
  settle_checkpoints(mpi, inputs);
  share_subjects(mpi, inputs);
  share_scenes(mpi, inputs);
  broadcast(mpi, inputs.sizes);
  return inputs;
}

Inputs read_given(const fabric::MpiEnvironment& mpi, io::RunConfig config, const io::StoredRun& run,
                  bool gives_routing) {
  Inputs inputs;
  inputs.given = true;
  inputs.gives_routing = gives_routing;
  inputs.config = std::move(config);
  forget_generation(inputs.config);
  together(mpi, [&] {
    Standing standing;
    read_models(inputs, standing, false);
    take_responses(inputs, run);
    if (mpi.rank() == 0) inputs.prompts.prompts = run.prompts;
  });
  settle_checkpoints(mpi, inputs);
  return inputs;
}

io::ChatTemplate read_chat_template(const std::string& directory) {
  try {
    return io::ChatTemplate::load(directory);
  } catch (const DataError& error) {
    return io::ChatTemplate::refused(error.what());
  }
}

const std::string& tokenizer_directory(const io::RunConfig& config) {
  return config.model.tokenizer ? *config.model.tokenizer : config.model.path;
}

void require_tokenizer(const Inputs& inputs, const char* what) {
  switch (inputs.text.state) {
    case LoadedTokenizer::State::read:
      return;
    case LoadedTokenizer::State::absent:
      throw UsageError(
          fmt::format("{}: the text of tokens is needed, but {}", what, inputs.text.absence));
    case LoadedTokenizer::State::unreadable:
      throw DataError(
          fmt::format("{}: the text of tokens is needed, but {}", what, inputs.text.absence));
  }
}

}  // namespace paceline::app
