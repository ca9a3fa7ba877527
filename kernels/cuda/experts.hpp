// Experts on the device: the choice of each row, the places of rows by expert, the products with
// each expert's matrices, and the weighted sums of these. Pointers are to device memory; Operations
// specifies the results. How many rows chose an expert is used only on the device, so that a
// captured graph is valid for any choice.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/limits.hpp"

namespace paceline::kernels::cuda {

/// Packed matrices of a bank's experts, as an argument of kernels.
struct ExpertMatrices {
  const std::byte* of[kMaxExperts];
};

/// The products of a bank: gates and ups have one layout, downs another.
struct DeviceExperts {
  LinearLayout gate_up;  ///< gated
  LinearLayout down;
  ExpertMatrices gate_ups;
  ExpertMatrices downs;
  int first = 0;  ///< number of the first expert in the layer
  int count = 0;
  int segments = 1;  ///< segments of the sums
};

/// The rows' choices of a pass, ordered by the bank's experts. A place is one row of one expert.
struct ExpertPlaces {
  int* starts;            ///< [count + 1] first places of experts
  int* row_tiles;         ///< [count + 1] row tiles of all experts before
  std::int32_t* of;       ///< [rows, chosen] places; -1: not in this bank
  std::int32_t* rows_of;  ///< [rows * chosen] rows of places; -1: none
};
/// Bytes of the starts and row_tiles of a bank.
inline constexpr std::size_t kExpertStartBytes = 2 * sizeof(int) * (kMaxExperts + 1);

/// See Operations::choose_experts(). routing.experts: at most kMaxExperts.
void choose_experts(const float* logits, int rows, const Routing& routing,
                    const ExpertChoices& choices, cudaStream_t stream);

/// See Operations::store_experts(). positions, slots: [rows] of DeviceBatch; a row at position -1
/// is skipped.
void store_experts(const ExpertChoices& choices, int first, const KvShape& kv, std::byte* cache,
                   const std::int32_t* positions, const std::int64_t* slots, int rows,
                   cudaStream_t stream);

/// See Operations::experts(). starts: [kExpertStartBytes]; work: see ExpertWork.
void compute_experts(const DeviceExperts& bank, const ExpertChoices& choices, const std::byte* in,
                     int rows, std::byte* starts, std::byte* work, float* out,
                     const LinearDevice& device, cudaStream_t stream);

/// See Operations::add_gated().
void add_gated(float* x, const float* delta, const float* gates, int rows, int width,
               cudaStream_t stream);

/// Multiplies each expert's rows by its matrix. in: [places, k] of the layout's dtype, places in
/// the order of `places`; out: [places, n] fp32, or [places, n / 2] of the dtype if gated. plan:
/// the tile shape, by warps or warpgroups; `most`: the most places that can exist.
void multiply_experts(const LinearPlan& plan, const LinearLayout& layout,
                      const ExpertMatrices& matrices, int count, const ExpertPlaces& places,
                      const std::byte* in, int most, void* out, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
