// Reads tokenizer.json into the parts of a Tokenizer; refuses what would tokenize differently here.
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "io/config/utf8.hpp"
#include "io/text/byte_level.hpp"
#include "io/text/json_node.hpp"
#include "io/text/parts.hpp"
#include "io/text/stages.hpp"
#include "io/text/tokenizer_files.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io::text {
namespace {

using Parts = Tokenizer::Parts;

constexpr std::int64_t highest_id = (std::int64_t{1} << 31) - 2;
/// Bounds on how much rewriting can lengthen a text. Real files have one step of each kind.
constexpr std::size_t longest_replacement = 4;  // times the length of the replaced text
constexpr std::size_t most_rewrites = 4;
constexpr std::size_t longest_prepended = 64;  // bytes

/// Checks a node's type. `expected`: the supported value, for errors.
void require_type(const JsonNode& node, std::string_view type, const std::string& expected) {
  if (node.at("type").string() != type) node.at("type").refuse(expected);
}

std::string read_character(const JsonNode& node) {
  const std::string& text = node.string();
  if (text.empty() || decode_utf8(text, 0).size != text.size()) node.refuse("expected a character");
  return text;
}

/// The text that a Replace looks for, and its replacement.
std::pair<std::string, std::string> read_replace(const JsonNode& node) {
  const JsonNode pattern = node.at("pattern");
  const std::optional<JsonNode> text = pattern.find("String");
  if (!text) pattern.refuse("supported: {\"String\": ...}");
  if (text->string().empty()) text->refuse("expected some text");
  const JsonNode content = node.at("content");
  if (content.string().size() > longest_replacement * text->string().size()) {
    content.refuse("supported: at most four times as long as what it replaces");
  }
  return {text->string(), content.string()};
}

void read_normalizer(const JsonNode& node, Parts& parts) {
  const std::string& type = node.at("type").string();
  if (type == "NFC") {
    parts.normalizer.add_nfc();
  } else if (type == "Prepend") {
    const std::string& text = node.at("prepend").string();
    if (text.size() > longest_prepended) node.at("prepend").refuse("supported: at most 64 bytes");
    if (!text.empty()) parts.normalizer.add_prepend(text);
  } else if (type == "Replace") {
    auto [what, with] = read_replace(node);
    parts.normalizer.add_replace(std::move(what), std::move(with));
  } else if (type == "Sequence") {
    const JsonNode list = node.at("normalizers");
    if (list.array_size() > most_rewrites) list.refuse("supported: at most 4 steps");
    for (std::size_t i = 0; i < list.array_size(); ++i) {
      if (list.item(i).at("type").string() == "Sequence") {
        list.item(i).at("type").refuse("expected no sequence within a sequence");
      }
      read_normalizer(list.item(i), parts);
    }
  } else {
    node.at("type").refuse(
        "supported: \"NFC\", \"Prepend\", \"Replace\", a \"Sequence\" of them, null");
  }
}

void read_metaspace(const JsonNode& node, Parts& parts) {
  Metaspace metaspace;
  metaspace.replacement = read_character(node.at("replacement"));
  metaspace.cuts = node.flag("split", true);
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string& name = scheme->string();
    if (name == "first") {
      metaspace.prepend = Metaspace::Prepend::first;
    } else if (name == "never") {
      metaspace.prepend = Metaspace::Prepend::never;
    } else if (name != "always") {
      scheme->refuse("supported: \"always\", \"first\", \"never\"");
    }
  }
  if (!node.flag("add_prefix_space", true) && metaspace.prepend != Metaspace::Prepend::never) {
    node.at("add_prefix_space").refuse("expected prepend_scheme \"never\" beside it");
  }
  parts.metaspace = std::move(metaspace);
}

void read_byte_level(const JsonNode& node, Parts& parts) {
  if (node.flag("add_prefix_space", true)) parts.space_before = parts.patterns.size();
  if (node.flag("use_regex", true)) parts.patterns.emplace_back(gpt2_pattern, node.where());
}

