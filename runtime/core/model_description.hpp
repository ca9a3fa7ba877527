// A model as plain data: its layers, the tensors of each by their names in the checkpoint, and
// which of them ranks of a tensor-parallel group cut. What a checkpoint must hold, how weights are
// packed and shared out and what they weigh all follow from the description; nothing else spells a
// layer. The files of runtime/model/families make descriptions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/core/attention_layout.hpp"

namespace paceline {

struct Eagle3Config;
struct ModelConfig;
struct MtpConfig;

/// How the ranks of a tensor-parallel group share one side of a matrix.
enum class Cut : std::uint8_t {
  whole,  ///< every rank has all of it
  even,   ///< neighbouring ranges of one length: heads, or the width of an MLP
  vocab   ///< neighbouring ranges of whole panels (model::Shard)
};

/// A stored matrix [outputs, inputs], with an optional bias [outputs]. At most one side is cut.
struct Projection {
  std::string name;  ///< in the checkpoint, without ".weight" and ".bias"
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  Cut output_cut = Cut::whole;
  Cut input_cut = Cut::whole;  ///< even: computed as canonical K-segments
  bool bias = false;

  [[nodiscard]] std::int64_t elements() const { return outputs * inputs; }
};

/// A stored vector, which every rank has.
struct StoredVector {
  std::string name;  ///< whole
  std::int64_t width = 0;
};

/// Weights of an RMSNorm, which every rank has.
struct Norm {
  std::string name;  ///< without ".weight"
  std::int64_t width = 0;
};

/// Query heads that share kv heads by groups.
struct GroupedAttention {
  std::optional<Norm> q_norm, k_norm;  ///< of each head
  Projection q, k, v, output;
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a position's keys and values are
/// kept as one vector for all heads.
struct LatentAttention {
  std::optional<Projection> q_down;  ///< none: `q` reads the residual stream
  std::optional<Norm> q_norm;        ///< after q_down
  Projection q, kv_down, output;
  Projection kv_up;  ///< for each head, its keys' rows and then its values'
  Norm kv_norm;
  std::int32_t heads = 0;

  /// Elements of a head's key without rotary embedding, and of its value.
  [[nodiscard]] std::int64_t keys() const { return kv_up.outputs / heads - values(); }
  [[nodiscard]] std::int64_t values() const { return output.inputs / heads; }
};

/// down(silu(gate(x)) * up(x))
struct GatedMlp {
  Projection gate, up, down;

  [[nodiscard]] std::int64_t elements() const {
    return gate.elements() + up.elements() + down.elements();
  }
};

/// Gated MLPs of which a router chooses some for every row. Ranks of a tensor-parallel group have
/// neighbouring ones each.
struct ExpertMlp {
  Projection router;                       ///< [experts, hidden]
  bool wide_router = false;                ///< its products are those of fp32 weights
  std::optional<StoredVector> correction;  ///< [experts] kernels::Routing::correction
  GatedMlp every;  ///< each of them, not cut; its names have "{}" for the expert's number
  std::optional<GatedMlp> shared;         ///< used by every row
  std::optional<Projection> shared_gate;  ///< [1, hidden]: its sigmoid scales the shared one

