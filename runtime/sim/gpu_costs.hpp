// The cost table of a model on H100-class GPUs, made of what others measured of such GPUs.
//
// A step is the sum of its kernels' times (gpu_times.hpp), one after the other, as a decoding
// engine runs them that replays a CUDA graph: what kernels take on the device, starting and
// draining included, counts in full, for that is what was measured; launching them from the host
// does not, nor does what the host does between steps, which engines overlap with the device's
// work, nor drawing tokens from logits. Measured kernels that no engine runs are left out: unfused
// norms and rotary embedding.
//
// Of a layer there are two norms, two additions, the projections (qkv, output, gate and up, down),
// rotary embedding, activation, attention, and with TP two all-reduces; once a step embedding, last
// norm and head. Experts count as one product over those that some row chose, in expectation
// routed x (1 - (1 - chosen/routed)^rows) when every row chooses alike: real routers prefer some,
// which reads fewer but loads GPUs unevenly.
//
// Decoding's attention is a floor for each layer, and for each row's every position either the
// bytes of its keys and values, at the rate at which the measured kernel takes them in, or the
// arithmetic, whichever is slower. That kernel reads them once for every query head, and cannot
// share one request's context among multiprocessors; engines' decoding kernels (FlashDecoding,
// FlashInfer) read them once for the query heads that have them in common, and can. So that is
// assumed, unless GpuSystem says otherwise. A drafted row finds its request's keys and values read
// already, and costs its arithmetic at the rate of prompts: an upper bound, for the measured kernel
// takes the same time for any number of rows up to 128.
//
// Where GPUs share a model by its experts (Sharing::experts) requests are dealt out evenly to them,
// and so are their rows, positions and prompts. Each GPU has all weights but those of the routed
// experts, of which it has its part; each layer's rows go to the GPUs of their experts and back.
// What uneven routing and uneven requests cost is left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/core/gpu_measurements.hpp"
#include "runtime/core/model_shape.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::sim {

/// What of a model its GPUs share.
enum class Sharing : std::uint8_t {
  tensor,   ///< weights, heads and experts, by equal parts (TP)
  experts,  ///< routed experts; the rest is whole on each, for requests of its own (DP and EP)
};

/// How GPUs are connected, and what they run.
struct GpuSystem {
  Sharing sharing = Sharing::tensor;
  /// Within a node: bytes a second of a GPU, both directions together. 400 GB/s: SpecActor's nodes
  /// (section 5.1), and H800s, which Seer has (section 6.1).
  double nvlink = 400e9;
  /// Between nodes, of one GPU: 400 Gb/s (SpecActor, section 5.1). Latency: the least send and
  /// receive of the measured tables.
  TransferCosts network{.latency = 11e-6, .bandwidth = 50e9};
  /// False: decoding's attention reads keys and values once for every query head, as the measured
  /// kernel does on a full device.
  bool grouped_attention = true;
};

/// A draft model or head, whole on one GPU.
struct NamedDraft {
  std::string name;  ///< as telemetry calls it
  ModelShape shape;
  /// Of an EAGLE-3 head the paths of its tree, a row of each level for each: besides a model of
  /// that shape it has the product that joins three features, in the first round and for prompts,
  /// and queries, keys and values are of two vectors. 0: a model.
  int head_paths = 0;
};

/// `gpus` share the target as `system` says; with TP latent attention's positions are whole on
/// each, and more GPUs than the largest measured all-reduce has (8: a node) add a ring over nodes.
/// Weights of 1 byte are multiplied at bf16's rate. A draft's first round computes two rows for
/// each request, as roles::measure_costs() has it. Transfers are over the network: a GPU's part of
/// a request. Pure. Throws std::invalid_argument when `gpus` does not divide the heads (TP) or the
/// routed experts, when a rate of `system` is not above 0, or when what is needed was not measured.
[[nodiscard]] CostTable gpu_costs(const GpuMeasurements& measured, const ModelShape& target,
                                  int gpus, std::span<const NamedDraft> drafts,
                                  const GpuSystem& system = {});

}  // namespace paceline::sim
