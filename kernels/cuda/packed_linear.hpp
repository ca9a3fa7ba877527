// Weights in device memory: matrices packed for products, and embeddings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/backend.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/memory.hpp"

namespace paceline::kernels::cuda {

class PackedLinear final : public Linear {
 public:
  /// `place`: memory for the weight, which must outlive this object; null: the weight gets its own.
  PackedLinear(const LinearLayout& layout, std::byte* place)
      : layout_(layout),
        own_(place == nullptr ? DeviceMemory(layout.bytes()) : DeviceMemory()),
        weight_(place == nullptr ? own_.data() : place) {}
  [[nodiscard]] int n() const override { return layout_.n; }
  [[nodiscard]] int k() const override { return layout_.k; }
  [[nodiscard]] std::size_t bytes() const override { return layout_.bytes(); }
  [[nodiscard]] std::byte* weight() { return weight_; }
  void set_bias(std::unique_ptr<Buffer> bias) { bias_ = std::move(bias); }
  [[nodiscard]] DeviceLinear view() const {
    return {layout_, weight_,
            bias_ == nullptr ? nullptr : reinterpret_cast<const float*>(bias_->data())};
  }

 private:
  LinearLayout layout_;
  DeviceMemory own_;
  std::byte* weight_;
  std::unique_ptr<Buffer> bias_;  ///< [n] fp32 or null
};

/// An embedding: a copy of the rows as they are stored, or a head that contains all their bits.
struct DeviceEmbedding final : Embedding {
  EmbeddingRows rows;
  std::int64_t vocab = 0;  ///< number of rows in the whole table
  DType stored = DType::bf16;
  DeviceMemory copy;
  const PackedLinear* head = nullptr;  ///< null: the rows are a copy
};

}  // namespace paceline::kernels::cuda
