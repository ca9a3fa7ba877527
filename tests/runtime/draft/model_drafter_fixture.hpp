// What the tests of model drafters share: the embedded models, and requests as a test follows them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/eagle3_reader.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "io/text/tokenizer.hpp"
#include "runtime/draft/model_drafter.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/runtime/draft/naive_tree.hpp"
#include "tests/runtime/model/load_weights.hpp"

namespace paceline::draft {

using Text = std::vector<TokenId>;

inline const std::string kModels = PACELINE_SOURCE_DIR "/configs/models/";
inline const Text kStops = {511, 509};
inline constexpr int kContext = 512;

struct Model {
  explicit Model(const std::string& name)
      : config(io::load_model_config(model::families(), kModels + name)), weights(kModels + name) {}
  ModelConfig config;
  io::Checkpoint weights;
};
inline const Model& target() {
  static const Model model("target");
  return model;
}
inline const Model& small() {
  static const Model model("draft");
  return model;
}

inline Text chat(const std::string& question) {
  static const io::Tokenizer tokenizer = io::Tokenizer::load(kModels + "target");
  return tokenizer.encode("<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n");
}

/// A request as a test follows it.
struct Told {
  RequestId id;
  Text prompt;
  NoiseKey noise;
  Text response;
  [[nodiscard]] DraftStart start() const { return {id, prompt, response, noise}; }
  [[nodiscard]] bool ended() const {
    return !response.empty() &&
           std::find(kStops.begin(), kStops.end(), response.back()) != kStops.end();
  }
};

struct Draft {
  Text tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  friend bool operator==(const Draft&, const Draft&) = default;
  /// From the committed text on, always the first child.
  [[nodiscard]] Text main_path() const {
    Text path;
    std::int32_t at = -1;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (parents[i] != at) continue;
      path.push_back(tokens[i]);
      at = static_cast<std::int32_t>(i);
    }
    return path;
  }
};

inline Draft draft_of(const DraftSlot& slot) {
  const auto first = [&](const auto& span) {
    return std::vector(span.begin(), span.begin() + slot.count);
  };
  return {first(slot.output.tokens), first(slot.output.parents), first(slot.output.scores)};
}

class ModelDrafterFixture : public testing::Test {
 protected:
  ModelDrafterOptions options() const {
    ModelDrafterOptions o;
    o.vocab = 512;
    o.max_requests = 4;
    o.kv_blocks = 4 * kContext / 16;
    o.max_position = kContext;
    o.max_length = 8;
    o.paths = 3;
    o.prefill_chunk = 29;  // prompts take several passes
    return o;
  }
  std::unique_ptr<ModelDrafter> make(const Model& model, const SamplingParams& sampling,
                                     const ModelDrafterOptions& o) {
    return std::make_unique<ModelDrafter>(
        *backend_, [this, &model] { return load(model); }, group_, sampling, kStops, o);
  }
  std::shared_ptr<const model::Weights> load(const Model& model) {
    return model::load_weights(*backend_, model.config, model.weights, group_, DType::bf16);
  }
  /// assumed: [requests] or empty.
  static std::vector<Draft> propose(Drafter& drafter, const std::vector<const Told*>& requests,
                                    const DraftLimits& limits, int capacity = 64,
                                    Levels* levels = nullptr,
                                    const std::vector<Text>& assumed = {}) {
    std::vector<DraftBuffers> buffers(requests.size(), DraftBuffers(capacity));
    std::vector<DraftSlot> batch(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      batch[i].id = requests[i]->id;
      batch[i].limits = limits;
      batch[i].output = buffers[i].output();
      if (!assumed.empty()) batch[i].assumed = assumed[i];
      batch[i].count = -1;
    }
    drafter.propose(batch, 0, levels);
    std::vector<Draft> drafts;
    for (const DraftSlot& slot : batch) drafts.push_back(draft_of(slot));
    return drafts;
  }
  static Draft propose(Drafter& drafter, const Told& request, const DraftLimits& limits,
                       int capacity = 64) {
    return propose(drafter, std::vector<const Told*>{&request}, limits, capacity)[0];
  }
  static void commit(Drafter& drafter, Told& request, const Text& tokens) {
    drafter.commit(request.id, tokens, 0);
    request.response.insert(request.response.end(), tokens.begin(), tokens.end());
  }

  /// Four requests to prompts of different lengths.
  static std::vector<Told> four() {
    return {{{0, 0}, chat("Compute 153 * 5."), {1, 10}, {}},
            {{1, 0}, chat("Please work out 81483 + 25947 + 18641."), {2, 11}, {}},
            {{2, 0}, chat("What is 2 + 4 + 4 + 16?"), {3, 12}, {}},
            {{2, 1}, chat("What is 2 + 4 + 4 + 16?"), {4, 13}, {}}};
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::make_cpu_backend(1);
  fabric::SingleRankGroup group_;
};

}  // namespace paceline::draft
