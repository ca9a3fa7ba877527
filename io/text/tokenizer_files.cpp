#include "io/text/tokenizer_files.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <tuple>

#include "io/text/files.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {

TokenizerFiles TokenizerFiles::read(const std::string& directory) {
  TokenizerFiles files;
  files.directory = directory;
  const auto read = [&](const char* name) -> std::optional<std::string> {
    const std::string path = directory + "/" + name;
    if (!std::filesystem::exists(path)) return std::nullopt;
    return text::read_file(path);
  };
  files.tokenizer = read("tokenizer.json");
  if (!files.tokenizer) files.tiktoken = read("tiktoken.model");
  files.config = read("tokenizer_config.json");
  files.special_tokens_map = read("special_tokens_map.json");
  files.added_tokens = read("added_tokens.json");
  for (const char* name : {"tokenizer.model", "tekken.json", "vocab.json"}) {
    if (files.other_kind.empty() && std::filesystem::exists(directory + "/" + name))
      files.other_kind = name;
  }
  return files;
}

bool TokenizerFiles::same_texts(const TokenizerFiles& other) const {
  const auto texts = [](const TokenizerFiles& f) {
    return std::tie(f.tokenizer, f.tiktoken, f.config, f.special_tokens_map, f.added_tokens);
  };
  return texts(*this) == texts(other);
}

std::string TokenizerFiles::absence() const {
  if (tokenizer || tiktoken) return "";
  const std::string path = directory + "/tokenizer.json";
  if (other_kind.empty()) return path + ": No such file or directory";
  return path + ": No such file or directory; " + other_kind +
         " alone is not read. Make tokenizer.json of it: python3 -c \"from transformers import "
         "AutoTokenizer as T; T.from_pretrained('" +
         directory + "').save_pretrained('" + directory + "')\"";
}

