// A Hugging Face model directory's weights: one safetensors file, or shards behind an index.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/weight_source.hpp"

namespace paceline::io {

/// The weights of a directory, mapped and checked. Thread-safe once built.
///
/// Opens `model.safetensors` if it exists, else the files of `model.safetensors.index.json` (the
/// order of transformers). Opening reads headers only. Bytes of every tensor are aligned to its
/// element: tensors of a file that breaks this (an unpadded header of an old writer) are copied to
/// memory at opening.
///
/// Weights are BF16, F16, F32 or F8_E4M3. A tensor of another known dtype (a stored integer buffer,
/// say) is accepted at opening and is a DataError when looked up.
///
/// Tensors "model.language_model.*" and "model.visual.*" go by the names under which models that
/// read pictures were published first, "model.*" and "visual.*".
///
/// A matrix X of F8_E4M3 has the scales of its blocks of 128 x 128 in a tensor X_scale_inv of F32
/// or BF16, which is none of names().
class Checkpoint final : public WeightSource {
 public:
  /// Throws DataError naming file, tensor, the expected and the found value; IoError when a file
  /// cannot be read.
  explicit Checkpoint(const std::string& directory);
  /// Opens one safetensors file of any name, without a model directory's conventions.
  [[nodiscard]] static Checkpoint from_file(const std::string& path);
  /// Whether a directory has all the files that opening it would look for, whatever their contents.
  [[nodiscard]] static bool is_there(const std::string& directory);
  ~Checkpoint() override;
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  /// Throws DataError when the tensor exists with a dtype that weights cannot have.
  [[nodiscard]] const TensorView* find(std::string_view name) const override;
  /// Values of an I64 or I32 tensor, which is no weight; nullopt when none has that name. Throws
  /// DataError on another dtype.
  [[nodiscard]] std::optional<std::vector<std::int64_t>> integers(std::string_view name) const;
  /// Shape of a tensor of any dtype; nullptr when none has that name.
  [[nodiscard]] const std::vector<std::int64_t>* shape(std::string_view name) const;
  [[nodiscard]] std::vector<std::string_view> names() const override;  ///< sorted; without scales
  [[nodiscard]] std::string location(std::string_view name) const override;
  void release_pages() const override;

  /// Bytes of all tensors as stored.
  [[nodiscard]] std::uint64_t total_bytes() const;

  /// Fingerprint of 32 hexadecimal digits: XXH3-128 over config.json and generation_config.json
  /// (when present), every file's header, and tensor bytes: all of them when they are under 256 MiB
  /// together, else of each tensor, in name order, 16 blocks of 4 KiB spread evenly from its first
  /// byte to its last. Each call reads what it hashes: one rank's work, not every rank's. A change
  /// of a few values inside a large tensor may go unseen; another training step does not.
  ///
  /// `otherwise`: directory of the generation config where this one has none. `text`: anything else
  /// that decides how the weights are used (empty: nothing).
  [[nodiscard]] std::string fingerprint(const std::string& otherwise = "",
                                        std::string_view text = {}) const;

 private:
  Checkpoint();

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paceline::io
