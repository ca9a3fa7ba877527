// Reads tokenizer.json into the parts of a Tokenizer, refusing what would tokenize differently.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "io/text/byte_level.hpp"
#include "io/text/json_node.hpp"
#include "io/text/parts.hpp"
#include "io/text/unicode.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io::text {
namespace {

using Parts = Tokenizer::Parts;

constexpr std::int64_t highest_id = (std::int64_t{1} << 31) - 2;

/// `expected` names what is supported, for refusals.
void require_type(const JsonNode& node, std::string_view type, const std::string& expected) {
  if (node.at("type").string() != type) node.at("type").refuse(expected);
}

void read_normalizer(const JsonNode& node, Parts& parts) {
  const std::string supported = "supported: \"NFC\", a \"Sequence\" of it, null";
  const std::string& type = node.at("type").string();
  if (type == "NFC") {
    parts.nfc = true;
  } else if (type == "Sequence") {
    const JsonNode list = node.at("normalizers");
    for (std::size_t i = 0; i < list.array_size(); ++i) {
      require_type(list.item(i), "NFC", supported);
      parts.nfc = true;
    }
  } else {
    node.at("type").refuse(supported);
  }
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

/// The vocabulary as written, by spelling. Checks ids; does not yet know added tokens.
void read_vocab(const JsonNode& node, Parts& parts,
                std::vector<std::pair<TokenId, std::string>>& by_id) {
  if (!node.value().is_object()) node.refuse("expected an object of token: id");
  parts.ids.reserve(node.value().size());
  by_id.reserve(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    // The common case needs no path.
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > highest_id) {
      (void)JsonNode(id, parts.name, node.path() + "/" + token).integer(0, highest_id);
    }
    parts.ids.emplace(token, id.get<TokenId>());
    by_id.emplace_back(id.get<TokenId>(), token);
  }
  std::sort(by_id.begin(), by_id.end());
  const auto twice = std::adjacent_find(
      by_id.begin(), by_id.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
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

void read_model(const JsonNode& node, Parts& parts,
                std::vector<std::pair<TokenId, std::string>>& by_id) {
  const std::optional<JsonNode> type = node.find("type");
  if (type && type->string() != "BPE") type->refuse("supported: \"BPE\" on bytes");
  if (!type && !node.find("merges")) node.at("type").refuse("");  // "expected a member 'type'"
  if (const auto dropout = node.find("dropout")) {
    if (!dropout->value().is_number() || dropout->value().get<double>() != 0.0) {
      dropout->refuse("supported: null (dropout makes tokens random)");
    }
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto found = node.find(affix);
    if (found && !found->string().empty()) found->refuse("supported: null");
  }
  if (node.flag("byte_fallback", false)) {
    node.at("byte_fallback").refuse("supported: false (byte-level BPE has a token for every byte)");
  }
  parts.bpe.ignore_merges = node.flag("ignore_merges", false);

  const JsonNode vocab = node.at("vocab");
  read_vocab(vocab, parts, by_id);
  read_merges(node.at("merges"), parts);
  for (unsigned b = 0; b < 256; ++b) {
    const std::string spelling = characters_of_bytes(std::string(1, static_cast<char>(b)));
    const auto found = parts.ids.find(spelling);
    if (found == parts.ids.end()) {
      throw DataError(vocab.where() + ": byte " + std::to_string(b) + " has no token ('" +
                      spelling + "'): supported: byte-level BPE, which has one for each of 256");
    }
    parts.bpe.byte_token[b] = found->second;
  }
  if (parts.bpe.ignore_merges) {
    for (const auto& [spelling, id] : parts.ids) {
      if (auto bytes = bytes_of_characters(spelling))
        parts.bpe.vocab.emplace(*std::move(bytes), id);
    }
  }
}

/// Added tokens, whose ids must be those that the `tokenizers` library gives them: a token of the
/// model keeps the model's, the others are counted on from the end.
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
        std::any_of(added.begin(), added.end(),
                    [&](const AddedToken& a) { return a.id == token.id; })) {
      item.refuse("'" + token.content + "' is listed twice");
    }
    highest = std::max(highest, expected);
    parts.ids.emplace(token.content, token.id);
    added.push_back(std::move(token));
  }
  return added;
}

/// The decoder reads every token, added ones too, through the byte-level alphabet, and takes it as
/// it is when that does not apply.
std::string decoded_bytes(const std::string& spelling) {
  return bytes_of_characters(spelling).value_or(spelling);
}

void fill_tokens(const JsonNode& root, Parts& parts,
                 std::vector<std::pair<TokenId, std::string>>& by_id,
                 const std::vector<AddedToken>& added) {
  std::int64_t highest = by_id.empty() ? -1 : by_id.back().first;
  for (const AddedToken& token : added) highest = std::max<std::int64_t>(highest, token.id);
  const auto count = static_cast<std::int64_t>(by_id.size() + added.size());
  if (highest > 16 * count + 1024) {
    throw DataError(root.where() + ": the highest id is " + std::to_string(highest) + " but only " +
                    std::to_string(count) + " tokens are listed");
  }
  parts.tokens.resize(static_cast<std::size_t>(highest + 1));
  for (auto& [id, spelling] : by_id) {
    Parts::Token& token = parts.tokens[static_cast<std::size_t>(id)];
    token.bytes = decoded_bytes(spelling);
    token.spelling = std::move(spelling);
  }
  for (const AddedToken& added_token : added) {
    std::string form = added_token.content;
    if (added_token.normalized && parts.nfc) form = normalize_nfc(form);
    Parts::Token& token = parts.tokens[static_cast<std::size_t>(added_token.id)];
    token = {added_token.content, decoded_bytes(form), added_token.special};
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
    } else if (type.string() != "ByteLevel") {  // ByteLevel changes offsets alone
      type.refuse("supported: \"TemplateProcessing\", \"ByteLevel\", \"Sequence\" of them, null");
    }
  };
  if (node.at("type").string() != "Sequence") return one(node);
  const JsonNode list = node.at("processors");
  for (std::size_t i = 0; i < list.array_size(); ++i) one(list.item(i));
}

}  // namespace

std::unique_ptr<const Parts> read_tokenizer(std::string_view json, const std::string& name) {
  const Json document = parse_json(json, name);
  auto parts = std::make_unique<Parts>();
  parts->name = name;
  const JsonNode root(document, parts->name, "");

  std::vector<std::pair<TokenId, std::string>> by_id;
  read_model(root.at("model"), *parts, by_id);
  if (const auto node = root.find("normalizer")) read_normalizer(*node, *parts);
  read_pre_tokenizer(root.at("pre_tokenizer"), *parts);
  require_type(root.at("decoder"), "ByteLevel", "supported: \"ByteLevel\"");
  std::vector<AddedToken> added;
  if (const auto node = root.find("added_tokens")) added = read_added_tokens(*node, *parts);
  fill_tokens(root, *parts, by_id, added);
  if (const auto node = root.find("post_processor")) read_post_processor(*node, *parts);
  return parts;
}

}  // namespace paceline::io::text
