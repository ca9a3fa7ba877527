// Reader of a DFlash head. z-lab and SpecForge write its config.json as one object, with the head's
// own keys in dflash_config or, block_size for one, at the top level. vLLM's speculators put the
// layers into an object of their own, and name layers of the target as EAGLE-3's do, by what enters
// them.
#include "io/checkpoint/dflash_reader.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>

#include "io/checkpoint/head_sections.hpp"
#include "io/checkpoint/head_tensors.hpp"
#include "io/checkpoint/json_text.hpp"
#include "io/checkpoint/model_config_reader.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

constexpr const char* own_key = "dflash_config";
constexpr const char* left_key = "target_layer_ids";
constexpr const char* entered_key = "aux_hidden_state_layer_ids";
constexpr std::array<std::string_view, 2> class_names{"DFlashDraftModel", "DFlashSpeculator"};

/// Reads one head from the objects of its file.
class Reader {
 public:
  explicit Reader(const HeadSections& sections)
      : sections_(sections), head_(sections.head()), own_(sections.own()) {}

  DFlashConfig read() {
    sections_.require_class(class_names);
    (void)sections_.kind({{"dflash"}});
    sections_.layer().choice("model_type", {{"qwen3"}});
    sections_.read_layer(config_);
    config_.layer.qk_norm = true;
    constexpr std::int32_t largest_block = 1024;
    config_.block_size = integer("block_size", 2, largest_block);
    config_.mask_token = integer("mask_token_id", 0, config_.layer.vocab - 1);
    read_read_layers();
    check_variant();
    return config_;
  }

 private:
  /// A key that is required, of dflash_config or of the top level.
  std::int32_t integer(const char* key, std::int32_t low, std::int32_t high) const {
    const auto own = own_.integer(key, low, high);
    const auto found = own_.either(key, own, head_.integer(key, low, high));
    if (!found) head_.fail(key, "missing, and in dflash_config too");
    return *found;
  }

  void read_read_layers() {
    config_.read_layers = HeadSections::layer_ids(head_, entered_key, 0);
    for (const JsonSection* section : {&own_, &head_}) {
      const std::vector<std::int32_t> left = HeadSections::layer_ids(*section, left_key, 1);
      if (left.empty()) continue;
      if (!config_.read_layers.empty() && config_.read_layers != left) {
        section->fail(left_key, "expected one less each than " + std::string(entered_key) +
                                    ", or none, for those name layers by what enters them and "
                                    "these by what leaves them, found " +
                                    show_json(*section->find(left_key)));
      }
      config_.read_layers = left;
    }
    if (config_.read_layers.empty())
      head_.fail(sections_.nested() ? entered_key : left_key,
                 "missing; expected the layers of the model whose output the head reads");
  }

  // Keys by which other heads of the kind differ.
  void check_variant() const {
    for (const JsonSection* section : {&own_, &head_}) {
      for (const char* key : {"causal", "is_causal", "use_swa", "attention_sink_bias",
                              "add_swa_attention_sink_bias", "shift_label", "sample_from_anchor"}) {
        if (section->flag(key))
          section->fail_expected(key, "false (another head is not supported)");
      }
      for (const char* key : {"output_multiplier", "input_embedding_scale"}) {
        const json* factor = section->find(key);
        if (factor != nullptr && *factor != 1.0) section->fail_expected(key, "1");
      }
      const json* cap = section->find("final_logit_softcapping");
      if (cap != nullptr && *cap != 0.0)
        section->fail_expected("final_logit_softcapping", "none (it is not supported)");
      section->choice("projector_type", {{"dflash"}});
    }
  }

  const HeadSections& sections_;
  const JsonSection& head_;
  const JsonSection& own_;
  DFlashConfig config_;
};

}  // namespace

DFlashConfig parse_dflash_config(std::string_view text, const std::string& name) {
  const HeadSections sections(text, name, own_key);
  return Reader(sections).read();
}

DFlashConfig load_dflash_config(const std::string& directory) {
  const std::string path = std::filesystem::path(directory) / "config.json";
  return parse_dflash_config(read_text_file(path), path);
}

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
