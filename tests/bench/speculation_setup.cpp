#include "tests/bench/speculation_setup.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <random>

#include "io/text/chat_template.hpp"
#include "io/text/prompts.hpp"
#include "kernels/gpus.hpp"
#include "runtime/core/error.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/draft/suffix_drafter.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/bench/machine.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace paceline::bench {
namespace {

constexpr int kBlock = 16;
constexpr int kPrefillChunk = 256;
constexpr int kRandomPromptTokens = 32;
constexpr int kRoomForPrompt = 256;

std::vector<std::vector<TokenId>> read_text_prompts(const SpeculationOptions& options) {
  const io::Tokenizer tokenizer = io::Tokenizer::load(options.target);
  const io::ChatTemplate chat = io::ChatTemplate::load(options.target);
  io::PromptOptions reading;
  reading.max_tokens = kRoomForPrompt;
  reading.overlong = io::Overlong::skip;
  std::vector<std::vector<TokenId>> prompts;
  for (Prompt& prompt : io::read_prompts(options.prompts, &tokenizer, &chat, reading).prompts) {
    if (static_cast<int>(prompts.size()) == options.prompt_count) break;
    prompts.push_back(std::move(prompt.tokens));
  }
  return prompts;
}

std::vector<std::vector<TokenId>> random_prompts(int count, int vocab) {
  std::mt19937 random(1);
  std::vector<std::vector<TokenId>> prompts(count);
  for (auto& prompt : prompts) {
    for (int i = 0; i < kRandomPromptTokens; ++i)
      prompt.push_back(static_cast<TokenId>(random() % vocab));
  }
  return prompts;
}

BenchModel load_target(const SpeculationOptions& o) {
  if (o.layers_draft == 0) return load_model(o.target);
  BenchModel target = load_model(o.target, {.first = o.layers_draft, .scale = o.scale});
  if (o.layers_draft >= target.config.layers)
    throw UsageError("the target has only " + std::to_string(target.config.layers) + " layers");
  if (target.config.tied_embeddings)
    throw UsageError("random models with tied embeddings repeat their input, and so agree anyhow");
  return target;
}

}  // namespace