void read_split(const JsonNode& node, Parts& parts) {
  if (node.at("behavior").string() != "Isolated") {
    node.at("behavior").refuse("supported: \"Isolated\"");
  }
  if (node.flag("invert", false)) node.at("invert").refuse("supported: false");
  const JsonNode pattern = node.at("pattern");
  const std::optional<JsonNode> regex = pattern.find("Regex");
  if (!regex) pattern.refuse("supported: {\"Regex\": ...}");
  parts.patterns.emplace_back(regex->string(), regex->where());
}

void read_pre_tokenizer(const JsonNode& node, Parts& parts) {
  const std::string& type = node.at("type").string();
  if (type == "ByteLevel") return read_byte_level(node, parts);
  if (type != "Sequence") {
    node.at("type").refuse(
        "supported: \"ByteLevel\", or \"Sequence\" of \"Split\"s and a \"ByteLevel\" at the end");
  }
  constexpr std::size_t most_steps = 16;
  const JsonNode list = node.at("pretokenizers");
  const std::size_t n = list.array_size();
  if (n > most_steps) list.refuse("supported: at most 16 steps");
  for (std::size_t i = 0; i < n; ++i) {
    const JsonNode step = list.item(i);
    const JsonNode step_type = step.at("type");
    if (step_type.string() == "Split" && i + 1 < n) {
      read_split(step, parts);
    } else if (step_type.string() == "ByteLevel" && i + 1 == n) {
      return read_byte_level(step, parts);
    } else {
      step_type.refuse("supported: \"Split\"s and a \"ByteLevel\" at the end");
    }
  }
  list.refuse("expected a \"ByteLevel\" at the end");
}

void read_character_pre_tokenizer(const JsonNode& node, Parts& parts) {
  require_type(node, "Metaspace", "supported with byte_fallback: \"Metaspace\", null");
  read_metaspace(node, parts);
}

/// Reads the vocabulary as spelled, and checks ids. Added tokens are not known yet.
void read_vocab(const JsonNode& node, Parts& parts,
                std::vector<std::pair<TokenId, std::string>>& by_id) {
  if (!node.value().is_object()) node.refuse("expected an object of token: id");
  parts.ids.reserve(node.value().size());
  by_id.reserve(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    // The usual case needs no path.
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > highest_id) {
      (void)JsonNode(id, parts.name, node.path() + "/" + token).integer(0, highest_id);
    }
    parts.ids.emplace(token, id.get<TokenId>());
    by_id.emplace_back(id.get<TokenId>(), token);
  }
  std::ranges::sort(by_id);
  const auto twice = std::ranges::adjacent_find(by_id, {}, &std::pair<TokenId, std::string>::first);
  if (twice != by_id.end()) {
    throw DataError(node.where() + ": tokens '" + twice->second + "' and '" +
                    std::next(twice)->second + "' both have id " + std::to_string(twice->first));
  }
}

std::pair<std::string, std::string> read_merge(const Json& merge) {
  if (merge.is_array()) {
    if (merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
  } else if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  return {};
}

void read_merges(const JsonNode& node, Parts& parts) {
  const std::size_t n = node.array_size();
  parts.bpe.merges.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto [left, right] = read_merge(node.value()[i]);
    if (left.empty() || right.empty()) {
      node.item(i).refuse("expected \"a b\" or [\"a\", \"b\"]");
    }
    const auto require = [&](const std::string& token) {
      const auto found = parts.ids.find(token);
      if (found == parts.ids.end()) {
        node.item(i).refuse("token '" + token + "' is not in /model/vocab");
      }
      return found->second;
    };
    const TokenId left_id = require(left);
    const TokenId right_id = require(right);
    parts.bpe.merges.insert(left_id, right_id,
                            {static_cast<std::uint32_t>(i), require(left + right)});
  }
}

