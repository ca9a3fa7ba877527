// Cost tables of GPUs: steps added up by hand, and bounds on those of the published measurements.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "io/checkpoint/model_config_reader.hpp"
#include "io/measured/gpu_tables.hpp"
#include "runtime/model/families/families.hpp"
#include "runtime/sim/gpu_costs.hpp"
#include "runtime/sim/gpu_times.hpp"
#include "tests/runtime/sim/measured_gpu.hpp"

namespace paceline::test {
namespace {

using sim::gpu_costs;
using sim::GpuSystem;

TEST(GpuCosts, AStepIsTheSumOfWhatWasMeasured) {
  const CostTable costs = gpu_costs(small_gpu(), small_shape(), 1, {});
  // Layer: 2 norms, 2 additions, qkv, rope, output, gate and up, activation, down.
  const double layer = 2 * 3 + 2 * 1 + 20 + 4 + 10 + 40 + 5 + 30;
  // Beside the layers embedding, last norm and head; of attention its floor.
  EXPECT_NEAR(costs.decode.seconds(1), (2 + 3 + 3 * (layer + 6) + 100) * kMicro, 1e-12);
  // No head; a row attends to itself at 100 TFLOP/s.
  const double itself = 3 * 4.0 * 8 * 64 / 100e12;
  EXPECT_NEAR(costs.prefill.seconds(1), (2 + 3 + 3 * (layer + 6)) * kMicro + itself, 1e-12);
  EXPECT_EQ(costs.conditions.backend, "cuda");
  EXPECT_TRUE(costs.drafters.empty());
}

TEST(GpuCosts, TensorParallelStepsHaveTwoAllReducesALayer) {
  GpuSystem system;
  system.nvlink = sim::kMeasuredNvlink;
  const CostTable costs = gpu_costs(small_gpu(), small_shape(), 2, {}, system);
  const double layer = 2 * 3 + 2 * 1 + 12 + 3 + 8 + 22 + 4 + 17 + 2 * 7;
  EXPECT_NEAR(costs.decode.seconds(1), (2 + 3 + 3 * (layer + 6) + 60) * kMicro, 1e-12);
  EXPECT_EQ(costs.conditions.tp, 2);
}

TEST(GpuCosts, TensorParallelOverNodesAddsARing) {
  ModelConfig shape = small_shape();
  GpuSystem system;
  system.nvlink = sim::kMeasuredNvlink;
  const double node = gpu_costs(small_gpu(), shape, 2, {}, system).decode.seconds(1);
  system.network = {.latency = 5 * kMicro, .bandwidth = 1e9};
  const GpuMeasurements all = small_gpu();
  const sim::GpuTimes times(all);
  const double four = gpu_costs(all, shape, 4, {}, system).decode.seconds(1);
  const double more = 2 * (5 * kMicro + 2.0 * 512 / 2 / 2 / 1e9);  // there and back, a quarter
  const auto kernels = [&](double tp, double kv) {
    return 3 * (times.product(512, 512 / tp + 2 * kv, 1) + times.product(512 / tp, 512, 1) +
                times.elementwise(GpuOp::rope, 512 / tp + kv, 1) +
                times.product(512, 1408 / tp, 1) +
                times.elementwise(GpuOp::activation, 704 / tp, 1) +
                times.product(704 / tp, 512, 1)) +
           times.product(512, 1000 / tp, 1);
  };
  EXPECT_NEAR(four - node, kernels(4, 64) - kernels(2, 64) + 3 * 2 * more, 1e-12);
  shape.heads = 12;
  EXPECT_THROW((void)gpu_costs(all, shape, 3, {}, system), std::invalid_argument);
}

TEST(GpuCosts, Positions) {
  const CostTable costs = gpu_costs(small_gpu(), small_shape(), 1, {});
  // 3 layers x 2 heads x 64 x (key, value) x 2 bytes, at 1 TB/s.
  EXPECT_NEAR(costs.decode.per_position(), 3 * 512 / 1e12, 1e-18);
  // 3 layers x 8 heads x 64 x 4 operations, at 100 TFLOP/s.
  EXPECT_NEAR(costs.drafted_position, 3 * 2048 / 100e12, 1e-20);
  EXPECT_NEAR(costs.prefill.per_position(), 3 * 2048 / 100e12, 1e-20);

  GpuSystem per_query_head;
  per_query_head.grouped_attention = false;
  const CostTable slow = gpu_costs(small_gpu(), small_shape(), 1, {}, per_query_head);
  EXPECT_NEAR(slow.decode.per_position(), 3 * 2048 / 1e12, 1e-18);
  EXPECT_DOUBLE_EQ(slow.drafted_position, costs.drafted_position);

  // More GPUs than heads of keys and values: each has one.
  GpuMeasurements all = small_gpu();
  all.collectives.push_back({"h100_dgx", Collective::all_reduce, 4, 512, 7 * kMicro});
  EXPECT_NEAR(gpu_costs(all, small_shape(), 4, {}).decode.per_position(), 3 * 256 / 1e12, 1e-18);
}

TEST(GpuCosts, LatentAttentionKeepsOneVectorOnEveryGpu) {
  ModelConfig shape = small_shape();
  shape.latent = LatentConfig{.q_rank = 0, .kv_rank = 96, .rope = 32, .value_dim = 64};
  GpuSystem system;
  system.latent_flops = 50e12;
  const CostTable costs = gpu_costs(small_gpu(), shape, 2, {}, system);
  // 128 elements of 2 bytes; 4 heads x 2 x (96 + 32 + 96) operations take less time than those.
  EXPECT_NEAR(costs.decode.per_position(), 3 * 256 / 1e12, 1e-18);
  EXPECT_NEAR(costs.drafted_position, 3 * 1792 / 50e12, 1e-20);
  // Prompts multiply keys of 64 + 32 and values of 64.
  EXPECT_NEAR(costs.prefill.per_position(), 3 * 4 * 2 * 160.0 / 100e12, 1e-20);
}

TEST(GpuCosts, OnlyExpertsThatSomeRowChoseAreRead) {
  ModelConfig shape = small_shape();
  shape.experts =
      ExpertConfig{.routed = 8, .chosen = 2, .width = 64, .shared_width = 64, .dense_layers = {0}};
  const GpuMeasurements all = small_gpu();
  const sim::GpuTimes times(all);
  const auto experts = [&](double read, double rows) {
    return times.product(512, 8, rows) + times.product(512, 2 * 64 * read, rows * 2 / read) +
           times.elementwise(GpuOp::activation, 64, rows * 2) +
           times.product(64 * read, 512, rows * 2 / read) +
           // the shared one
           times.product(512, 128, rows) + times.elementwise(GpuOp::activation, 64, rows) +
           times.product(64, 512, rows);
  };
  const double dense = gpu_costs(all, small_shape(), 1, {}).decode.seconds(1);
  const double mixed = gpu_costs(all, shape, 1, {}).decode.seconds(1);
  EXPECT_NEAR(mixed, dense - 2 * (40 + 5 + 30) * kMicro + 2 * experts(2, 1), 1e-12);
  // Two rows read 8 x (1 - (3/4)^2) = 3.5.
  const double dense_two = gpu_costs(all, small_shape(), 1, {}).decode.seconds(2);
  const double mlp_two = times.product(512, 1408, 2) +
                         times.elementwise(GpuOp::activation, 704, 2) + times.product(704, 512, 2);
  EXPECT_NEAR(gpu_costs(all, shape, 1, {}).decode.seconds(2),
              dense_two - 2 * mlp_two + 2 * experts(3.5, 2), 1e-12);
}

TEST(GpuCosts, GpusThatShareExpertsHaveRowsOfTheirOwn) {
  ModelConfig shape = small_shape();
  shape.experts =
      ExpertConfig{.routed = 8, .chosen = 2, .width = 64, .shared_width = 64, .dense_layers = {0}};
  const GpuMeasurements all = small_gpu();
  const sim::GpuTimes times(all);
  GpuSystem system;
  system.sharing = sim::Sharing::experts;
  system.nvlink = 4e9;  // half of it each way
  system.network = {.latency = 5 * kMicro, .bandwidth = 1e9};
  const CostTable alone = gpu_costs(all, shape, 1, {}, system);
  const CostTable four = gpu_costs(all, shape, 4, {}, system);
  // Each of 4 GPUs has 2 of 8 rows, each of which goes to two experts and comes back, in 2 bytes an
  // element; half of them to the other node. The fullest GPU's experts get more than 4.
  const sim::ExpertLoad most = sim::fullest_load(*shape.experts, 4, 8);
  EXPECT_GT(most.rows, 5);
  EXPECT_DOUBLE_EQ(most.experts, 2);
  const double width = 64 * most.experts;
  const double experts = times.product(512, 8, 2) +
                         times.product(512, 2 * width, most.rows / most.experts) +
                         times.elementwise(GpuOp::activation, 64, most.rows) +
                         times.product(width, 512, most.rows / most.experts);
  const double exchange = 5 * kMicro + most.rows * 512 * 2.0 / 2 / 1e9;
  // One GPU has all 8 experts for two rows of its own, that read 3.5.
  const double two = gpu_costs(all, shape, 1, {}, system).decode.seconds(2);
  const auto routed_two = times.product(512, 8, 2) + times.product(512, 2 * 64 * 3.5, 4 / 3.5) +
                          times.elementwise(GpuOp::activation, 64, 4) +
                          times.product(64 * 3.5, 512, 4 / 3.5);
  EXPECT_NEAR(four.decode.seconds(8), two + 2 * (experts - routed_two + 2 * exchange), 1e-12);
  // Positions are read by four at once, whole heads each.
  EXPECT_DOUBLE_EQ(four.decode.per_position(), alone.decode.per_position() / 4);
  EXPECT_DOUBLE_EQ(four.drafted_position, alone.drafted_position / 4);
  // One GPU of an instance, of which all are equally busy, and its parts.
  const sim::InstanceCosts instance = sim::instance_costs(all, shape, 4, {}, system);
  const CostTable each = instance.table(4);
  EXPECT_EQ(each.conditions.tp, 1);
  EXPECT_NEAR(each.decode.seconds(2, 100), four.decode.seconds(8, 100), 1e-12);
  EXPECT_NEAR(each.prefill.seconds(2, 100), four.prefill.seconds(8, 100), 1e-12);
  EXPECT_DOUBLE_EQ(each.drafted_position, alone.drafted_position);
  EXPECT_NEAR(instance.experts.seconds(8), 2 * (experts - times.product(512, 8, 2)), 1e-12);
  EXPECT_NEAR(instance.received.seconds(8), 2 * 2 * exchange, 1e-12);
  EXPECT_NEAR(instance.sent.seconds(2), 2 * 2 * (5 * kMicro + 4 * 512 * 2.0 / 2 / 1e9), 1e-12);
  EXPECT_LT(instance.table(1).decode.seconds(2), each.decode.seconds(2));

  EXPECT_DOUBLE_EQ(four.prefill.per_position(), alone.prefill.per_position() / 4);

  EXPECT_THROW((void)gpu_costs(all, shape, 3, {}, system), std::invalid_argument);
  EXPECT_THROW((void)gpu_costs(all, small_shape(), 4, {}, system), std::invalid_argument);
}

TEST(GpuCosts, DraftsAreWholeOnOneGpu) {
  const std::array drafts{sim::NamedDraft{"model:draft", small_shape()}};
  const CostTable costs = gpu_costs(small_gpu(), small_shape(), 2, drafts);
  const CostTable alone = gpu_costs(small_gpu(), small_shape(), 1, {});
  ASSERT_EQ(costs.drafters.size(), 1U);
  const DrafterCosts& draft = costs.drafters[0];
  EXPECT_EQ(draft.name, "model:draft");
  EXPECT_DOUBLE_EQ(draft.round.seconds(4, 100), alone.decode.seconds(4, 100));
  EXPECT_DOUBLE_EQ(draft.first.seconds(4), alone.decode.seconds(8));
  EXPECT_DOUBLE_EQ(draft.catch_up.seconds(64), alone.prefill.seconds(64));
  ASSERT_TRUE(costs.transfer_seconds(50e9));
  EXPECT_NEAR(*costs.transfer_seconds(50e9), 1 + 11e-6, 1e-12);
}

TEST(GpuCosts, RefusesWhatMakesNoSense) {
  EXPECT_THROW((void)gpu_costs(small_gpu(), small_shape(), 0, {}), std::invalid_argument);
  EXPECT_THROW((void)gpu_costs(small_gpu(), small_shape(), 3, {}), std::invalid_argument);
  GpuSystem system;
  system.nvlink = 0;
  EXPECT_THROW((void)gpu_costs(small_gpu(), small_shape(), 1, {}, system), std::invalid_argument);
  GpuMeasurements all = small_gpu();
  all.collectives.clear();
  EXPECT_THROW((void)gpu_costs(all, small_shape(), 2, {}), std::invalid_argument);
}

/// The tables of configs/simulated.
class PublishedGpuCosts : public testing::Test {
 protected:
  static ModelConfig shape(const char* name) {
    return io::load_model_sizes(
        model::families(), std::string(PACELINE_SOURCE_DIR "/configs/simulated/models/") + name);
  }
  /// Bytes of what one row is multiplied by: all layers and the head, of routed experts the chosen.
  static double active_bytes(const ModelConfig& config) {
    const ModelDescription model = describe(config);
    const double experts = static_cast<double>(expert_elements(model));
    const double chosen =
        config.experts ? experts * config.experts->chosen / config.experts->routed : 0;
    return (static_cast<double>(layer_elements(model) + model.head.elements()) - experts + chosen) *
           config.stored_bytes();
  }
  const GpuMeasurements measured_ =
      io::load_gpu_tables(PACELINE_SOURCE_DIR "/configs/simulated/h100");
};

TEST_F(PublishedGpuCosts, StepsLieBetweenWeightsOnPaperAndWhatPapersSay) {
  const ModelConfig target = shape("Qwen2.5-32B");
  const CostTable costs = gpu_costs(measured_, target, 4, {});
  EXPECT_GT(costs.decode.seconds(1), stored_weight_bytes(target) / 4 / sim::kGpuBandwidth);
  // "the decoding latency of Qwen2.5-32B model is lower than 13 ms when the batch size per worker
  // is one" (SpecActor, section 5.1), at TP 4.
  EXPECT_LT(costs.decode.seconds(1), 13e-3);
  // A prompt's 4,096 rows take at least their arithmetic.
  EXPECT_GT(costs.prefill.seconds(4096),
            2 * 4096 * static_cast<double>(layer_elements(describe(target))) / 4 / sim::kGpuFlops);
}

TEST_F(PublishedGpuCosts, MoreGpusAreFasterAndMoreRowsSlower) {
  double before = 1;
  for (const int tp : {1, 2, 4, 8}) {
    const CostTable costs = gpu_costs(measured_, shape("Qwen2.5-32B"), tp, {});
    EXPECT_LT(costs.decode.seconds(1), before) << tp;
    before = costs.decode.seconds(1);
    EXPECT_GT(costs.decode.seconds(256), costs.decode.seconds(1)) << tp;
    // A row that shares what is read costs less than a row of its own.
    EXPECT_LT(costs.drafted_position, costs.decode.per_position()) << tp;
  }
}

TEST_F(PublishedGpuCosts, EverySimulatedModelHasThem) {
  for (const auto& [name, tp] :
       {std::pair{"Qwen2.5-0.5B", 1}, std::pair{"Qwen2.5-1.5B", 1}, std::pair{"Qwen2.5-7B", 1},
        std::pair{"Qwen2-VL-72B", 8}, std::pair{"Llama-3.1-8B", 1},
        std::pair{"Moonlight-16B-A3B", 1}, std::pair{"Kimi-K2", 32}}) {
    const ModelConfig model = shape(name);
    const CostTable costs = gpu_costs(measured_, model, tp, {});
    // Reading what one row is multiplied by is the least that a step takes.
    const double read = active_bytes(model) / tp;
    EXPECT_GT(costs.decode.seconds(1), read / sim::kGpuBandwidth) << name;
    EXPECT_LT(costs.decode.seconds(1), 20e-3) << name;
  }
}

/// Rows of experts choose by chance, many times over.
TEST(ExpertLoads, TheFullestGpuHasAsMuchAsByChance) {
  std::mt19937 random(1);
  for (const auto& [routed, chosen, gpus, rows] : {std::tuple{384, 8, 32, 800},
                                                   {384, 8, 32, 100},
                                                   {384, 8, 96, 4096},
                                                   {256, 8, 64, 64},
                                                   {64, 6, 8, 20}}) {
    ExpertConfig experts;
    experts.routed = routed;
    experts.chosen = chosen;
    const int trials = 40000 / rows + 20;
    double most_rows = 0, most_experts = 0;
    std::vector<int> all(routed);
    for (int trial = 0; trial < trials; ++trial) {
      std::vector<int> of(routed, 0);
      for (int row = 0; row < rows; ++row) {
        std::iota(all.begin(), all.end(), 0);
        for (int c = 0; c < chosen; ++c) {
          std::swap(all[c],
                    all[c + static_cast<int>(random() % static_cast<unsigned>(routed - c))]);
          ++of[all[c]];
        }
      }
      int largest = 0, read = 0;
      for (int gpu = 0; gpu < gpus; ++gpu) {
        const auto first = of.begin() + gpu * (routed / gpus);
        const auto end = first + routed / gpus;
        largest = std::max(largest, std::accumulate(first, end, 0));
        read = std::max(read, routed / gpus - static_cast<int>(std::count(first, end, 0)));
      }
      most_rows += largest;
      most_experts += read;
    }
    const sim::ExpertLoad load = sim::fullest_load(experts, gpus, rows);
    EXPECT_NEAR(load.rows / (most_rows / trials), 1, 0.06) << routed << ' ' << gpus << ' ' << rows;
    EXPECT_NEAR(load.experts / (most_experts / trials), 1, 0.06)
        << routed << ' ' << gpus << ' ' << rows;
  }
  ExpertConfig experts;
  experts.routed = 64;
  experts.chosen = 6;
  EXPECT_DOUBLE_EQ(sim::fullest_load(experts, 1, 10).rows, 60);
  EXPECT_DOUBLE_EQ(sim::fullest_load(experts, 64, 1e6).experts, 1);
}

/// A step of a service as it is published, of GPUs that share a model by its experts. Here products
/// are at bf16's rate, and no half of a batch is sent while the other is computed.
TEST_F(PublishedGpuCosts, StepsOfSharedExpertsAreNearPublishedOnes) {
  sim::GpuSystem system;
  system.sharing = sim::Sharing::experts;
  // SGLang on 72 H100s, with replicas of some experts: 256 requests of 2,000 positions on each GPU,
  // 22,282 tokens a second of 8 (lmsys.org, 5 May 2025).
  const CostTable costs = gpu_costs(measured_, shape("DeepSeek-V3"), 64, {}, system);
  const double step = costs.decode.seconds(64 * 256, 2000);
  EXPECT_NEAR(step / (256 / (22282 / 8.0)), 1, 0.2);
}

TEST_F(PublishedGpuCosts, SharingExpertsAloneIsFasterForManyRowsOfLatentAttention) {
  GpuSystem system;
  const CostTable tensor = gpu_costs(measured_, shape("Kimi-K2"), 32, {}, system);
  system.sharing = sim::Sharing::experts;
  const CostTable experts = gpu_costs(measured_, shape("Kimi-K2"), 32, {}, system);
  EXPECT_LT(experts.decode.seconds(1024), tensor.decode.seconds(1024));
  EXPECT_LT(experts.decode.per_position(), tensor.decode.per_position());
  EXPECT_GT(experts.decode.seconds(8192), experts.decode.seconds(1024));
}

}  // namespace
}  // namespace paceline::test
