// The weights of a Hugging Face model directory: one safetensors file, or shards with an index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/weight_source.hpp"

namespace paceline::io {

/// The weights of a directory, mapped and checked. Thread-safe once constructed.
///
/// Opens `model.safetensors` if it exists, else the files of `model.safetensors.index.json`, in the
/// order of transformers. Opening reads only headers. Bytes of every tensor are aligned to its
/// element type: tensors that are not aligned in their file (unpadded header of an old writer) are
/// copied to memory at opening.
///
/// Weights are BF16, F16, F32 or F8_E4M3. A tensor of another known dtype, such as a stored integer
/// buffer, is accepted at opening; find() on it throws DataError.
///
/// Tensors "model.language_model.*" and "model.visual.*" are renamed "model.*" and "visual.*", as
/// in the first published models that read pictures.
///
/// A matrix X of F8_E4M3 has one scale for each block of 128 x 128, in a tensor X_scale_inv of F32
/// or BF16. Such a tensor is not among names().
class Checkpoint final : public WeightSource {
 public:
  /// Throws DataError naming file, tensor, the expected and the found value; IoError if a file
  /// cannot be read.
  explicit Checkpoint(const std::string& directory);
  /// Whether a directory has all files that opening it would read, whatever their contents.
  [[nodiscard]] static bool is_there(const std::string& directory);
  ~Checkpoint() override;

  /// Throws DataError if the tensor exists, but with a dtype that weights cannot have.
  [[nodiscard]] const TensorView* find(std::string_view name) const override;
  /// Values of an I64 or I32 tensor, which is no weight; nullopt: no tensor has this name. Throws
  /// DataError on another dtype.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(std::string_view name) const;
  /// Shape of a tensor of any dtype; null: no tensor has this name.
  [[nodiscard]] const std::vector<std::int64_t>* shape(std::string_view name) const;
  [[nodiscard]] std::vector<std::string_view> names() const override;  ///< sorted; without scales
  [[nodiscard]] std::string location(std::string_view name) const override;
  void release_pages() const override;

  /// Fingerprint of 32 hexadecimal digits: XXH3-128 over config.json, generation_config.json (if
  /// present), every file's header, and tensor bytes. If tensors have less than 256 MiB together,
  /// all bytes count; else 16 blocks of 4 KiB of each tensor, in name order, spread evenly from its
  /// first byte to its last. Each call reads what it hashes, so call it on one rank. A change of a
  /// few values in a large tensor may go unseen; another training step does not.
  ///
  /// `otherwise`: directory of the generation config if this one has none. `text`: everything else
  /// that decides how the weights are used; may be empty.
  [[nodiscard]] std::string fingerprint(const std::string& otherwise = "",
                                        std::string_view text = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::io