/// The spelling of a byte's token in the vocabulary.
std::string spelling_of_byte(unsigned byte, bool fallback) {
  if (!fallback) return characters_of_bytes(std::string(1, static_cast<char>(byte)));
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4U], digits[byte & 15U], '>'};
}

/// Reads the tokens of bytes. Every byte must have one, so that every text can be encoded.
void read_bytes(const JsonNode& vocab, Parts& parts) {
  for (unsigned b = 0; b < 256; ++b) {
    const std::string spelling = spelling_of_byte(b, parts.byte_fallback);
    const auto found = parts.ids.find(spelling);
    if (found == parts.ids.end()) {
      throw DataError(vocab.where() + ": byte " + std::to_string(b) + " has no token ('" +
                      spelling +
                      "'): supported: byte-level BPE, or BPE with byte_fallback, which "
                      "have one for each of 256");
    }
    parts.bpe.byte_token[b] = found->second;
  }
}

void read_characters(Parts& parts) {
  for (const auto& [spelling, id] : parts.ids) {
    if (spelling.empty()) continue;
    const CodePoint c = decode_utf8(spelling, 0);
    if (c.size == spelling.size()) parts.bpe.characters.emplace(c.value, id);
  }
}

void read_words(Parts& parts) {
  for (const auto& [spelling, id] : parts.ids) {
    if (parts.byte_fallback) {
      parts.bpe.vocab.emplace(spelling, id);
    } else if (auto bytes = bytes_of_characters(spelling)) {
      parts.bpe.vocab.emplace(*std::move(bytes), id);
    }
  }
}

void read_model(const JsonNode& node, Parts& parts,
                std::vector<std::pair<TokenId, std::string>>& by_id) {
  const std::optional<JsonNode> type = node.find("type");
  if (type && type->string() != "BPE")
    type->refuse("supported: \"BPE\" on bytes, or with byte_fallback");
  if (!type && !node.find("merges")) node.at("type").refuse("");  // says "expected a member 'type'"
  if (const auto dropout = node.find("dropout")) {
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0.0) {
      dropout->refuse("supported: null (dropout makes tokens random)");
    }
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto found = node.find(affix);
    if (found && !found->string().empty()) found->refuse("supported: null");
  }
  parts.byte_fallback = node.flag("byte_fallback", false);
  parts.bpe.ignore_merges = node.flag("ignore_merges", false);

  const JsonNode vocab = node.at("vocab");
  read_vocab(vocab, parts, by_id);
  read_merges(node.at("merges"), parts);
  read_bytes(vocab, parts);
  if (parts.byte_fallback) read_characters(parts);
  if (parts.bpe.ignore_merges) read_words(parts);
}

/// Reads added tokens. Their ids must be those of the `tokenizers` library: a token of the model
/// keeps its id, others are counted on from the end.
std::vector<AddedToken> read_added_tokens(const JsonNode& node, Parts& parts) {
  std::vector<AddedToken> added;
  const auto model_size = static_cast<std::int64_t>(parts.ids.size());
  std::int64_t highest = -1;
  for (std::size_t i = 0; i < node.array_size(); ++i) {
    const JsonNode item = node.item(i);
    AddedToken token;
    token.content = item.at("content").string();
    if (token.content.empty()) item.at("content").refuse("expected some text");
    token.id = static_cast<TokenId>(item.at("id").integer(0, highest_id));
    token.single_word = item.flag("single_word", false);
    token.lstrip = item.flag("lstrip", false);
    token.rstrip = item.flag("rstrip", false);
    token.special = item.flag("special", false);
    token.normalized = item.flag("normalized", !token.special);

    const auto known = parts.ids.find(token.content);
    const std::int64_t expected =
        known != parts.ids.end() ? known->second : std::max(highest + 1, model_size);
    if (token.id != expected) {
      item.at("id").refuse("expected " + std::to_string(expected) + " for '" + token.content +
                           "': ids of added tokens follow the model's without gaps");
    }
    if (known != parts.ids.end() &&
        std::ranges::any_of(added, [&](const AddedToken& a) { return a.id == token.id; })) {
      item.refuse("'" + token.content + "' is listed twice");
    }
    highest = std::max(highest, expected);
    parts.ids.emplace(token.content, token.id);
    added.push_back(std::move(token));
  }
  return added;
}

