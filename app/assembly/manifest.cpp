#include "app/assembly/manifest.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "app/commands/version.hpp"

namespace paceline::app {
namespace {

/// Returns the text of model.tokenizer's tokenizer file, which decides where stop strings match; ""
/// if neither the run nor a prompt has stop strings, or model.tokenizer is not set.
std::string deciding_tokenizer(const Inputs& inputs) {
  const std::set<std::string>& own = inputs.prompts.fields.honoured;
  const bool stops = !inputs.config.sampling.stop_strings.empty() || own.contains("stop_strings") ||
                     own.contains("stop");
  if (!inputs.config.model.tokenizer || !stops) return "";
  const io::TokenizerFiles files = io::TokenizerFiles::read(*inputs.config.model.tokenizer);
  return files.tokenizer ? *files.tokenizer : files.tiktoken.value_or("");
}

/// Returns the settings that turn pictures into input of the vision tower; "" if no prompt has
/// pictures.
std::string deciding_processor(const Inputs& inputs) {
  if (inputs.sizes.largest_picture == 0) return "";
  const ImageProcessorConfig& p = *inputs.picture_processor;
  return fmt::format("pictures {} {} {} {} {} {} {} {}", p.patch, p.temporal_patch, p.merge,
                     p.min_pixels, p.max_pixels, p.rescale, fmt::join(p.mean, " "),
                     fmt::join(p.deviation, " "));
}

}  // namespace

io::RoutingShape routing_shape(const ModelConfig& config) {
  io::RoutingShape shape;
  if (!config.experts) return shape;
  for (std::int32_t layer = 0; layer < config.layers; ++layer)
    shape.layers.push_back(config.experts->in_layer(layer) ? 1 : 0);
  shape.chosen = config.experts->chosen;
  shape.experts = config.experts->routed;
  return shape;
}

io::RunManifest manifest_of(const Inputs& inputs, const BackendChoice& backend) {
  io::RunManifest manifest;
  manifest.program_version = version();
  manifest.config_text = inputs.config.text;
  manifest.model_fingerprint = inputs.target.weights->fingerprint(
      tokenizer_directory(inputs.config), deciding_tokenizer(inputs) + deciding_processor(inputs));
  manifest.vocabulary = static_cast<std::uint64_t>(inputs.target.config.vocab);
  if (inputs.config.sampling.keep_routing) manifest.routing = routing_shape(inputs.target.config);
  manifest.backend = backend.name;
  manifest.isa = backend.isa;
  manifest.dtype = inputs.target.compute;
  describe_requests(inputs, manifest);
  return manifest;
}

void describe_requests(const Inputs& inputs, io::RunManifest& manifest) {
  manifest.prompts_fingerprint = io::prompts_fingerprint(inputs.prompts.prompts);
  manifest.prompts = inputs.prompts.prompts.size();
  manifest.samples = 1;
  manifest.own_samples.clear();
  for (const Prompt& prompt : inputs.prompts.prompts) {
    manifest.own_samples.push_back(inputs.samples_of(prompt));
    manifest.samples = std::max(manifest.samples, manifest.own_samples.back());
  }
  const std::vector<std::uint32_t>& each = manifest.own_samples;
  if (std::ranges::all_of(each, [&](std::uint32_t samples) { return samples == manifest.samples; }))
    manifest.own_samples.clear();
  manifest.sampling = inputs.config.sampling;
  manifest.stops = inputs.ends.stops;
  const std::set<std::string>& own = inputs.prompts.fields.honoured;
  manifest.repeated.clear();
  manifest.by_line.assign(own.begin(), own.end());
  const std::set<std::string>& differing = inputs.prompts.fields.differing;
  std::set_difference(own.begin(), own.end(), differing.begin(), differing.end(),
                      std::back_inserter(manifest.repeated));
  manifest.longest_response = manifest.sampling.max_tokens;
  for (const Prompt& prompt : inputs.prompts.prompts) {
    manifest.longest_response =
        std::max(manifest.longest_response, prompt.sampling.max_tokens.value_or(0));
  }
  manifest.environment.reset();
  if (inputs.config.converses()) {
    const io::EnvironmentSection& environment = inputs.config.environment;
    manifest.environment = {environment.command, environment.max_turns,
                            environment.max_tokens_turn.value_or(0)};
  }
  manifest.choice.reset();
  if (inputs.config.prompts.enough)
    manifest.choice = {.enough = static_cast<std::uint64_t>(*inputs.config.prompts.enough),
                       .shuffled = inputs.config.prompts.shuffle};
  manifest.weight_version = inputs.config.model.weight_version;
}

}  // namespace paceline::app
