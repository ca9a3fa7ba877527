#include "app/assembly/configured_drafters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/core/error.hpp"
#include "runtime/model/families/families.hpp"

namespace paceline::app {
namespace {

// Vocabulary sizes may differ, for checkpoints pad them, but no token may mean something else.
void require_same_tokens(const std::string& path, const ModelConfig& draft,
                         const ModelConfig& model, const io::Tokenizer* tokenizer) {
  std::optional<io::Tokenizer> other;
  try {
    if (tokenizer != nullptr) other = io::Tokenizer::load(path);
  } catch (const DataError&) {  // no text needed: drafts are token ids
  }
  if (!other) {
    if (draft.vocab == model.vocab) return;
    throw UsageError(fmt::format(
        "speculation.drafters: the vocabulary of {} has {} tokens, the model's {}; a draft model "
        "must have the model's vocabulary",
        path, draft.vocab, model.vocab));
  }
  // Special tokens may have other names: a base model's are reserved ones that mean nothing.
  const auto text_of = [](const io::Tokenizer& t, TokenId id) {
    return t.is_special(id) ? std::string_view() : t.bytes_of(id);
  };
  for (TokenId id = 0; id < std::min(draft.vocab, model.vocab); ++id) {
    if (text_of(*other, id) == text_of(*tokenizer, id)) continue;
    throw UsageError(fmt::format(
        "speculation.drafters: token {} of {} stands for \"{}\", in the model for \"{}\"; a draft "
        "model must have the model's vocabulary",
        id, path, other->bytes_of(id), tokenizer->bytes_of(id)));
  }
}

std::shared_ptr<const policy::StopNetwork> read_stop(const io::SpeculationSection& settings,
                                                     const std::string& path) {
  constexpr int kPaths = policy::StopNetwork::kStates;
  if (settings.paths.value_or(1) < kPaths) {
    throw UsageError(
        fmt::format("speculation.paths: {} reads the {} likeliest paths of a tree; expected at "
                    "least as many, found {}",
                    path, kPaths, settings.paths.value_or(1)));
  }
  return std::make_shared<policy::StopNetwork>(io::Checkpoint(path));
}

/// Reads all drafters. `read_model`: reads a draft model by its path; `read_head`: an EAGLE-3 head
/// by its setting.
template <typename ReadModel, typename ReadHead>
std::vector<ConfiguredDrafter> read(const io::SpeculationSection& settings,
                                    const ReadModel& read_model, const ReadHead& read_head) {
  std::vector<ConfiguredDrafter> drafters;
  for (const io::DrafterSetting& setting : settings.drafters) {
    ConfiguredDrafter drafter;
    drafter.setting = setting;
    switch (setting.method) {
      case io::DrafterMethod::eagle3:
        drafter.name = "eagle3:" + setting.path;
        drafter.head = read_head(setting);
        break;
      case io::DrafterMethod::ngram:
        drafter.name = "ngram";
        break;
      case io::DrafterMethod::suffix:
        drafter.name = "suffix";
        break;
      case io::DrafterMethod::model: {
        drafter.name = "model:" + setting.path;
        for (const ConfiguredDrafter& other : drafters) {
          if (other.name != drafter.name) continue;
          throw UsageError(
              fmt::format("speculation.drafters: {} is there twice; it would draft the same twice",
                          setting.path));
        }
        drafter.model = read_model(setting.path);
        break;
      }
    }
    drafters.push_back(std::move(drafter));
  }
  const auto place = [](const ConfiguredDrafter& d) { return d.head ? 2 : d.model ? 1 : 0; };
  std::stable_sort(drafters.begin(), drafters.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return drafters;
}

}  // namespace

std::vector<ConfiguredDrafter> read_drafters(const io::SpeculationSection& settings,
                                             const ModelConfig& target,
                                             const io::Tokenizer* tokenizer,
                                             std::vector<std::string>* absent) {
  const auto is_there = [&](const std::string& path) {
    if (absent == nullptr || io::Checkpoint::is_there(path)) return true;
    absent->push_back("weights of " + path);
    return false;
  };
  const auto read_head = [&](const io::DrafterSetting& setting) {
    auto head = std::make_unique<DraftHead>();
    if (is_there(setting.path)) {
      head->checkpoint = io::load_eagle3(model::families(), setting.path);
    } else {
      head->checkpoint.config = io::load_eagle3_config(setting.path);
    }
    io::require_fits(setting.path, head->checkpoint.config, target);
    if (setting.stop) head->stop = read_stop(settings, *setting.stop);
    return head;
  };
  const auto read_model = [&](const std::string& path) {
    auto draft = std::make_unique<ModelCheckpoint>();
    draft->config = io::load_model_config(model::families(), path);
    if (is_there(path)) {
      draft->weights = std::make_unique<io::Checkpoint>(path);
      io::check_tensor_shapes(draft->config, *draft->weights);
    }
    draft->compute = compute_of(draft->stored());
    require_same_tokens(path, draft->config, target, tokenizer);
    return draft;
  };
  return read(settings, read_model, read_head);
}

std::vector<ConfiguredDrafter> read_drafter_shapes(const io::SpeculationSection& settings) {
  const auto read_model = [](const std::string& path) {
    auto draft = std::make_unique<ModelCheckpoint>();
    draft->config = io::load_model_config(model::families(), path);
    draft->compute = compute_of(draft->config.dtype);
    return draft;
  };
  const auto read_head = [&](const io::DrafterSetting& setting) {
    auto head = std::make_unique<DraftHead>();
    head->checkpoint.config = io::load_eagle3_config(setting.path);
    if (setting.stop) head->stop = read_stop(settings, *setting.stop);
    return head;
  };
  return read(settings, read_model, read_head);
}

}  // namespace paceline::app
