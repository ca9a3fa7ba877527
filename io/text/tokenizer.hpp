// Text to token ids and back, by BPE. A Hugging Face tokenizer.json works on bytes, or like
// SentencePiece with byte fallback, and gives the ids of the `tokenizers` library. A tiktoken.model
// gives the ids of `tiktoken`.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/core/types.hpp"

namespace paceline::io {

struct EncodeOptions {
  /// Whether to apply the file's post-processor, which for example puts Llama 3's <|begin_of_text|>
  /// in front. Not for text that a chat template rendered: it has its own special tokens.
  bool add_special_tokens = false;
  /// Whether to omit them if the text begins with them, as text from a template does.
  bool unless_there = false;
};

/// Texts of the files of a tokenizer; nullopt: the file is missing.
struct TokenizerFiles {
  std::string directory;
  std::optional<std::string> tokenizer;  ///< tokenizer.json
  std::optional<std::string> tiktoken;   ///< tiktoken.model, read only without tokenizer.json
  std::optional<std::string> config;     ///< tokenizer_config.json
  std::optional<std::string> special_tokens_map;  ///< special_tokens_map.json
  std::optional<std::string> added_tokens;        ///< added_tokens.json
  std::string other_kind;  ///< name of a tokenizer file in an unsupported format

  /// Throws IoError if one cannot be read, DataError if one is not a regular file.
  [[nodiscard]] static TokenizerFiles read(const std::string& directory);
  /// Why there is neither tokenizer.json nor tiktoken.model, and how to make tokenizer.json; empty:
  /// there is one.
  [[nodiscard]] std::string absence() const;
  /// Whether the texts are the same, even in different directories.
  [[nodiscard]] bool same_texts(const TokenizerFiles& other) const;
};

/// A loaded tokenizer. Every const method is thread-safe; moving is not.
///
/// Supported: model BPE (no dropout, prefixes or suffixes; all 256 bytes have a token, so that
/// every text can be encoded), and
///   on bytes: normalizers NFC, Prepend, Replace; pre-tokenizer ByteLevel or Sequence[Split(Regex,
///   Isolated)..., ByteLevel]; decoder ByteLevel;
///   with byte_fallback, as of Llama 2 and Mistral: the same normalizers; pre-tokenizer Metaspace
///   or none; decoder Sequence[Replace..., ByteFallback, Fuse, Strip];
/// and post-processor ByteLevel and TemplateProcessing. Anything else is refused, never
/// approximated. The file's `truncation` and `padding` are ignored, as in `transformers`.
///
/// A tiktoken.model is Moonlight's or Kimi's (tokenizer_class TikTokenTokenizer). Its ranks are
/// consecutive from 0. After them come 256 special tokens; added_tokens_decoder in
/// tokenizer_config.json names some of these. Spelled in a text, they become their ids.
///
/// Tokens that `transformers` takes from the other files of the directory are added in the same
/// way. Files that its versions 4 and 5 read differently are refused (tokenizer_files.hpp).
class Tokenizer : public TokenText {
 public:
  /// Reads a directory's tokenizer: tokenizer.json, or else tiktoken.model. Throws IoError if a
  /// file cannot be read. Throws DataError if neither exists, and naming the file, the JSON path or
  /// the line, the found and the supported value.
  [[nodiscard]] static Tokenizer load(const std::string& directory);
  [[nodiscard]] static Tokenizer load(const TokenizerFiles& files);  ///< of texts already read
  /// Parses only a tokenizer.json; `name` is the file's in messages.
  [[nodiscard]] static Tokenizer parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer() override;

  /// Token ids of a UTF-8 text; added tokens spelled in the text become their ids. Throws DataError
  /// with the byte's place if the text is not valid UTF-8 (it is never silently replaced). Throws
  /// DataError naming the file if special tokens are asked for and the files contradict each other.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view utf8,
                                            const EncodeOptions& options = {}) const;

  /// The text of tokens. Invalid UTF-8 (a sequence cut at either end) becomes U+FFFD: in a byte
  /// vocabulary one for each maximal prefix of a valid sequence, with byte_fallback one for each
  /// byte of a run of bytes. The leading space that SentencePiece adds is removed. Ids without a
  /// token give no text; a model whose vocabulary is padded may sample them.
  [[nodiscard]] std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;

  /// The token's part of decode() without skip_special, as in TokenText. It includes the leading
  /// space of the whole text, which decode() removes.
  [[nodiscard]] std::string_view bytes_of(TokenId token) const override;

  /// One past the highest id, including added tokens.
  [[nodiscard]] std::int32_t vocab_size() const;
  /// The id of a token as spelled in the file (byte-level characters), or of an added token.
  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const;
  [[nodiscard]] bool is_special(TokenId token) const;
  /// False for ids past the last, and for gaps between ids.
  [[nodiscard]] bool has_token(TokenId token) const;

  /// Throws DataError if the tokenizer's own vocabulary has ids that a model with `model_vocab`
  /// entries lacks. Added tokens, often padding, may have such ids; then no text with them can be
  /// used.
  void require_fits(std::int32_t model_vocab) const;

  /// Sentences about text in the files that other programs may read differently.
  [[nodiscard]] const std::vector<std::string>& warnings() const;

  struct Parts;  ///< private to io/text

 private:
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace paceline::io
