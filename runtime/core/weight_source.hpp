// Source of weights; io implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline {

/// A stored tensor, row-major. The bytes live as long as the source that gave it.
struct TensorView {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  /// Scales of an f8 matrix's blocks (stored_floats.hpp), f32 or bf16; null for all other tensors.
  const TensorView* scales = nullptr;
};

/// Named tensors of a checkpoint. Read-only and thread-safe once built.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// The tensor; nullptr: the checkpoint has none of this name.
  [[nodiscard]] virtual const TensorView* find(std::string_view name) const = 0;
  [[nodiscard]] virtual std::vector<std::string_view> names() const = 0;
  /// The file that holds (or would hold) the tensor, for error messages.
  [[nodiscard]] virtual std::string location(std::string_view name) const = 0;
  /// Gives pages of the mapped files back to the system: the caller has copied the tensors it
  /// needs.
  virtual void release_pages() const = 0;
};

}  // namespace paceline
