// Reads tiktoken.model, as of Moonlight and Kimi-K2, into the parts of a Tokenizer.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/text/base64.hpp"
#include "io/text/byte_level.hpp"
#include "io/text/json_node.hpp"
#include "io/text/parts.hpp"
#include "io/text/tokenizer_files.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/parse_number.hpp"

namespace paceline::io::text {
namespace {

using Parts = Tokenizer::Parts;

constexpr std::size_t longest_token = 1024;  // bytes; every cut of a token is looked up
constexpr TokenId reserved_tokens = 256;     // after the ranks, with those that have no name

/// The pattern of their Python class: runs of Han; words of other letters, with English endings,
/// maybe after a mark or a space; numbers of up to three digits; marks; white space. To exclude Han
/// from the words' classes, [...&&[^\p{Han}]], the classes here name all that they do not contain.
constexpr const char* pattern =
    R"([\p{sc:Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)"
    R"([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)"
    R"([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Tokens by rank, which is their id: each rank from 0 to n - 1 occurs once.
std::vector<std::string> read_ranks(std::string_view text, const std::string& name) {
  struct Line {
    std::string token;
    std::uint32_t rank;
    std::size_t number;
  };
  std::vector<Line> lines;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const auto fail = [&](const std::string& what) {
      throw DataError(name + ": line " + std::to_string(number) + ": " + what);
    };
    const std::size_t space = std::min(line.find(' '), line.size());
    std::optional<std::string> token = from_base64(line.substr(0, space));
    const auto rank = parse_number<std::uint32_t>(line.substr(std::min(space + 1, line.size())));
    if (!token || !rank) fail("expected a token in base64, a space and its rank");
    if (token->size() > longest_token)
      fail("a token of " + std::to_string(token->size()) + " bytes; supported: at most 1024");
    lines.push_back({*std::move(token), *rank, number});
  }
  std::vector<std::string> tokens(lines.size());
  for (Line& line : lines) {
    const auto fail = [&](const std::string& what) {
      throw DataError(name + ": line " + std::to_string(line.number) + ": " + what);
    };
    if (line.rank >= tokens.size()) {
      fail("rank " + std::to_string(line.rank) + "; expected the ranks of " +
           std::to_string(tokens.size()) + " tokens to follow one another from 0");
    }
    if (!tokens[line.rank].empty()) fail("rank " + std::to_string(line.rank) + " a second time");
    tokens[line.rank] = std::move(line.token);
  }
  return tokens;
}

/// Fills in merges as tiktoken uses them: neighbours become the token that both spell, lowest rank
/// first. So each cut of a token into two tokens is a merge, with the token's rank. A word that is
/// a token becomes it, even if merges differ.
void fill_bpe(const std::vector<std::string>& tokens, const std::string& name, Bpe& bpe) {
  bpe.ignore_merges = true;
  bpe.vocab.reserve(tokens.size());
  std::unordered_map<std::string_view, TokenId> ids(tokens.size());
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const auto [known, added] = ids.emplace(tokens[id], static_cast<TokenId>(id));
    if (!added) {
      throw DataError(name + ": ranks " + std::to_string(known->second) + " and " +
                      std::to_string(id) + " have the same token");
    }
    bpe.vocab.emplace(tokens[id], static_cast<TokenId>(id));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&text, 1));
    if (found == ids.end()) {
      throw DataError(name + ": byte " + std::to_string(byte) +
                      " has no token; expected one for each of 256");
    }
    bpe.byte_token[byte] = found->second;
  }
  std::vector<std::array<TokenId, 3>> merges;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string_view token = tokens[id];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(token.substr(cut));
      if (right == ids.end()) continue;
      merges.push_back({left->second, right->second, static_cast<TokenId>(id)});
    }
  }
  bpe.merges.reserve(merges.size());
  for (const auto& [left, right, id] : merges)
    bpe.merges.insert(left, right, {static_cast<std::uint32_t>(id), id});
}

/// The special tokens, with ids from `first` on. Those that tokenizer_config.json does not name get
/// reserved names.
std::vector<AddedToken> read_special_tokens(const JsonNode& config, TokenId first) {
  std::vector<AddedToken> tokens(reserved_tokens);
  for (TokenId i = 0; i < reserved_tokens; ++i) {
    AddedToken& token = tokens[static_cast<std::size_t>(i)];
    token.id = first + i;
    token.content = "<|reserved_token_" + std::to_string(token.id) + "|>";
    token.special = true;
  }
  for (const auto& [node, named] : read_added_tokens_decoder(config)) {
    if (named.id < first || named.id >= first + reserved_tokens) {
      throw DataError(node.where() + ": expected an id from " + std::to_string(first) + " to " +
                      std::to_string(first + reserved_tokens - 1) +
                      ", as they follow the ranks of tiktoken.model");
    }
    if (named.content.empty()) node.refuse("expected a token with some text");
    if (named.single_word || named.lstrip || named.rstrip)
      node.refuse("supported: false for single_word, lstrip and rstrip");
    tokens[static_cast<std::size_t>(named.id - first)] = named;
  }
  return tokens;
}

}  // namespace

std::unique_ptr<const Parts> read_tiktoken(const TokenizerFiles& files) {
  auto parts = std::make_unique<Parts>();
  parts->name = files.directory + "/tiktoken.model";
  const std::string config_name = files.directory + "/tokenizer_config.json";
  if (!files.config) {
    throw DataError(config_name +
                    ": No such file or directory; tiktoken.model does not say which its special "
                    "tokens are");
  }
  const Json config = parse_json(*files.config, config_name);
  const JsonNode root(config, config_name, "");
  const JsonNode kind = root.at("tokenizer_class");
  if (kind.string() != "TikTokenTokenizer")
    kind.refuse("supported beside tiktoken.model: \"TikTokenTokenizer\", Moonlight's and Kimi's");

  const std::vector<std::string> ranks = read_ranks(*files.tiktoken, parts->name);
  fill_bpe(ranks, parts->name, parts->bpe);
  parts->patterns.emplace_back(pattern, parts->name, Pattern::Syntax::own);
  parts->model_end = ranks.size();
  for (const std::string& bytes : ranks) {
    parts->ids.emplace(characters_of_bytes(bytes), static_cast<TokenId>(parts->tokens.size()));
    parts->tokens.push_back({characters_of_bytes(bytes), bytes});
  }
  std::unordered_map<std::string, TokenId> special_ids;
  for (const AddedToken& token : read_special_tokens(root, static_cast<TokenId>(ranks.size()))) {
    if (const auto [known, added] = special_ids.emplace(token.content, token.id); !added) {
      throw DataError(config_name + ": /added_tokens_decoder: tokens " +
                      std::to_string(known->second) + " and " + std::to_string(token.id) +
                      " are both '" + token.content + "'");
    }
    parts->ids.insert_or_assign(token.content, token.id);
    parts->tokens.push_back({token.content, token.content, token.special});
    parts->raw_finder.add(token, token.content);
  }
  for (const JsonNode& node : named_special_tokens(root)) {
    const std::string& content = read_added_token(node, true).content;
    if (!content.empty() && !special_ids.contains(content))
      throw DataError(node.where() + ": '" + content + "' is none of added_tokens_decoder");
  }
  return parts;
}

}  // namespace paceline::io::text
