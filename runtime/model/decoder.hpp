// The dense decoder (Llama, Qwen2, Qwen3) as a sequence of backend operations over a ragged batch.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/model_config.hpp"
#include "runtime/core/weight_source.hpp"
#include "runtime/model/sharding.hpp"

namespace paceline::model {

/// One rank's share of a model, with the activation buffers of its largest step. Used by one
/// thread; all ranks of the group call forward() with the same batch.
class Decoder {
 public:
  /// Packs this rank's weights. `compute`: dtype of weights, matrix inputs and KV.
  /// `source` must outlive the decoder (a backend may read embedding rows from the mapped file).
  /// Throws DataError on a missing or misshapen tensor, on weights that are NaN or infinite and on
  /// sizes that the backend does not compute, UsageError when the group does not fit.
  Decoder(kernels::Backend& backend, const ModelConfig& config, const WeightSource& source,
          TensorParallelGroup& group, DType compute, int max_rows, int max_logit_rows,
          int max_position);

  /// The KV cache shape this decoder reads and writes, for blocks of `block` positions.
  [[nodiscard]] kernels::KvShape kv_shape(int block) const;
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const Shard& shard() const { return shard_; }
  [[nodiscard]] std::size_t weight_bytes() const { return weight_bytes_; }
  [[nodiscard]] std::size_t activation_bytes() const { return activation_bytes_; }

  /// Runs the batch, storing its keys and values in `cache`, and returns the logits of the rows
  /// named by `logit_rows`: [logit_rows, shard().vocab()] fp32, this rank's columns, in memory of
  /// the backend. Valid until the next call. cache: as kv_shape() says, the same in every call.
  const float* forward(std::span<const TokenId> tokens, std::span<const kernels::Segment> segments,
                       std::span<const std::int32_t> logit_rows, const kernels::KvShape& kv,
                       std::byte* cache);

 private:
  using Vector = std::unique_ptr<kernels::Buffer>;  ///< fp32; null: the model has none
  struct Layer {
    Vector attention_norm;                     ///< [hidden]
    Vector mlp_norm;                           ///< [hidden]
    Vector q_norm, k_norm;                     ///< [head_dim]
    Vector output_bias;                        ///< [hidden]
    Vector down_bias;                          ///< [hidden]
    std::unique_ptr<kernels::Linear> qkv;      ///< [(heads + 2 kv_heads) * head_dim, hidden]
    std::unique_ptr<kernels::Linear> output;   ///< [hidden, heads * head_dim]
    std::unique_ptr<kernels::Linear> gate_up;  ///< [2 * intermediate, hidden]
    std::unique_ptr<kernels::Linear> down;     ///< [hidden, intermediate]
  };

  /// Rows of a pass in memory of the backend.
  template <class T>
  struct Activation {
    std::unique_ptr<kernels::Buffer> buffer;
    std::size_t width = 0;  ///< elements of a row
    [[nodiscard]] T* row(int index) const {
      return reinterpret_cast<T*>(buffer->data()) + index * width;
    }
  };

  /// Of a stored matrix: kernels::MatrixSlice by name.
  struct Part {
    std::string name;
    std::int64_t first_row, rows;
    std::int64_t first_column, columns;
  };

  template <class T>
  [[nodiscard]] Activation<T> activation(int rows, std::size_t width);
  [[nodiscard]] const TensorView& tensor(const std::string& name) const;
  [[nodiscard]] kernels::MatrixSlice slice_of(const Part& part) const;
  /// The parts stacked; counts its bytes.
  [[nodiscard]] std::unique_ptr<kernels::Linear> pack(std::initializer_list<Part> parts,
                                                      std::span<const float> bias, int segments);
  void require_usable(const Part& part) const;
  [[nodiscard]] std::vector<float> vector_of(const std::string& name, std::int64_t first,
                                             std::int64_t count) const;
  [[nodiscard]] Vector uploaded(const std::string& name, std::int64_t count) const;
  [[nodiscard]] std::vector<float> stacked(std::initializer_list<std::string> names,
                                           std::int64_t first, std::int64_t count) const;
  void load_layer(int index);
  void compute(kernels::Operations& operations);
  void reduce(kernels::Operations& operations, const Vector& bias, float* delta);

  kernels::Backend& backend_;
  ModelConfig config_;
  const WeightSource& source_;
  TensorParallelGroup& group_;
  DType compute_;
  Shard shard_;

  std::unique_ptr<kernels::Embedding> embedding_;  ///< [vocab, hidden]
  std::vector<Layer> layers_;
  Vector final_norm_;                      ///< [hidden]
  std::unique_ptr<kernels::Linear> head_;  ///< [shard vocab, hidden]
  Vector rope_;                            ///< see rope_table
  kernels::RopeTable rope_view_;
  std::size_t weight_bytes_ = 0;
  std::unique_ptr<kernels::Recording> recording_;

  std::size_t activation_bytes_ = 0;
  // Rows as the backend pads them; bytes are values of the compute dtype.
  Activation<float> residual_;      ///< [max_rows, hidden]
  Activation<float> delta_;         ///< [max_rows, hidden]
  Activation<float> qkv_;           ///< [max_rows, (heads + 2 kv_heads) * head_dim]
  Activation<float> gate_up_;       ///< [max_rows, 2 * intermediate]
  Activation<float> logits_;        ///< [max_logit_rows, shard vocab]
  Activation<std::byte> normed_;    ///< [max_rows, hidden]
  Activation<std::byte> query_;     ///< [max_rows, heads * head_dim]
  Activation<std::byte> attended_;  ///< [max_rows, heads * head_dim]
  Activation<std::byte> gated_;     ///< [max_rows, intermediate]
  Activation<std::byte> last_;      ///< [max_logit_rows, hidden]
};

}  // namespace paceline::model
