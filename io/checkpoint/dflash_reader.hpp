// A DFlash head's directory as published: config.json and safetensors, with the names of z-lab,
// SpecForge and vLLM's speculators.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/head_config.hpp"
#include "runtime/core/model_config.hpp"

namespace paceline::io {

struct DFlashCheckpoint {
  DFlashConfig config;  ///< complete, but for layer.tied_embeddings, which is the target's
  std::unique_ptr<Checkpoint> weights;
};

/// Reads and checks a head. Throws DataError naming file, tensor or key, the expected and the found
/// value, unless every tensor is there with its shape, none is unknown, and `d2t` names each target
/// token at most once. Sets own_embeddings and own_output if the head stores some.
[[nodiscard]] DFlashCheckpoint load_dflash(const Families& families, const std::string& directory);

/// Throws DataError unless the head in this directory fits the target: the embeddings or output
/// that it borrows, its vocabulary, and the layers whose features it reads.
void require_fits(const std::string& directory, const DFlashConfig& head,
                  const ModelConfig& target);

/// A head's tensors and, by the names that it lacks, the target's, of which the head borrows some.
/// Both must outlive this object.
class BorrowingSource final : public WeightSource {
 public:
  BorrowingSource(const WeightSource& head, const WeightSource& target)
      : head_(head), target_(target) {}

  [[nodiscard]] const TensorView* find(std::string_view name) const override;
  [[nodiscard]] std::vector<std::string_view> names() const override { return head_.names(); }
  [[nodiscard]] std::string location(std::string_view name) const override;
  void release_pages() const override;

 private:
  const WeightSource& head_;
  const WeightSource& target_;
};

}  // namespace paceline::io
