#include "io/text/tokenizer.hpp"

#include <mutex>
#include <utility>

#include "io/text/files.hpp"
#include "io/text/parts.hpp"
#include "io/text/unicode.hpp"
#include "io/text/utf8.hpp"
#include "runtime/core/error.hpp"

namespace paceline::io {
namespace text {
namespace {
constexpr std::size_t longest_cached_word = 64;  // bytes; longer ones seldom repeat
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

/// One encode() under way: text flows through the stages front to back.
class Encoder {
 public:
  explicit Encoder(const Tokenizer::Parts& parts) : parts_(parts) {}

  std::vector<TokenId> run(std::string_view utf8) {
    const auto added = [this](TokenId id) { ids_.push_back(id); };
    parts_.raw_finder.split(
        utf8,
        [&](std::string_view piece) {
          std::string normalized;
          if (parts_.nfc) piece = normalized = text::normalize_nfc(piece);
          parts_.normalized_finder.split(
              piece, [this](std::string_view rest) { split(rest, 0); }, added);
        },
        added);
    return std::move(ids_);
  }

 private:
  void split(std::string_view piece, std::size_t pattern) {
    if (pattern == parts_.patterns.size()) {
      word(piece);
      return;
    }
    // ByteLevel puts its space before its own pattern, after those of the steps before it.
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
  const std::string path = directory + "/tokenizer.json";
  return parse(text::read_file(path), path);
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(text::read_tokenizer(json, name));
}

std::vector<TokenId> Tokenizer::encode(std::string_view utf8, const EncodeOptions& options) const {
  if (const std::size_t bad = text::find_invalid_utf8(utf8); bad != std::string_view::npos) {
    throw DataError("text to encode: byte " + std::to_string(bad) + " is not valid UTF-8");
  }
  std::vector<TokenId> ids = Encoder(*parts_).run(utf8);
  if (options.add_special_tokens) {
    ids.insert(ids.begin(), parts_->prefix.begin(), parts_->prefix.end());
    ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> tokens, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : tokens) {
    if (id < 0 || id >= vocab_size()) continue;
    const Parts::Token& token = parts_->tokens[static_cast<std::size_t>(id)];
    if (!(skip_special && token.special)) bytes += token.bytes;
  }
  return text::replace_invalid_utf8(std::move(bytes));
}

std::string_view Tokenizer::bytes_of(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return {};
  const Parts::Token& t = parts_->tokens[static_cast<std::size_t>(token)];
  return t.special ? std::string_view() : t.bytes;
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
  return token >= 0 && token < vocab_size() &&
         parts_->tokens[static_cast<std::size_t>(token)].special;
}

void Tokenizer::require_fits(std::int32_t model_vocab) const {
  if (vocab_size() <= model_vocab) return;
  const Parts::Token& last = parts_->tokens.back();
  throw DataError(parts_->name + ": the tokenizer does not fit the model: its highest id is " +
                  std::to_string(vocab_size() - 1) + " ('" + last.spelling +
                  "'), the model's vocabulary has " + std::to_string(model_vocab) +
                  " entries (config.json vocab_size)");
}

}  // namespace paceline::io