double SpeculationClock::now() const {
  if (!cpu_) return bench::now();
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

SpeculationSetup::SpeculationSetup(const SpeculationOptions& o)
    : options(o),
      target(load_target(o)),
      backend(o.device ? kernels::make_cuda_backend(0)
                       : kernels::make_cpu_backend(o.threads, o.isa)) {
  const auto& names = options.drafters;
  if (options.acceptance || std::find(names.begin(), names.end(), "model") != names.end()) {
    draft = o.layers_draft == 0 ? load_model(o.draft) : first_layers(target.config, o.layers_draft);
  }
  if (o.head == "mtp") {
    MtpConfig layer = io::next_token_layer(target.config, o.target + "/config.json");
    io::check_tensor_shapes(layer, *target.weights);
    head = std::move(layer);
  } else if (!o.head.empty()) {
    io::Eagle3Checkpoint eagle = io::load_eagle3(model::families(), o.head);
    io::require_fits(o.head, eagle.config, target.config);
    head = std::move(eagle.config);
    head_weights = std::move(eagle.weights);
  }
  if (std::filesystem::exists(std::filesystem::path(options.target) / "tokenizer.json")) {
    prompts = read_text_prompts(options);
    stops = target.config.eos;
  } else {  // made-up weights: their own end token ends nothing
    prompts = random_prompts(options.prompt_count, target.config.vocab);
    for (TokenId id = 0; id < options.stops; ++id) stops.push_back(id);
  }
  for (const auto& prompt : prompts) longest = std::max(longest, static_cast<int>(prompt.size()));
  const int prompt_blocks = kv::blocks_for(longest, kBlock);
  longest = std::min(target.config.max_position, longest + options.max_tokens);
  largest_batch = *std::max_element(options.batches.begin(), options.batches.end());
  kv_blocks = largest_batch * (kv::blocks_for(longest, kBlock) + prompt_blocks + 1);
  limits = {.max_batch = largest_batch,
            .max_draft = options.max_length * options.paths,
            .prefill_chunk = kPrefillChunk,
            .kv_block = kBlock,
            .kv_blocks = kv_blocks,
            .max_position = longest,
            .features = head ? feature_layers(*head, target.config) : std::vector<std::int32_t>()};
  executor = std::make_unique<engine::Executor>(*backend, load(target), group,
                                                sampling(options.max_tokens), stops, limits);
}

Admission SpeculationSetup::request(int index, std::uint32_t first_prompt) const {
  const int prompt = index / options.samples;
  const auto sample = static_cast<std::uint32_t>(index % options.samples);
  Admission request;
  request.trajectory.id = {first_prompt + static_cast<std::uint32_t>(prompt), sample};
  request.prompt = prompts[prompt % prompts.size()];
  request.noise = noise_key(1, 0, std::to_string(prompt), sample);
  return request;
}

SamplingParams SpeculationSetup::sampling(int max_tokens) const {
  SamplingParams sampling;
  sampling.max_tokens = max_tokens;
  sampling.temperature = static_cast<float>(options.temperature);
  return sampling;
}

engine::Batcher SpeculationSetup::batcher(int max_batch, int max_tokens) const {
  return engine::Batcher({.max_batch = max_batch,
                          .prefill_chunk = kPrefillChunk,
                          .kv_block = kBlock,
                          .kv_blocks = kv_blocks,
                          .context = longest},
                         sampling(max_tokens), stops, nullptr);
}

draft::SequenceDrafterOptions SpeculationSetup::drafter_options(int max_batch, int paths,
                                                                draft::DraftNoise noise) const {
  draft::SequenceDrafterOptions o;
  o.noise = noise;
  o.vocab = target.config.vocab;
  o.max_requests = max_batch;
  o.kv_block = kBlock;
  o.kv_blocks = max_batch * kv::Sequences::blocks_needed(longest, kBlock);
  o.max_position = longest;
  o.max_length = options.max_length;
  o.paths = paths;
  o.prefill_chunk = kPrefillChunk;
  return o;
}

std::unique_ptr<draft::Drafter> SpeculationSetup::head_drafter(int max_batch, int max_tokens,
                                                               int paths, draft::DraftNoise noise) {
  draft::SequenceDrafterOptions o = drafter_options(max_batch, paths, noise);
  o.kv_blocks = max_batch * kv::Sequences::blocks_needed(longest + o.max_length * paths, kBlock);
  const WeightSource& source = head_weights ? *head_weights : *target.weights;
  auto weights =
      std::make_shared<const model::HeadWeights>(*backend, *head, source, target.compute);
  return std::make_unique<draft::HeadDrafter>(*backend, std::move(weights), executor->embedding(),
                                              group, sampling(max_tokens), stops, o);
}

std::unique_ptr<draft::Drafter> SpeculationSetup::model_drafter(int max_batch, int max_tokens,
                                                                int paths,
                                                                draft::DraftNoise noise) {
  draft::ModelDrafterOptions o = drafter_options(max_batch, paths, noise);
  o.max_position = std::min(draft->config.max_position, longest);
  return std::make_unique<draft::ModelDrafter>(
      *backend, [this] { return load(*draft); }, group, sampling(max_tokens), stops, o);
}

std::shared_ptr<const model::Weights> SpeculationSetup::load(const BenchModel& model) {
  return model::load_weights(*backend, model.config, *model.weights, group, model.compute);
}

std::unique_ptr<draft::Drafter> SpeculationSetup::drafter(const std::string& name, int max_batch,
                                                          int max_tokens) {
  if (name == "model") return model_drafter(max_batch, max_tokens, options.paths);
  if ((name == "eagle3" || name == "mtp") && head)
    return head_drafter(max_batch, max_tokens, options.paths);
  if (name == "ngram") return std::make_unique<draft::NgramDrafter>(draft::NgramOptions{});
  if (name != "suffix")
    throw UsageError("drafters are model, eagle3 (with --head), mtp, ngram and suffix, not " +
                     name);
  return std::make_unique<draft::SuffixDrafter>(draft::SuffixDrafterOptions{}, pool);
}

speculation::DrafterRoster SpeculationSetup::drafters(int max_batch, int max_tokens) {
  speculation::DrafterRoster roster;
  for (const std::string& name : options.drafters)
    roster.push_back({.name = name, .drafter = drafter(name, max_batch, max_tokens)});
  return roster;
}

CostMeasurement SpeculationSetup::measure_costs(const speculation::DrafterRoster& drafters,
                                                int max_batch, const Clock& clock) {
  MeasuredEngine engine{*executor, limits, target.config.vocab, {}, options.max_length};
  engine.limits.max_batch = max_batch;
  for (const speculation::RosterEntry& entry : drafters)
    engine.drafters.push_back({entry.name, *entry.drafter});
  return paceline::measure_costs(engine, clock, {});
}

}  // namespace paceline::bench
