#include "io/config/run_config.hpp"

#include <filesystem>
#include <map>
#include <utility>

#include "io/config/codecs.hpp"
#include "io/config/drafter_list.hpp"
#include "io/config/key_table.hpp"
#include "io/config/other_names.hpp"
#include "io/config/quantity.hpp"
#include "io/config/yaml_tree.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/interfaces.hpp"

namespace paceline::io {
namespace {

constexpr std::size_t max_problems = 20;

std::vector<std::string_view> section_names() {
  std::vector<std::string_view> names;
  for (const Key& key : key_table()) {
    if (names.empty() || names.back() != key.section) names.push_back(key.section);
  }
  return names;
}

std::vector<std::string_view> key_names(std::string_view section) {
  std::vector<std::string_view> names;
  for (const Key& key : key_table()) {
    if (key.section == section) names.push_back(key.name);
  }
  return names;
}

const Key* find_key(std::string_view section, std::string_view name) {
  for (const Key& key : key_table()) {
    if (key.section == section && key.name == name) return &key;
  }
  return nullptr;
}

// Whether keys of a section are in a map with this name.
bool is_group(std::string_view section, std::string_view name) {
  const std::string prefix = std::string(name) + ".";
  return std::any_of(key_table().begin(), key_table().end(), [&](const Key& key) {
    return key.section == section && key.name.starts_with(prefix);
  });
}

// The last part of a key's name, which is written before its value.
std::string_view last_name(const Key& key) { return key.name.substr(key.name.rfind('.') + 1); }

std::string full_name(const Key& key) {
  return std::string(key.section) + "." + std::string(key.name);
}

// Text "; did you mean 'x'?" or, if no name is near, a list of all names.
std::string suggest(std::string_view name, std::span<const std::string_view> candidates) {
  if (const std::string near = did_you_mean(name, candidates); !near.empty()) return "; " + near;
  std::string text = "; there are";
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    text += (i > 0 ? ", " : " ") + std::string(candidates[i]);
  }
  return text;
}

std::string unknown_section(std::string_view name) {
  const std::string text = "unknown section " + show(name);
  if (const OtherName* other = find_other_name(name))
    return text + "; it " + std::string(other->says);
  return text + suggest(name, section_names());
}

std::string unknown_key(std::string_view section, std::string_view name) {
  std::string text = "unknown key " + show(name) + " in section '" + std::string(section) + "'";
  // Looks for a key of an earlier version, or a map that it was in.
  for (std::string key = std::string(section) + "." + std::string(name); key != section;
       key.resize(key.rfind('.'))) {
    if (const OtherName* other = find_other_name(key))
      return text + "; it " + std::string(other->says);
  }
  const std::vector<std::string_view> here = key_names(section);
  for (const Key& key : key_table()) {
    if (key.section == section && last_name(key) == name) {
      return text + "; did you mean '" + std::string(key.name) + "'?";
    }
    if (key.name == name)
      return text + "; it belongs to section '" + std::string(key.section) + "'";
  }
  if (const OtherName* other = find_other_name(name))
    return text + "; it " + std::string(other->says);
  return text + suggest(name, here);
}

// Writes keys one after another as YAML, with the names of sections and groups where they begin.
class Outline {
 public:
  std::string headings(const Key& key) {
    std::string text;
    if (key.section != section_) text += std::string(key.section) + ":\n";
    const std::string_view group = key.name.substr(0, key.name.size() - last_name(key).size());
    if (!group.empty() && (group != group_ || key.section != section_)) {
      text += "  " + std::string(group.substr(0, group.size() - 1)) + ":\n";
    }
    section_ = key.section;
    group_ = group;
    return text;
  }
  static std::string indent(const Key& key) { return last_name(key) == key.name ? "  " : "    "; }
  static std::string line(const Key& key, const std::string& value) {
    return indent(key) + std::string(last_name(key)) + ": " + value + "\n";
  }

