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
#pragma once

#include <span>
#include <string>

#include "runtime/core/cost_table.hpp"
#include "runtime/core/gpu_measurements.hpp"
#include "runtime/core/model_shape.hpp"

namespace paceline::sim {

/// How GPUs are connected, and what they run.
struct GpuSystem {
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

/// A draft model, whole on one GPU.
struct NamedDraft {
  std::string name;  ///< as telemetry calls it
  ModelShape shape;
};

/// `tp` GPUs share target's weights, heads and experts by equal parts; latent attention's
/// positions are whole on each. TP beyond the largest measured all-reduce (8: a node) adds a ring
/// over nodes. Weights of 1 byte are multiplied at bf16's rate. A draft's first round computes two
/// rows for each request, as roles::measure_costs() has it. Transfers are over the network: a GPU's
/// part of a request. Pure.
/// Throws std::invalid_argument when tp does not divide the heads, when a rate of `system` is not
/// above 0, or when what is needed was not measured.
[[nodiscard]] CostTable gpu_costs(const GpuMeasurements& measured, const ModelShape& target, int tp,
                                  std::span<const NamedDraft> drafts, const GpuSystem& system = {});

}  // namespace paceline::sim
