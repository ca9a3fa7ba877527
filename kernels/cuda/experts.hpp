// Experts on the device: the choice of each row, the places of rows by expert, the products by each
// expert's matrices, and their weighted sums. Pointers are to device memory; Operations specifies
// the results. Nothing depends on how many rows chose an expert but on the device itself, so that a
// captured graph serves any choice.
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

/// A bank's products: gates and ups, and downs, of one layout each.
struct DeviceExperts {
  LinearLayout gate_up;  ///< gated
  LinearLayout down;
  ExpertMatrices gate_ups;
  ExpertMatrices downs;
  int first = 0;  ///< number of the first, in the layer
  int count = 0;
  int segments = 1;  ///< of the sums
};

/// Choices of rows by the bank's experts, of a pass. A place is one row of one expert.
struct ExpertPlaces {
  int* starts;            ///< [count + 1] first places of experts
  int* row_tiles;         ///< [count + 1] row tiles of the experts before
  std::int32_t* of;       ///< [rows, chosen] places, -1: not of this bank
  std::int32_t* rows_of;  ///< [rows * chosen] rows of places, -1: none
};
/// Bytes of a bank's starts and row_tiles.
inline constexpr std::size_t kExpertStartBytes = 2 * sizeof(int) * (kMaxExperts + 1);

/// See Operations::choose_experts(). routing.experts: at most kMaxExperts.
void choose_experts(const float* logits, int rows, const Routing& routing,
                    const ExpertChoices& choices, cudaStream_t stream);

/// See Operations::store_experts(). positions, slots: [rows] of DeviceBatch; a row at position -1
/// is left out.
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
/// the order of `places`; out: [places, n] fp32, or [places, n / 2] of the dtype where gated. plan:
/// of tile shapes by warps or warpgroups; `most`: places there may be.
void multiply_experts(const LinearPlan& plan, const LinearLayout& layout,
                      const ExpertMatrices& matrices, int count, const ExpertPlaces& places,
                      const std::byte* in, int most, void* out, cudaStream_t stream);

}  // namespace paceline::kernels::cuda
