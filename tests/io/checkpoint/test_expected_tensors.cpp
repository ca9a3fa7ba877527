#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/model/families/families.hpp"
#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

// Weights that hold no bytes, to be spoilt one way at a time.
class FakeWeights final : public WeightSource {
 public:
  explicit FakeWeights(const ModelConfig& config) {
    for (const ExpectedTensor& tensor : expected_tensors(describe(config))) {
      tensors[tensor.name] = {DType::bf16, tensor.shape, {}};
    }
  }
  [[nodiscard]] const TensorView* find(std::string_view name) const override {
    const auto found = tensors.find(std::string(name));
    return found == tensors.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::vector<std::string_view> names() const override {
    std::vector<std::string_view> all;
    for (const auto& [name, view] : tensors) all.push_back(name);
    return all;
  }
  [[nodiscard]] std::string location(std::string_view) const override { return "w.safetensors"; }
  void release_pages() const override {}

  std::map<std::string, TensorView> tensors;
  std::map<std::string, std::vector<std::byte>> bytes;  ///< of tensors that hold some
};

ModelConfig small() {
  ModelConfig config;
  config.family = &model::llama;
  config.vocab = 10;
  config.hidden = 8;
  config.intermediate = 12;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  return config;
}

std::string error_of(const ModelConfig& config, const FakeWeights& weights) {
  return test::message_of<DataError>([&] { check_tensor_shapes(config, weights); });
}

TEST(ExpectedTensors, Names) {
  ModelConfig config = small();
  const auto plain = expected_tensors(describe(config));
  EXPECT_EQ(plain.size(), 12U);
  EXPECT_EQ(plain.front().name, "model.embed_tokens.weight");
  EXPECT_EQ(plain.front().shape, (std::vector<std::int64_t>{10, 8}));
  EXPECT_EQ(plain.back().name, "lm_head.weight");
  config.tied_embeddings = true;
  EXPECT_EQ(expected_tensors(describe(config)).size(), 11U);
  config.attention_bias = config.output_bias = config.mlp_bias = config.qk_norm = true;
  EXPECT_EQ(expected_tensors(describe(config)).size(), 11U + 4 + 3 + 2);
}

TEST(ExpectedTensors, ChecksWeights) {
  const ModelConfig config = small();
  const FakeWeights good(config);
  EXPECT_NO_THROW(check_tensor_shapes(config, good));

  FakeWeights missing = good;
  missing.tensors.erase("model.norm.weight");
  EXPECT_EQ(error_of(config, missing),
            "w.safetensors: tensor 'model.norm.weight': missing; expected shape [8]");
  FakeWeights headless = good;
  headless.tensors.erase("lm_head.weight");
  EXPECT_EQ(error_of(config, headless),
            "w.safetensors: tensor 'lm_head.weight': missing; expected shape [10, 8] (config.json "
            "does not say tie_word_embeddings: true)");
  FakeWeights shape = good;
  shape.tensors["model.layers.0.self_attn.k_proj.weight"].shape = {8, 8};
  EXPECT_EQ(error_of(config, shape),
            "w.safetensors: tensor 'model.layers.0.self_attn.k_proj.weight': expected shape [4, 8] "
            "(by config.json), found [8, 8]");
  for (const char* extra :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.1.mlp.up_proj.weight", "other"}) {
    FakeWeights more = good;
    more.tensors[extra] = {};
    EXPECT_EQ(error_of(config, more), "w.safetensors: tensor '" + std::string(extra) +
                                          "': unexpected; by config.json this llama model of 1 "
                                          "layers has no such tensor");
  }
}

TEST(ExpectedTensors, HarmlessExtras) {
  ModelConfig config = small();
  FakeWeights weights(config);
  weights.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {};
  EXPECT_NO_THROW(check_tensor_shapes(config, weights));
}

// A head beside embeddings that are tied is of their shape, and counts where it differs.
TEST(ExpectedTensors, AHeadBesideTiedEmbeddings) {
  ModelConfig config = small();
  config.vocab = 2;
  config.hidden = 2;
  FakeWeights weights(config);  // with a head
  config.tied_embeddings = true;
  const auto give = [&](const char* name, DType type, std::initializer_list<int> bits) {
    std::vector<std::byte>& bytes = weights.bytes[name];
    bytes.clear();
    for (const int element : bits) {
      for (std::size_t i = 0; i < size_of(type); ++i)
        bytes.push_back(static_cast<std::byte>(static_cast<unsigned>(element) >> 8 * i));
    }
    weights.tensors[name] = {type, {2, 2}, bytes};
  };
  const char* embeddings = "model.embed_tokens.weight";
  const char* head = "lm_head.weight";
  give(embeddings, DType::bf16, {0x3F80, 0x4000, 0xBF80, 0x3E00});  // 1, 2, -1, 1/8
  give(head, DType::bf16, {0x3F80, 0x4000, 0xBF80, 0x3E00});
  EXPECT_NO_THROW(check_tensor_shapes(config, weights));
  EXPECT_FALSE(has_own_head(config, weights));
  give(head, DType::f16, {0x3C00, 0x4000, 0xBC00, 0x3000});
  EXPECT_FALSE(has_own_head(config, weights));
  give(head, DType::f32, {0x3F800000, 0x40000000, -0x40800000, 0x3E000000});
  EXPECT_FALSE(has_own_head(config, weights));
  give(head, DType::f32, {0x3F800000, 0x40000000, -0x40800000, 0x3E000001});
  EXPECT_TRUE(has_own_head(config, weights));
  give(head, DType::bf16, {0x3F80, 0x4000, 0xBF80, 0x3E01});
  EXPECT_TRUE(has_own_head(config, weights));
  config.tied_embeddings = false;  // it is the head
  EXPECT_FALSE(has_own_head(config, weights));
  config.tied_embeddings = true;
  weights.tensors[head].shape = {4, 1};
  EXPECT_EQ(error_of(config, weights),
            "w.safetensors: tensor 'lm_head.weight': expected shape [2, 2] (by config.json), found "
            "[4, 1]");
  weights.tensors.erase(head);
  EXPECT_FALSE(has_own_head(config, weights));
}

TEST(ExpectedTensors, Fp8IsWhatConfigSays) {
  ModelConfig config = small();
  FakeWeights weights(config);
  const std::vector<std::byte> scale(4);
  const TensorView scales{DType::f32, {1, 1}, scale};
  for (const auto& [name, view] : weights.tensors)
    weights.bytes[name] = std::vector<std::byte>(view.shape[0] * 100);
  for (auto& [name, view] : weights.tensors) {
    const bool matrix = name.find("_proj") != std::string::npos;
    view.bytes = weights.bytes[name];
    if (matrix) view = {DType::f8, view.shape, view.bytes, &scales};
  }
  EXPECT_EQ(error_of(config, weights),
            "w.safetensors: tensor 'model.layers.0.self_attn.q_proj.weight': dtype: expected BF16, "
            "F16 or F32, as config.json has no quantization_config, found F8_E4M3");
  config.fp8 = true;
  EXPECT_NO_THROW(check_tensor_shapes(config, weights));
  EXPECT_EQ(stored_dtype(config, weights), DType::bf16);
}

// Codes alone do not say what the values are.
TEST(ExpectedTensors, SameValuesOfFp8) {
  const std::array<std::uint8_t, 4> codes{0x38, 0x40, 0xB8, 0x30};  // 1, 2, -1, 1/2
  const std::array<std::uint8_t, 4> halves{0x30, 0x38, 0xB0, 0x28};
  const std::array<float, 4> floats{1, 2, -1, 0.5};
  const std::array<float, 2> scale{1, 2};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const TensorView one{DType::f32, {1, 1}, bytes(scale).first(4)};
  const TensorView two{DType::f32, {1, 1}, bytes(scale).last(4)};
  const TensorView a{DType::f8, {2, 2}, bytes(codes), &one};
  EXPECT_TRUE(same_values(a, {DType::f8, {2, 2}, bytes(codes), &one}));
  EXPECT_FALSE(same_values(a, {DType::f8, {2, 2}, bytes(codes), &two}));
  EXPECT_TRUE(same_values(a, {DType::f8, {2, 2}, bytes(halves), &two}));
  EXPECT_TRUE(same_values(a, {DType::f32, {2, 2}, bytes(floats)}));
  EXPECT_TRUE(same_values({DType::f32, {2, 2}, bytes(floats)}, a));
}

TEST(ExpectedTensors, LayersBehindTheLastArePassedOver) {
  ModelConfig config = load_model_config(
      model::families(), std::string(PACELINE_SOURCE_DIR) + "/tests/models/parity/deepseek-groups");
  const FakeWeights weights(config);
  --config.layers;
  EXPECT_THROW(check_tensor_shapes(config, weights), DataError);
  config.next_token_layers = 1;  // num_nextn_predict_layers
  EXPECT_NO_THROW(check_tensor_shapes(config, weights));
}

std::string folder_of_layers() {
  return std::string(PACELINE_SOURCE_DIR) + "/tests/models/parity_mtp/";
}

TEST(NextTokenLayer, IsOfTheFirstLayerBehindTheLast) {
  for (const bool own : {true, false}) {
    const std::string folder = folder_of_layers() + (own ? "groups" : "plain");
    const ModelConfig model = load_model_config(model::families(), folder);
    const Checkpoint weights(folder);
    MtpConfig layer = next_token_layer(model, "config.json");
    check_tensor_shapes(layer, weights);
    EXPECT_EQ(layer.number, 2);
    EXPECT_EQ(layer.layer.layers, 1);
    EXPECT_FALSE(layer.layer.has_dense_layers());
    EXPECT_EQ(layer.own_embeddings, own);
    EXPECT_EQ(layer.own_output, own);
    const HeadConfig head = layer;
    EXPECT_EQ(feature_layers(head, model), std::vector{model.layers});
    EXPECT_EQ(feature_width(head), model.hidden);
    EXPECT_EQ(draft_vocab(head), model.vocab);
    const HeadDescription described = model::describe_head(head);
    EXPECT_EQ(described.output.name, own ? "model.layers.2.shared_head.head" : "lm_head");
    EXPECT_EQ(described.embedding.has_value(), own);
    // Those of the fixture are others, which published ones are not.
    const std::string embeddings = "model.layers.2.embed_tokens.weight";
    EXPECT_FALSE(has_target_embeddings(weights, embeddings, weights));
    EXPECT_TRUE(has_target_embeddings(weights, "model.embed_tokens.weight", weights));
  }
}

TEST(NextTokenLayer, MustBeThereAsConfigJsonSays) {
  const std::string folder = folder_of_layers() + "groups";
  ModelConfig model = load_model_config(model::families(), folder);
  const auto error = [&](const WeightSource& weights) {
    return test::message_of<DataError>([&] {
      MtpConfig layer = next_token_layer(model, "m/config.json");
      check_tensor_shapes(layer, weights);
    });
  };
  const Checkpoint weights(folder);
  MtpConfig whole = next_token_layer(model, "m/config.json");
  EXPECT_NO_THROW(check_tensor_shapes(whole, weights));
  --model.layers;
  EXPECT_NE(error(weights).find("tensor 'model.layers.1.eh_proj.weight': missing; expected shape "
                                "[32, 64]"),
            std::string::npos)
      << error(weights);
  ++model.layers;
  model.experts->routed = 9;
  EXPECT_NE(error(weights).find("tensor 'model.layers.2.mlp.gate.weight': expected shape [9, 32] "
                                "(by config.json), found [8, 32]"),
            std::string::npos)
      << error(weights);
  model.experts->routed = 8;
  model.latent->q_rank = 0;
  EXPECT_NE(error(weights).find("tensor 'model.layers.2.self_attn.q_proj.weight': missing"),
            std::string::npos)
      << error(weights);
  model.next_token_layers = 0;
  EXPECT_EQ(error(weights),
            "m/config.json: num_nextn_predict_layers: expected at least 1 layer behind the last, "
            "for speculation.drafters has method mtp, found none");
  model = load_model_config(model::families(),
                            std::string(PACELINE_SOURCE_DIR) + "/tests/models/parity/llama3");
  EXPECT_NE(error(weights).find("num_nextn_predict_layers"), std::string::npos);
}

// The parity fixtures are what transformers writes.
class Fixture : public testing::TestWithParam<const char*> {};

TEST_P(Fixture, IsWhatItsConfigSays) {
  const std::string folder =
      std::string(PACELINE_SOURCE_DIR) + "/tests/models/parity/" + GetParam();
  const ModelConfig config = load_model_config(model::families(), folder);
  const Checkpoint weights(folder);
  EXPECT_NO_THROW(check_tensor_shapes(config, weights));
  EXPECT_EQ(has_own_head(config, weights), std::string(GetParam()) == "llama-own-head");
  EXPECT_EQ(stores_f16(config, weights), std::string(GetParam()) == "llama-f16");
  EXPECT_EQ(stored_dtype(config, weights), config.dtype);
  if (config.experts) {
    EXPECT_EQ(stores_wide_router(config, weights),
              config.dtype == DType::f32 || std::string(GetParam()) == "deepseek-single");
  }

  const nlohmann::json reference =
      parse_json(read_text_file(folder + "/reference.json"), "reference.json");
  EXPECT_EQ(reference.at("stored_dtype").get<std::string>(), name_of(config.dtype));
  const test::TemporaryDirectory answers;
  std::filesystem::create_symlink(std::filesystem::absolute(folder + "/reference.safetensors"),
                                  answers.file("model.safetensors"));
  const Checkpoint tensors(answers.path());
  const nlohmann::json& prompts = reference.at("prompts");
  ASSERT_EQ(prompts.size(), 3U);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const TensorView* logits = tensors.find("logits." + std::to_string(i));
    ASSERT_NE(logits, nullptr);
    EXPECT_EQ(logits->dtype, DType::f32);
    EXPECT_EQ(logits->shape,
              (std::vector<std::int64_t>{
                  static_cast<std::int64_t>(prompts[i].at("positions").size()), config.vocab}));
    // The first greedy token follows from the last row, of what is no padding.
    const std::int64_t rows = logits->shape[0];
    std::vector<float> last(static_cast<std::size_t>(config.vocab));
    std::memcpy(last.data(), logits->bytes.data() + (rows - 1) * config.vocab * 4, last.size() * 4);
    last.resize(static_cast<std::size_t>(reference.value("tokens", config.vocab)));
    EXPECT_EQ(std::max_element(last.begin(), last.end()) - last.begin(),
              prompts[i].at("greedy").at(0).get<int>());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Parity, Fixture,
    testing::Values("qwen2-tied", "qwen2-tied-fp32", "qwen2-sharded", "llama2", "llama3",
                    "llama-biases", "qwen3-tied", "qwen3-fp32", "llama-own-head", "llama-f16",
                    "mistral", "qwen2-padded", "llama-linear", "llama-dynamic", "qwen2-yarn",
                    "qwen3-yarn", "qwen3-moe", "qwen3-moe-fp32", "qwen3-moe-one", "qwen2-moe",
                    "qwen2-moe-fp32", "mixtral", "mixtral-tied", "mixtral-fp32", "deepseek-groups",
                    "deepseek-moonlight", "deepseek-yarn", "deepseek-mscale", "deepseek-fp8",
                    "deepseek-unshared", "deepseek-wide", "deepseek-single", "deepseek-sharded"));

}  // namespace
}  // namespace paceline::io
