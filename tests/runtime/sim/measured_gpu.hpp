// Made-up measurements of a GPU whose costs can be added up by hand.
#pragma once

#include <initializer_list>
#include <string>

#include "runtime/core/gpu_measurements.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::test {

constexpr double kMicro = 1e-6;

/// 3 layers of 8 query heads and 2 of keys and values, 64 elements each.
inline ModelConfig small_shape() {
  ModelConfig shape;
  shape.layers = 3;
  shape.hidden = 512;
  shape.heads = 8;
  shape.kv_heads = 2;
  shape.head_dim = 64;
  shape.intermediate = 704;
  shape.vocab = 1000;
  return shape;
}

inline MeasuredModel measured_model(const std::string& name) {
  return {.name = name,
          .heads = 8,
          .kv_heads = 2,
          .hidden = 512,
          .intermediate = 704,
          .vocab = 1000,
          .fused = true};
}

struct OpTime {
  GpuOp op;
  double microseconds;
};

inline void measure(GpuMeasurements& into, std::size_t model, int tp, int tokens,
                    std::initializer_list<OpTime> times) {
  for (const OpTime& t : times)
    into.layers.push_back({model, t.op, tp, tokens, t.microseconds * kMicro});
}

/// small_shape() itself, no two of whose products have one shape: one row at TP 1 and 2, attention
/// and all-reduces of 2 GPUs.
inline GpuMeasurements small_gpu() {
  GpuMeasurements all;
  all.models.push_back(measured_model("small"));
  measure(all, 0, 1, 1,
          {{GpuOp::embedding, 2},
           {GpuOp::norm, 3},
           {GpuOp::qkv, 20},
           {GpuOp::rope, 4},
           {GpuOp::output, 10},
           {GpuOp::gate_up, 40},
           {GpuOp::activation, 5},
           {GpuOp::down, 30},
           {GpuOp::add, 1},
           {GpuOp::head, 100}});
  measure(all, 0, 2, 1,
          {{GpuOp::qkv, 12},
           {GpuOp::rope, 3},
           {GpuOp::output, 8},
           {GpuOp::gate_up, 22},
           {GpuOp::activation, 4},
           {GpuOp::down, 17},
           {GpuOp::head, 60}});
  // 1 TB/s: 1,000 positions of 16 query heads of 128, keys and values of 2 bytes.
  all.attention.push_back({16, 2, 128, 1, 0, 1000, 8.192 * kMicro});
  all.attention.push_back({16, 2, 128, 1, 0, 32, 6 * kMicro});
  all.attention.push_back({16, 2, 128, 64, 0, 32, 1 * kMicro});  // attends to nothing
  // 100 TFLOP/s: each of 100 rows attends to 200 positions before the chunk and 50.5 in it.
  all.attention.push_back({16, 2, 128, 1, 100, 300, 4.0 * 16 * 128 * 100 * 250.5 / 100e12});
  for (const double bytes : {512.0, 1024.0})
    all.collectives.push_back({"h100_dgx", Collective::all_reduce, 2, bytes, 7 * kMicro});
  return all;
}

}  // namespace paceline::test
