// The cost table of a model on H100-class GPUs, from published measurements of such GPUs.
//
// A step is the sum of its kernels' times (gpu_times.hpp), one after the other, as in a decoding
// engine that replays a CUDA graph. Time on the device counts in full, starting and draining
// included, for measurements contain it. Launches from the host do not count, nor the host's work
// between steps, which engines overlap with the device's, nor drawing tokens from logits. Measured
// kernels that no engine runs are left out: unfused norms and rotary embedding.
//
// A layer has two norms, two additions, the projections (qkv, output, gate and up, down), rotary
// embedding, activation, attention, and with TP two all-reduces; embedding, last norm and head come
// once a step. Experts count as one product over those that some row chose, in expectation routed x
// (1 - (1 - chosen/routed)^rows) when every row chooses alike: real routers prefer some, which
// reads fewer but loads GPUs unevenly.
//
// Attention when decoding is a floor for each layer, and for each row's every position the slower
// of its arithmetic and of reading keys and values at the rate of the measured kernel. The kernel
// reads them once for every query head, and cannot share one request's context among
// multiprocessors; engines' decoding kernels (FlashDecoding, FlashInfer) read them once for the
// query heads that share them, and can. The model assumes the latter, unless GpuSystem says
// otherwise. A drafted row finds its request's keys and values read already, and costs its
// arithmetic at the rate of prompts: an upper bound, for the measured kernel takes the same time
// for any number of rows up to 128. Latent attention, of which no kernel was measured, decodes at
// the rate that FlashMLA's says.
//
// Where GPUs share a model by its experts (Sharing::experts) requests are dealt out evenly to them,
// and so are their rows, positions and prompts. Each GPU has all weights but those of the routed
// experts, of which it has its part; each layer's rows go to the GPUs of their experts and back. In
// each layer all wait for the GPU whose experts most rows chose, and for the one that reads most
// experts: what these have, in expectation, where every row chooses by chance. The cost of routers
// that prefer some experts, as far as no replicas make up for it, and of uneven requests is left
// out.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/core/gpu_measurements.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/costs/cost_table.hpp"

namespace paceline::sim {

/// How GPUs divide a model.
enum class Sharing : std::uint8_t {
  tensor,   ///< weights, heads and experts, by equal parts (TP)
  experts,  ///< routed experts; the rest is whole on each, for requests of its own (DP and EP)
};

/// Connections of the GPUs, and their attention kernels.
struct GpuSystem {
  Sharing sharing = Sharing::tensor;
  /// Rate within a node: bytes a second of a GPU, both directions together. 400 GB/s: SpecActor's
  /// nodes (section 5.1), and H800s, which Seer has (section 6.1).
  double nvlink = 400e9;
  /// Network between nodes, of one GPU: 400 Gb/s (SpecActor, section 5.1). Latency: the least send
  /// and receive of the measured tables.
  TransferCosts network{.latency = 11e-6, .bandwidth = 50e9};
  /// False: attention when decoding reads keys and values once for every query head, as the
  /// measured kernel does on a full device.
  bool grouped_attention = true;
  /// Arithmetic of latent attention when decoding, a second. No table has it: what FlashMLA's
  /// kernel reaches on an H800 by its README; the measured kernel of other attention reads as fast.
  double latent_flops = 660e12;
};

/// A draft model or head, whole on one GPU.
struct NamedDraft {
  std::string name;    ///< as telemetry calls it
  ModelConfig config;  ///< of a head, its layer with the vocabulary of its output
  /// Paths of an EAGLE-3 head's tree, a row of each level for each. Beyond a model of its shape a
  /// head has the product that joins three features, in the first round and for prompts, and its
  /// queries, keys and values are of two vectors. 0: a model.
  int head_paths = 0;
};

/// A GPU's part of a layer's routed experts in one step.
struct ExpertLoad {
  double rows = 0;     ///< rows of its experts, each once for every expert that it chose
  double experts = 0;  ///< experts that some row chose
};

/// The largest load of `gpus` GPUs that each have as many of the experts, in expectation where each
/// of `rows` rows chooses its experts by chance; rows and experts each by themselves, within
/// 6 %. Of one GPU, its mean. rows >= 1, and `gpus` divides the routed experts.
[[nodiscard]] ExpertLoad fullest_load(const ExpertConfig& experts, int gpus, double rows);

/// The cost table of `target` on `gpus` GPUs that share it as `system` says. With TP latent
/// attention's positions are whole on each GPU, and more GPUs than the largest measured all-reduce
/// (8: a node) add a ring over nodes. Weights of 1 byte are multiplied at bf16's rate. A draft's
/// first round computes two rows for each request, as measure_costs() has it. Transfers are
/// over the network: a GPU's part of a request. Pure. Throws std::invalid_argument when `gpus` does
/// not divide the heads (TP) or the routed experts, when a rate of `system` is not above 0, or when
/// a measurement is missing.
[[nodiscard]] CostTable gpu_costs(const GpuMeasurements& measured, const ModelConfig& target,
                                  int gpus, std::span<const NamedDraft> drafts,
                                  const GpuSystem& system = {});

}  // namespace paceline::sim
