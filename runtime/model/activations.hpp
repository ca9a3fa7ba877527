// Buffers of a pass in memory of the backend. Their bytes are counted as they are made.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/backend.hpp"

namespace paceline::model {

/// Rows of a pass.
template <class T>
struct Activation {
  std::unique_ptr<kernels::Buffer> buffer;
  std::size_t width = 0;  ///< elements of a row
  /// Null where the buffer was not made.
  [[nodiscard]] T* row(int index) const {
    return buffer == nullptr ? nullptr : reinterpret_cast<T*>(buffer->data()) + index * width;
  }
};

/// Makes the buffers of one decoder or head. `backend` must outlive it.
class Activations {
 public:
  explicit Activations(kernels::Backend& backend) : backend_(backend) {}

  template <class T>
  [[nodiscard]] Activation<T> make(int rows, std::size_t width) {
    const std::size_t bytes = rows * width * sizeof(T);
    bytes_ += bytes;
    return {backend_.allocate(bytes), width};
  }
  [[nodiscard]] kernels::Backend& backend() const { return backend_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }  ///< bytes of all buffers made

 private:
  kernels::Backend& backend_;
  std::size_t bytes_ = 0;
};

/// The values of an uploaded vector; null: the model has none.
[[nodiscard]] inline const float* floats(const std::unique_ptr<kernels::Buffer>& vector) {
  return vector == nullptr ? nullptr : reinterpret_cast<const float*>(vector->data());
}

}  // namespace paceline::model
