// Reader of config.json and generation_config.json of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/eagle3_config.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"

namespace paceline::io {

/// Reads `directory`/config.json, and generation_config.json when present there or else in
/// `otherwise` (a directory; empty: none). Supported: the computed families, rotary type default,
/// linear, dynamic, yarn or llama3, full attention, silu, weights unquantized or in fp8 by blocks
/// of 128 x 128. Throws DataError naming file, key, value, the supported values and the nearest
/// name, both places where two of the file contradict each other, and a PEFT adapter without a
/// model; IoError when a file cannot be read. Thread-safe.
[[nodiscard]] ModelConfig load_model_config(const Families& families, const std::string& directory,
                                            const std::string& otherwise = "");
/// Path of the generation_config.json in use; empty when there is none.
[[nodiscard]] std::string generation_config_path(const std::string& directory,
                                                 const std::string& otherwise);

/// Parses the files' text; `name` stands for config.json in messages. An empty `generation_text`
/// means that there is no generation config.
[[nodiscard]] ModelConfig parse_model_config(const Families& families, std::string_view text,
                                             const std::string& name,
                                             std::string_view generation_text,
                                             const std::string& generation_name);

/// Reads a model of any known family, for pricing: only sizes and stored type, whether the decoder
/// can run it or not. Weights may be fp8. Errors and thread-safety as above.
[[nodiscard]] ModelConfig load_model_sizes(const Families& families, const std::string& directory);
[[nodiscard]] ModelConfig parse_model_sizes(const Families& families, std::string_view text,
                                            const std::string& name);

/// Reads an EAGLE-3 head's configuration: its one layer, and the head's own keys. Its tensors
/// complete it (load_eagle3). Keys unknown to transformers: draft_vocab_size, by default
/// vocab_size, target_hidden_size, by default hidden_size, norm_before_residual, norm_output,
/// fc_norm, norm_before_fc and eagle_aux_hidden_state_layer_ids.
[[nodiscard]] Eagle3Config load_eagle3_config(const std::string& directory);
[[nodiscard]] Eagle3Config parse_eagle3_config(std::string_view text, const std::string& name);

/// Throws DataError unless every expected tensor is there with its shape and a dtype of weights,
/// and no tensor is there that the configuration has no place for (a bias, a further layer: the
/// results would silently be another model's); the message names tensor, file, the expected and the
/// found value. Stored rotary frequencies are ignored.
void check_tensor_shapes(const ModelConfig& config, const WeightSource& weights);

/// The first layer behind the model's last, which predicts the token after the next, as a head.
/// `name`: of the model's config.json in messages. Throws DataError where the model has none.
[[nodiscard]] MtpConfig next_token_layer(const ModelConfig& model, const std::string& name);

/// As above of that layer's tensors, among the model's. Sets own_embeddings and own_output where
/// the layer has some, be they the model's or not.
void check_tensor_shapes(MtpConfig& config, const WeightSource& weights);

/// Whether config.json ties the embeddings but a head with other values is stored beside them. The
/// head was trained, and transformers 5 computes with it: tied_embeddings must then be false. Reads
/// both until they differ: one rank's work, not every rank's.
[[nodiscard]] bool has_own_head(const ModelConfig& config, const WeightSource& weights);

/// Whether a head's embeddings, by the name of their tensor, equal the model's, which then serve
/// both. Reads both until they differ: one rank's work, not every rank's.
[[nodiscard]] bool has_target_embeddings(const WeightSource& head, const std::string& embeddings,
                                         const WeightSource& target);

/// Whether two tensors hold the same numbers, whatever their stored types.
[[nodiscard]] bool same_values(const TensorView& a, const TensorView& b);

/// Whether any of the expected tensors is stored in fp16, whose values bf16 does not hold exactly.
[[nodiscard]] bool stores_f16(const ModelConfig& config, const WeightSource& weights);

/// Whether a router is stored in fp32, in which its products are then computed (wide_router).
[[nodiscard]] bool stores_wide_router(const ModelConfig& config, const WeightSource& weights);
/// Likewise of a next-token layer.
[[nodiscard]] bool stores_wide_router(const MtpConfig& config, const WeightSource& weights);

/// The dtype in which most bytes of the expected tensors are stored, whatever config.json says.
/// Throws DataError when a tensor is missing.
[[nodiscard]] DType stored_dtype(const ModelConfig& config, const WeightSource& weights);

}  // namespace paceline::io