namespace text {
namespace {

/// Named special tokens, in the order in which `transformers` adds them.
constexpr std::array<std::string_view, 7> named_tokens = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

constexpr std::string_view both_differ = "; transformers 4 and 5 differ here";

std::string in_quotes(const std::string& text) { return "'" + text + "'"; }

}  // namespace

AddedToken read_added_token(const JsonNode& node, bool special) {
  AddedToken token;
  token.special = special;
  if (!node.value().is_object()) {
    token.content = node.string();
    return token;
  }
  token.content = node.at("content").string();
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = special || node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

std::vector<std::pair<JsonNode, AddedToken>> read_added_tokens_decoder(const JsonNode& config) {
  std::vector<std::pair<JsonNode, AddedToken>> tokens;
  const auto list = config.find("added_tokens_decoder");
  if (!list) return tokens;
  if (!list->value().is_object()) list->refuse("expected an object of id: token");
  for (const auto& [id, token] : list->value().items()) {
    const JsonNode node = list->at(id);
    if (id.empty() || id.size() > 9 || id.find_first_not_of("0123456789") != std::string::npos)
      throw DataError(node.where() + ": expected an id");
    if (!token.is_object()) node.refuse("expected an object");
    tokens.emplace_back(node, read_added_token(node, false));
    tokens.back().second.id = static_cast<TokenId>(std::stol(id));
  }
  return tokens;
}

std::vector<JsonNode> named_special_tokens(const JsonNode& config) {
  std::vector<JsonNode> nodes;
  for (const auto key : named_tokens) {
    if (const auto node = config.find(key)) nodes.push_back(*node);
  }
  if (const auto list = config.find("additional_special_tokens")) {
    for (std::size_t i = 0; i < list->array_size(); ++i) nodes.push_back(list->item(i));
  }
  return nodes;
}

/// Adds tokens to a tokenizer, one after another.
class OtherFiles::Additions {
 public:
  Additions(const Tokenizer::Parts& parts, std::size_t model_size, std::vector<AddedToken>& added)
      : parts_(parts), next_(static_cast<TokenId>(model_size)), added_(added) {
    for (std::size_t i = 0; i < added_.size(); ++i) {
      places_.emplace(added_[i].content, i);
      next_ = std::max(next_, added_[i].id + 1);
    }
  }

  [[nodiscard]] AddedToken* find(const std::string& content) {
    const auto place = places_.find(content);
    return place == places_.end() ? nullptr : &added_[place->second];
  }

  /// Declares a token. A known one keeps its id; others get the next ids, as the library counts.
  void declare(const JsonNode& node, AddedToken token) {
    if (const TokenId id = std::exchange(token.id, id_of(token.content)); token.id != id) {
      throw DataError(node.where() + ": token " + in_quotes(token.content) + " has id " +
                      std::to_string(token.id) + " by tokenizer.json; expected the same in both");
    }
    if (AddedToken* known = find(token.content)) {
      *known = std::move(token);
    } else {
      append(std::move(token));
    }
  }

  /// Makes a token special; adds it if it is not known.
  void name(AddedToken token) {
    if (token.content.empty()) return;
    if (AddedToken* known = find(token.content)) {
      known->special = true;
      return;
    }
    token.id = id_of(token.content);
    append(std::move(token));
  }

  /// Throws unless the token is special already: `transformers` 4 and 5 treat it differently.
  void require_special(const JsonNode& node, const std::string& content) {
    const AddedToken* known = find(content);
    if (known != nullptr && known->special) return;
    throw DataError(node.where() + ": expected " + in_quotes(content) +
                    " among the special added_tokens of tokenizer.json" + std::string(both_differ));
  }

  [[nodiscard]] std::size_t size() const { return added_.size(); }

 private:
  [[nodiscard]] TokenId id_of(const std::string& content) {
    if (const AddedToken* known = find(content)) return known->id;
    if (const auto found = parts_.ids.find(content); found != parts_.ids.end())
      return found->second;
    return next_;
  }

  void append(AddedToken token) {
    places_.emplace(token.content, added_.size());
    next_ = std::max(next_, token.id + 1);
    added_.push_back(std::move(token));
  }

  const Tokenizer::Parts& parts_;
  TokenId next_;  ///< id of the next unknown token
  std::vector<AddedToken>& added_;
  std::unordered_map<std::string, std::size_t> places_;
};

std::optional<OtherFiles::File> OtherFiles::parse(const std::string& path,
                                                  const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  File file{path, parse_json(*text, path)};
  if (!file.json.is_object()) file.root().refuse("expected an object");
  return file;
}

OtherFiles::OtherFiles(const TokenizerFiles& files)
    : config_(parse(files.directory + "/tokenizer_config.json", files.config)) {
  // A config with the list of added tokens has everything in one file.
  if (config_ && config_->root().find("added_tokens_decoder")) return;
  map_ = parse(files.directory + "/special_tokens_map.json", files.special_tokens_map);
  added_ = parse(files.directory + "/added_tokens.json", files.added_tokens);
}

std::optional<JsonNode> OtherFiles::setting(std::string_view key) const {
  if (map_ && map_->json.contains(std::string(key))) return map_->root().find(key);
  return config_ ? config_->root().find(key) : std::nullopt;
}

bool OtherFiles::flag(std::string_view key, bool otherwise) const {
  return config_ ? config_->root().flag(key, otherwise) : otherwise;
}

void OtherFiles::add_tokens(const Tokenizer::Parts& parts, std::size_t model_size,
                            std::vector<AddedToken>& added) const {
  Additions additions(parts, model_size, added);
  std::vector<std::pair<JsonNode, AddedToken>> declared;
  if (config_) declared = read_added_tokens_decoder(config_->root());
  std::vector<std::string> special_words;
  const auto listed = [&](const JsonNode& list, const auto& take) {
    for (std::size_t i = 0; i < list.array_size(); ++i) take(list.item(i));
  };
  const auto additional = setting("additional_special_tokens");
  const auto extra = setting("extra_special_tokens");
  if (added_) {
    for (const auto key : named_tokens) {
      if (const auto node = setting(key))
        special_words.push_back(read_added_token(*node, true).content);
    }
    for (const auto& list : {additional, extra}) {
      if (!list || !list->value().is_array()) continue;
      listed(*list, [&](const JsonNode& item) {
        special_words.push_back(read_added_token(item, true).content);
      });
    }
    for (const auto& [content, id] : added_->json.items()) {
      const JsonNode node(id, added_->path, "/" + content);
      AddedToken token;
      token.content = content;
      token.special = std::ranges::find(special_words, content) != special_words.end();
      token.normalized = !token.special;
      // For tokens that tokenizer.json lists, its own flags count.
      if (const AddedToken* known = additions.find(content)) token = *known;
      token.id = static_cast<TokenId>(node.integer(0, (std::int64_t{1} << 31) - 2));
      declared.emplace_back(node, std::move(token));
    }
  }
  std::ranges::stable_sort(declared,
                           [](const auto& a, const auto& b) { return a.second.id < b.second.id; });
  for (auto& [node, token] : declared) {
    if (token.content.empty()) node.refuse("expected a token with some text");
    additions.declare(node, std::move(token));
  }

  for (const auto key : named_tokens) {
    if (const auto node = setting(key)) additions.name(read_added_token(*node, true));
  }
  const std::size_t before = additions.size();
  if (extra && extra->value().is_object()) {
    for (const auto& [key, value] : extra->value().items()) {
      const JsonNode node(value, config_ ? config_->path : map_->path, extra->path() + "/" + key);
      additions.name(read_added_token(node, true));
    }
  }
  const auto take_list = [&](const std::optional<JsonNode>& list, bool adds) {
    if (!list || !list->value().is_array()) return;
    listed(*list, [&](const JsonNode& item) {
      const AddedToken token = read_added_token(item, true);
      if (adds && item.value().is_string() && additions.find(token.content) == nullptr) {
        additions.name(token);
      } else if (!token.content.empty()) {
        additions.require_special(item, token.content);
      }
    });
  };
  // Once one list has added a token, versions disagree about the order of another list's tokens.
  take_list(extra, true);
  take_list(additional, additions.size() == before);
  if (map_ && config_) take_list(config_->root().find("additional_special_tokens"), false);
  for (const std::optional<File>* file : {&config_, &map_}) {
    if (!*file) continue;
    for (const auto& [key, value] : (*file)->json.items()) {
      const bool named = std::ranges::find(named_tokens, key) != named_tokens.end();
      if (named || !key.ends_with("_token") || !value.is_string()) continue;
      const JsonNode node(value, (*file)->path, "/" + key);
      if (!node.string().empty()) additions.require_special(node, node.string());
    }
  }
}

void OtherFiles::check(const JsonNode& root, Tokenizer::Parts& parts) const {
  if (!config_) return;
  if (const auto split = config_->root().find("split_special_tokens"); split && split->boolean()) {
    split->refuse("supported: false");
  }
  if (const auto versions = config_->root().find("fast_tokenizer_files")) {
    versions->refuse("supported: tokenizer.json for every version of transformers");
  }
  if (parts.byte_fallback) {
    check_spaces(parts);
  } else if (const JsonNode cut = root.at("pre_tokenizer");
             cut.at("type").string() == "ByteLevel" &&
             cut.flag("add_prefix_space", true) != flag("add_prefix_space", false)) {
    const bool own = cut.flag("add_prefix_space", true);
    throw DataError(config_->path + ": /add_prefix_space: " + (own ? "false or absent" : "true") +
                    ", in /pre_tokenizer of tokenizer.json " + (own ? "true" : "false") +
                    "; expected the same in both" + std::string(both_differ));
  }
  check_template(parts);
}

/// LlamaTokenizer of `transformers` 5 makes its own pre-tokenizer from settings in another file;
/// version 4 does so only if add_prefix_space is set.
void OtherFiles::check_spaces(Tokenizer::Parts& parts) const {
  const auto type = config_->root().find("tokenizer_class");
  if (!type || !type->string().starts_with("LlamaTokenizer")) return;
  const bool prefix = flag("add_prefix_space", true);
  const bool set = config_->root().find("add_prefix_space").has_value();
  const auto scheme = [&](bool legacy, const char* as_legacy) -> std::string {
    return !prefix ? "never" : legacy ? as_legacy : "first";
  };
  std::string here = parts.normalizer.prepends() ? "Prepend" : "never";
  if (parts.metaspace) {
    here = parts.metaspace->prepend == Metaspace::Prepend::always  ? "always"
           : parts.metaspace->prepend == Metaspace::Prepend::first ? "first"
                                                                   : "never";
  }
  const std::string in_5 = scheme(flag("legacy", false), "always");
  const std::string in_4 = set ? scheme(flag("legacy", true), "Prepend") : here;
  if (here == in_4 && here == in_5) return;
  const std::string what = config_->path + ": LlamaTokenizer puts spaces in front of text '" +
                           (here == in_5 ? in_4 : in_5) + "' by add_prefix_space and legacy, '" +
                           here + "' by tokenizer.json";
  if (here != in_4 && here != in_5) throw DataError(what + "; expected the same in both");
  parts.warnings.push_back(what + "; text is encoded by the latter, as transformers " +
                           (here == in_4 ? "4 does and 5 does not" : "5 does and 4 does not"));
}

/// LlamaTokenizer of `transformers` 4 makes its own template; version 5 uses tokenizer.json's.
void OtherFiles::check_template(Tokenizer::Parts& parts) const {
  const auto type = config_->root().find("tokenizer_class");
  if (!type || !type->string().starts_with("LlamaTokenizer")) return;
  const auto differs = [&](const char* key, const char* named, bool otherwise,
                           const std::vector<TokenId>& here) {
    const bool adds = flag(key, otherwise);
    const auto token = setting(named);
    const AddedToken which = token ? read_added_token(*token, true) : AddedToken();
    const auto known = parts.ids.find(which.content);
    const bool same =
        !adds ? here.empty() : known != parts.ids.end() && here == std::vector{known->second};
    if (same) return;
    parts.special_doubt = config_->path + ": /" + key + ": " + (adds ? "true" : "false") +
                          ", but tokenizer.json's post_processor adds " +
                          (here.empty() ? "nothing" : "token " + std::to_string(here.front())) +
                          " there; expected the same in both" + std::string(both_differ);
  };
  differs("add_bos_token", "bos_token", true, parts.prefix);
  differs("add_eos_token", "eos_token", false, parts.suffix);
}

}  // namespace text
}  // namespace paceline::io