  [[nodiscard]] std::int64_t experts() const { return router.outputs; }
  /// The expert of that number.
  [[nodiscard]] GatedMlp expert(std::int64_t id) const;
};

struct LayerDescription {
  Norm attention_norm;
  std::variant<GroupedAttention, LatentAttention> attention;
  Norm mlp_norm;
  std::variant<GatedMlp, ExpertMlp> mlp;
};

struct ModelDescription {
  Projection embedding;  ///< [vocab, hidden]
  std::vector<LayerDescription> layers;
  Norm final_norm;
  Projection head;               ///< [vocab, hidden]
  bool tied_embeddings = false;  ///< the head is the embeddings' matrix
};

/// A head on a target (HeadConfig): a layer, a projection before it, and an output. `fc` of an
/// EAGLE-3 head joins the target's features, and the layer's attention reads the embedding of a
/// token beside the outcome. `fc` of a next-token layer joins embedding and feature, and the layer
/// is one as of the target.
struct HeadDescription {
  Projection fc;
  std::vector<Norm> fc_norms;      ///< of the target's features
  std::optional<Norm> token_norm;  ///< of embeddings; none: the layer's attention_norm is
  Norm feature_norm;               ///< of what stands beside an embedding
  LayerDescription layer;
  Norm final_norm;
  Projection output;                    ///< [tokens with logits, hidden]
  std::optional<Projection> embedding;  ///< none: the target's
};

/// Weights of a norm, with or without a bias.
struct BiasedNorm {
  Norm weight;
  std::optional<StoredVector> bias;  ///< of a LayerNorm; none: it is an RMSNorm
};

/// down(act(up(x))), with biases
struct PlainMlp {
  Projection up, down;
};

struct TowerLayer {
  BiasedNorm attention_norm;
  Projection qkv;  ///< q, k and v, each of all heads
  Projection output;
  BiasedNorm mlp_norm;
  std::variant<PlainMlp, GatedMlp> mlp;  ///< a plain one's activation is x * sigmoid(1.702 x)
};

/// The tower that makes rows of a decoder's input of a picture's patches. Every rank has it whole.
struct TowerDescription {
  Projection patch;                       ///< [width, patch elements]
  std::vector<std::int64_t> patch_shape;  ///< as it is stored
  std::vector<TowerLayer> layers;
  BiasedNorm merger_norm;
  PlainMlp merger;  ///< of merge * merge patches; its activation is GELU
};

/// A tensor that a checkpoint must hold. Shape in elements, row-major.
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
/// Embedding first, then layer by layer, then norm and head (no head when embeddings are tied).
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const ModelDescription& model);
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const HeadDescription& head);
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const TowerDescription& tower);

/// Elements of the matrices of a layer; norms and biases, less than a thousandth of a model, are
/// left out.
[[nodiscard]] std::int64_t matrix_elements(const LayerDescription& layer);
/// Elements of a layer's matrices that no rank of a tensor-parallel group has a part of: each has
/// them whole.
[[nodiscard]] std::int64_t whole_elements(const LayerDescription& layer,
                                          AttentionLayout attention = AttentionLayout::tensor);
/// Elements of the matrices of all layers.
[[nodiscard]] std::int64_t layer_elements(const ModelDescription& model);
/// Elements of the matrices of all routed experts.
[[nodiscard]] std::int64_t expert_elements(const ModelDescription& model);

/// Attention windows that config.json of a family may speak of; none is supported.
enum class Windows : std::uint8_t {
  unknown,   ///< transformers computes the family without windows, whatever the file says
  all,       ///< of every layer
  by_layer,  ///< of the layers that the file names
};

/// Keys under which config.json speaks of a tower.
enum class TowerKeys : std::uint8_t { none, qwen2_vl, qwen2_5_vl };

/// Keys under which config.json speaks of experts.
enum class ExpertKeys : std::uint8_t { none, qwen2, qwen3, mixtral, deepseek };

/// A model family: how config.json speaks of it, and its description. A constant.
struct Family {
  std::string_view class_name;  ///< in "architectures"
  std::string_view model_type;
  ModelDescription (*describe)(const ModelConfig& config);
  std::string_view other_model_type = {};  ///< under which files of this class may go, too
  bool qkv_bias = false;                   ///< always, whatever the file says
  bool attention_bias_key = false;         ///< "attention_bias": biases on q, k, v and output
  bool mlp_bias_key = false;               ///< "mlp_bias": biases on gate, up and down
  bool head_norms = false;                 ///< RMSNorm of each query and key head
  bool needs_kv_heads = true;              ///< the file must say num_key_value_heads
  bool needs_head_dim = false;             ///< the file must say head_dim
  Windows windows = Windows::unknown;
  ExpertKeys experts = ExpertKeys::none;
  TowerKeys tower = TowerKeys::none;
  bool latent_attention = false;
  /// Its tower for pictures (ModelConfig::vision), tensors "visual.*"; null: it reads text alone.
  TowerDescription (*describe_tower)(const ModelConfig& config) = nullptr;
  /// Its next-token layer; null: models of the family have none.
  HeadDescription (*describe_next_token)(const MtpConfig& config) = nullptr;
};

/// The families that a program knows.
struct Families {
  std::span<const Family* const> models;
  HeadDescription (*describe_eagle3)(const Eagle3Config& config);
};

}  // namespace paceline
