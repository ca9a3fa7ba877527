// The model families that paceline knows, each described by a file of its own, of layers of
// layers.hpp. To add one, write its file, declare it here and name it in families.cpp and
// CMakeLists.txt. The form of its config.json: Family in core/model_description.hpp, whose enums
// io/checkpoint reads (experts_reader.cpp, tower_reader.cpp, attention_windows.cpp). Keys that
// nobody reads are ignored, but for those that check_arithmetic() in model_config_reader.cpp
// refuses, so add a checkpoint to tests/models/parity (make_fixtures.py, README.md) and name it in
// test_expected_tensors.cpp; with pictures to parity_pictures, with a next-token layer
// (describe_next_token) to parity_mtp. Its image processor: image_processor_reader.cpp in
// io/checkpoint, and io/images/processor.* for other arithmetic. New sizes that cost time:
// shape_text() in app/assembly/cost_conditions.cpp, and runtime/sim/gpu_costs.cpp. Its chat
// template: ChatFamily and, for pictures, kPictureMark in io/text/chat_template.hpp, every list of
// families in chat_template.cpp, known_shapes by the fingerprint that the refusal prints;
// chat_rendering.cpp and chat_tools.cpp, tests/io/text/make_chat_fixtures.py and
// make_tool_fixtures.py. Its tokenizer:
// io/text/tokenizer_json.cpp or tokenizer_tiktoken.cpp. Tests that list families:
// test_model_config.cpp, test_model_sizes.cpp, test_weights.cpp, test_shapes.cpp, random_model.hpp,
// test_chat.cpp, tests/mpi/random_model.py, shapes.sh, score.sh and soak.py. Its checkpoints that
// tests of emulated CUDA may leave out: tests/kernels/cuda/CMakeLists.txt. Users:
// configs/README.md, README.md.
//
// A family may need arithmetic that there is not yet, such as another activation, norm or position
// embedding. Then also: core/model_config.hpp, its reader in io/checkpoint/model_config_reader.cpp
// or rope_reader.cpp, kernels/backend.hpp with cpu/ and cuda/, the layers in runtime/model, and
// unsupported() in kernels/limits.cpp for backends without it. Another attention or form of KV:
// memory_plan.cpp and plan_text.cpp in app/assembly, simulated_costs.cpp and simulation_setup.cpp
// in app/simulation, roles/kv_share.cpp. A next-token layer with ordinary attention: mtp_head.cpp,
// and read_latent() in model_config_reader.cpp, which alone reads num_nextn_predict_layers.
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
