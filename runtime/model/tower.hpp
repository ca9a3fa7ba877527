// The tower of a model that reads pictures: from a picture's patches to rows of its decoder's
// input.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/image_processor_config.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

struct TowerNorm {
  Vector weight;
  Vector bias;  ///< of a LayerNorm; null: it is an RMSNorm
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

/// A tower's weights, whole. Memory of the backend.
class TowerWeights {
 public:
  /// `config`: with a tower. `compute`: dtype of weights and of the inputs of products. With
  /// `shared` it packs a part, as Weights do, of tower_packed_bytes(). Throws DataError as they do.
  TowerWeights(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
               DType compute, const SharedPacking& shared = {});

  [[nodiscard]] const TowerConfig& config() const { return config_; }
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< of all packed matrices
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
/// Bytes that computing a picture takes while it lasts, its patches included.
[[nodiscard]] std::uint64_t tower_pass_bytes(const TowerConfig& config, DType compute,
                                             std::int64_t patches);

/// Computes with a tower. What a picture's rows are is a function of its patches alone: each
/// picture is computed by itself, its rows by batch-invariant operations. The cpu backend's alone.
/// Used by one thread.
class Tower {
 public:
  /// `backend` must outlive it.
  Tower(kernels::Backend& backend, std::shared_ptr<const TowerWeights> weights);

  /// Rows of the decoder's input, [grid.rows / merge * grid.columns / merge, hidden], row by row of
  /// the picture. patches: [grid.patches(), patch elements] in the order of an image processor,
  /// merge * merge of each result after one another.
  [[nodiscard]] std::vector<float> compute(std::span<const float> patches, const PictureGrid& grid);

 private:
  class Pass;

  kernels::Backend& backend_;
  std::shared_ptr<const TowerWeights> weights_;
};

}  // namespace paceline::model
