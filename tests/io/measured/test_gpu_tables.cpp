// Measured tables of GPUs: what they say in one form, and errors that name file and line.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "io/measured/gpu_tables.hpp"
#include "tests/io/checkpoint/files.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::test {
namespace {

const std::string kVidur = "h100_dense_layers_vidur.csv";
const std::string kServing = "h100_dense_layers_llmservingsim.csv";
const std::string kAttention = "h100_attention_llama70b_tp4_llmservingsim.csv";
const std::string kCollectives = "h100_collectives_vidur.csv";

const std::string kVidurHeader = "model,n_head,n_kv_head,n_embd,n_ffn,tp,tokens,op,median_ms\n";
const std::string kServingHeader = "model,tp,tokens,op,latency_ms\n";
const std::string kAttentionHeader =
    "phase,n_q_head,n_kv_head,tp,batch,prefill_chunk,kv_tokens,median_ms\n";
const std::string kCollectivesHeader = "fabric,collective,workers,bytes,median_ms\n";

/// A folder with one line in each file.
class GpuTables : public testing::Test {
 protected:
  void SetUp() override {
    folder_.write(kVidur, kVidurHeader + "codellama-34b,64,8,8192,22016,2,4096,mlp_up_proj,2.5\n");
    folder_.write(kServing, kServingHeader + "llama-3.1-8b,1,16,lm_head,0.5\n");
    folder_.write(kAttention, kAttentionHeader +
                                  "prefill,64,8,4,1,32,64,0.25\n"
                                  "decode,64,8,4,3,0,320,0.125\r\n");
    folder_.write(kCollectives, kCollectivesHeader +
                                    "h100_dgx,all_reduce,2,2048,0.007\n"
                                    "h100_dgx,send_recv,2,4096,0.011\n");
  }
  [[nodiscard]] GpuMeasurements load() const { return io::load_gpu_tables(folder_.path()); }
  /// The message of a folder in which `file` is `text`.
  [[nodiscard]] std::string message_with(const std::string& file, const std::string& text) const {
    folder_.write(file, text);
    const std::string message = message_of<DataError>([&] { (void)load(); });
    const std::string path = folder_.file(file) + ": ";
    EXPECT_TRUE(message.starts_with(path)) << message;
    return message.substr(std::min(message.size(), path.size()));
  }