 private:
  std::string_view section_;
  std::string_view group_;  // with the dot at its end
};

std::string directory_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

// Reads a configuration, and collects all problems, so that one run shows every mistake.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  /// A key that was set before and is set again has the new value.
  void read_file(const YamlNode& root, const std::string& name, const std::string& directory) {
    if (root.kind == YamlNode::Kind::null) return;
    const auto at = [&name](int line, int column) {
      return name + ":" + std::to_string(line) + ":" + std::to_string(column);
    };
    if (root.kind != YamlNode::Kind::map) {
      problem(at(root.line, root.column),
              "expected sections (model:, prompts:, ...), found " + describe(root));
      return;
    }
    const std::vector<std::string_view> sections = section_names();
    for (const YamlEntry& section : root.entries) {
      const std::string place = at(section.line, section.column);
      if (std::find(sections.begin(), sections.end(), section.key) == sections.end()) {
        problem(place, unknown_section(section.key));
      } else {
        read_keys(section.key, "", section, directory, at);
      }
    }
  }

  void read_override(const std::string& text) {
    if (text.starts_with('@')) {
      const std::string path = text.substr(1);
      read_file(parse_yaml(read_yaml_file(path, "the configuration"), path), path,
                directory_of(path));
      return;
    }
    const std::string place = "--set " + clip(text);
    const std::size_t equals = text.find('=');
    const std::size_t dot = text.find('.');
    if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
      problem(place, "expected SECTION.KEY=VALUE" + whole_name_of(text.substr(0, equals)));
      return;
    }
    const std::string section = text.substr(0, dot);
    const std::string name = text.substr(dot + 1, equals - dot - 1);
    if (find_key(section, name) == nullptr && !is_group(section, name)) {
      const bool known = !key_names(section).empty();
      problem(place, known ? unknown_key(section, name) : unknown_section(section));
      return;
    }
    try {
      YamlEntry entry;
      entry.key = name;
      entry.value = override_value(text.substr(equals + 1), place);
      // Paths in an override are the caller's, relative to the working directory.
      read_entry(section, "", entry, "", [&](int, int) { return place; });
    } catch (const UsageError& error) {
      add(error.what());
    }
  }

  RunConfig finish(Purpose purpose) {
    for (const Key& key : key_table()) {
      if (purpose != Purpose::run && key.section == "prompts") continue;
      if (purpose != Purpose::run && key.section == "output") continue;
      if (key.required && !places_.contains(full_name(key))) {
        add(name_ + ": " + full_name(key) + " is required: " + key.type);
      }
    }
    if (problems_ == 0) check_together(purpose);
    if (problems_ > max_problems) {
      message_ += "\n... and " + std::to_string(problems_ - max_problems) + " more";
    }
    if (problems_ > 0) throw UsageError(message_);
    write_text();
    // Plain decoding uses no drafters, even if the text lists some.
    if (config_.speculation.mode == SpeculationMode::plain) config_.speculation.drafters.clear();
    // Simulated requests have no earlier responses, and given responses need no drafts.
    if (config_.speculation.drafters.empty() || purpose != Purpose::run)
      config_.speculation.history = std::nullopt;
    return std::move(config_);
  }

 private:
  void add(const std::string& message) {
    if (problems_ < max_problems) message_ += (problems_ > 0 ? "\n" : "") + message;
    ++problems_;
  }
  void problem(const std::string& place, const std::string& what) { add(place + ": " + what); }

  // Reads the keys of a section or, if `prefix` is not empty, of a group of keys in it, whose names
  // begin with `prefix`. `place_of`: turns a line and a column into a place for messages.
  template <typename PlaceOf>
  void read_keys(const std::string& section, const std::string& prefix, const YamlEntry& owner,
                 const std::string& directory, const PlaceOf& place_of) {
    if (owner.value.kind == YamlNode::Kind::map) {
      for (const YamlEntry& entry : owner.value.entries) {
        read_entry(section, prefix, entry, directory, place_of);
      }
    } else if (owner.value.kind != YamlNode::Kind::null) {
      problem(place_of(owner.line, owner.column),
              (prefix.empty() ? "section '" + section + "'" : section + "." + owner.key) +
                  ": expected keys with values, found " + describe(owner.value));
    }
  }

  template <typename PlaceOf>
  void read_entry(const std::string& section, const std::string& prefix, const YamlEntry& entry,
                  const std::string& directory, const PlaceOf& place_of) {
    const std::string name = prefix + entry.key;
    if (const Key* key = find_key(section, name); key != nullptr) {
      set(*key, entry.value, directory, [&](int line, int column) {
        // An absent value has no place of its own: point at the key.
        return line == 0 ? place_of(entry.line, entry.column) : place_of(line, column);
      });
    } else if (is_group(section, name)) {
      read_keys(section, name + ".", entry, directory, place_of);
    } else {
      problem(place_of(entry.line, entry.column), unknown_key(section, name));
    }
  }

  template <typename PlaceOf>
  void set(const Key& key, const YamlNode& value, const std::string& directory,
           const PlaceOf& place_of) {
    places_[full_name(key)] = place_of(value.line, value.column);
    try {
      key.set(config_, value, directory);
    } catch (const BadValue& bad) {
      problem(place_of(bad.line, bad.column), full_name(key) + bad.part + ": expected " +
                                                  bad.expected + ", found " + bad.found +
                                                  (bad.hint.empty() ? "" : "; " + bad.hint));
    }
  }

  // Reads a value that stands alone: no part of it is a comment, and its lines are not joined.
  static YamlNode override_value(const std::string& text, const std::string& place) {
    YamlNode value = parse_yaml(text, place, false);
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos) return value;
    const std::string given = text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
    const bool plain = value.kind == YamlNode::Kind::scalar && !value.quoted;
    if (plain || (value.kind == YamlNode::Kind::null && given.front() == '#')) {
      value.kind = YamlNode::Kind::scalar;
      value.scalar = given;
    }
    return value;
  }

  // A hint to the key whose last name is `name`, for users who leave out its section.
  static std::string whole_name_of(std::string_view name) {
    for (const Key& key : key_table()) {
      if (last_name(key) == name) return "; did you mean '" + full_name(key) + "=...'?";
    }
    if (const OtherName* other = find_other_name(name))
      return "; " + show(name) + " " + std::string(other->says);
    return "";
  }

  // The place where a key was set, for problems that concern several keys.
  [[nodiscard]] std::string place_of_key(const std::string& key) const {
    const auto found = places_.find(key);
    return found == places_.end() ? name_ : found->second;
  }

  // Reports a key whose value does not go with others'.
  void refuse(const std::string& key, const std::string& expected, const std::string& found) {
    problem(place_of_key(key), key + ": expected " + expected + ", found " + found);
  }
  void expect(const std::string& key, bool right, const std::string& expected,
              const std::string& found) {
    if (!right) refuse(key, expected, found);
  }

  void check_together(Purpose purpose) {
    const SamplingParams& s = config_.sampling;
    if (s.min_tokens > s.max_tokens) {
      refuse("sampling.min_tokens",
             "at most sampling.max_tokens (" + std::to_string(s.max_tokens) + ")",
             std::to_string(s.min_tokens));
    }
    const LimitsSection& l = config_.limits;
    if (l.wall_clock && l.margin >= *l.wall_clock) {
      refuse("limits.margin",
             "less than limits.wall_clock (" + format_number(*l.wall_clock) + " seconds)",
             format_number(l.margin));
    }
    if (config_.layout.drafters.value_or(0) > 0 && config_.speculation.drafters.empty()) {
      refuse("layout.drafters", "auto or 0 where speculation.drafters is empty",
             std::to_string(*config_.layout.drafters));
    }
    const ScheduleSection& schedule = config_.schedule;
    if (purpose == Purpose::run && schedule.policy == SchedulePolicy::oracle && !schedule.lengths) {
      problem(place_of_key("schedule.policy"),
              "schedule.policy: oracle needs schedule.lengths, a finished run of the same prompts");
    }
    if (config_.kv_pool.disk_size && !config_.kv_pool.disk) {
      refuse("kv_pool.disk_size", "kv_pool.disk, a directory, beside it", "none");
    }
    check_expert_parallel();
    check_prompt_keys();
    check_enough();
    check_speculation();
    check_masks();
    check_routing();
    check_reward();
    check_environment();
    if (purpose == Purpose::simulation) check_simulation();
  }

  void check_simulation() {
    const SimulationSection& s = config_.simulation;
    for (const auto& [key, gpus] : {std::pair("simulation.gpus_per_rank", s.gpus_per_rank),
                                    std::pair("simulation.instance", s.instance)}) {
      expect(key, gpus == 1 || s.gpu_tables,
             "1, because engine.profile, unlike simulation.gpu_tables, does not say how costs "
             "depend on this number",
             std::to_string(gpus));
    }
    const std::int64_t ranks = std::int64_t{s.nodes} * s.ranks_per_node;
    expect("simulation.instance", ranks % s.instance == 0,
           "a divisor of " + std::to_string(ranks) + " ranks", std::to_string(s.instance));
  }

  void check_expert_parallel() {
    const LayoutSection& layout = config_.layout;
    if (!layout.expert_parallel) return;
    const std::vector<std::int32_t> degrees = layout.verifier_tp.value_or(std::vector{0});
    if (std::all_of(degrees.begin(), degrees.end(),
                    [&](std::int32_t tp) { return tp == *layout.expert_parallel; }))
      return;
    refuse("layout.expert_parallel", "auto, or the degree that layout.verifier_tp gives all groups",
           std::to_string(*layout.expert_parallel));
  }

  void check_prompt_keys() {
    const std::vector<PromptKeys::Named> named = config_.prompts.keys.named();
    for (std::size_t i = 0; i < named.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (named[i].field != named[j].field) continue;
        refuse("prompts.keys." + std::string(named[i].key),
               "another field than prompts.keys." + std::string(named[j].key),
               show(named[i].field));
      }
    }
  }

  void check_enough() {
    const PromptsSection& p = config_.prompts;
    const bool carries = p.partial == PartialResponses::keep || p.begun.has_value();
    if (!p.enough && p.filter == PromptFilter::none && !carries) return;
    if (!p.enough || p.filter == PromptFilter::none) {
      if (carries && !p.enough) {
        refuse(p.begun ? "prompts.begun" : "prompts.partial",
               std::string(p.begun ? "none" : "drop") + " where prompts.enough is none",
               p.begun ? *p.begun : "keep");
        if (p.filter == PromptFilter::none) return;
      }
      expect("prompts.enough", p.enough.has_value(),
             "a number of prompts where prompts.filter is mixed_rewards", "none");
      expect("prompts.filter", p.filter != PromptFilter::none,
             "mixed_rewards where prompts.enough is set", "none");
      return;
    }
    const std::string when = " where prompts.enough is set";
    const RewardSection& r = config_.reward;
    expect("reward.method", r.method != RewardMethod::none || config_.converses(),
           "match or command" + when + ", for rewards say which prompts count", "none");
    expect("prompts.samples", p.samples > 1,
           "at least 2" + when + ", for one reward is like itself", std::to_string(p.samples));
    expect("schedule.policy", config_.schedule.policy != SchedulePolicy::group,
           "another than group" + when + ", for that deals all prompts out beforehand", "'group'");
    if (carries) {
      expect("environment.method", !config_.converses(),
             "none where responses are carried from run to run (prompts.partial, prompts.begun)",
             "command");
      expect("sampling.keep_routing", !config_.sampling.keep_routing,
             "false where responses are carried from run to run (prompts.partial, prompts.begun)",
             "true");
    }
    const bool may_wait = r.method == RewardMethod::command && config_.limits.stall.has_value();
    if (may_wait) {
      expect("reward.timeout", r.timeout * r.attempts < *config_.limits.stall,
             "less than limits.stall (" + format_number(*config_.limits.stall) +
                 " seconds) with all of reward.attempts" + when,
             format_number(r.timeout));
    }
  }

  void check_masks() {
    const SamplingParams& s = config_.sampling;
    if (!s.keep_masks || (s.top_k >= 1 && s.top_k <= SamplingParams::kMostKept)) return;
    refuse("sampling.top_k",
           "1 to " + std::to_string(SamplingParams::kMostKept) +
               " where sampling.keep_masks is true, so that a token has no more ids than that",
           std::to_string(s.top_k));
  }

  void check_routing() {
    expect("sampling.keep_routing", !config_.sampling.keep_routing || !config_.converses(),
           "false where there is an environment", "true");
  }

  void check_reward() {
    const RewardSection& r = config_.reward;
    if (r.method == RewardMethod::match && r.rule.has(AnswerRule::regex) != r.pattern.has_value()) {
      refuse("reward.pattern",
             r.pattern ? "none where reward.rule is not regex"
                       : "a regular expression where reward.rule is regex",
             r.pattern ? show(*r.pattern) : "none");
    }
    expect("reward.command", r.method != RewardMethod::command || !r.command.empty(),
           "a program where reward.method is command", "an empty list");
  }

  void check_environment() {
    if (!config_.converses()) return;
    const EnvironmentSection& e = config_.environment;
    if (config_.limits.stall && e.timeout * e.attempts >= *config_.limits.stall) {
      refuse("environment.timeout",
             "less than limits.stall (" + format_number(*config_.limits.stall) +
                 " seconds) with all of environment.attempts",
             format_number(e.timeout));
    }
    expect("environment.command", !e.command.empty(),
           "a program where environment.method is command", "an empty list");
  }

  void check_mode() {
    const Auto<SpeculationMode> mode = config_.speculation.mode;
    if (!mode) return;
    const std::string name = name_of(*mode);
    if (*mode != SpeculationMode::plain && config_.speculation.drafters.empty()) {
      refuse("speculation.mode", "auto or plain where speculation.drafters is empty",
             "'" + name + "'");
    }
    const Auto<std::int32_t> drafters = config_.layout.drafters;
    const bool decoupled = *mode == SpeculationMode::decoupled;
    if (drafters && (*drafters > 0) != decoupled) {
      refuse("layout.drafters",
             "auto or " + std::string(decoupled ? "at least 1" : "0") +
                 " where speculation.mode is " + name,
             std::to_string(*drafters));
    }
  }

  void check_recording() {
    const SpeculationSection& s = config_.speculation;
    if (s.record_stops() == 0) return;
    const auto wants = [this](const std::string& name, bool right, const std::string& expected,
                              const std::string& found) {
      expect("speculation." + name, right, expected + " where its head has record_stops", found);
    };
    const bool head = s.drafters.size() == 1 && s.drafters.front().is_head();
    wants("drafters", head, "one drafter, of method eagle3 or mtp", DrafterList::write(s.drafters));
    wants("mode", !s.mode || *s.mode == SpeculationMode::coupled, "auto or coupled",
          s.mode ? name_of(*s.mode) : "auto");
    wants("policy", s.policy == SpeculationPolicy::fixed, "fixed", name_of(s.policy));
    wants("max_length", s.max_length == StopPoint::kCalls, std::to_string(StopPoint::kCalls),
          std::to_string(s.max_length));
    wants("paths", s.paths == StopPoint::kStates, std::to_string(StopPoint::kStates),
          s.paths ? std::to_string(*s.paths) : "auto");
  }

  void check_speculation() {
    check_mode();
    const SpeculationSection& s = config_.speculation;
    const std::int64_t most =
        std::int64_t{s.max_length} * s.paths.value_or(SpeculationSection::kMostPaths);
    if (s.max_tokens().value_or(0) > most) {
      refuse("speculation.drafters",
             "max_tokens of at most speculation.max_length * speculation.paths (" +
                 std::to_string(most) + ")",
             std::to_string(*s.max_tokens()));
    }
    check_recording();
    const DrafterSetting* suffix = s.find(DrafterMethod::suffix);
    const bool plain = s.mode == SpeculationMode::plain;
    if (s.history && !plain && (suffix == nullptr || suffix->servers == 0)) {
      refuse("speculation.history",
             std::string("none where ") + (suffix == nullptr
                                               ? "there is no suffix drafter"
                                               : "the suffix drafter has no servers to read it"),
             *s.history);
    }
    if (s.pregenerate && !plain && s.history != SpeculationSection::kBeside) {
      refuse("speculation.pregenerate",
             "speculation.history: auto, by which the next step drafts from it",
             s.history.value_or("none"));
    }
    for (const DrafterSetting& drafter : s.drafters) {
      // A whole draft must fit into the tree below the shortest match.
      if (drafter.method == DrafterMethod::suffix &&
          s.max_length > drafter.depth - drafter.min_match) {
        refuse("speculation.max_length",
               "at most the suffix drafter's depth - min_match (" +
                   std::to_string(drafter.depth - drafter.min_match) + ")",
               std::to_string(s.max_length));
      }
    }
  }

  void write_text() {
    Outline outline;
    for (const Key& key : key_table()) {
      config_.text += outline.headings(key) + Outline::line(key, key.get(config_));
    }
  }

  std::string name_;
  RunConfig config_;
  std::map<std::string, std::string> places_;  // key -> where it was set
  std::string message_;
  std::size_t problems_ = 0;
};

}  // namespace

