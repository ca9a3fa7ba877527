// Llama 2 and 3.x, and Mistral, which is a Llama where it has no sliding window.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {

const Family llama{.class_name = "LlamaForCausalLM",
                   .model_type = "llama",
                   .describe = dense_decoder,
                   .attention_bias_key = true,
                   .mlp_bias_key = true,
                   .needs_kv_heads = false};

const Family mistral{.class_name = "MistralForCausalLM",
                     .model_type = "mistral",
                     .describe = dense_decoder,
                     .windows = Windows::all};

}  // namespace paceline::model
