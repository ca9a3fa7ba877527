// A rank's share of a model's weights as its backend computes with them. Loaded once, for any
// number of decoders one after another: what a rank keeps, it need not read and pack again when its
// role changes (SpecActor, section 4.3, "Model scale").
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::model {

/// Memory that several processes map, in which they pack the matrices of one share together, each
/// of them a part. A matrix is packed by one process whole.
struct SharedPacking {
  /// Zero-filled, of packed_bytes(), aligned to 64 bytes; outlives the weights. Empty: there is
  /// none, and the weights have memory of their own.
  std::span<std::byte> memory;
  int part = 0;
  int parts = 1;
};

/// Bytes that SharedPacking::memory needs; 0: this backend computes from memory of its own.
[[nodiscard]] std::size_t packed_bytes(const kernels::Backend& backend, const ModelConfig& config,
                                       const Shard& shard, DType compute);

/// The same of one layer.
[[nodiscard]] std::size_t packed_bytes(const kernels::Backend& backend,
                                       const LayerDescription& layer, const Shard& shard,
                                       DType compute);

class WeightLoader;

using Vector = std::unique_ptr<kernels::Buffer>;  ///< fp32; null: the model has none

/// A rank's share of a layer's grouped attention (GroupedAttention).
struct AttentionWeights {
  Vector q_norm, k_norm;                    ///< [head_dim]
  std::unique_ptr<kernels::Linear> qkv;     ///< [(heads + 2 kv_heads) * head_dim, inputs]
  std::unique_ptr<kernels::Linear> output;  ///< [hidden, heads * head_dim]
  Vector output_bias;                       ///< [hidden]
};

/// A rank's share of a layer's latent attention (LatentAttention): its heads, and what all heads
/// share.
struct LatentWeights {
  std::unique_ptr<kernels::Linear> q_down;   ///< [q_rank, hidden]; null: the model has none
  Vector q_norm;                             ///< [q_rank]
  std::unique_ptr<kernels::Linear> q;        ///< [heads * (nope + rope), q_rank or hidden]
  std::unique_ptr<kernels::Linear> kv_down;  ///< [rank + rope, hidden]
  Vector kv_norm;                            ///< [rank]
  // By head:
  std::vector<std::unique_ptr<kernels::Linear>> keys;    ///< [rank, nope], queries into the space
  std::vector<std::unique_ptr<kernels::Linear>> values;  ///< [value_dim, rank], values out of it
  std::unique_ptr<kernels::Linear> output;               ///< [hidden, heads * value_dim]
};

/// A rank's share of a layer's gated MLP (GatedMlp).
struct MlpWeights {
  std::unique_ptr<kernels::Linear> gate_up;  ///< [2 * width, hidden]
  std::unique_ptr<kernels::Linear> down;     ///< [hidden, width]
  Vector down_bias;                          ///< [hidden]
};

/// A rank's share of a layer's experts (ExpertMlp).
struct ExpertWeights {
  /// [router_parts()] of [experts, hidden], whole on every rank; the router is their sum.
  std::vector<std::unique_ptr<kernels::Linear>> router;
  Vector correction;  ///< [experts]
  kernels::ExpertBank bank;
  std::optional<MlpWeights> shared;
  std::unique_ptr<kernels::Linear> shared_gate;  ///< [1, hidden]; null: the model has none
};

struct LayerWeights {
  Vector attention_norm;  ///< [hidden]
  std::variant<AttentionWeights, LatentWeights> attention;
  Vector mlp_norm;  ///< [hidden]
  std::variant<MlpWeights, ExpertWeights> mlp;
};

/// Does not change once loaded. Memory of the backend: used where that is.
class Weights {
 public:
  /// Packs the share. `compute`: dtype of weights, matrix inputs and KV. `backend` and `source`
  /// must outlive this (a backend may read embedding rows from the mapped file). With `shared` it
  /// packs a part, and there is nothing to compute with before every process has loaded its own.
  /// Throws DataError on a missing tensor, on weights that are NaN or infinite (of shared ones, in
  /// the part that it packs) and on sizes that the backend does not compute.
  Weights(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
          const Shard& shard, DType compute, const SharedPacking& shared = {});
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const Shard& shard() const { return shard_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< of all packed matrices

  [[nodiscard]] const kernels::Embedding& embedding() const { return *embedding_; }
  /// Whether it has all rows. Else it has those of the rank's share of the vocabulary, and rows of
  /// a batch are the sum of what the ranks read.
  [[nodiscard]] bool embedding_is_whole() const { return embedding_is_whole_; }
  [[nodiscard]] const std::vector<LayerWeights>& layers() const { return layers_; }
  [[nodiscard]] const Vector& final_norm() const { return final_norm_; }  ///< [hidden]
  [[nodiscard]] const kernels::Linear& head() const { return *head_; }    ///< [shard vocab, hidden]

 private:
  friend class WeightLoading;
  Weights(const ModelConfig& config, const WeightSource& source, const Shard& shard, DType compute,
          bool splits_embeddings);
  [[nodiscard]] bool load_part(WeightLoader& loader);

  ModelConfig config_;
  ModelDescription description_;
  const WeightSource& source_;
  Shard shard_;
  DType compute_;
  std::size_t bytes_ = 0;

  std::vector<LayerWeights> layers_;
  Vector final_norm_;
  std::unique_ptr<kernels::Linear> head_;
  bool embedding_is_whole_;
  /// [vocab, hidden], or the rank's rows of it. It may read the head, and is gone before it.
  std::unique_ptr<kernels::Embedding> embedding_;
};

/// The embeddings alone, for whoever reads the target's and has none of it else. `backend` and
/// `source` as of Weights. Those who have the target check what is in them.
[[nodiscard]] std::shared_ptr<const kernels::Embedding> load_embedding(kernels::Backend& backend,
                                                                       const ModelConfig& config,
                                                                       const WeightSource& source);

/// The share of this rank of the group, in memory of its own.
[[nodiscard]] std::shared_ptr<const Weights> load_weights(
    kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
    const TensorParallelGroup& group, DType compute,
    AttentionLayout attention = AttentionLayout::tensor);

/// Loads a rank's own share in parts, so that other work can be done between them.
class WeightLoading {
 public:
  /// As of Weights.
  WeightLoading(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
                const Shard& shard, DType compute);
  ~WeightLoading();
  /// Loads the next layer, or what comes after the last: then it gives the weights, before that
  /// null. Throws as Weights.
  [[nodiscard]] std::shared_ptr<const Weights> next();

 private:
  std::unique_ptr<WeightLoader> loader_;
  std::shared_ptr<Weights> weights_;
};

/// How weights are had that may be given up and wanted again: at once where they are kept, else
/// loaded anew, a part with each call, and null until all are there.
using LoadWeights = std::function<std::shared_ptr<const Weights>()>;

}  // namespace paceline::model
