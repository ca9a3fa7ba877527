// DFlash heads as they are published, and what is said of those that are not.
#include "io/checkpoint/dflash_reader.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "runtime/model/families/families.hpp"
#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

/// A head in z-lab's form in a directory, to be spoilt one way at a time.
class DFlashReader : public testing::Test {
 protected:
  DFlashReader() {
    DFlashConfig head;
    head.layer.hidden = 8;
    head.layer.intermediate = 12;
    head.layer.layers = 2;
    head.layer.heads = 2;
    head.layer.kv_heads = 1;
    head.layer.head_dim = 4;
    head.layer.qk_norm = true;
    head.target_hidden = 8;
    head.draft_vocab = 20;
    head.read_layers = {2, 5};
    for (const ExpectedTensor& tensor : expected_tensors(model::describe_dflash(head)))
      shapes_[tensor.name] = tensor.shape;
    shapes_.erase("lm_head.weight");
  }
  void write() const {
    json header;
    std::string data;
    for (const auto& [name, shape] : shapes_) {
      std::size_t size = 2;
      for (const std::int64_t n : shape) size *= static_cast<std::size_t>(n);
      header[name] = {
          {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + size}}};
      data.append(size, '\0');
    }
    directory_.write("model.safetensors", test::safetensors(header.dump(), data));
    directory_.write("config.json", config_.dump());
  }
  [[nodiscard]] DFlashCheckpoint load() const {
    write();
    return load_dflash(model::families(), directory_.path());
  }
  [[nodiscard]] std::string error() const {
    return test::message_of<DataError>([&] { (void)load(); });
  }
  /// The message, without the file that begins it.
  [[nodiscard]] std::string error_of(const std::string& file) const {
    const std::string message = error();
    const std::string begin = directory_.file(file) + ": ";
    EXPECT_EQ(message.rfind(begin, 0), 0U) << message;
    return message.substr(std::min(begin.size(), message.size()));
  }

  test::TemporaryDirectory directory_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  json config_ = {{"architectures", {"DFlashDraftModel"}},
                  {"auto_map", {{"AutoModel", "dflash.DFlashDraftModel"}}},
                  {"attention_bias", false},
                  {"block_size", 16},
                  {"dflash_config", {{"mask_token_id", 19}, {"target_layer_ids", {1, 4}}}},
                  {"layer_types", {"full_attention", "full_attention"}},
                  {"model_type", "qwen3"},
                  {"vocab_size", 20},
                  {"hidden_size", 8},
                  {"intermediate_size", 12},
                  {"max_window_layers", 2},
                  {"num_hidden_layers", 2},
                  {"num_attention_heads", 2},
                  {"num_key_value_heads", 1},
                  {"num_target_layers", 8},
                  {"rope_theta", 1e6},
                  {"sliding_window", nullptr},
                  {"use_sliding_window", false}};
};

TEST_F(DFlashReader, ReadsTheFormsOfAHead) {
  const DFlashConfig head = load().config;
  EXPECT_EQ(head.block_size, 16);
  EXPECT_EQ(head.mask_token, 19);
  EXPECT_EQ(head.read_layers, (std::vector<std::int32_t>{2, 5}));
  EXPECT_EQ(head.layer.rope_theta, 1e6);
  EXPECT_TRUE(head.layer.qk_norm);
  EXPECT_FALSE(head.own_embeddings || head.own_output);
  EXPECT_EQ(block_size(HeadConfig(head)), 16);

  // As later checkpoints have it.
  config_["dflash_config"]["block_size"] = 8;
  config_.erase("block_size");
  EXPECT_EQ(load().config.block_size, 8);

  // As vLLM's speculators have it.
  json layer = config_;
  for (const char* key : {"architectures", "auto_map", "dflash_config"}) layer.erase(key);
  config_ = {{"architectures", {"DFlashSpeculator"}},
             {"speculators_model_type", "dflash"},
             {"aux_hidden_state_layer_ids", {2, 5}},
             {"block_size", 4},
             {"mask_token_id", 3},
             {"draft_vocab_size", 20},
             {"transformer_layer_config", layer}};
  shapes_["lm_head.weight"] = {20, 8};
  shapes_["embed_tokens.weight"] = {20, 8};
  const DFlashConfig nested = load().config;
  EXPECT_EQ(nested.block_size, 4);
  EXPECT_EQ(nested.mask_token, 3);
  EXPECT_EQ(nested.read_layers, head.read_layers);
  EXPECT_TRUE(nested.own_embeddings && nested.own_output);
  config_["speculators_model_type"] = "eagle3";
  EXPECT_EQ(error_of("config.json"), "speculators_model_type: expected dflash, found 'eagle3'");
}

