// Device memory that grows and shrinks in place.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

namespace paceline::kernels::cuda {

/// A range of device addresses whose first part is mapped. Addresses stay the same when it grows or
/// shrinks, so recorded graphs stay valid. Memory comes in pieces of whole pages of the device, one
/// for each growth, and is given back piece by piece. Memory that is given back must not be in use.
/// Not thread-safe.
class ElasticMemory {
 public:
  /// Reserves addresses for `most` bytes, without memory. Throws Error (internal) with CUDA's
  /// message.
  ElasticMemory(int device, std::size_t most);
  ~ElasticMemory();
  ElasticMemory(const ElasticMemory&) = delete;
  ElasticMemory& operator=(const ElasticMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(base_); }
  [[nodiscard]] std::size_t mapped() const { return mapped_; }  ///< bytes
  /// Maps memory for at least the given number of bytes; new memory is uninitialised. Throws the
  /// same errors as the constructor.
  void grow(std::size_t bytes);
  /// Gives back the pieces that lie past the given number of bytes.
  void shrink(std::size_t bytes);

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle = 0;
    std::size_t bytes = 0;
  };

  int device_;
  CUdeviceptr base_ = 0;
  std::size_t reserved_ = 0;
  std::size_t page_ = 0;
  std::size_t mapped_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace paceline::kernels::cuda
