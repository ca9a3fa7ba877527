#include "io/checkpoint/dflash_reader.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "io/checkpoint/head_tensors.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

DFlashCheckpoint load_dflash(const Families& families, const std::string& directory) {
  require_safetensors(directory);
  DFlashCheckpoint head;
  head.config = load_dflash_config(directory);
  head.weights = std::make_unique<Checkpoint>(directory);
  const std::string output = "lm_head.weight";
  head.config.own_embeddings = head.weights->shape("embed_tokens.weight") != nullptr;
  head.config.own_output = head.weights->shape(output) != nullptr;
  std::set<std::string, std::less<>> borrowed;
  if (!head.config.own_output && head.config.draft_vocab == head.config.layer.vocab)
    borrowed.insert(output);
  std::set<std::string, std::less<>> names =
      check_head_tensors(families.describe_dflash(head.config), *head.weights, borrowed);
  // Trainers may leave the target's last norm, which no draft needs.
  names.insert({"d2t", "t2d", "verifier_norm.weight"});
  for (const std::string_view name : head.weights->names()) {
    if (!names.contains(name) && !name.ends_with("rotary_emb.inv_freq"))
      fail_tensor(*head.weights, name, "unexpected; a DFlash head here has no such tensor");
  }
  head.config.target_ids = read_target_ids(head.config, *head.weights);
  return head;
}

void require_fits(const std::string& directory, const DFlashConfig& head,
                  const ModelConfig& target) {
  require_fits(directory, head, target, "target_layer_ids");
  if (head.own_output || head.layer.hidden == target.hidden) return;
  throw DataError(fmt::format(
      "{}: hidden_size: expected {}, the model's hidden_size, for its output is the head's, found "
      "{}",
      (std::filesystem::path(directory) / "config.json").string(), target.hidden,
      head.layer.hidden));
}

const TensorView* BorrowingSource::find(std::string_view name) const {
  const TensorView* own = head_.find(name);
  return own != nullptr ? own : target_.find(name);
}

std::string BorrowingSource::location(std::string_view name) const {
  return (head_.find(name) == nullptr && target_.find(name) != nullptr ? target_ : head_)
      .location(name);
}

void BorrowingSource::release_pages() const {
  head_.release_pages();
  target_.release_pages();
}

}  // namespace paceline::io
