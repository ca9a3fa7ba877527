#include "app/assembly/drafters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "app/assembly/setup.hpp"
#include "app/assembly/weight_store.hpp"
#include "io/checkpoint/model_config_reader.hpp"
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
                                             const ModelConfig& model,
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
    io::require_fits(setting.path, head->checkpoint.config, model);
    if (setting.stop) head->stop = read_stop(settings, *setting.stop);
    return head;
  };
  const auto read_model = [&](const std::string& path) {
    auto draft = std::make_unique<DraftModel>();
    draft->config = io::load_model_config(model::families(), path);
    if (is_there(path)) {
      draft->weights = std::make_unique<io::Checkpoint>(path);
      io::check_tensor_shapes(draft->config, *draft->weights);
    }
    draft->compute = compute_of(stored_dtype(draft->config, draft->weights.get()));
    require_same_tokens(path, draft->config, model, tokenizer);
    return draft;
  };
  return read(settings, read_model, read_head);
}

std::vector<ConfiguredDrafter> read_drafter_shapes(const io::SpeculationSection& settings) {
  const auto read_model = [](const std::string& path) {
    auto draft = std::make_unique<DraftModel>();
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

int draft_tokens(const io::SpeculationSection& settings) {
  if (settings.drafters.empty()) return 0;
  const int tokens =
      settings.max_tokens().value_or(settings.max_length * settings.paths.value_or(1));
  return settings.record_stops() > 0 ? std::max(tokens, speculation::kMostRecordedRows) : tokens;
}

speculation::StopRecorderOptions stop_recording(const io::SpeculationSection& settings) {
  speculation::StopRecorderOptions options;
  options.every = settings.record_stops();
  options.most = settings.max_tokens().value_or(StopPoint::kCalls * StopPoint::kStates);
  options.foreknows = settings.drafters.front().noise;
  return options;
}

int draft_window(const io::SpeculationSection& settings) {
  return settings.window.value_or(settings.max_length);
}

bool has_draft_models(const Setup& setup, Role role) {
  return role == Role::drafter || (role == Role::verifier && setup.layout.drafters() == 0);
}

int race_methods(const Setup& setup) {
  const speculation::DrafterRoster roster = drafter_roster(setup);
  return static_cast<int>(std::count_if(roster.begin(), roster.end(), [](const auto& entry) {
    return entry.kind != speculation::DrafterKind::tail;
  }));
}

bool races(const Setup& setup) {
  return setup.config.speculation.best_of_n && setup.layout.groups() > 1 && race_methods(setup) > 1;
}

std::vector<std::int32_t> tail_methods(const Setup& setup) {
  const io::RunConfig& config = setup.config;
  const bool known = setup.profile_holds() || config.test.shuffles(io::Shuffle::roles);
  if (!config.speculation.best_of_n || setup.layout.groups() < 2 || !known ||
      config.speculation.mode == SpeculationMode::coupled)
    return {};
  const auto is_model = [](const ConfiguredDrafter& d) { return d.model != nullptr; };
  // Drafter ranks seldom get past their first drafter; of a verifier's models, the first drafts.
  const auto first = setup.layout.drafters() > 0
                         ? setup.drafters.begin()
                         : std::find_if(setup.drafters.begin(), setup.drafters.end(), is_model);
  std::vector<std::int32_t> methods;
  for (auto d = setup.drafters.begin(); d != setup.drafters.end(); ++d) {
    if (d != first && is_model(*d))
      methods.push_back(static_cast<std::int32_t>(d - setup.drafters.begin()));
  }
  return methods;
}

bool roles_change(const Setup& setup) {
  return setup.config.test.shuffles(io::Shuffle::roles) || !tail_methods(setup).empty();
}

DraftHead* draft_head(const Setup& setup) {
  for (const ConfiguredDrafter& drafter : setup.drafters) {
    if (drafter.head != nullptr) return drafter.head.get();
  }
  return nullptr;
}

std::vector<std::int32_t> read_layers(const Setup& setup) {
  const DraftHead* head = draft_head(setup);
  if (head == nullptr) return {};
  return feature_layers(head->checkpoint.config, setup.model);
}

bool has_own_embeddings(const Setup& setup) {
  const DraftHead* head = draft_head(setup);
  return head != nullptr && head->checkpoint.config.own_embeddings;
}

std::uint64_t feature_row_bytes(const Setup& setup) {
  return std::uint64_t{1} * read_layers(setup).size() * setup.model.hidden * size_of(setup.compute);
}

bool has_head(const Setup& setup, Role role) {
  if (draft_head(setup) == nullptr) return false;
  const bool models = std::any_of(setup.drafters.begin(), setup.drafters.end(),
                                  [](const auto& drafter) { return drafter.model != nullptr; });
  const bool ahead = setup.layout.drafters() > 0 && !models;
  return role == (ahead ? Role::drafter : Role::verifier);
}

void require_chains(const Setup& setup) {
  if (!has_head(setup, Role::drafter)) return;
  if (setup.config.speculation.record_stops() > 0) {
    throw UsageError(
        fmt::format("layout.drafters: record_stops records the trees of a head on the ranks that "
                    "verify; expected 0, found {}",
                    setup.layout.drafters()));
  }
  if (draft_head(setup)->stop != nullptr) {
    throw UsageError(
        "speculation.drafters: a stop network judges trees, and the head drafts chains on drafter "
        "ranks; expected no stop, or layout.drafters: 0");
  }
}

std::vector<std::int32_t> own_drafters(const Setup& setup, Role role,
                                       const policy::DrafterPlace* place) {
  if (place != nullptr && place->method) return {*place->method};
  std::vector<std::int32_t> own;
  for (std::size_t d = 0; d < setup.drafters.size(); ++d) {
    const ConfiguredDrafter& drafter = setup.drafters[d];
    const bool has = drafter.head != nullptr    ? has_head(setup, role)
                     : drafter.model != nullptr ? has_draft_models(setup, role)
                                                : true;
    if (has) own.push_back(static_cast<std::int32_t>(d));
  }
  return own;
}

speculation::DrafterRoster drafter_roster(const Setup& setup, const CostTable* costs) {
  using Kind = speculation::DrafterKind;
  speculation::DrafterRoster roster;
  const auto add = [&](Kind kind, std::int32_t d, const std::string& name) {
    const ConfiguredDrafter& drafter = setup.drafters[d];
    speculation::RosterEntry& entry = roster.emplace_back(speculation::RosterEntry{
        .name = name, .kind = kind, .place = d, .acceptance = drafter.acceptance});
    if (costs == nullptr) return;
    const auto at =
        std::find_if(costs->drafters.begin(), costs->drafters.end(),
                     [&](const DrafterCosts& known) { return known.name == drafter.name; });
    if (at != costs->drafters.end()) entry.costs = *at;
  };
  // Drafter ranks seldom get past their first drafter, and count as it does.
  if (setup.layout.drafters() > 0) add(Kind::ahead, 0, "drafter-ranks");
  bool has_model = false;
  for (const std::int32_t d : own_drafters(setup, Role::verifier)) {
    add(Kind::own, d, setup.drafters[d].name);
    if (setup.drafters[d].model == nullptr) continue;
    // All draft models but the first, which the ladder ranks best, are for races and tried now and
    // then: asking two for one token costs both (SpecActor, section 4.2: the initial selection is
    // one method). Where costs are not known there is no ladder.
    roster.back().reserved = setup.profile_holds() && std::exchange(has_model, true);
  }
  for (const std::int32_t d : tail_methods(setup))
    add(Kind::tail, d, "ahead:" + setup.drafters[d].name);
  return roster;
}

std::vector<std::string> drafter_names(const Setup& setup) {
  std::vector<std::string> names;
  for (speculation::RosterEntry& entry : drafter_roster(setup))
    names.push_back(std::move(entry.name));
  return names;
}

}  // namespace paceline::app