RunConfig parse_run_config(const std::string& text, const std::string& name,
                           const std::string& directory, std::span<const std::string> overrides,
                           Purpose purpose) {
  Reader reader(name);
  reader.read_file(parse_yaml(text, name), name, directory);
  for (const std::string& override_text : overrides) reader.read_override(override_text);
  return reader.finish(purpose);
}

RunConfig read_run_config(const std::string& path, std::span<const std::string> overrides,
                          Purpose purpose) {
  return parse_run_config(read_yaml_file(path, "the configuration"), path, directory_of(path),
                          overrides, purpose);
}

std::vector<std::string> keys_in_file(const std::string& path) {
  std::vector<std::string> keys;
  const YamlNode root = parse_yaml(read_yaml_file(path, "the configuration"), path);
  for (const YamlEntry& section : root.entries) {
    for (const YamlEntry& key : section.value.entries) keys.push_back(section.key + "." + key.key);
  }
  return keys;
}

std::string config_reference() {
  // The text is YAML that can be copied: defaults are values, everything else is comments.
  const RunConfig defaults;
  std::string text;
  Outline outline;
  for (const Key& key : key_table()) {
    const std::string headings = outline.headings(key);
    const std::string comment = Outline::indent(key) + "# ";
    if (!headings.empty() && headings.front() != ' ' && !text.empty()) text += "\n";
    if (headings == "simulation:\n") text += "# Of `paceline simulate` alone.\n";
    if (headings == "test:\n") text += "# For tests of paceline itself.\n";
    text += headings + comment + std::string(key.help) + "\n" + comment + "Takes " + key.type +
            (key.required ? "; required.\n" : ".\n");
    for (const std::string& line : key.details) text += comment + "  " + line + "\n";
    text += Outline::line(key, key.required ? "..." : key.get(defaults));
  }
  return text;
}

}  // namespace paceline::io
