// Reads the tensors of a checkpoint for a backend to compute with: checked, and packed in one
// order. Shared by decoders and by EAGLE-3 heads.
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

/// Reads tensors of a source, checks them, and hands them to a backend in one order. References
/// outlive it. Throws DataError on a missing tensor and on weights that are NaN or infinite; shapes
/// are the caller's to have checked.
class WeightLoader {
 public:
  /// Of a stored matrix: kernels::MatrixSlice by name.
  struct Part {
    std::string name;
    std::int64_t first_row, rows;
    std::int64_t first_column, columns;
  };

  WeightLoader(kernels::Backend& backend, const WeightSource& source, DType compute,
               const SharedPacking& shared = {})
      : backend_(backend), source_(source), compute_(compute), shared_(shared) {}

  [[nodiscard]] const TensorView& tensor(const std::string& name) const;
  /// Throws DataError on sizes that the backend does not compute.
  void require_supported(const ModelConfig& config) const;
  /// Rows of a table; `head` as of Backend::embedding().
  [[nodiscard]] std::unique_ptr<kernels::Embedding> embedding(
      const Part& rows, const kernels::Linear* head = nullptr) const {
    return backend_.embedding(slice_of(rows), head);
  }
  /// The parts stacked.
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack(std::initializer_list<Part> parts,
                                                      std::span<const float> bias, int segments);
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_gate_up(std::initializer_list<Part> parts,
                                                              std::span<const float> bias);
  /// Whether it is this process that packs what comes next.
  [[nodiscard]] bool packs() const;
  void require_usable(const Part& part) const;
  [[nodiscard]] std::vector<float> vector_of(const std::string& name, std::int64_t first,
                                             std::int64_t count) const;
  [[nodiscard]] std::vector<float> stacked(std::initializer_list<std::string> names,
                                           std::int64_t first, std::int64_t count) const;
  [[nodiscard]] Weights::Vector uploaded(const std::string& name, std::int64_t count) const {
    return kernels::upload(backend_, vector_of(name, 0, count));
  }
  /// A share of a decoder layer. `prefix`: of its tensors' names; `attention_width`: elements that
  /// its attention reads of a row.
  [[nodiscard]] Weights::Layer layer(const std::string& prefix, const ModelConfig& config,
                                     const Shard& shard, std::int64_t attention_width);
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& place,
                         const std::string& what) const;
  [[noreturn]] void fail(const std::string& name, const kernels::UnusableWeight& bad) const;
  [[nodiscard]] kernels::MatrixSlice slice_of(const Part& part) const;
  using Pack = std::function<std::unique_ptr<kernels::Linear>(std::span<const kernels::MatrixSlice>,
                                                              const kernels::PackPlace&)>;
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack_by(std::initializer_list<Part> parts,
                                                         const Pack& pack);

  kernels::Backend& backend_;
  const WeightSource& source_;
  DType compute_;
  SharedPacking shared_;
  std::size_t taken_ = 0;  ///< bytes of the shared memory
  std::size_t bytes_ = 0;  ///< of the packed matrices
};

}  // namespace paceline::model