/// The decoder's steps for a vocabulary spelled in characters, in the library's order.
struct CharacterDecoder {
  std::vector<std::pair<std::string, std::string>> replacements;

  /// The byte of a token spelled <0xE2> after replacements; nullopt: it is no such token.
  [[nodiscard]] static std::optional<char> byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(&text[3], &text[5], byte, 16);
    if (error != std::errc() || end != &text[5]) return std::nullopt;
    return static_cast<char>(byte);
  }

  void fill(Parts::Token& token, std::string form) const {
    for (const auto& [what, with] : replacements) form = replace_all(form, what, with);
    if (const auto byte = byte_of(form)) {
      form = *byte;
      token.fallback = true;
    }
    token.bytes = std::move(form);
  }
};

CharacterDecoder read_character_decoder(const JsonNode& node, Parts& parts) {
  const std::string supported =
      "supported with byte_fallback: a \"Sequence\" of \"Replace\"s, \"ByteFallback\", "
      "\"Fuse\" and perhaps a \"Strip\" of spaces in front";
  require_type(node, "Sequence", supported);
  const JsonNode list = node.at("decoders");
  const std::size_t n = list.array_size();
  if (n > most_rewrites + 3) list.refuse("supported: at most 7 steps");
  CharacterDecoder decoder;
  std::size_t i = 0;
  const auto type_at = [&] { return i < n ? list.item(i).at("type").string() : std::string(); };
  for (; type_at() == "Replace"; ++i) decoder.replacements.push_back(read_replace(list.item(i)));
  for (const char* type : {"ByteFallback", "Fuse"}) {
    if (i == n) list.refuse(supported);
    require_type(list.item(i++), type, supported);
  }
  if (type_at() == "Strip") {
    const JsonNode strip = list.item(i++);
    if (strip.at("content").string() != " ") strip.at("content").refuse("supported: \" \"");
    if (strip.at("stop").integer(0, highest_id) != 0) strip.at("stop").refuse("supported: 0");
    parts.stripped = static_cast<std::size_t>(strip.at("start").integer(0, highest_id));
  }
  if (i < n) list.item(i).at("type").refuse(supported);
  return decoder;
}

void fill_tokens(const JsonNode& root, Parts& parts,
                 std::vector<std::pair<TokenId, std::string>>& by_id,
                 const std::vector<AddedToken>& added) {
  const JsonNode decoder = root.at("decoder");
  std::optional<CharacterDecoder> characters;
  if (parts.byte_fallback) {
    characters = read_character_decoder(decoder, parts);
  } else {
    require_type(decoder, "ByteLevel", "supported: \"ByteLevel\"");
  }
  // Decoders read added tokens like others, in the form that is searched in text.
  const auto fill = [&](Parts::Token& token, const std::string& form) {
    if (characters) return characters->fill(token, form);
    token.bytes = bytes_of_characters(form).value_or(form);
  };
  std::int64_t highest = by_id.empty() ? -1 : by_id.back().first;
  parts.model_end = static_cast<std::size_t>(highest + 1);
  for (const AddedToken& token : added) highest = std::max<std::int64_t>(highest, token.id);
  const auto count = static_cast<std::int64_t>(by_id.size() + added.size());
  if (highest > 16 * count + 1024) {
    throw DataError(root.where() + ": the highest id is " + std::to_string(highest) + " but only " +
                    std::to_string(count) + " tokens are listed");
  }
  parts.tokens.resize(static_cast<std::size_t>(highest + 1));
  for (auto& [id, spelling] : by_id) {
    Parts::Token& token = parts.tokens[static_cast<std::size_t>(id)];
    fill(token, spelling);
    token.spelling = std::move(spelling);
  }
  for (const AddedToken& added_token : added) {
    std::string form = added_token.content;
    if (added_token.normalized) form = parts.normalizer.run(form);
    if (form.empty()) {
      throw DataError(root.where() + "added_tokens: nothing is left of '" + added_token.content +
                      "' once it is normalized");
    }
    Parts::Token& token = parts.tokens[static_cast<std::size_t>(added_token.id)];
    token = {added_token.content, "", added_token.special};
    fill(token, form);
    (added_token.normalized ? parts.normalized_finder : parts.raw_finder)
        .add(added_token, std::move(form));
  }
}

