// A decoder as a sequence of backend operations over a ragged batch.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <variant>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/model/activations.hpp"
#include "runtime/model/grouped_attention.hpp"
#include "runtime/model/latent_attention.hpp"
#include "runtime/model/mlp.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// Deals a pass's rows to ranks and gathers their results, for AttentionLayout::data. Rows do not
/// depend on one another, and no sum goes over ranks: bits equal one rank's. Used by one thread.
class RowExchange {
 public:
  /// `group` must outlive this object.
  explicit RowExchange(TensorParallelGroup& group) : group_(group) {}

  /// Deals the next pass's rows: rank r has rows [first_row[r], first_row[r + 1]), perhaps none.
  void deal(std::span<const int> first_row) {
    if (std::ssize(first_row) != group_.size() + 1)
      throw std::logic_error("rows that are not dealt to the ranks of the group");
    first_row_.assign(first_row.begin(), first_row.end());
  }
  [[nodiscard]] kernels::RowRange own() const {
    const int first = first_row_[group_.rank()];
    return {first, first_row_[group_.rank() + 1] - first};
  }
  /// Gathers all rows. `values`: [rows of the pass, width], of which this rank has computed own().
  /// Collective.
  void complete(float* values, int width) {
    group_.gather_rows({values, static_cast<std::size_t>(first_row_.back()) * width}, first_row_);
  }

 private:
  TensorParallelGroup& group_;
  std::vector<int> first_row_;  ///< [ranks + 1]
};

/// Computes with one rank's share of a model, in buffers for its largest step. Used by one thread;
/// all ranks of the group call forward() with the same batch.
class Decoder {
 public:
  /// `weights`: this rank's share, from the same backend. `backend` and `group` must outlive the
  /// decoder. `features`: indices of the layers whose features each pass stores, in this order;
  /// config.layers, if it is there, comes last and stands for the output of the last layer.
  /// `gives_routing`: the caller calls give_routing() before each pass.
  Decoder(kernels::Backend& backend, std::shared_ptr<const Weights> weights,
          TensorParallelGroup& group, int max_rows, int max_logit_rows, int max_position,
          std::vector<std::int32_t> features = {}, bool gives_routing = false);

  /// Shape of the KV cache that this decoder reads and writes, for blocks of `block` positions.
  /// `routing`: as for model::kv_shape().
  [[nodiscard]] kernels::KvShape kv_shape(int block, bool routing = false) const;
  [[nodiscard]] const Weights& weights() const { return *weights_; }
  /// The embedding, which keeps all weights alive. Null where this rank has only a part of its
  /// rows.
  [[nodiscard]] std::shared_ptr<const kernels::Embedding> embedding() const {
    if (!weights_->embedding_is_whole()) return nullptr;
    return {weights_, &weights_->embedding()};
  }
  [[nodiscard]] std::size_t activation_bytes() const { return activations_.bytes(); }

  /// Sets the experts of the next pass's rows, in place of the router's choice. `experts`: [rows,
  /// layers with experts, chosen] ids, ascending in each layer.
  void give_routing(std::span<const std::int16_t> experts) { experts_->give(experts); }

  /// Runs the batch, storing its keys and values in `cache`, and returns the logits of the rows
  /// named by `logit_rows`: [logit_rows, vocabulary of the share] fp32, this rank's columns, in
  /// memory of the backend. Valid until the next call. `cache`: as kv_shape() says, the same in
  /// every call. `pictures`: for models with ModelConfig::vision; else empty. `owned`: [ranks + 1]
  /// if each rank has the KV of its own requests (AttentionLayout::data), else empty. Rank r then
  /// computes the attention of rows [owned[r], owned[r + 1]), and its `segments` cover only these
  /// rows.
  const float* forward(std::span<const TokenId> tokens, std::span<const kernels::Segment> segments,
                       std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                       std::byte* cache, const kernels::PictureInput& pictures = {},
                       std::span<const int> owned = {});

  /// Features of each row of the last pass, which a head on the target reads: the residual stream,
  /// not normalised, as it enters each of the constructor's `features` layers, one after the other,
  /// in the compute dtype. [rows, feature_bytes()] in memory of the backend, valid until the next
  /// forward(). Null where the decoder stores no features.
  [[nodiscard]] const std::byte* features() const { return features_.row(0); }
  [[nodiscard]] std::size_t feature_bytes() const { return features_.width; }

 private:
  void compute(kernels::Operations& operations);
  void store_features(kernels::Operations& operations, int layer);
  void compute_attention(kernels::Operations& operations, int index, float* delta);
  void compute_mlp(kernels::Operations& operations, int index, const std::byte* input,
                   float* delta);
  void sum(const kernels::Operations& operations, float* delta);
  void add_bias(kernels::Operations& operations, const float* bias, float* delta);

  kernels::Backend& backend_;
  std::shared_ptr<const Weights> weights_;
  TensorParallelGroup& group_;
  std::optional<RowExchange> exchange_;  ///< with AttentionLayout::data
  Vector rope_;                          ///< see rope_table
  kernels::RopeTable rope_view_;
  std::unique_ptr<kernels::Recording> recording_;
  std::vector<std::int32_t> feature_layers_;

  Activations activations_;
  std::variant<GroupedAttentionPass, LatentAttentionPass> attention_;
  GatedMlpPass mlp_;
  std::optional<ExpertMlpPass> experts_;  ///< where the model has experts
  // max_rows as the backend pads them; bytes are values of the compute dtype.
  Activation<float> residual_;      ///< [max_rows, hidden]
  Activation<float> delta_;         ///< [max_rows, hidden]
  Activation<float> logits_;        ///< [max_logit_rows, shard vocab]
  Activation<std::byte> normed_;    ///< [max_rows, hidden]
  Activation<std::byte> last_;      ///< [max_logit_rows, hidden]
  Activation<std::byte> features_;  ///< [max_rows, feature layers * hidden]
};

/// Bytes of one row of a step's buffers on one rank of `size`, without its logits, for a backend
/// that needs no buffer for gates and ups (see Backend::gates_in_work()).
[[nodiscard]] std::uint64_t row_bytes(const ModelConfig& config, DType compute, int size);

}  // namespace paceline::model
