// The vision tower of a model: it turns a picture's patches into rows of the decoder's input.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/image_processor_config.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

struct TowerNorm {
  Vector weight;
  Vector bias;  ///< null: the norm is an RMSNorm, else a LayerNorm
};

struct TowerLayerWeights {
  TowerNorm attention_norm;
  std::unique_ptr<kernels::Linear> qkv;     ///< [3 * width, width]
  std::unique_ptr<kernels::Linear> output;  ///< [width, width]
  TowerNorm mlp_norm;
  bool gated = false;
  std::unique_ptr<kernels::Linear> up;    ///< [intermediate, width]; gated: [2 * intermediate, ...]
  std::unique_ptr<kernels::Linear> down;  ///< [width, intermediate]
};

/// A tower's weights, whole, in memory of the backend.
class TowerWeights {
 public:
  /// `config`: of a model with a tower. `compute`: dtype of weights and of the inputs of products.
  /// `shared`: memory of tower_packed_bytes(), of which this call packs a part, as for Weights.
  /// Throws DataError as Weights does.
  TowerWeights(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
               DType compute, const SharedPacking& shared = {});

  [[nodiscard]] const TowerConfig& config() const { return config_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< bytes of all packed matrices
  [[nodiscard]] const kernels::Linear& patch() const { return *patch_; }
  [[nodiscard]] const std::vector<TowerLayerWeights>& layers() const { return layers_; }
  [[nodiscard]] const TowerNorm& merger_norm() const { return merger_norm_; }
  [[nodiscard]] const kernels::Linear& merger_up() const { return *merger_up_; }
  [[nodiscard]] const kernels::Linear& merger_down() const { return *merger_down_; }

 private:
  TowerConfig config_;
  DType compute_;
  std::size_t bytes_ = 0;
  std::unique_ptr<kernels::Linear> patch_;  ///< [width, patch elements]
  std::vector<TowerLayerWeights> layers_;
  TowerNorm merger_norm_;
  std::unique_ptr<kernels::Linear> merger_up_, merger_down_;
};

/// Bytes that SharedPacking::memory needs for a tower; 0: this backend computes from memory of its
/// own.
[[nodiscard]] std::size_t tower_packed_bytes(const kernels::Backend& backend,
                                             const ModelConfig& config, DType compute);
/// Bytes that a tower's packed matrices take.
[[nodiscard]] std::uint64_t tower_weight_bytes(const ModelConfig& config, DType compute);
/// Bytes of memory that computing a picture needs temporarily, its patches included.
[[nodiscard]] std::uint64_t tower_pass_bytes(const TowerConfig& config, DType compute,
                                             std::int64_t patches);

/// Computes with a tower, together with the other ranks of a group. A picture's rows depend only on
/// its patches: each picture is computed by itself, with batch-invariant operations. Ranks divide a
/// picture's rows. They exchange keys and values in layers that attend to the whole picture, and
/// the results at the end; no sum is over ranks. Used by one thread.
class Tower {
 public:
  /// `backend` and `group` must outlive this object.
  Tower(kernels::Backend& backend, std::shared_ptr<const TowerWeights> weights,
        TensorParallelGroup& group);

  /// Returns rows of the decoder's input, [grid.rows / merge * grid.columns / merge, hidden], in
  /// row-major order of the picture, on every rank. `patches`: [grid.patches(), patch elements] in
  /// the order of an image processor: the merge * merge patches of a result are neighbours. All
  /// ranks of the group call it with the same picture.
  [[nodiscard]] std::vector<float> compute(std::span<const float> patches, const PictureGrid& grid);

 private:
  class Pass;

  kernels::Backend& backend_;
  std::shared_ptr<const TowerWeights> weights_;
  TensorParallelGroup& group_;
};

}  // namespace paceline::model
