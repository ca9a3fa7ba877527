// Qwen2 and Qwen2.5.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {

const Family qwen2{.class_name = "Qwen2ForCausalLM",
                   .model_type = "qwen2",
                   .describe = dense_decoder,
                   .qkv_bias = true,
                   .windows = Windows::by_layer};

}  // namespace paceline::model