void read_template(const JsonNode& node, Parts& parts) {
  const JsonNode single = node.at("single");
  bool past_text = false;
  for (std::size_t i = 0; i < single.array_size(); ++i) {
    const JsonNode piece = single.item(i);
    if (const auto sequence = piece.find("Sequence")) {
      if (sequence->at("id").string() != "A" || past_text) {
        piece.refuse("expected the sequence \"A\", once");
      }
      past_text = true;
      continue;
    }
    const std::string& name = piece.at("SpecialToken").at("id").string();
    const JsonNode ids = node.at("special_tokens").at(name).at("ids");
    for (std::size_t k = 0; k < ids.array_size(); ++k) {
      const auto id = static_cast<TokenId>(
          ids.item(k).integer(0, static_cast<std::int64_t>(parts.tokens.size()) - 1));
      (past_text ? parts.suffix : parts.prefix).push_back(id);
    }
  }
  if (!past_text) single.refuse("expected the sequence \"A\"");
}

void read_post_processor(const JsonNode& node, Parts& parts) {
  const auto one = [&](const JsonNode& step) {
    const JsonNode type = step.at("type");
    if (type.string() == "TemplateProcessing") {
      if (!parts.prefix.empty() || !parts.suffix.empty()) step.refuse("supported: one template");
      read_template(step, parts);
    } else if (type.string() != "ByteLevel") {  // ByteLevel changes only offsets
      type.refuse("supported: \"TemplateProcessing\", \"ByteLevel\", \"Sequence\" of them, null");
    }
  };
  if (node.at("type").string() != "Sequence") return one(node);
  const JsonNode list = node.at("processors");
  for (std::size_t i = 0; i < list.array_size(); ++i) one(list.item(i));
}

}  // namespace

std::unique_ptr<const Parts> read_tokenizer(std::string_view json, const std::string& name,
                                            const TokenizerFiles* files) {
  const Json document = parse_json(json, name);
  auto parts = std::make_unique<Parts>();
  parts->name = name;
  const JsonNode root(document, parts->name, "");

  std::vector<std::pair<TokenId, std::string>> by_id;
  read_model(root.at("model"), *parts, by_id);
  if (const auto node = root.find("normalizer")) read_normalizer(*node, *parts);
  if (parts->byte_fallback) {
    if (const auto node = root.find("pre_tokenizer")) read_character_pre_tokenizer(*node, *parts);
  } else {
    read_pre_tokenizer(root.at("pre_tokenizer"), *parts);
  }
  std::vector<AddedToken> added;
  if (const auto node = root.find("added_tokens")) added = read_added_tokens(*node, *parts);
  std::optional<OtherFiles> others;
  if (files != nullptr) {
    others.emplace(*files);
    others->add_tokens(*parts, by_id.size(), added);
    for (const AddedToken& token : added) parts->ids.emplace(token.content, token.id);
  }
  fill_tokens(root, *parts, by_id, added);
  if (const auto node = root.find("post_processor")) read_post_processor(*node, *parts);
  if (others) others->check(root, *parts);
  return parts;
}

}  // namespace paceline::io::text
