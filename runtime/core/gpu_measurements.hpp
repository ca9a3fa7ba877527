// Published measurements of GPU operations, from which GPU costs are predicted
// (runtime/sim/gpu_costs.hpp). Plain values, each for one GPU, or for GPUs that work together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace paceline {

/// An operation of a decoder's pass. Each layer has them, but embedding and head come once per
/// step.
enum class GpuOp : std::uint8_t {
  embedding,
  norm,
  qkv,  ///< the three projections in one
  q,
  k,
  v,
  rope,
  prompt_attention,  ///< for whole prompts: a row attends to earlier rows and itself
  output,            ///< the projection after attention
  gate_up,           ///< both projections in one
  gate,
  up,
  activation,
  down,
  add,
  head,
};

/// A model whose layers were measured. Sizes in elements, for the whole model.
struct MeasuredModel {
  std::string name;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t vocab = 0;  ///< 0: the head was not measured
  /// Norms and rotary embedding are one kernel each. False: they are several PyTorch kernels, four
  /// to five times as slow, which no engine runs.
  bool fused = true;
  [[nodiscard]] std::int32_t head_dim() const { return hidden / heads; }
};

/// Time of one GPU's part of an operation, with the model's weights divided among `tp` GPUs.
struct LayerMeasurement {
  std::size_t model = 0;  ///< index into GpuMeasurements::models
  GpuOp op = GpuOp::norm;
  std::int32_t tp = 1;
  std::int32_t tokens = 0;  ///< rows
  double seconds = 0;       ///< > 0
};

/// Time of one layer's attention on one GPU. The measured kernel reads keys and values once for
/// every query head, and gives a query head's whole context to one multiprocessor.
struct AttentionMeasurement {
  std::int32_t heads = 0;     ///< query heads of the GPU
  std::int32_t kv_heads = 0;  ///< KV heads of the GPU
  std::int32_t head_dim = 0;
  std::int32_t batch = 0;      ///< requests
  std::int32_t chunk = 0;      ///< rows of a prompt; 0: one row for each request (decoding)
  std::int32_t positions = 0;  ///< with keys and values, all requests together, chunk included
  double seconds = 0;          ///< > 0
};

enum class Collective : std::uint8_t { all_reduce, send_recv };

struct CollectiveMeasurement {
  std::string fabric;  ///< connection of the GPUs
  Collective collective = Collective::all_reduce;
  std::int32_t workers = 0;
  double bytes = 0;    ///< bytes of each worker's buffer
  double seconds = 0;  ///< > 0
};

/// Measurements of one GPU type. A shape may occur more than once.
struct GpuMeasurements {
  std::vector<MeasuredModel> models;
  std::vector<LayerMeasurement> layers;
  std::vector<AttentionMeasurement> attention;
  std::vector<CollectiveMeasurement> collectives;
};

}  // namespace paceline
