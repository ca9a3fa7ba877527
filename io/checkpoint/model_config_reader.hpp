// Reader of config.json and generation_config.json of a Hugging Face directory.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/head_config.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"

namespace paceline::io {

/// Reads `directory`/config.json, and a generation_config.json there or else in `otherwise` (a
/// directory; empty: none). Supported: the families that the decoder computes; rotary type default,
/// linear, dynamic, yarn or llama3; full attention; silu; weights unquantized, or fp8 in blocks of
/// 128 x 128. Throws DataError naming file, key, value, the supported values and the nearest name;
/// naming both places that contradict each other; and on a PEFT adapter without a model. Throws
/// IoError if a file cannot be read. Thread-safe.
[[nodiscard]] ModelConfig load_model_config(const Families& families, const std::string& directory,
                                            const std::string& otherwise = "");
/// Path of the generation_config.json in use; empty: there is none.
[[nodiscard]] std::string generation_config_path(const std::string& directory,
                                                 const std::string& otherwise);

/// Parses the files' texts; `name` is config.json's in messages. An empty `generation_text` means
/// that there is no generation config.
[[nodiscard]] ModelConfig parse_model_config(const Families& families, std::string_view text,
                                             const std::string& name,
                                             std::string_view generation_text,
                                             const std::string& generation_name);

/// Reads a model of any known family, for estimating costs: only its sizes and stored type, whether
/// the decoder can run it or not. Throws as load_model_config() does. Thread-safe.
[[nodiscard]] ModelConfig load_model_sizes(const Families& families, const std::string& directory);
[[nodiscard]] ModelConfig parse_model_sizes(const Families& families, std::string_view text,
                                            const std::string& name);

/// Reads an EAGLE-3 head's configuration: its one layer, and the head's own keys. load_eagle3()
/// completes it by the head's tensors. Keys unknown to transformers: draft_vocab_size, by default
/// vocab_size; target_hidden_size, by default hidden_size; norm_before_residual, norm_output,
/// fc_norm, norm_before_fc and eagle_aux_hidden_state_layer_ids.
[[nodiscard]] Eagle3Config load_eagle3_config(const std::string& directory);
[[nodiscard]] Eagle3Config parse_eagle3_config(std::string_view text, const std::string& name);

/// Reads a DFlash head's configuration; load_dflash() completes it by the head's tensors. Keys
/// unknown to transformers, at the top level or in dflash_config: block_size, mask_token_id and
/// target_layer_ids (or aux_hidden_state_layer_ids); draft_vocab_size, by default vocab_size.
[[nodiscard]] DFlashConfig load_dflash_config(const std::string& directory);
[[nodiscard]] DFlashConfig parse_dflash_config(std::string_view text, const std::string& name);

/// Throws DataError unless every expected tensor is there with its shape and a dtype of weights,
/// and no tensor is there for which the configuration has no place. With such a tensor, as a bias
/// or a further layer, results would silently be another model's. The message names tensor, file,
/// the expected and the found value. Stored rotary frequencies are ignored.
void check_tensor_shapes(const ModelConfig& config, const WeightSource& weights);

/// The first layer after the model's last, which predicts the token after the next, as a head.
/// `name`: the model's config.json in messages. Throws DataError if the model has no such layer.
[[nodiscard]] MtpConfig next_token_layer(const ModelConfig& model, const std::string& name);

/// Checks this layer's tensors, among the model's, in the same way. Sets own_embeddings and
/// own_output if the layer stores some, even if they equal the model's.
void check_tensor_shapes(MtpConfig& config, const WeightSource& weights);

/// Whether config.json ties the embeddings, but a head with other values is stored. The head was
/// trained, and transformers 5 computes with it, so tied_embeddings must then be false. Reads both
/// tensors until they differ: work for one rank, not for all.
[[nodiscard]] bool has_own_head(const ModelConfig& config, const WeightSource& weights);

/// Whether a head's embeddings equal the model's, which then serve both. `embeddings`: name of the
/// head's tensor. Reads both tensors until they differ: work for one rank, not for all.
[[nodiscard]] bool has_target_embeddings(const WeightSource& head, const std::string& embeddings,
                                         const WeightSource& target);

/// Whether two tensors hold the same numbers, even if their stored types differ.
[[nodiscard]] bool same_values(const TensorView& a, const TensorView& b);

/// Whether any of the expected tensors is stored in fp16, whose values bf16 does not hold exactly.
[[nodiscard]] bool stores_f16(const ModelConfig& config, const WeightSource& weights);

/// Whether a router is stored in fp32; its products are then computed in fp32 (wide_router).
[[nodiscard]] bool stores_wide_router(const ModelConfig& config, const WeightSource& weights);
/// Whether a next-token layer's router is stored in fp32.
[[nodiscard]] bool stores_wide_router(const MtpConfig& config, const WeightSource& weights);

/// The dtype in which most bytes of the expected tensors are stored, whatever config.json says.
/// Throws DataError if a tensor is missing.
[[nodiscard]] DType stored_dtype(const ModelConfig& config, const WeightSource& weights);

}  // namespace paceline::io
