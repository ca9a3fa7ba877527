// Qwen2, Qwen2.5, and the text part of Qwen2-VL.
#include "runtime/model/families/families.hpp"
#include "runtime/model/families/layers.hpp"

namespace paceline::model {

const Family qwen2{.class_name = "Qwen2ForCausalLM",
                   .model_type = "qwen2",
                   .describe = dense_decoder,
                   .qkv_bias = true,
                   .windows = Windows::by_layer};

const Family qwen2_vl{.class_name = "Qwen2VLForConditionalGeneration",
                      .model_type = "qwen2_vl",
                      .describe = dense_decoder,
                      .qkv_bias = true,
                      .windows = Windows::by_layer,
                      .computed = false};

}  // namespace paceline::model