TEST_F(DFlashReader, NamesWhatIsWrongInTheConfiguration) {
  const json good = config_;
  const auto with = [&](const char* key, const json& value) {
    config_ = good;
    config_["dflash_config"][key] = value;
    return error_of("config.json");
  };
  const auto without = [&](const char* key) {
    config_ = good;
    config_["dflash_config"].erase(key);
    return error_of("config.json");
  };
  const auto outside = [&](const char* key, const json& value) {
    config_ = good;
    config_[key] = value;
    return error_of("config.json");
  };
  EXPECT_EQ(with("mask_token_id", 20),
            "dflash_config.mask_token_id: expected a whole number from 0 to 19, found 20");
  EXPECT_EQ(with("mask_token_id", nullptr), "mask_token_id: missing, and in dflash_config too");
  EXPECT_EQ(without("target_layer_ids"),
            "target_layer_ids: missing; expected the layers of the model whose output the head "
            "reads");
  EXPECT_EQ(with("target_layer_ids", {4, 1}),
            "dflash_config.target_layer_ids: expected a list of layers of the model, ascending, "
            "found [4,1]");
  EXPECT_EQ(outside("block_size", 1),
            "block_size: expected a whole number from 2 to 1024, found 1");
  EXPECT_EQ(with("block_size", 8),
            "dflash_config.block_size: expected the same as block_size outside, 16, found 8");
  EXPECT_EQ(with("causal", true),
            "dflash_config.causal: expected false (another head is not supported), found true");
  EXPECT_EQ(with("final_logit_softcapping", 20.0),
            "dflash_config.final_logit_softcapping: expected none (it is not supported), found "
            "20.0");
  EXPECT_EQ(outside("architectures", {"DFlash2DraftModel"}),
            "architectures: expected DFlashDraftModel or DFlashSpeculator, found "
            "'DFlash2DraftModel'");
  EXPECT_EQ(outside("layer_types", {"sliding_attention", "full_attention"}),
            "layer_types: expected full_attention alone, found \"sliding_attention\"");
  EXPECT_EQ(outside("model_type", "llama"), "model_type: expected qwen3, found 'llama'");
}

TEST_F(DFlashReader, NamesTheTensorThatIsWrong) {
  const std::string at = "tensor 'layers.1.self_attn.q_norm.weight': ";
  shapes_.erase("layers.1.self_attn.q_norm.weight");
  EXPECT_EQ(error_of("model.safetensors"), at + "missing; expected shape [4]");
  shapes_["layers.1.self_attn.q_norm.weight"] = {8};
  EXPECT_EQ(error_of("model.safetensors"), at + "expected shape [4] (by config.json), found [8]");
  shapes_["layers.1.self_attn.q_norm.weight"] = {4};
  shapes_["mask_embedding"] = {8};
  EXPECT_EQ(error_of("model.safetensors"),
            "tensor 'mask_embedding': unexpected; a DFlash head here has no such tensor");
  shapes_.erase("mask_embedding");
  config_["draft_vocab_size"] = 10;
  EXPECT_EQ(error_of("model.safetensors"),
            "tensor 'lm_head.weight': missing; expected shape [10, 8]");
  shapes_["lm_head.weight"] = {10, 8};
  EXPECT_EQ(error_of("model.safetensors"),
            "tensor 'd2t': missing; by config.json the head has 10 of 20 tokens");
}

TEST_F(DFlashReader, TheHeadMustFitTheTarget) {
  DFlashConfig head = load().config;
  ModelConfig target;
  target.vocab = 20;
  target.hidden = 8;
  target.layers = 5;
  EXPECT_NO_THROW(require_fits("dir", head, target));
  const auto error = [&] {
    return test::message_of<DataError>([&] { require_fits("dir", head, target); });
  };
  target.layers = 4;
  EXPECT_EQ(error(),
            "dir/config.json: target_layer_ids: expected layers of the model, which has 4, found "
            "what enters layer 5");
  target.layers = 8;
  target.hidden = 16;
  EXPECT_EQ(
      error(),
      "dir/config.json: hidden_size: expected 16, the model's hidden_size, for its embeddings "
      "are the head's, found 8");
  head.own_embeddings = true;
  head.target_hidden = 16;
  EXPECT_EQ(error(),
            "dir/config.json: hidden_size: expected 16, the model's hidden_size, for its output is "
            "the head's, found 8");
  head.own_output = true;
  EXPECT_NO_THROW(require_fits("dir", head, target));
}

}  // namespace
}  // namespace paceline::io