  TemporaryDirectory folder_;
};

TEST_F(GpuTables, BringsAllToOneForm) {
  const GpuMeasurements all = load();
  ASSERT_EQ(all.models.size(), 2U);
  EXPECT_EQ(all.models[0].name, "codellama-34b");
  EXPECT_EQ(all.models[0].head_dim(), 128);
  EXPECT_EQ(all.models[0].intermediate, 22016);
  EXPECT_TRUE(all.models[0].fused);
  EXPECT_EQ(all.models[0].vocab, 0);
  EXPECT_EQ(all.models[1].hidden, 4096);
  EXPECT_EQ(all.models[1].vocab, 128256);
  EXPECT_FALSE(all.models[1].fused);

  ASSERT_EQ(all.layers.size(), 2U);
  EXPECT_EQ(all.layers[0].op, GpuOp::gate_up);
  EXPECT_EQ(all.layers[0].tp, 2);
  EXPECT_EQ(all.layers[0].tokens, 4096);
  EXPECT_DOUBLE_EQ(all.layers[0].seconds, 2.5e-3);
  EXPECT_EQ(all.layers[1].model, 1U);
  EXPECT_EQ(all.layers[1].op, GpuOp::head);

  ASSERT_EQ(all.attention.size(), 2U);
  EXPECT_EQ(all.attention[0].heads, 16);
  EXPECT_EQ(all.attention[0].kv_heads, 2);
  EXPECT_EQ(all.attention[0].chunk, 32);
  EXPECT_EQ(all.attention[1].chunk, 0);
  EXPECT_EQ(all.attention[1].batch, 3);
  EXPECT_EQ(all.attention[1].positions, 320);
  EXPECT_DOUBLE_EQ(all.attention[1].seconds, 1.25e-4);

  ASSERT_EQ(all.collectives.size(), 2U);
  EXPECT_EQ(all.collectives[0].collective, Collective::all_reduce);
  EXPECT_EQ(all.collectives[1].collective, Collective::send_recv);
  EXPECT_DOUBLE_EQ(all.collectives[1].bytes, 4096);
}

TEST_F(GpuTables, NamesFileLineAndWhatWasExpected) {
  EXPECT_EQ(message_with(kVidur, ""),
            "line 1: expected the columns "
            "model,n_head,n_kv_head,n_embd,n_ffn,tp,tokens,op,median_ms");
  const std::string line = "m,4,2,64,128,1,8,emb,0.5\n";
  EXPECT_EQ(message_with(kVidur, kVidurHeader + line + "m,4,2\n"),
            "line 3: expected 9 fields, found 3");
  EXPECT_EQ(message_with(kVidur, kVidurHeader + line + "m,4,2,96,128,1,8,emb,0.5\n"),
            "line 3: model: expected a model of the same sizes in every line, found 'm'");
  EXPECT_EQ(message_with(kVidur, kVidurHeader + "m,4,2,64,128,0,8,emb,0.5\n"),
            "line 2: tp: expected a whole number of at least 1, found '0'");
  EXPECT_EQ(message_with(kVidur, kVidurHeader + "m,4,2,64,128,1,8x,emb,0.5\n"),
            "line 2: tokens: expected a whole number of at least 1, found '8x'");
  EXPECT_EQ(message_with(kVidur, kVidurHeader + "m,4,2,64,128,1,8,emb,0\n"),
            "line 2: median_ms: expected a number of milliseconds above 0, found '0'");
  EXPECT_EQ(message_with(kVidur, kVidurHeader + "m,4,2,64,128,1,8,emb,nan\n"),
            "line 2: median_ms: expected a number of milliseconds above 0, found 'nan'");
  EXPECT_EQ(message_with(kVidur, kVidurHeader + "m,4,2,64,128,1,8,softmax,0.5\n"),
            "line 2: op: expected one of emb, input_layernorm, attn_pre_proj, attn_rope, "
            "attn_post_proj, post_attention_layernorm, mlp_up_proj, mlp_act, mlp_down_proj, add, "
            "found 'softmax'");
}

TEST_F(GpuTables, KnowsWhoseLayersWereMeasured) {
  EXPECT_EQ(message_with(kServing, kServingHeader + "llama-4,1,16,lm_head,0.5\n"),
            "line 2: model: expected llama-3.1-8b or llama-3.1-70b, whose sizes are known, found "
            "'llama-4'");
}

TEST_F(GpuTables, ChecksAttention) {
  EXPECT_EQ(message_with(kAttention, kAttentionHeader + "both,64,8,4,1,0,64,0.25\n"),
            "line 2: phase: expected prefill or decode, found 'both'");
  EXPECT_EQ(message_with(kAttention, kAttentionHeader + "decode,64,8,4,1,32,64,0.25\n"),
            "line 2: prefill_chunk: expected 0 where the phase is decode, found '32'");
  EXPECT_EQ(message_with(kAttention, kAttentionHeader + "prefill,64,8,4,1,64,32,0.25\n"),
            "line 2: kv_tokens: expected a whole number of at least 64, found '32'");
}

TEST_F(GpuTables, ChecksCollectives) {
  EXPECT_EQ(message_with(kCollectives, kCollectivesHeader + "h100_dgx,all_to_all,2,64,0.1\n"),
            "line 2: collective: expected all_reduce or send_recv, found 'all_to_all'");
}

TEST_F(GpuTables, NamesTheFileThatIsNotThere) {
  std::filesystem::remove(folder_.file(kCollectives));
  EXPECT_EQ(message_of<DataError>([&] { (void)load(); }),
            folder_.file(kCollectives) + ": no such file");
}

/// The tables of configs/simulated.
TEST(PublishedGpuTables, AreRead) {
  const GpuMeasurements all = io::load_gpu_tables(PACELINE_SOURCE_DIR "/configs/simulated/h100");
  EXPECT_EQ(all.models.size(), 5U);
  EXPECT_EQ(all.layers.size(), 6720U + 3300U);
  EXPECT_EQ(all.attention.size(), 345U);
  EXPECT_EQ(all.collectives.size(), 618U);
}

}  // namespace
}  // namespace paceline::test
