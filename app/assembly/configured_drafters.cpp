#include "app/assembly/configured_drafters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::app {
namespace {

// Throws UsageError if an ordinary token has different texts in draft model and target, or if texts
// are not known and the vocabularies differ in size. With equal texts, padding may differ.
void require_same_tokens(const std::string& path, const ModelConfig& draft,
                         const ModelConfig& model, const io::Tokenizer* tokenizer) {
  std::optional<io::Tokenizer> other;
  try {
    if (tokenizer != nullptr) other = io::Tokenizer::load(path);
  } catch (const DataError&) {  // the draft model has no tokenizer that can be read
  }
  if (!other) {
    if (draft.vocab == model.vocab) return;
    throw UsageError(
        fmt::format("speculation.drafters: the vocabulary of {} has {} tokens, the model's has {}; "
                    "a draft model must have the model's vocabulary",
                    path, draft.vocab, model.vocab));
  }
  // All special tokens count as equal, because base and chat models name some of them differently.
  const auto text_of = [](const io::Tokenizer& t, TokenId id) {
    return t.is_special(id) ? std::string_view() : t.bytes_of(id);
  };
  for (TokenId id = 0; id < std::min(draft.vocab, model.vocab); ++id) {
    if (text_of(*other, id) == text_of(*tokenizer, id)) continue;
    throw UsageError(fmt::format(
        "speculation.drafters: token {} is \"{}\" in {}, but \"{}\" in the model; a draft "
        "model must have the model's vocabulary",
        id, other->bytes_of(id), path, tokenizer->bytes_of(id)));
  }
}

std::shared_ptr<const policy::StopNetwork> read_stop(const io::SpeculationSection& settings,
                                                     const std::string& path) {
  constexpr int kPaths = policy::StopNetwork::kStates;
  if (settings.paths.value_or(1) < kPaths) {
    throw UsageError(fmt::format(
        "speculation.paths: the stop network {} reads the {} likeliest paths of a tree; "
        "expected at least as many, found {}",
        path, kPaths, settings.paths.value_or(1)));
  }
  return std::make_shared<policy::StopNetwork>(io::Checkpoint(path));
}

/// Throws UsageError if the head drafts all levels of a tree in one pass, but its setting asks for
/// a decision after each level (stop) or for records of levels (record_stops).
void require_levels(const io::DrafterSetting& setting, const DraftHead& head) {
  if (!mask_token(head.config) || (!setting.stop && setting.record_stops == 0)) return;
  throw UsageError(
      fmt::format("speculation.drafters: {} is a {}, which drafts all levels in one pass; expected "
                  "neither stop "
                  "nor record_stops, found {}",
                  setting.path, kind_of(head.config), setting.stop ? "stop" : "record_stops"));
}

/// Reads the sizes of the target's own next-token layer from config.json in `path`.
MtpConfig next_token_layer(const std::string& path, const ModelConfig& target) {
  return io::next_token_layer(target, std::filesystem::path(path) / "config.json");
}

/// Whether both paths lead to the same directory, even through links.
bool same_folder(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || std::filesystem::equivalent(a, b, ignored);
}

/// Reads all drafters. `read_model(path)` returns a draft model. `read_head(setting, head)` fills
/// in `head`.
template <typename ReadModel, typename ReadHead>
std::vector<ConfiguredDrafter> read(const io::SpeculationSection& settings,
                                    const ReadModel& read_model, const ReadHead& read_head) {
  std::vector<ConfiguredDrafter> drafters;
  for (const io::DrafterSetting& setting : settings.drafters) {
    ConfiguredDrafter drafter;
    drafter.setting = setting;
    drafter.name = name_of(setting.method);
    if (!setting.path.empty()) drafter.name += ":" + setting.name.value_or(setting.path);
    if (setting.method == io::DrafterMethod::model) {
      for (const ConfiguredDrafter& other : drafters) {
        if (other.setting.method != setting.method) continue;
        if (same_folder(other.setting.path, setting.path)) {
          throw UsageError(fmt::format(
              "speculation.drafters: {} is listed twice; both would draft the same tokens",
              setting.path));
        }
        if (other.name == drafter.name) {
          throw UsageError(fmt::format(
              "speculation.drafters: two drafters are named {}; expected different names",
              drafter.name));
        }
      }
      drafter.model = read_model(setting.path);
    }
    if (setting.is_head()) {
      drafter.head = std::make_unique<DraftHead>();
      read_head(setting, *drafter.head);
      require_levels(setting, *drafter.head);
      if (setting.stop) drafter.head->stop = read_stop(settings, *setting.stop);
    }
    drafters.push_back(std::move(drafter));
  }
  const auto place = [](const ConfiguredDrafter& d) { return d.head ? 2 : d.model ? 1 : 0; };
  std::ranges::stable_sort(drafters, {}, place);
  return drafters;
}

}  // namespace

