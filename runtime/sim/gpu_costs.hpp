// The cost table of a model on H100-class GPUs, from published measurements of such GPUs.
//
// A step takes the sum of its kernels' times (gpu_times.hpp), one after the other, as in a decoding
// engine that replays a CUDA graph. A kernel's time on the device counts in full, its start and
// drain included, as the measurements contain them. Three things do not count: launches from the
// host; the host's work between steps, which engines overlap with the device's; and sampling from
// logits. Measured kernels that no engine runs, unfused norms and rotary embedding, are left out.
//
// A layer has two norms, two additions, the projections (qkv, output, gate and up, down), rotary
// embedding, activation, attention, and with TP two all-reduces; embedding, last norm and head come
// once a step. Experts count as one product over the experts that some row chose. Their expected
// number is routed x (1 - (1 - chosen/routed)^rows) if rows choose uniformly at random; real
// routers prefer some experts, so that fewer are read but GPUs are loaded unevenly.
//
// Attention of decoding costs a floor for each layer and, for each position of each row, the larger
// of two times: of the arithmetic, and of reading keys and values at the rate of the measured
// kernel. This kernel reads keys and values once for every query head, and cannot split one
// request's context among multiprocessors. Engines' decoding kernels (FlashDecoding, FlashInfer)
// can, and read keys and values once for the query heads that share them. The model assumes the
// latter, unless GpuSystem says otherwise. For a drafted row its request's keys and values have
// been read already, so it costs its arithmetic at the rate of prompts. This is an upper bound, as
// the measured kernel takes the same time for any number of rows up to 128. Latent attention, for
// which no kernel was measured, decodes at the rate that FlashMLA's README states.
//
// Where GPUs share a model by its experts (Sharing::experts), requests are dealt out evenly to the
// GPUs, and so are their rows, positions and prompts. Each GPU has a part of the routed experts and
// all other weights. In each layer rows go to the GPUs of their experts and back. All GPUs wait for
// the one whose experts most rows chose, and for the one that reads the most experts; both loads
// are expected values for rows that choose at random. Left out is the cost of routers that prefer
// some experts, as far as replicas do not balance it. GPUs whose requests are uneven have
// InstanceCosts.
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
  tensor,   ///< weights, heads and experts in equal parts (TP)
  experts,  ///< routed experts; each has the rest whole, for its own requests (DP and EP)
};

/// Connections of the GPUs, and their attention kernels.
struct GpuSystem {
  Sharing sharing = Sharing::tensor;
  /// Rate within a node: bytes a second of a GPU, both directions together. 400 GB/s is the rate of
  /// SpecActor's nodes (section 5.1) and of H800s, which Seer has (section 6.1).
  double nvlink = 400e9;
  /// Network between nodes, for one GPU: 400 Gb/s (SpecActor, section 5.1). The latency is that of
  /// the fastest send and receive in the measured tables.
  TransferCosts network{.latency = 11e-6, .bandwidth = 50e9};
  /// False: attention when decoding reads keys and values once for every query head, as the
  /// measured kernel does on a full device.
  bool grouped_attention = true;
  /// Floating-point operations a second of latent attention when decoding. No table has it: this is
  /// the rate that FlashMLA's README states for an H800. Its reads have the rate of the measured
  /// kernel of other attention.
  double latent_flops = 660e12;
};

/// A draft model or head, whole on one GPU.
struct NamedDraft {
  std::string name;    ///< as telemetry calls it
  ModelConfig config;  ///< for a head: its layer, with its output's vocabulary
  /// Paths of an EAGLE-3 head's tree: rows of each level. 0: a draft model. In addition to the work
  /// of a model of its shape, a head has the product that joins three features, in the first round
  /// and for prompts, and its queries, keys and values are products of two vectors.
  int head_paths = 0;
};

/// A GPU's part of a layer's routed experts in one step.
struct ExpertLoad {
  double rows = 0;     ///< rows of its experts; a row counts for each that it chose
  double experts = 0;  ///< experts that some row chose
};

/// Expected largest load among `gpus` GPUs with equal numbers of experts, if each of `rows` rows
/// chooses its experts at random. The maxima of rows and of experts are computed independently,
/// each within 6 %. For one GPU: its mean load. `rows` >= 1; `gpus` divides the number of routed
/// experts.
[[nodiscard]] ExpertLoad fullest_load(const ExpertConfig& experts, int gpus, double rows);

/// The cost table of `target` on `gpus` GPUs that share it as `system` says. With TP, each GPU has
/// latent attention's KV whole; and with more GPUs than the largest measured all-reduce (8: a
/// node), an all-reduce adds a ring over nodes. Weights of 1 byte are multiplied at bf16's rate. A
/// draft's first round computes two rows for each request, as in measure_costs(). Transfers go over
/// the network and move a GPU's part of a request's KV. Pure. Throws std::invalid_argument when
/// `gpus` does not divide the heads (TP) or the routed experts, when a rate of `system` is not
/// above 0, or when a measurement is missing.
[[nodiscard]] CostTable gpu_costs(const GpuMeasurements& measured, const ModelConfig& target,
                                  int gpus, std::span<const NamedDraft> drafts,
                                  const GpuSystem& system = {});

/// Costs of an instance: GPUs that share a model by its experts, each with requests of its own. A
/// step takes the longest of the GPUs' own times, the experts' for the rows of all, and the longer
/// of the most that a GPU sends and the most that one receives.
struct InstanceCosts {
  int gpus = 1;
  CostTable own;       ///< one GPU's rows, without routed experts
  CostCurve experts;   ///< routed experts of all layers, by rows of all GPUs
  CostCurve sent;      ///< a GPU's rows to their experts and back, by its rows
  CostCurve received;  ///< rows for the experts of the GPU with the most, by rows of all GPUs

  /// The cost table of one GPU while `busy` GPUs of the instance, itself among them, have equally
  /// many rows.
  [[nodiscard]] CostTable table(double busy) const;
};

/// As gpu_costs() with Sharing::experts, and at least 2 GPUs.
[[nodiscard]] InstanceCosts instance_costs(const GpuMeasurements& measured,
                                           const ModelConfig& target, int gpus,
                                           std::span<const NamedDraft> drafts, GpuSystem system);

}  // namespace paceline::sim
