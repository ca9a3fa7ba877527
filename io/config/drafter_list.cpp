#include "io/config/drafter_list.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "io/config/map_of.hpp"

namespace paceline::io {
namespace {

constexpr std::int32_t longest_ngram = 64;    // tokens; the index costs O(n^2) a token
constexpr std::int32_t deepest_tree = 4096;   // depth of a suffix tree, tokens
constexpr std::int32_t longest_match = 1024;  // longest match of a suffix, tokens

const Choice<DrafterMethod, 6>& methods() {
  static const auto choice =
      named(std::array{DrafterMethod::dflash, DrafterMethod::eagle3, DrafterMethod::model,
                       DrafterMethod::mtp, DrafterMethod::ngram, DrafterMethod::suffix});
  return choice;
}

// A key of the entries of one method.
struct EntryKey : Member<DrafterSetting> {
  DrafterMethod method;
  bool required;
};

template <typename T, typename Codec>
EntryKey entry_key(DrafterMethod method, std::string_view name, T DrafterSetting::*field,
                   Codec codec, std::string_view help, bool required = false) {
  return {member(name, field, std::move(codec), help), method, required};
}

EntryKey name_key(DrafterMethod method) {
  return entry_key(method, "name", &DrafterSetting::name, OrNone{Text{}},
                   "What its costs and its acceptance are known by, from run to run; none is its "
                   "path. A drafter that is trained along has a new path at every step.");
}

// Keys of a head. A DFlash head drafts no levels that could be judged or recorded.
std::vector<EntryKey> head_keys(DrafterMethod method) {
  using S = DrafterSetting;
  const bool levels = method != DrafterMethod::dflash;
  std::vector<EntryKey> keys;
  if (levels) {
    keys.push_back(entry_key(method, "stop", &S::stop, OrNone{Path{"the path of a directory"}},
                             "RADAR network that says when drafts are long enough, in "
                             "safetensors."));
  }
  keys.push_back(entry_key(method, "noise", &S::noise, Flag{},
                           "Ranks tokens under the noise that the target samples with."));
  keys.push_back(entry_key(method, "max_tokens", &S::max_tokens, OrAuto{Count{1, 1 << 20}},
                           "Tokens of a draft; auto is max_length * paths."));
  if (levels) {
    keys.push_back(entry_key(method, "record_stops", &S::record_stops, Count{0, 1 << 24},
                             "Records a whole tree of each request every so many tokens at least, "
                             "for RADAR's network, and drafts nothing else; 0 is never."));
  }
  return keys;
}

std::vector<EntryKey> all_keys() {
  using S = DrafterSetting;
  constexpr auto eagle3 = DrafterMethod::eagle3;
  constexpr auto model = DrafterMethod::model;
  constexpr auto ngram = DrafterMethod::ngram;
  constexpr auto suffix = DrafterMethod::suffix;
  constexpr auto dflash = DrafterMethod::dflash;
  std::vector<EntryKey> keys{
      entry_key(dflash, "path", &S::path, Path{"the path of a directory"},
                "DFlash head of the target, in safetensors.", true),
      name_key(dflash),
      entry_key(eagle3, "path", &S::path, Path{"the path of a directory"},
                "EAGLE-3 or P-EAGLE head of the target, in safetensors.", true),
      name_key(eagle3)};
  for (const DrafterMethod head : {dflash, eagle3, DrafterMethod::mtp}) {
    const std::vector<EntryKey> own = head_keys(head);
    keys.insert(keys.end(), own.begin(), own.end());
  }
  const std::vector<EntryKey> others{
      entry_key(model, "path", &S::path, Path{"the path of a directory"},
                "Hugging Face model with the target's vocabulary.", true),
      name_key(model),
      entry_key(ngram, "min_match", &S::min_match, Count{1, longest_ngram},
                "Shortest n-gram looked up, in tokens."),
      entry_key(ngram, "max_match", &S::max_match, Count{1, longest_ngram},
                "Longest n-gram looked up, in tokens."),
      entry_key(suffix, "min_match", &S::min_match, Count{1, longest_match},
                "Shortest match, in tokens."),
      entry_key(suffix, "max_match", &S::max_match, Count{1, longest_match},
                "Longest match tried, in tokens."),
      entry_key(suffix, "min_probability", &S::min_probability,
                Real<double>{"a number from 0 to 1", [](double v) { return v >= 0 && v <= 1; }},
                "Paths less probable are not drafted."),
      entry_key(suffix, "depth", &S::depth, Count{2, deepest_tree},
                "Depth of the trees, in tokens; at least min_match + max_length."),
      entry_key(suffix, "max_memory", &S::max_memory, Size{},
                "Trees of all prompts on a rank, in bytes; each request's own comes on top."),
      entry_key(suffix, "servers", &S::servers, OrAuto{Count{0, 65536}},
                "Draft servers, which tell trees what siblings on other ranks have said; auto is "
                "one a node where there are several verifier groups, else 0."),
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return keys;
}

const std::vector<EntryKey>& entry_keys() {
  static const std::vector<EntryKey> keys = all_keys();
  return keys;
}

DrafterSetting default_of(DrafterMethod method) {
  DrafterSetting setting;
  setting.method = method;
  if (method == DrafterMethod::ngram) {
    setting.min_match = 2;
    setting.max_match = 5;
  }
  return setting;
}

const YamlEntry* find_entry(const YamlNode& map, std::string_view key) {
  for (const YamlEntry& entry : map.entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

// Runs `read` on an entry's value, and adds the entry's key to a BadValue.
template <typename Read>
auto in_entry(const YamlEntry& entry, const Read& read) {
  try {
    return read(entry.value);
  } catch (BadValue& bad) {
    bad.part = "." + entry.key + bad.part;
    if (bad.line == 0) {
      bad.line = entry.line;
      bad.column = entry.column;
    }
    throw;
  }
}

[[noreturn]] void throw_unknown_key(const YamlEntry& entry, const YamlNode& map,
                                    DrafterMethod method) {
  std::vector<std::string_view> names{"method"};
  for (const EntryKey& key : entry_keys()) {
    if (key.method == method) names.push_back(key.name);
  }
  throw unknown_key(map, entry, names,
                    "the keys of method " + methods().write(method) + ": " + list_names(names));
}

// Names are printed in tables and are keys of files.
bool is_name(std::string_view name) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  return !name.empty() && name.front() != ' ' && name.back() != ' ' &&
         std::ranges::none_of(name, control);
}

DrafterSetting read_entry(const YamlNode& map, const std::string& directory) {
  const YamlEntry* method = find_entry(map, "method");
  if (method == nullptr) {
    throw BadValue(map, "a map with the key method: " + methods().type());
  }
  DrafterSetting setting = default_of(
      in_entry(*method, [&](const YamlNode& node) { return methods().read(node, directory); }));
  for (const YamlEntry& entry : map.entries) {
    if (entry.key == "method") continue;
    const auto key = std::ranges::find_if(entry_keys(), [&](const auto& k) {
      return k.method == setting.method && k.name == entry.key;
    });
    if (key == entry_keys().end()) throw_unknown_key(entry, map, setting.method);
    in_entry(entry, [&](const YamlNode& node) { key->read(setting, node, directory); });
  }
  for (const EntryKey& key : entry_keys()) {
    if (key.method == setting.method && key.required && find_entry(map, key.name) == nullptr) {
      throw BadValue(map, "the key " + std::string(key.name) + ": " + key.type);
    }
  }
  while (setting.path.size() > 1 && setting.path.ends_with('/')) setting.path.pop_back();
  if (setting.name && !is_name(*setting.name)) {
    in_entry(*find_entry(map, "name"), [](const YamlNode& node) {
      throw BadValue(node, "a name without line feeds and the like, that no space begins or ends");
    });
  }
  if (setting.min_match > setting.max_match) {
    const YamlEntry* given = find_entry(map, "min_match");
    if (given == nullptr) given = find_entry(map, "max_match");
    in_entry(*given, [&](const YamlNode& node) {
      const bool least = given->key == "min_match";
      throw BadValue(node, least
                               ? "at most max_match (" + std::to_string(setting.max_match) + ")"
                               : "at least min_match (" + std::to_string(setting.min_match) + ")");
    });
  }
  return setting;
}

}  // namespace

std::string DrafterList::type() { return "a list of drafters, each {method: ..., ...}"; }

std::vector<DrafterSetting> DrafterList::read(const YamlNode& node, const std::string& directory) {
  if (node.kind != YamlNode::Kind::list) throw BadValue(node, type());
  std::vector<DrafterSetting> drafters;
  for (const YamlNode& item : node.items) {
    try {
      DrafterSetting drafter = read_entry(item, directory);
      const bool second = std::ranges::any_of(
          drafters, [&](const auto& earlier) { return earlier.method == drafter.method; });
      if (second && drafter.method != DrafterMethod::model) {
        throw BadValue(find_entry(item, "method")->value,
                       "one drafter of this method at most (several may be of method model)");
      }
      const bool other_head =
          std::ranges::any_of(drafters, [](const auto& earlier) { return earlier.is_head(); });
      if (other_head && drafter.is_head()) {
        throw BadValue(find_entry(item, "method")->value,
                       "one head at most, of dflash, eagle3 and mtp");
      }
      drafters.push_back(std::move(drafter));
    } catch (BadValue& bad) {
      bad.part = "[" + std::to_string(drafters.size()) + "]" + bad.part;
      throw;
    }
  }
  return drafters;
}

std::string DrafterList::write(const std::vector<DrafterSetting>& drafters) {
  std::string text = "[";
  for (const DrafterSetting& drafter : drafters) {
    text += (text.size() > 1 ? ", {method: " : "{method: ") + methods().write(drafter.method);
    for (const EntryKey& key : entry_keys()) {
      if (key.method != drafter.method) continue;
      text += ", " + std::string(key.name) + ": " + key.write(drafter);
    }
    text += "}";
  }
  return text + "]";
}

std::vector<std::string> DrafterList::details() {
  std::vector<std::string> lines;
  for (const DrafterMethod method : methods().values) {
    lines.push_back("method: " + methods().write(method));
    for (const EntryKey& key : entry_keys()) {
      if (key.method != method) continue;
      const std::string value =
          key.required ? "required" : "default " + key.write(default_of(method));
      lines.push_back("  " + std::string(key.name) + ": " + key.type + "; " + value + ". " +
                      std::string(key.help));
    }
  }
  return lines;
}

}  // namespace paceline::io