std::vector<ConfiguredDrafter> read_drafters(const io::SpeculationSection& settings,
                                             const std::string& target_path,
                                             const ModelCheckpoint& target,
                                             const io::Tokenizer* tokenizer,
                                             std::vector<std::string>* absent) {
  const auto is_there = [&](const std::string& path) {
    if (absent == nullptr || io::Checkpoint::is_there(path)) return true;
    absent->push_back("weights of " + path);
    return false;
  };
  const auto take = [&](const std::string& path, auto checkpoint, DraftHead& head) {
    io::require_fits(path, checkpoint.config, target.config);
    head.config = std::move(checkpoint.config);
    head.own = std::move(checkpoint.weights);
    head.weights = head.own.get();
  };
  const auto read_eagle3 = [&](const std::string& path, DraftHead& head) {
    take(path,
         is_there(path) ? io::load_eagle3(model::families(), path)
                        : io::Eagle3Checkpoint{io::load_eagle3_config(path), nullptr},
         head);
  };
  const auto read_dflash = [&](const std::string& path, DraftHead& head) {
    io::DFlashCheckpoint checkpoint =
        is_there(path) ? io::load_dflash(model::families(), path)
                       : io::DFlashCheckpoint{io::load_dflash_config(path), nullptr};
    checkpoint.config.layer.tied_embeddings = target.config.tied_embeddings;
    const bool borrows = !checkpoint.config.own_output;
    take(path, std::move(checkpoint), head);
    if (!borrows || head.own == nullptr) return;
    head.weights = nullptr;
    if (target.weights == nullptr) return;
    head.borrowing = std::make_unique<io::BorrowingSource>(*head.own, *target.weights);
    head.weights = head.borrowing.get();
  };
  const auto read_mtp = [&](DraftHead& head) {
    MtpConfig config = next_token_layer(target_path, target.config);
    head.weights = target.weights.get();
    if (head.weights != nullptr) {
      io::check_tensor_shapes(config, *head.weights);
      // The layer's router may have another dtype than the model's routers (see ModelCheckpoint).
      if (config.layer.experts && target.stored() != DType::f32)
        config.layer.experts->wide_router = io::stores_wide_router(config, *head.weights);
    }
    head.config = std::move(config);
  };
  const auto read_model = [&](const std::string& path) {
    auto draft = std::make_unique<ModelCheckpoint>();
    draft->config = io::load_model_config(model::families(), path);
    if (is_there(path)) draft->read_weights(path);
    draft->compute = compute_of(draft->stored());
    require_same_tokens(path, draft->config, target.config, tokenizer);
    return draft;
  };
  return read(settings, read_model, [&](const io::DrafterSetting& setting, DraftHead& head) {
    if (setting.method == io::DrafterMethod::eagle3) {
      read_eagle3(setting.path, head);
    } else if (setting.method == io::DrafterMethod::dflash) {
      read_dflash(setting.path, head);
    } else {
      read_mtp(head);
    }
  });
}

std::vector<ConfiguredDrafter> read_drafter_shapes(const io::SpeculationSection& settings,
                                                   const std::string& target_path,
                                                   const ModelConfig& target) {
  const auto read_model = [](const std::string& path) {
    auto draft = std::make_unique<ModelCheckpoint>();
    draft->config = io::load_model_config(model::families(), path);
    draft->compute = compute_of(draft->config.dtype);
    return draft;
  };
  return read(settings, read_model, [&](const io::DrafterSetting& setting, DraftHead& head) {
    if (setting.method == io::DrafterMethod::eagle3) {
      head.config = io::load_eagle3_config(setting.path);
    } else if (setting.method == io::DrafterMethod::dflash) {
      head.config = io::load_dflash_config(setting.path);
    } else {
      head.config = next_token_layer(target_path, target);
    }
  });
}

}  // namespace paceline::app
