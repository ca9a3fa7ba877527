// How large a model is, as far as time and memory go: what the simulated world knows of one. Unlike
// ModelConfig it covers models that the decoder cannot run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace paceline {

/// Mixture of experts: gated MLPs, of which a router chooses some for every row.
struct ExpertShape {
  std::int32_t routed = 0;        ///< experts of a layer
  std::int32_t chosen = 0;        ///< of these, by each row; 1 to routed
  std::int32_t shared = 0;        ///< further ones that every row uses
  std::int32_t width = 0;         ///< of one expert, elements
  std::int32_t dense_layers = 0;  ///< layers that have one ordinary MLP instead
};

/// Multi-head latent attention (DeepSeek-V2): a position's keys and values are kept as one vector.
/// head_dim of the shape is a key's part without rotary embedding. Sizes in elements.
struct LatentShape {
  std::int32_t q_rank = 0;  ///< 0: queries are projected at once
  std::int32_t kv_rank = 0;
  std::int32_t rope = 0;       ///< of each query, and of each position's key, which heads share
  std::int32_t value_dim = 0;  ///< of each head
};

/// A decoder with gated MLPs. Sizes in elements. Norms and biases, less than a thousandth of the
/// weights, are left out of parameters. A value.
struct ModelShape {
  std::string name;
  std::string family;  ///< as transformers' model_type: "qwen2"
  std::int32_t layers = 0;
  std::int32_t hidden = 0;
  std::int32_t heads = 0;  ///< query heads
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t intermediate = 0;  ///< width of an MLP that is no expert
  std::int32_t vocab = 0;
  std::int32_t context = 0;  ///< positions of a sequence; 0: not said
  bool tied_embeddings = false;
  double bytes_per_parameter = 2;
  std::optional<ExpertShape> experts;
  std::optional<LatentShape> latent;

  /// Layers with one ordinary MLP; the others have experts.
  [[nodiscard]] std::int32_t dense_layers() const {
    return experts ? experts->dense_layers : layers;
  }
  /// Elements that a layer keeps of a position.
  [[nodiscard]] double kv_width() const {
    return latent ? latent->kv_rank + latent->rope : 2.0 * kv_heads * head_dim;
  }
  /// Bytes of all layers of one full copy; KV is bf16 whatever the weights are.
  [[nodiscard]] double kv_bytes_per_position() const { return 2.0 * layers * kv_width(); }

  /// Parameters of a layer's attention.
  [[nodiscard]] double attention_parameters() const {
    const double h = hidden;
    if (!latent) return h * head_dim * (2.0 * heads + 2.0 * kv_heads);
    const LatentShape& l = *latent;
    const double query = static_cast<double>(heads) * (head_dim + l.rope);
    const double queries = l.q_rank > 0 ? (h + query) * l.q_rank : h * query;
    return queries + h * (l.kv_rank + l.rope) +
           static_cast<double>(l.kv_rank) * heads * (head_dim + l.value_dim) +
           h * heads * l.value_dim;
  }
  /// Of a gated MLP of that width.
  [[nodiscard]] double mlp_parameters(double width) const { return 3.0 * hidden * width; }
  /// Of a layer with an ordinary MLP; every row uses all of them.
  [[nodiscard]] double dense_layer_parameters() const {
    return attention_parameters() + mlp_parameters(intermediate);
  }
  /// Of a layer with experts, of which a row uses `used`: all routed ones for the layer's total,
  /// the chosen ones for what is active. 0 when there are no such layers.
  [[nodiscard]] double expert_layer_parameters(double used) const {
    if (!experts) return 0;
    return attention_parameters() + static_cast<double>(hidden) * experts->routed +
           mlp_parameters(experts->width * (used + experts->shared));
  }

  /// Of the whole model, embeddings and head included.
  [[nodiscard]] double parameters() const {
    return layers_parameters(experts ? experts->routed : 0) +
           static_cast<double>(hidden) * vocab * (tied_embeddings ? 1 : 2);
  }
  /// That a row is multiplied by: the head, but no embedding.
  [[nodiscard]] double active_parameters() const {
    return layers_parameters(experts ? experts->chosen : 0) + static_cast<double>(hidden) * vocab;
  }
  [[nodiscard]] double weight_bytes() const { return parameters() * bytes_per_parameter; }
  /// Of them, those of the routed experts, which GPUs may share while each has all else.
  [[nodiscard]] double expert_bytes() const {
    if (!experts) return 0;
    return (layers - dense_layers()) * mlp_parameters(experts->width) * experts->routed *
           bytes_per_parameter;
  }

 private:
  [[nodiscard]] double layers_parameters(double used) const {
    return dense_layers() * dense_layer_parameters() +
           (layers - dense_layers()) * expert_layer_parameters(used);
  }
};

}  // namespace paceline
