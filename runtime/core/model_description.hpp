// A model as plain data: its layers, the tensors of each layer by their names in the checkpoint,
// and how ranks of a tensor-parallel group cut them. The tensors that a checkpoint must hold, the
// packing and division of weights, and their bytes all follow from the description: no other file
// spells out a layer. The files of runtime/model/families make descriptions.
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

struct DFlashConfig;
struct Eagle3Config;
struct ModelConfig;
struct MtpConfig;

/// The division of one side of a matrix among the ranks of a tensor-parallel group.
enum class Cut : std::uint8_t {
  whole,  ///< every rank has the whole side
  even,   ///< neighbouring ranges of equal length: of heads, or of an MLP's width
  vocab   ///< neighbouring ranges of whole panels (model::Shard)
};

/// A stored matrix [outputs, inputs], with an optional bias [outputs]. At most one side is cut.
struct Projection {
  std::string name;  ///< name in the checkpoint, without ".weight" and ".bias"
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  Cut output_cut = Cut::whole;
  Cut input_cut = Cut::whole;  ///< even: computed as canonical K-segments
  bool bias = false;

  [[nodiscard]] std::int64_t elements() const { return outputs * inputs; }
};

/// A stored vector, which every rank has.
struct StoredVector {
  std::string name;  ///< the whole name in the checkpoint
  std::int64_t width = 0;
};

/// Weights of an RMSNorm, which every rank has.
struct Norm {
  std::string name;  ///< without ".weight"
  std::int64_t width = 0;
};

/// Attention in which groups of query heads share kv heads.
struct GroupedAttention {
  std::optional<Norm> q_norm, k_norm;  ///< norms of each head
  Projection q, k, v, output;
};

/// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): a position's keys and values are
/// kept as one vector for all heads.
struct LatentAttention {
  std::optional<Projection> q_down;  ///< none: `q` reads the residual stream
  std::optional<Norm> q_norm;        ///< after q_down
  Projection q, kv_down, output;
  Projection kv_up;  ///< for each head its keys' rows, then its values' rows
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

/// Experts: gated MLPs of which a router chooses some for every row. Each rank of a tensor-parallel
/// group has a range of neighbouring experts.
struct ExpertMlp {
  Projection router;                       ///< [experts, hidden]
  bool wide_router = false;                ///< the router computes with fp32 weights
  std::optional<StoredVector> correction;  ///< [experts] kernels::Routing::correction
  GatedMlp every;  ///< each expert, not cut; its names have "{}" for the expert's number
  std::optional<GatedMlp> shared;         ///< used by every row
  std::optional<Projection> shared_gate;  ///< [1, hidden]: its sigmoid scales `shared`

  [[nodiscard]] std::int64_t experts() const { return router.outputs; }
  /// The expert of number `id`.
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

/// A head on a target (HeadConfig): a layer, a projection before it, and an output. In an EAGLE-3
/// head `fc` joins the target's features, and the layer's attention reads a token's embedding and
/// this result side by side. In a DFlash head the layers read embeddings alone, and their keys and
/// values of the text are of what `fc` has joined. In a next-token layer `fc` joins embedding and
/// feature, and the layer is like the target's.
struct HeadDescription {
  Projection fc;
  std::vector<Norm> fc_norms;            ///< for the target's features
  std::optional<Norm> token_norm;        ///< for embeddings; absent: the layer's attention_norm
  Norm feature_norm;                     ///< for the feature next to an embedding
  std::vector<LayerDescription> layers;  ///< one or more
  Norm final_norm;
  Projection output;                    ///< [tokens with logits, hidden]
  std::optional<Projection> embedding;  ///< absent: the target's
  /// The feature of rows that stand for tokens not yet said; its shape may begin with ones. Absent:
  /// there are no such rows.
  std::optional<StoredVector> mask_feature;
};

/// Weights of a norm, with or without a bias.
struct BiasedNorm {
  Norm weight;
  std::optional<StoredVector> bias;  ///< bias of a LayerNorm; absent: an RMSNorm
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
  std::variant<PlainMlp, GatedMlp> mlp;  ///< a PlainMlp's activation is x * sigmoid(1.702 x)
};

/// The tower that turns a picture's patches into rows of a decoder's input. Every rank has it
/// whole.
struct TowerDescription {
  Projection patch;                       ///< [width, patch elements]
  std::vector<std::int64_t> patch_shape;  ///< stored shape of `patch`
  std::vector<TowerLayer> layers;
  BiasedNorm merger_norm;
  PlainMlp merger;  ///< joins merge * merge patches; its activation is GELU
};

/// A tensor that a checkpoint must hold. Shape in elements, row-major.
struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};
/// Tensors in order: embedding, layer by layer, norm, head (no head when embeddings are tied).
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const ModelDescription& model);
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const HeadDescription& head);
[[nodiscard]] std::vector<ExpectedTensor> expected_tensors(const TowerDescription& tower);

/// Elements of a layer's matrices. Norms and biases, less than a thousandth of a model, are left
/// out.
[[nodiscard]] std::int64_t matrix_elements(const LayerDescription& layer);
/// Elements of those of a layer's matrices that every rank of a tensor-parallel group has whole.
[[nodiscard]] std::int64_t whole_elements(const LayerDescription& layer,
                                          AttentionLayout attention = AttentionLayout::tensor);
/// Elements of the matrices of all layers.
[[nodiscard]] std::int64_t layer_elements(const ModelDescription& model);
/// Elements of the matrices of all routed experts.
[[nodiscard]] std::int64_t expert_elements(const ModelDescription& model);

/// Attention windows that a family's config.json may ask for. None are supported.
enum class Windows : std::uint8_t {
  unknown,   ///< transformers computes the family without windows, whatever the file says
  all,       ///< windows of every layer
  by_layer,  ///< windows of the layers that the file names
};

/// Names of the keys by which config.json describes a tower.
enum class TowerKeys : std::uint8_t { none, qwen2_vl, qwen2_5_vl };

/// Names of the keys by which config.json describes experts.
enum class ExpertKeys : std::uint8_t { none, qwen2, qwen3, mixtral, deepseek };

/// A model family: the form of its config.json, and its description. A constant.
struct Family {
  std::string_view class_name;  ///< name in "architectures"
  std::string_view model_type;
  ModelDescription (*describe)(const ModelConfig& config);
  std::string_view other_model_type = {};  ///< another model_type that files may have
  bool qkv_bias = false;                   ///< biases on q, k and v, whatever the file says
  bool attention_bias_key = false;         ///< "attention_bias": biases on q, k, v and output
  bool mlp_bias_key = false;               ///< "mlp_bias": biases on gate, up and down
  bool head_norms = false;                 ///< RMSNorm of each query and key head
  bool needs_kv_heads = true;              ///< the file must say num_key_value_heads
  bool needs_head_dim = false;             ///< the file must say head_dim
  Windows windows = Windows::unknown;
  ExpertKeys experts = ExpertKeys::none;
  TowerKeys tower = TowerKeys::none;
  bool latent_attention = false;
  /// The tower for pictures (ModelConfig::vision), tensors "visual.*"; null: models read text
  /// alone.
  TowerDescription (*describe_tower)(const ModelConfig& config) = nullptr;
  /// The next-token layer; null: models of the family have none.
  HeadDescription (*describe_next_token)(const MtpConfig& config) = nullptr;
};

/// The families that a program knows.
struct Families {
  std::span<const Family* const> models;
  HeadDescription (*describe_eagle3)(const Eagle3Config& config);
  HeadDescription (*describe_dflash)(const DFlashConfig& config);
};

}  // namespace paceline
