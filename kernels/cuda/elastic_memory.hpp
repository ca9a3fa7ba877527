// Device memory that grows and shrinks where it is.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

namespace paceline::kernels::cuda {

/// A range of device addresses to which memory is mapped from its beginning on: graphs that have
/// been recorded, and whoever knows an address, need not hear that it has become more or less.
/// Memory comes in pieces, one each time that it grows, of whole pages of the device; it is given
/// back piece by piece. Nothing may be in use that is given back. Used by one thread.
class ElasticMemory {
 public:
  /// Addresses for `most` bytes, and no memory. Throws Error (internal) in CUDA's words.
  ElasticMemory(int device, std::size_t most);
  ~ElasticMemory();
  ElasticMemory(const ElasticMemory&) = delete;
  ElasticMemory& operator=(const ElasticMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(base_); }
  [[nodiscard]] std::size_t mapped() const { return mapped_; }  ///< bytes
  /// Memory for at least so many bytes, uninitialised where it is new. Throws as the constructor.
  void grow(std::size_t bytes);
  /// Gives back the pieces that lie behind so many bytes.
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
