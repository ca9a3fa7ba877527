// Qwen3, dense.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {

const Family qwen3{.class_name = "Qwen3ForCausalLM",
                   .model_type = "qwen3",
                   .describe = dense_decoder,
                   .attention_bias_key = true,
                   .head_norms = true,
                   .needs_head_dim = true,
                   .windows = Windows::by_layer};

}  // namespace paceline::model
