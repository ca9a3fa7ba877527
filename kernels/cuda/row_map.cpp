#include "kernels/cuda/row_map.hpp"

#include <string>

#include "kernels/cuda/driver.hpp"

namespace paceline::kernels::cuda {

CUtensorMap row_map(const std::byte* rows, int count, int k, int box) {
  static auto* const encode = of_driver<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  CUtensorMap map{};
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(count)};
  const cuuint64_t row_bytes[1] = {2 * sizes[0]};
  const cuuint32_t boxes[2] = {kMapColumns, static_cast<cuuint32_t>(box)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult code =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<std::byte*>(rows), sizes,
             row_bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) {
    throw Error(ExitCode::internal, "a map of " + std::to_string(count) + " rows of " +
                                        std::to_string(k) + ": CUDA driver error " +
                                        std::to_string(static_cast<int>(code)));
  }
  return map;
}

}  // namespace paceline::kernels::cuda
