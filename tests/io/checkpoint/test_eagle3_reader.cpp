// EAGLE-3 heads as they are published, and what is said of those that are not.
#include "io/checkpoint/eagle3_reader.hpp"
#include "runtime/model/families/families.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <class T>
Tensor integers(const std::string& dtype, const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {dtype, {static_cast<std::int64_t>(values.size())}, bytes};
}

/// A head of 8 of 20 tokens in a directory, to be spoilt one way at a time.
class Eagle3Reader : public testing::Test {
 protected:
  Eagle3Reader() { name_as("midlayer."); }

  void name_as(const std::string& prefix) {
    Eagle3Config head;
    head.layer.hidden = 8;
    head.layer.intermediate = 12;
    head.layer.heads = 2;
    head.layer.kv_heads = 1;
    head.layer.head_dim = 4;
    head.target_hidden = 8;
    head.draft_vocab = 8;
    head.prefix = prefix;
    tensors_.clear();
    for (const ExpectedTensor& tensor : expected_tensors(model::describe_eagle3(head))) {
      std::size_t size = 2;
      for (const std::int64_t n : tensor.shape) size *= static_cast<std::size_t>(n);
      tensors_[tensor.name] = {"BF16", tensor.shape, std::string(size, '\0')};
    }
    tensors_["d2t"] = integers<std::int64_t>("I64", {0, 1, 1, 4, 4, 4, 5, 12});
    tensors_["t2d"] = {"BOOL", {20}, std::string(20, '\1')};
  }
  void write() const {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      header[name] = {{"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
      data += tensor.bytes;
    }
    directory_.write("model.safetensors", test::safetensors(header.dump(), data));
    directory_.write("config.json", config_.dump());
  }
  [[nodiscard]] Eagle3Checkpoint load() const {
    write();
    return load_eagle3(model::families(), directory_.path());
  }
  [[nodiscard]] std::string error() const {
    return test::message_of<DataError>([&] { (void)load(); });
  }
  [[nodiscard]] std::string file(const std::string& name) const { return directory_.file(name); }

  test::TemporaryDirectory directory_;
  std::map<std::string, Tensor> tensors_;
  nlohmann::json config_ = {{"architectures", {"LlamaForCausalLMEagle3"}},
                            {"vocab_size", 20},
                            {"draft_vocab_size", 8},
                            {"hidden_size", 8},
                            {"intermediate_size", 12},
                            {"num_hidden_layers", 1},
                            {"num_attention_heads", 2},
                            {"num_key_value_heads", 1},
                            {"rope_theta", 500000.0},
                            {"torch_dtype", "float16"}};
};

TEST_F(Eagle3Reader, ReadsBothNamings) {
  for (const char* prefix : {"midlayer.", "layers.0."}) {
    name_as(prefix);
    const Eagle3Checkpoint head = load();
    EXPECT_EQ(head.config.prefix, prefix);
    EXPECT_EQ(head.config.draft_vocab, 8);
    EXPECT_EQ(head.config.target_hidden, 8);
    EXPECT_EQ(head.config.layer.rope_theta, 500000.0);
    EXPECT_EQ(head.config.layer.vocab, 20);
    EXPECT_FALSE(head.config.norm_before_residual);
    EXPECT_EQ(head.config.target_ids, (std::vector<std::int32_t>{0, 2, 3, 7, 8, 9, 11, 19}));
  }
}

TEST_F(Eagle3Reader, MapsMayBeAbsentOrNarrowAndEmbeddingsThere) {
  tensors_["d2t"] = integers<std::int32_t>("I32", {12, 1, 1, 4, 4, 4, 5, 6});
  tensors_["embed_tokens.weight"] = {"BF16", {20, 8}, std::string(320, '\0')};
  EXPECT_EQ(load().config.target_ids.front(), 12);
  EXPECT_TRUE(load().config.own_embeddings);
  config_["draft_vocab_size"] = 20;
  config_["norm_before_residual"] = true;
  tensors_.erase("d2t");
  tensors_.erase("t2d");
  tensors_["lm_head.weight"] = {"BF16", {20, 8}, std::string(320, '\0')};
  tensors_.erase("embed_tokens.weight");
  const Eagle3Checkpoint head = load();
  EXPECT_FALSE(head.config.own_embeddings);
  EXPECT_TRUE(head.config.target_ids.empty());
  EXPECT_TRUE(head.config.norm_before_residual);
  config_.erase("draft_vocab_size");
  EXPECT_EQ(load().config.draft_vocab, 20);
}

TEST_F(Eagle3Reader, TensorsMustFit) {
  const std::string at = file("model.safetensors") + ": tensor ";
  const auto good = tensors_;
  tensors_["fc.weight"].shape = {24, 8};
  EXPECT_EQ(error(), at + "'fc.weight': expected shape [8, 24] (by config.json), found [24, 8]");
  tensors_ = good;
  tensors_.erase("midlayer.self_attn.q_proj.weight");
  EXPECT_EQ(error(), at + "'midlayer.self_attn.q_proj.weight': missing; expected shape [8, 16]");
  tensors_ = good;
  tensors_.erase("midlayer.hidden_norm.weight");
  EXPECT_EQ(error(), at +
                         "'midlayer.hidden_norm.weight': missing, and under layers.0. too: is this "
                         "an EAGLE-3 head?");
  tensors_ = good;
  tensors_["midlayer.self_attn.q_proj.bias"] = {"BF16", {8}, std::string(16, '\0')};
  EXPECT_EQ(error(),
            at + "'midlayer.self_attn.q_proj.bias': unexpected; by config.json this head has no "
                 "such tensor");
  tensors_ = good;
  tensors_["norm.weight"].dtype = "F16";
  EXPECT_NO_THROW((void)load());
  tensors_["norm.weight"].dtype = "I16";
  EXPECT_EQ(error(), at + "'norm.weight': dtype: expected BF16, F16, F32 or F8_E4M3, found I16");
}

TEST_F(Eagle3Reader, TheMapMustNameEachTokenOnce) {
  const std::string at = file("model.safetensors") + ": tensor 'd2t': ";
  const std::string expected = "expected the way to one of the 20 tokens, to each once, found ";
  tensors_["d2t"] = integers<std::int64_t>("I64", {0, 1, 1, 4, 4, 4, 5, 13});
  EXPECT_EQ(error(), at + "element 7: " + expected + "13");
  tensors_["d2t"] = integers<std::int64_t>("I64", {0, -2, 1, 4, 4, 4, 5, 6});
  EXPECT_EQ(error(), at + "element 1: " + expected + "-2");
  tensors_["d2t"] = integers<std::int64_t>("I64", {3, 2, 1, 4, 4, 4, 5, 6});
  EXPECT_EQ(error(), at + "element 1: " + expected + "2");
  tensors_["d2t"] = integers<std::int64_t>("I64", {0, 1});
  EXPECT_EQ(error(), at + "expected shape [8] (draft_vocab_size), found [2]");
  tensors_["d2t"] = {"F32", {8}, std::string(32, '\0')};
  EXPECT_EQ(error(), at + "dtype: expected I64 or I32, found F32");
  tensors_.erase("d2t");
  EXPECT_EQ(error(), at + "missing; by config.json the head has 8 of 20 tokens");
}

TEST_F(Eagle3Reader, TheConfigurationMustBeAHeads) {
  const std::string at = file("config.json") + ": ";
  const auto good = config_;
  config_["architectures"] = {"LlamaForCausalLMEagle"};
  EXPECT_EQ(error().find(at + "architectures"), 0U);
  EXPECT_NE(error().find("LlamaForCausalLMEagle3"), std::string::npos);
  config_ = good;
  config_["attention_bias"] = true;
  EXPECT_EQ(error(), at + "attention_bias: expected false (a head has no biases), found true");
  config_ = good;
  config_["draft_vocab_size"] = 21;
  EXPECT_EQ(error().find(at + "draft_vocab_size: expected"), 0U);
}

// Ids at the top name layers by what enters them (vLLM), those of eagle_config by what leaves them
// (SGLang, SpecForge).
TEST_F(Eagle3Reader, LayersThatAreRead) {
  const std::string at = file("config.json") + ": eagle_aux_hidden_state_layer_ids: ";
  const char* ids = "eagle_aux_hidden_state_layer_ids";
  EXPECT_TRUE(load().config.read_layers.empty());
  config_["eagle_config"] = {{ids, nlohmann::json::array()}, {"use_aux_hidden_state", true}};
  EXPECT_TRUE(load().config.read_layers.empty());
  config_[ids] = {2, 12, 21};
  EXPECT_EQ(load().config.read_layers, (std::vector<std::int32_t>{2, 12, 21}));
  config_["eagle_config"][ids] = {1, 11, 20};
  EXPECT_EQ(load().config.read_layers, (std::vector<std::int32_t>{2, 12, 21}));
  config_["eagle_config"][ids] = {2, 12, 21};
  EXPECT_EQ(error(), at + "expected none beside those of eagle_config, or one more each, for here "
                          "they name layers by what enters them and there by what leaves them, "
                          "found [2,12,21] and [2,12,21]");
  config_.erase(ids);
  EXPECT_EQ(load().config.read_layers, (std::vector<std::int32_t>{3, 13, 22}));
  config_.erase("eagle_config");
  for (const auto& bad : {nlohmann::json{3, 2, 1}, {1, 1, 2}, {-1, 2, 3}, {"a"}}) {
    config_[ids] = bad;
    EXPECT_EQ(error(),
              at + "expected a list of layers of the model, ascending, found " + bad.dump());
  }
  config_[ids] = {2, 12};
  EXPECT_EQ(error(), file("model.safetensors") +
                         ": tensor 'fc.weight': expected shape [8, 16] (by config.json), found [8, "
                         "24]");
  config_["num_aux_hidden_states"] = 3;
  EXPECT_EQ(error(), file("config.json") +
                         ": num_aux_hidden_states: expected 2, as many as "
                         "eagle_aux_hidden_state_layer_ids names, found 3");
}

TEST_F(Eagle3Reader, NormsOfEagle31) {
  config_["norm_output"] = true;
  config_["fc_norm"] = true;
  EXPECT_EQ(error(),
            file("model.safetensors") + ": tensor 'fc_norm.0.weight': missing; expected shape [8]");
  for (const char* name : {"fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight"})
    tensors_[name] = {"F16", {8}, std::string(16, '\0')};
  EXPECT_EQ(load().config.feature_norm, FeatureNorm::each);
  EXPECT_TRUE(load().config.norm_output);
  config_["norm_output"] = false;
  EXPECT_FALSE(load().config.norm_output);
  config_["eagle_config"] = {{"norm_before_fc", true}};
  EXPECT_EQ(error(), file("config.json") +
                         ": fc_norm: expected one of fc_norm and norm_before_fc, found both");
  config_["fc_norm"] = false;
  EXPECT_EQ(error(), file("model.safetensors") +
                         ": tensor 'input_norm.weight': missing; expected shape [24]");
  for (const char* name : {"fc_norm.0.weight", "fc_norm.1.weight", "fc_norm.2.weight"})
    tensors_.erase(name);
  tensors_["input_norm.weight"] = {"F32", {24}, std::string(96, '\0')};
  EXPECT_EQ(load().config.feature_norm, FeatureNorm::joined);
  config_.erase("eagle_config");
  EXPECT_EQ(error(),
            file("model.safetensors") +
                ": tensor 'input_norm.weight': unexpected; by config.json this head has no "
                "such tensor");
  tensors_.erase("input_norm.weight");
  config_["eagle_config"] = {{"return_hidden_post_norm", true}};
  EXPECT_EQ(error(), file("config.json") +
                         ": eagle_config.return_hidden_post_norm: expected the "
                         "same as norm_output, found true");
  config_["eagle_config"] = {{"use_aux_hidden_state", false}};
  EXPECT_EQ(error(), file("config.json") +
                         ": eagle_config.use_aux_hidden_state: expected true "
                         "(another head is not supported), found false");
}

TEST_F(Eagle3Reader, SpeculatorsNestTheLayer) {
  const std::string at = file("config.json") + ": ";
  name_as("layers.0.");
  nlohmann::json layer = config_;
  layer.erase("draft_vocab_size");
  layer["architectures"] = {"LlamaForCausalLM"};  // the model's that it was made from
  layer["model_type"] = "llama";
  config_ = {{"architectures", {"Eagle3DraftModel"}},
             {"speculators_model_type", "eagle3"},
             {"draft_vocab_size", 8},
             {"target_hidden_size", nullptr},
             {"norm_before_residual", true},
             {"norm_output", false},
             {"eagle_aux_hidden_state_layer_ids", {2, 9, 15}},
             {"transformer_layer_config", layer}};
  const Eagle3Config head = load().config;
  EXPECT_EQ(head.layer.vocab, 20);
  EXPECT_EQ(head.layer.rope_theta, 500000.0);
  EXPECT_EQ(head.draft_vocab, 8);
  EXPECT_EQ(head.target_hidden, 8);
  EXPECT_TRUE(head.norm_before_residual);
  EXPECT_EQ(head.read_layers, (std::vector<std::int32_t>{2, 9, 15}));
  const auto good = config_;
  config_.erase("norm_before_residual");
  EXPECT_EQ(error(), at + "norm_before_residual: missing: expected true or false, for vLLM takes "
                          "it for true and speculators for false");
  config_ = good;
  config_["speculators_model_type"] = "eagle4";
  EXPECT_EQ(error(), at + "speculators_model_type: expected eagle3 or peagle, found 'eagle4'");
  config_["speculators_model_type"] = "peagle";
  EXPECT_EQ(error(), at + "mask_token_id: missing: a peagle head has one");
  config_["mask_token_id"] = 3;
  EXPECT_EQ(error(),
            file("model.safetensors") + ": tensor 'mask_hidden': missing; expected shape [24]");
  config_["transformer_layer_config"]["ptd_token_id"] = 9;
  EXPECT_EQ(error(), at + "transformer_layer_config.ptd_token_id: expected 3, the mask token so "
                          "far, found 9");
  config_ = good;
  config_["transformer_layer_config"]["draft_vocab_size"] = 9;
  EXPECT_EQ(error(), at + "transformer_layer_config.draft_vocab_size: expected the same as "
                          "draft_vocab_size outside, 8, found 9");
  config_ = good;
  config_["transformer_layer_config"]["model_type"] = "qwen3";
  EXPECT_EQ(error(), file("model.safetensors") +
                         ": tensor 'layers.0.self_attn.q_norm.weight': missing; expected shape "
                         "[4]");
  config_ = good;
  config_["transformer_layer_config"].erase("hidden_size");
  EXPECT_EQ(error(), at + "missing keys: transformer_layer_config.hidden_size");
  config_ = good;
  config_.erase("transformer_layer_config");
  EXPECT_EQ(error(), at + "transformer_layer_config: missing");
}

// P-EAGLE: in one object the mask token is vLLM's, in speculators their own.
TEST_F(Eagle3Reader, MaskedRowsOfPEagle) {
  const std::string at = file("config.json") + ": ";
  EXPECT_EQ(load().config.mask_token, std::nullopt);
  config_["num_hidden_layers"] = 2;
  EXPECT_EQ(error(), file("model.safetensors") +
                         ": tensor 'layers.1.input_layernorm.weight': missing; expected shape [8]");
  for (const auto& [name, tensor] : std::map<std::string, Tensor>(tensors_)) {
    const std::size_t prefix = std::string("midlayer.").size();
    if (!name.starts_with("midlayer.") || name.find("hidden_norm") != std::string::npos) continue;
    Tensor narrow = tensor;
    if (narrow.shape.size() == 2 && narrow.shape[1] == 16) {
      narrow.shape[1] = 8;
      narrow.bytes.resize(narrow.bytes.size() / 2);
    }
    tensors_["layers.1." + name.substr(prefix)] = narrow;
  }
  EXPECT_EQ(load().config.layer.layers, 2);
  for (const char* key : {"pard_token", "ptd_token_id", "mask_token_id"}) {
    config_[key] = 19;
    EXPECT_EQ(error(),
              file("model.safetensors") + ": tensor 'mask_hidden': missing; expected shape [24]");
    config_.erase(key);
  }
  for (const auto& shape : {std::vector<std::int64_t>{24}, {1, 24}, {1, 1, 24}}) {
    tensors_["mask_hidden"] = {"BF16", shape, std::string(48, '\0')};
    config_["pard_token"] = 19;
    EXPECT_EQ(load().config.mask_token, 19);
    config_.erase("pard_token");
    EXPECT_EQ(error(), file("model.safetensors") +
                           ": tensor 'mask_hidden': unexpected without mask_token_id, pard_token "
                           "or ptd_token_id in config.json");
  }
  config_["pard_token"] = 20;
  EXPECT_EQ(error().find(at + "pard_token: expected"), 0U);
  config_["pard_token"] = 19;
  config_["ptd_token_id"] = 18;
  EXPECT_EQ(error(), at + "ptd_token_id: expected 19, the mask token so far, found 18");
  tensors_["mask_hidden"].shape = {24, 1};
  config_.erase("ptd_token_id");
  EXPECT_EQ(error(), file("model.safetensors") +
                         ": tensor 'mask_hidden': expected shape [24] (by config.json), found [24, "
                         "1]");
}

TEST_F(Eagle3Reader, APickleIsToBeConverted) {
  directory_.write("config.json", config_.dump());
  directory_.write("pytorch_model.bin", "PK");
  const std::string message =
      test::message_of<DataError>([&] { (void)load_eagle3(model::families(), directory_.path()); });
  EXPECT_EQ(message.find(directory_.path() +
                         ": expected model.safetensors, found pytorch_model.bin; convert it"),
            0U);
}

TEST_F(Eagle3Reader, TheHeadMustFitTheTarget) {
  const Eagle3Config head = load().config;
  ModelConfig target;
  target.vocab = 20;
  target.hidden = 8;
  target.layers = 3;
  EXPECT_NO_THROW(require_fits("dir", head, target));
  const auto error = [&] {
    return test::message_of<DataError>([&] { require_fits("dir", head, target); });
  };
  target.layers = 2;
  EXPECT_EQ(error(),
            "dir/config.json: an EAGLE-3 head reads features of three layers; expected a model of "
            "at least 3 layers, found 2");
  target.layers = 20;
  Eagle3Config other = head;
  other.read_layers = {1, 20};  // what leaves the last
  EXPECT_NO_THROW(require_fits("dir", other, target));
  other.read_layers = {1, 21};
  EXPECT_EQ(
      test::message_of<DataError>([&] { require_fits("dir", other, target); }),
      "dir/config.json: eagle_aux_hidden_state_layer_ids: expected layers of the model, which "
      "has 20, found what enters layer 21");
  target.vocab = 21;
  EXPECT_EQ(error(), "dir/config.json: vocab_size: expected 21, the model's vocab_size, found 20");
  target.hidden = 16;
  EXPECT_EQ(
      error(),
      "dir/config.json: hidden_size: expected 16, the model's hidden_size, for its embeddings "
      "are the head's, found 8");
  other = head;
  other.own_embeddings = true;
  other.target_hidden = 16;
  target.vocab = 20;
  EXPECT_NO_THROW(require_fits("dir", other, target));
}

}  // namespace
}  // namespace paceline::io
