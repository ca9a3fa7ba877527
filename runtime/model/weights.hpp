// A rank's share of a model's weights, in the form in which its backend computes with them. They
// are loaded once and serve any number of decoders, one after another. So a rank that keeps them
// need not read and pack them again when its role changes (SpecActor, section 4.3, "Model scale").
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

/// Memory that several processes map. Together they pack the matrices of one share into it, each
/// process a part of them. A matrix is packed whole by one process.
struct SharedPacking {
  /// packed_bytes() bytes, zero-filled, aligned to 64 bytes; must outlive the weights. Empty:
  /// nothing is shared, and the weights have memory of their own.
  std::span<std::byte> memory;
  int part = 0;
  int parts = 1;
};

/// Bytes that SharedPacking::memory needs. 0: this backend does not compute from shared memory.
[[nodiscard]] std::size_t packed_bytes(const kernels::Backend& backend, const ModelConfig& config,
                                       const Shard& shard, DType compute);

/// Bytes of one layer in SharedPacking::memory.
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

/// A rank's share of a layer's latent attention (LatentAttention): its heads' matrices, and the
/// ones that all heads share.
struct LatentWeights {
  std::unique_ptr<kernels::Linear> q_down;   ///< [q_rank, hidden]; null: the model has none
  Vector q_norm;                             ///< [q_rank]
  std::unique_ptr<kernels::Linear> q;        ///< [heads * (nope + rope), q_rank or hidden]
  std::unique_ptr<kernels::Linear> kv_down;  ///< [rank + rope, hidden]
  Vector kv_norm;                            ///< [rank]
  // By head:
  std::vector<std::unique_ptr<kernels::Linear>> keys;    ///< [rank, nope] from queries to latents
  std::vector<std::unique_ptr<kernels::Linear>> values;  ///< [value_dim, rank] from latents
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
  /// router_parts() matrices of [experts, hidden], whole on every rank; the router is their sum.
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

/// Weights do not change once loaded. They are in memory of the backend and used with this backend
/// only.
class Weights {
 public:
  /// Packs the share. `compute`: dtype of weights, matrix inputs and KV. `backend` and `source`
  /// must outlive this object (a backend may read embedding rows from the mapped file). With
  /// `shared` this call packs a part, and no process may compute before every process has packed
  /// its own. Throws DataError on a missing tensor, on weights that are NaN or infinite (with
  /// `shared`, in the part that it packs) and on sizes that the backend does not support.
  Weights(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
          const Shard& shard, DType compute, const SharedPacking& shared = {});
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const Shard& shard() const { return shard_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< bytes of all packed matrices

  [[nodiscard]] const kernels::Embedding& embedding() const { return *embedding_; }
  /// Whether embedding() has all rows. Otherwise it has the rows of this rank's share of the
  /// vocabulary, and a batch's embeddings are the sum over the ranks.
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
  /// [vocab, hidden], or the rank's rows of it. It may read head_, so it is destroyed before head_.
  std::unique_ptr<kernels::Embedding> embedding_;
};

/// Loads only the target's embeddings, for a rank that has no other weights of the target.
/// `backend` and `source` as for Weights. Does not check the values: ranks with the target do.
[[nodiscard]] std::shared_ptr<const kernels::Embedding> load_embedding(kernels::Backend& backend,
                                                                       const ModelConfig& config,
                                                                       const WeightSource& source);

/// Loads a rank's share in parts, so that other work can be done between them.
class WeightLoading {
 public:
  /// Parameters as for Weights.
  WeightLoading(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
                const Shard& shard, DType compute);
  ~WeightLoading();
  /// Loads the next layer; after the last layer, the rest. Returns null until the rest is loaded,
  /// and then the weights. Throws as Weights does.
  [[nodiscard]] std::shared_ptr<const Weights> next();

 private:
  std::unique_ptr<WeightLoader> loader_;
  std::shared_ptr<Weights> weights_;
};

/// Returns weights that may have been given up before: at once where they were kept. Otherwise each
/// call loads a part of them, and returns null until all are loaded.
using LoadWeights = std::function<std::shared_ptr<const Weights>()>;

}  // namespace paceline::model
