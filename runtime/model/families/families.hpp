// The model families that paceline knows, each described by a file of its own. To add one, write
// its file, declare it here and name it in families.cpp and CMakeLists.txt. What config.json says
// of it is read in io/checkpoint: keys that nobody reads are ignored, so add a checkpoint to
// tests/models/parity. Its chat template: io/text/chat_template.hpp.
#pragma once

#include "runtime/core/head_config.hpp"
#include "runtime/core/model_description.hpp"

namespace paceline::model {

extern const Family llama;
extern const Family mistral;  ///< without a sliding window, when it is like Llama
extern const Family mixtral;
extern const Family qwen2;
extern const Family qwen2_moe;
extern const Family qwen2_vl;
extern const Family qwen2_5_vl;
extern const Family qwen3;
extern const Family qwen3_moe;
extern const Family deepseek;  ///< DeepSeek-V3, Moonlight, Kimi-K2

[[nodiscard]] HeadDescription describe_eagle3(const Eagle3Config& config);
[[nodiscard]] HeadDescription describe_dflash(const DFlashConfig& config);
/// Describes a head of any kind.
[[nodiscard]] HeadDescription describe_head(const HeadConfig& config);

/// All families, for the readers of io/checkpoint.
[[nodiscard]] const Families& families();

}  // namespace paceline::model
