// Times of single operations: measured ones come out as they are, others by their neighbours.
#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/sim/gpu_times.hpp"
#include "tests/runtime/sim/measured_gpu.hpp"

namespace paceline::test {
namespace {

using sim::GpuTimes;
using sim::kGpuBandwidth;
using sim::kGpuFlops;

TEST(GpuTimes, MeasuredShapesComeOutAsMeasured) {
  GpuMeasurements all = small_gpu();
  measure(all, 0, 1, 64, {{GpuOp::qkv, 25}, {GpuOp::norm, 3.5}});
  measure(all, 0, 1, 64, {{GpuOp::qkv, 31}});  // of two, the mean
  const GpuTimes times(all);
  EXPECT_DOUBLE_EQ(times.product(512, 768, 1), 20 * kMicro);
  EXPECT_DOUBLE_EQ(times.product(512, 768, 64), 28 * kMicro);
  EXPECT_DOUBLE_EQ(times.product(512, 768, 64), times.seconds(all.models[0], GpuOp::qkv, 1, 64));
  EXPECT_DOUBLE_EQ(times.elementwise(GpuOp::norm, 512, 64), 3.5 * kMicro);
  EXPECT_DOUBLE_EQ(times.seconds(all.models[0], GpuOp::down, 2, 1), 17 * kMicro);
  EXPECT_EQ(times.seconds(all.models[0], GpuOp::prompt_attention, 1, 1), 0);
}

/// Products of which bytes on paper take the time: one row.
double paper_seconds(double inputs, double outputs) {
  return (2 * inputs * outputs + 2 * (inputs + outputs)) / kGpuBandwidth;
}

/// A model whose output projection is [inputs, outputs].
GpuMeasurements with_output(std::initializer_list<std::pair<MeasuredModel, double>> measured) {
  GpuMeasurements all = small_gpu();
  all.layers.clear();
  for (const auto& [model, seconds] : measured) {
    all.models.push_back(model);
    all.layers.push_back({all.models.size() - 1, GpuOp::output, 1, 1, seconds});
  }
  return all;
}

MeasuredModel square(int size) {
  MeasuredModel model = measured_model("square");
  model.heads = 16;
  model.hidden = size;
  return model;
}

TEST(GpuTimes, OthersTakeTheFactorOfTheirNeighboursAboveTheFloor) {
  // The floor is the least: 2 us. Above it the second takes 3 times what it would on paper.
  const GpuTimes times(with_output(
      {{square(1024), 2 * kMicro}, {square(4096), 2 * kMicro + 3 * paper_seconds(4096, 4096)}}));
  // As far from one as from the other: half of 0 + 3.
  EXPECT_NEAR(times.product(2048, 2048, 1), 2 * kMicro + 1.5 * paper_seconds(2048, 2048), 1e-15);
  // Three times as far from the first as from the second: a quarter of 0 and three of 3.
  EXPECT_NEAR(times.product(8192, 8192, 1), 2 * kMicro + 2.25 * paper_seconds(8192, 8192), 1e-15);
  // Weights of one byte: half of what is read, but for activations.
  const double half = (2048.0 * 2048 + 2 * 4096) / kGpuBandwidth;
  EXPECT_NEAR(times.product(2048, 2048, 1, 1), 2 * kMicro + 1.5 * half, 1e-15);
}

TEST(GpuTimes, BetweenMeasuredRowsFactorsAreLinearInTheLogarithm) {
  GpuMeasurements all = small_gpu();
  all.layers.clear();
  const MeasuredModel model = square(4096);
  all.models = {model};
  const auto bound = [](double rows) {
    return (2 * 4096.0 * 4096 + 4 * 4096 * rows) / kGpuBandwidth;
  };
  all.layers.push_back({0, GpuOp::k, 1, 1, 1 * kMicro});  // [4096, 512]: the floor
  all.layers.push_back({0, GpuOp::output, 1, 4, 1 * kMicro + 2 * bound(4)});
  all.layers.push_back({0, GpuOp::output, 1, 64, 1 * kMicro + 4 * bound(64)});
  const GpuTimes times(all);
  EXPECT_NEAR(times.product(4096, 4096, 16), 1 * kMicro + 3 * bound(16), 1e-12);
  EXPECT_NEAR(times.product(4096, 4096, 1), 1 * kMicro + 2 * bound(1), 1e-12);
  // Beyond, the last factor; here arithmetic is what bounds.
  const double flops = 2 * 4096.0 * 4096 * 8192 / kGpuFlops;
  EXPECT_NEAR(times.product(4096, 4096, 8192), 1 * kMicro + 4 * flops, 1e-12);
}

TEST(GpuTimes, UnfusedNormsDoNotCount) {
  GpuMeasurements all = small_gpu();
  all.models.push_back(measured_model("eager"));
  all.models[1].fused = false;
  measure(all, 1, 1, 1, {{GpuOp::norm, 18}, {GpuOp::rope, 27}, {GpuOp::activation, 7}});
  const GpuTimes times(all);
  EXPECT_DOUBLE_EQ(times.elementwise(GpuOp::norm, 512, 1), 3 * kMicro);
  EXPECT_DOUBLE_EQ(times.elementwise(GpuOp::rope, 640, 1), 4 * kMicro);
  EXPECT_DOUBLE_EQ(times.elementwise(GpuOp::activation, 704, 1), 6 * kMicro);  // mean of 5 and 7
}

TEST(GpuTimes, AttentionReachesTheHighestRates) {
  const GpuTimes times(small_gpu());
  EXPECT_DOUBLE_EQ(times.attention().floor, 6 * kMicro);
  EXPECT_NEAR(times.attention().stream / 1e12, 1, 1e-9);
  EXPECT_NEAR(times.attention().flops / 100e12, 1, 1e-9);
  // A prompt of 2,048 rows, each of 8 heads of 64: more.
  GpuMeasurements all = small_gpu();
  measure(all, 0, 1, 2048, {{GpuOp::prompt_attention, 10}});
  EXPECT_NEAR(GpuTimes(all).attention().flops, 4.0 * 8 * 64 * 2048 * 2049 / 2 / (10 * kMicro), 1e3);
}

TEST(GpuTimes, AllReduces) {
  GpuMeasurements all;
  all.attention = small_gpu().attention;
  const auto add = [&](const char* fabric, int workers, double bytes, double microseconds) {
    all.collectives.push_back(
        {fabric, Collective::all_reduce, workers, bytes, microseconds * kMicro});
  };
  add("h100_dgx", 4, 1000, 40);  // no more than 2,000 bytes take
  add("h100_dgx", 4, 2000, 10);
  add("h100_dgx", 4, 4000, 14);
  add("h100_pairwise_nvlink", 4, 2000, 1);
  add("h100_dgx", 8, 2000, 12);
  const GpuTimes times(all);
  const double as_measured = sim::kMeasuredNvlink;
  EXPECT_EQ(times.most_workers(), 8);
  EXPECT_DOUBLE_EQ(times.all_reduce(100, 4, as_measured), 10 * kMicro);
  EXPECT_DOUBLE_EQ(times.all_reduce(1000, 4, as_measured), 10 * kMicro);
  EXPECT_DOUBLE_EQ(times.all_reduce(3000, 4, as_measured), 12 * kMicro);
  EXPECT_DOUBLE_EQ(times.all_reduce(8000, 4, as_measured), 28 * kMicro);
  // 4 GPUs send 3/4 of it twice, at 225 GB/s instead of 450.
  EXPECT_NEAR(times.all_reduce(3000, 4, as_measured / 2), 12 * kMicro + 4500 / 450e9, 1e-15);
  EXPECT_THROW((void)times.all_reduce(1000, 2, as_measured), std::invalid_argument);
}

TEST(GpuTimes, WhatWasNotMeasuredIsSaid) {
  GpuMeasurements all = small_gpu();
  all.layers.clear();
  const GpuTimes times(all);
  EXPECT_THROW((void)times.product(512, 512, 1), std::invalid_argument);
  EXPECT_THROW((void)times.elementwise(GpuOp::norm, 512, 1), std::invalid_argument);
  all.attention.clear();
  EXPECT_THROW(GpuTimes{all}, std::invalid_argument);
}

}  // namespace
}  // namespace paceline::test
