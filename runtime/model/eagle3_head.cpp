// An EAGLE-3 head (EAGLE-3, arXiv 2503.01840, section 3.1; tensors and order of operations as in
// SafeAILab's checkpoints). `fc` brings the target's features to the head's width (in EAGLE-3.1
// after norms of their own). The first layer's attention reads a token's embedding and these
// features side by side; further layers, as in vLLM, are ordinary ones.
#include "runtime/model/heads.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/model/grouped_attention.hpp"
#include "runtime/model/mlp.hpp"

namespace paceline::model {
namespace {

class Eagle3Head final : public FeatureHead {
 public:
  explicit Eagle3Head(HeadParts parts)
      : FeatureHead(std::move(parts)),
        config_(std::get<Eagle3Config>(weights_->config())),
        attention_(activations_, config_.layer, shard_, most_.rows, weights_->compute()),
        mlp_(activations_, config_.layer.intermediate, most_.rows, weights_->compute()) {
    target_features_ = activations_.make<std::byte>(most_.rows, feature_bytes());
    for (int i = 0; i < static_cast<int>(weights_->fc_norms().size()); ++i) {
      const bool joined = config_.feature_norm == FeatureNorm::joined;
      stored_features_.push_back(activations_.make<float>(
          most_.rows, (joined ? config_.features() : 1) * config_.target_hidden));
    }
    if (config_.feature_norm == FeatureNorm::each)
      part_normed_ = activations_.make<float>(most_.rows, config_.target_hidden);
  }

 private:
  // Norms read fp32, so features that are normalised first are converted.
  void take(std::span<const std::byte> features) override {
    if (stored_features_.empty()) {
      backend_.write(target_features_.row(0), features);
      return;
    }
    const std::size_t rows = features.size() / feature_bytes();
    const std::size_t all = feature_bytes() / size_of(weights_->compute());
    const std::vector<float> values = floats_of(features, weights_->compute());
    std::vector<float> part;
    for (std::size_t i = 0; i < stored_features_.size(); ++i) {
      const std::size_t width = stored_features_[i].width;
      part.resize(rows * width);
      for (std::size_t row = 0; row < rows; ++row)
        std::copy_n(values.data() + row * all + i * width, width, part.data() + row * width);
      write(part, stored_features_[i]);
    }
  }

  void compute(kernels::Operations& operations, bool of_target) override {
    const std::vector<LayerWeights>& layers = weights_->layers();
    const kernels::PassRows& part = operations.rows();
    const int hidden = config_.layer.hidden;
    float* const features = features_.row(part.first_row);
    float* const residual =
        config_.norm_before_residual ? feature_normed_.row(part.first_row) : features;
    float* const delta = delta_.row(part.first_row);
    std::byte* const normed = normed_.row(part.first_row);

    if (of_target) {
      if (!stored_features_.empty()) norm_features(operations);
      operations.linear(weights_->fc(), target_features_.row(part.first_row), part.rows, features);
    }
    join(operations, layers[0].attention_norm);
    for (int n = 0; n < config_.layer.layers; ++n) {
      const LayerWeights& layer = layers[n];
      if (n > 0) norm(operations, residual, delta, layer.attention_norm, normed);
      attention_.compute(operations, std::get<AttentionWeights>(layer.attention), rope_view_, n,
                         n > 0 ? normed : input_.row(part.first_row), delta);
      norm(operations, residual, delta, layer.mlp_norm, normed);
      mlp_.compute(operations, std::get<MlpWeights>(layer.mlp), normed, delta);
    }
    if (part.logit_rows == 0) return;
    // The feature of the next row is the last layer's outcome, before the final norm or after it.
    const float* outcome = residual;
    if (config_.norm_output) {
      float* const after = embedded_.row(part.first_row);  // embeddings have been read
      norm(operations, residual, delta, weights_->final_norm(), after);
      operations.store_columns(after, part.rows, hidden, weights_->compute(), normed, hidden, 0);
      outcome = after;
    } else {
      norm(operations, residual, delta, weights_->final_norm(), normed);
    }
    finish(operations, normed, outcome);
  }

  // Normalises the features: each layer's with its own weights, or all together with one.
  void norm_features(kernels::Operations& operations) {
    const DType dtype = weights_->compute();
    const float epsilon = config_.layer.norm_epsilon;
    const kernels::PassRows& part = operations.rows();
    const int width = config_.target_hidden;
    const int all = config_.features() * width;
    std::byte* const out = target_features_.row(part.first_row);
    if (config_.feature_norm == FeatureNorm::joined) {
      operations.add_rmsnorm(stored_features_[0].row(part.first_row), nullptr,
                             floats(weights_->fc_norms()[0]), epsilon, part.rows, all, dtype, out);
      return;
    }
    float* const normed = part_normed_.row(part.first_row);
    for (std::size_t i = 0; i < stored_features_.size(); ++i) {
      operations.add_rmsnorm(stored_features_[i].row(part.first_row), nullptr,
                             floats(weights_->fc_norms()[i]), epsilon, part.rows, width, DType::f32,
                             reinterpret_cast<std::byte*>(normed));
      operations.store_columns(normed, part.rows, width, dtype, out, all,
                               static_cast<int>(i) * width);
    }
  }

  const Eagle3Config& config_;
  GroupedAttentionPass attention_;
  GatedMlpPass mlp_;
  Activation<std::byte> target_features_;           ///< [max_rows, features * target_hidden]
  std::vector<Activation<float>> stored_features_;  ///< inputs of fc_norms(), one each
  Activation<float> part_normed_;                   ///< [max_rows, target_hidden]
};

}  // namespace

std::unique_ptr<FeatureHead> make_eagle3_head(HeadParts parts) {
  return std::make_unique<Eagle3Head>(std::move(parts));
}

std::uint64_t own_row_bytes(const Eagle3Config& config, DType compute) {
  const std::uint64_t features =
      static_cast<std::uint64_t>(config.features()) * config.target_hidden;
  const std::uint64_t normed = config.feature_norm == FeatureNorm::none ? 0
                               : config.feature_norm == FeatureNorm::joined
                                   ? features
                                   : features + config.target_hidden;
  return features * size_of(compute) + normed * sizeof(float);
}

}  // namespace paceline::model
