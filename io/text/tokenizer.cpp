#include "io/text/tokenizer.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "io/config/utf8.hpp"
#include "io/text/parts.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace text {
namespace {
constexpr std::size_t longest_cached_word = 64;  // bytes; longer words seldom repeat
constexpr std::size_t most_cached_words = 1U << 16U;
}  // namespace

bool WordCache::find(const std::string& word, std::vector<TokenId>& out) const {
  const std::shared_lock lock(mutex_);
  const auto known = words_.find(word);
  if (known == words_.end()) return false;
  out.insert(out.end(), known->second.begin(), known->second.end());
  return true;
}

void WordCache::insert(const std::string& word, const TokenId* tokens, std::size_t count) {
  if (word.size() > longest_cached_word) return;
  const std::unique_lock lock(mutex_);
  if (words_.size() < most_cached_words) words_.try_emplace(word, tokens, tokens + count);
}

}  // namespace text

namespace {

/// One encode() under way: text passes through the stages in order.
class Encoder {
 public:
  explicit Encoder(const Tokenizer::Parts& parts) : parts_(parts) {}

  std::vector<TokenId> run(std::string_view utf8) {
    const auto added = [this](TokenId id) { ids_.push_back(id); };
    parts_.raw_finder.split(
        utf8,
        [&](std::string_view piece) {
          const bool begins = piece.data() == utf8.data();
          std::string normalized;
          if (!parts_.normalizer.empty()) piece = normalized = parts_.normalizer.run(piece);
          parts_.normalized_finder.split(
              piece,
              [&](std::string_view rest) { cut(rest, begins && rest.data() == piece.data()); },
              added);
        },
        added);
    return std::move(ids_);
  }

 private:
  void cut(std::string_view piece, bool begins) {
    if (parts_.metaspace) {
      parts_.metaspace->split(piece, begins, [this](std::string_view text) { word(text); });
    } else {
      split(piece, 0);
    }
  }

  void split(std::string_view piece, std::size_t pattern) {
    if (pattern == parts_.patterns.size()) {
      word(piece);
      return;
    }
    // ByteLevel puts its space before its own pattern, but after the patterns of earlier steps.
    std::string spaced;
    if (pattern == parts_.space_before && needs_space(piece)) {
      piece = spaced = " " + std::string(piece);
    }
    parts_.patterns[pattern].split(piece, [&](std::string_view part) { split(part, pattern + 1); });
  }

  [[nodiscard]] static bool needs_space(std::string_view piece) { return piece.front() != ' '; }

  void word(std::string_view piece) {
    word_.assign(piece);
    if (parts_.space_before == parts_.patterns.size() && needs_space(piece)) {
      word_.insert(word_.begin(), ' ');
    }
    if (parts_.cache.find(word_, ids_)) return;
    const std::size_t first = ids_.size();
    parts_.bpe.encode_word(word_, ids_);
    parts_.cache.insert(word_, ids_.data() + first, ids_.size() - first);
  }

  const Tokenizer::Parts& parts_;
  std::vector<TokenId> ids_;
  std::string word_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& directory) {
  return load(TokenizerFiles::read(directory));
}

Tokenizer Tokenizer::load(const TokenizerFiles& files) {
  if (const std::string why = files.absence(); !why.empty()) throw DataError(why);
  if (!files.tokenizer) return Tokenizer(text::read_tiktoken(files));
  return Tokenizer(
      text::read_tokenizer(*files.tokenizer, files.directory + "/tokenizer.json", &files));
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(text::read_tokenizer(json, name));
}

std::vector<TokenId> Tokenizer::encode(std::string_view utf8, const EncodeOptions& options) const {
  if (const std::size_t bad = find_invalid_utf8(utf8); bad != std::string_view::npos) {
    throw DataError("text to encode: byte " + std::to_string(bad) + " is not valid UTF-8");
  }
  std::vector<TokenId> ids = Encoder(*parts_).run(utf8);
  const std::vector<TokenId>& before = parts_->prefix;
  const bool there = !before.empty() && ids.size() >= before.size() &&
                     std::equal(before.begin(), before.end(), ids.begin());
  if (options.add_special_tokens && !(options.unless_there && there)) {
    if (!parts_->special_doubt.empty()) throw DataError(parts_->special_doubt);
    ids.insert(ids.begin(), parts_->prefix.begin(), parts_->prefix.end());
    ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  std::string text;
  std::string fallback;  // consecutive bytes of characters without a token
  const auto take_fallback = [&] {
    // A run of bytes that is not UTF-8 is lost as a whole, as in the library.
    const bool valid = find_invalid_utf8(fallback) == std::string::npos;
    for (std::size_t i = 0; !valid && i < fallback.size(); ++i) text += replacement_character;
    if (valid) text += fallback;
    fallback.clear();
  };
  for (const TokenId id : tokens) {
    if (id < 0 || id >= vocab_size()) continue;
    const Parts::Token& token = parts_->tokens[id];
    if (token.spelling.empty() || (skip_special && token.special)) continue;
    if (token.fallback) {
      fallback += token.bytes;
      continue;
    }
    take_fallback();
    text += token.bytes;
  }
  take_fallback();
  std::size_t spaces = 0;
  while (spaces < std::min(parts_->stripped, text.size()) && text[spaces] == ' ') ++spaces;
  text.erase(0, spaces);
  return replace_invalid_utf8(std::move(text));
}

std::string_view Tokenizer::bytes_of(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return {};
  return parts_->tokens[token].bytes;
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(parts_->tokens.size());
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  const auto found = parts_->ids.find(std::string(token));
  if (found == parts_->ids.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::is_special(TokenId token) const {
  return token >= 0 && token < vocab_size() && parts_->tokens[token].special;
}

bool Tokenizer::has_token(TokenId token) const {
  return token >= 0 && token < vocab_size() && !parts_->tokens[token].spelling.empty();
}

void Tokenizer::require_fits(std::int32_t model_vocab) const {
  const auto end = static_cast<std::int32_t>(parts_->model_end);
  if (end <= model_vocab) return;
  const Parts::Token& last = parts_->tokens[parts_->model_end - 1];
  throw DataError(parts_->name + ": the tokenizer does not fit the model: its highest id is " +
                  std::to_string(end - 1) + " ('" + last.spelling +
                  "'), the model's vocabulary has " + std::to_string(model_vocab) +
                  " entries (config.json vocab_size)");
}

const std::vector<std::string>& Tokenizer::warnings() const { return parts_->warnings; }

}  // namespace paceline::io
