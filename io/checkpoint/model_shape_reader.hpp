// config.json of a Hugging Face directory, read for the model's size alone.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/model_shape.hpp"

namespace paceline::io {

/// Reads `directory`/config.json; the shape is named after the directory. Known: Llama, Qwen2 and
/// 2.5, Qwen2-VL (its text part), Qwen3, Qwen3-MoE, DeepSeek-V3 and what has its architecture
/// (Moonlight, Kimi-K2), and EAGLE-3 heads, whose vocabulary is the reduced one. What is not about
/// sizes is not looked at: a shape is for pricing, and says nothing of whether the decoder can run
/// the model (load_model_config()). Throws DataError naming file, key, value and what is expected;
/// IoError when the file cannot be read. Thread-safe.
[[nodiscard]] ModelShape load_model_shape(const std::string& directory);

/// The same from the file's text; `file` stands for it in messages.
[[nodiscard]] ModelShape parse_model_shape(std::string_view text, const std::string& file,
                                           std::string name);

}  // namespace paceline::io
