// Reads the tensors of a checkpoint, checks them, and has a backend pack them in one order. Used by
// decoders, by heads on them and by towers.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/weights.hpp"

namespace paceline::model {

/// Reads tensors of a source, checks them, and hands them to a backend in one order. The
/// constructor's references must outlive this object. Throws DataError on a missing tensor and on
/// weights that are NaN or infinite. The caller has checked the shapes.
class WeightLoader {
 public:
  /// A part of a stored matrix: kernels::MatrixSlice by name.
  struct Part {
    std::string name;
    std::int64_t first_row, rows;
    std::int64_t first_column, columns;
  };

  [[nodiscard]] static Part whole(const Projection& matrix) {
    return {matrix.name + ".weight", 0, matrix.outputs, 0, matrix.inputs};
  }
  /// A rank's part of the matrix.
  [[nodiscard]] static Part part(const Projection& matrix, const Shard& shard);

  WeightLoader(kernels::Backend& backend, const WeightSource& source, DType compute,
               const SharedPacking& shared = {})
      : backend_(backend), source_(source), compute_(compute), shared_(shared) {}

  [[nodiscard]] const TensorView& tensor(const std::string& name) const;
  /// Throws DataError on sizes that the backend does not compute.
  void require_supported(const ModelConfig& config) const;
  /// Rows of an embedding table; `head` as for Backend::embedding().
  [[nodiscard]] std::unique_ptr<kernels::Embedding> embedding(
      const Part& rows, const kernels::Linear* head = nullptr) const {
    return backend_.embedding(slice_of(rows), head);
  }
  /// Packs the rank's parts of matrices, stacked, with the biases of outputs that are not summed
  /// over ranks.
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack(
      std::initializer_list<const Projection*> matrices, const Shard& shard, int segments);
  /// Whether this process packs the next matrix (with SharedPacking each is packed by one process).
  [[nodiscard]] bool packs() const;
  void require_usable(const Part& part) const;
  [[nodiscard]] Vector uploaded(const Norm& norm) const {
    return kernels::upload(backend_, vector_of(norm.name + ".weight", 0, norm.width));
  }
  [[nodiscard]] Vector uploaded(const StoredVector& vector) const {
    return kernels::upload(backend_, vector_of(vector.name, 0, vector.width));
  }
  /// The vector's values in host memory, in the compute dtype, rounded to nearest.
  [[nodiscard]] std::vector<std::byte> converted(const StoredVector& vector) const;
  /// Packs a matrix that is stored with more than two dimensions: the first is its outputs, all
  /// others together are its inputs.
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_flat(const Projection& matrix);
  /// Loads a rank's share of a layer.
  [[nodiscard]] LayerWeights layer(const LayerDescription& layer, const Shard& shard);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& place,
                         const std::string& what) const;
  [[noreturn]] void fail(const std::string& name, const kernels::UnusableWeight& bad) const;
  [[nodiscard]] kernels::MatrixSlice slice_of(const Part& part) const;
  [[nodiscard]] std::vector<float> vector_of(const std::string& name, std::int64_t first,
                                             std::int64_t count) const;
  /// The whole bias of a matrix whose outputs are summed over ranks; null: it has none.
  [[nodiscard]] Vector summed_bias(const Projection& matrix) const;
  using Pack = std::function<std::unique_ptr<kernels::Linear>(std::span<const kernels::MatrixSlice>,
                                                              std::span<const float> bias,
                                                              const kernels::PackPlace&)>;
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_by(
      std::initializer_list<const Projection*> matrices, const Shard& shard, bool gated,
      const Pack& pack);
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_gate_up(const GatedMlp& mlp,
                                                              const Shard& shard);
  /// Takes the place of the next matrix, [n, k]. Empty: the matrix gets memory of its own.
  [[nodiscard]] kernels::PackPlace take_place(std::int64_t n, std::int64_t k, bool gated);
  /// Packs a slice, a part of a matrix, or the part's transpose as a matrix of its own.
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_slice(const std::string& name,
                                                            const kernels::MatrixSlice& slice);
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_part(const Part& part);
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_transposed(const Part& part);
  /// Packs the router as router_parts() matrices.
  [[nodiscard]] std::vector<std::unique_ptr<kernels::Linear>> pack_router(const ExpertMlp& mlp,
                                                                          const Shard& shard);
  [[nodiscard]] AttentionWeights attention(const GroupedAttention& attention, const Shard& shard);
  [[nodiscard]] LatentWeights attention(const LatentAttention& attention, const Shard& shard);
  [[nodiscard]] MlpWeights mlp(const GatedMlp& mlp, const Shard& shard);
  [[nodiscard]] ExpertWeights mlp(const ExpertMlp& mlp, const Shard& shard);

  kernels::Backend& backend_;
  const WeightSource& source_;
  DType compute_;
  SharedPacking shared_;
  std::size_t taken_ = 0;      ///< bytes of the shared memory taken so far
  std::span<std::byte> bank_;  ///< free rest of an ExpertBank's memory, without sharing
  std::size_t bytes_ = 0;      ///< bytes of the packed matrices
};

}  // namespace paceline::model
