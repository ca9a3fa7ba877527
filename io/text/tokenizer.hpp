// Text to token ids and back: the BPE of a Hugging Face tokenizer.json, on bytes or SentencePiece's
// with byte fallback, with the ids of the `tokenizers` library, or that of a tiktoken.model, with
// the ids of `tiktoken`.
#pragma once

#include <cstddef>
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
  /// Apply the file's post-processor, e.g. Llama 3's <|begin_of_text|> in front. Off for text that
  /// a chat template rendered, which carries its own.
  bool add_special_tokens = false;
  /// Omit them where the text begins with them, as text from a template does.
  bool unless_there = false;
};

/// Texts of the files that make a tokenizer; missing files are nullopt.
struct TokenizerFiles {
  std::string directory;
  std::optional<std::string> tokenizer;           ///< tokenizer.json
  std::optional<std::string> tiktoken;            ///< tiktoken.model, unread beside the former
  std::optional<std::string> config;              ///< tokenizer_config.json
  std::optional<std::string> special_tokens_map;  ///< special_tokens_map.json
  std::optional<std::string> added_tokens;        ///< added_tokens.json
  std::string other_kind;  ///< name of a tokenizer file in an unsupported format

  /// Throws IoError when one cannot be read, DataError when one is no file.
  [[nodiscard]] static TokenizerFiles read(const std::string& directory);
  /// Why there is neither tokenizer.json nor tiktoken.model, and how to make the former; empty:
  /// there is one.
  [[nodiscard]] std::string absence() const;
  /// Whether the texts are the same, wherever the files are.
  [[nodiscard]] bool same_texts(const TokenizerFiles& other) const;
};

/// A loaded tokenizer. Every const method is thread-safe; moving is not.
///
/// Supported: model BPE (no dropout, prefixes or suffixes; all 256 bytes have a token, so every
/// text encodes), and
///   on bytes: normalizers NFC, Prepend, Replace; pre-tokenizer ByteLevel or Sequence[Split(Regex,
///   Isolated)..., ByteLevel]; decoder ByteLevel;
///   with byte_fallback, as of Llama 2 and Mistral: the same normalizers; pre-tokenizer Metaspace
///   or none; decoder Sequence[Replace..., ByteFallback, Fuse, Strip];
/// and post-processor ByteLevel and TemplateProcessing. Anything else is refused, never
/// approximated. The file's `truncation` and `padding` are ignored, as they are by `transformers`.
///
/// A tiktoken.model is Moonlight's or Kimi's (tokenizer_class TikTokenTokenizer): its ranks follow
/// one another from 0, then come 256 special tokens, of which added_tokens_decoder in
/// tokenizer_config.json names some. Written in a text, they become their ids.
///
/// Tokens that `transformers` takes from the files beside tokenizer.json are added in the same way;
/// files that its versions 4 and 5 read differently are refused (tokenizer_files.hpp).
class Tokenizer : public TokenText {
 public:
  /// Reads a directory's tokenizer: tokenizer.json, or else tiktoken.model. Throws IoError when a
  /// file cannot be read; DataError when neither exists, and naming the file, the JSON path or the
  /// line, the found and the supported value.
  [[nodiscard]] static Tokenizer load(const std::string& directory);
  [[nodiscard]] static Tokenizer load(const TokenizerFiles& files);  ///< of texts already read
  /// Parses a tokenizer.json alone; `name` stands for the file in messages.
  [[nodiscard]] static Tokenizer parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer() override;

  /// Token ids of a UTF-8 text; added tokens written in the text become their ids. Throws DataError
  /// with the byte's place when the text is not valid UTF-8 (it is never replaced silently), or
  /// naming the file when special tokens are asked for and the files contradict each other on them.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view utf8,
                                            const EncodeOptions& options = {}) const;

  /// The text of some tokens. Invalid UTF-8 (a sequence cut at either end) becomes U+FFFD: on bytes
  /// one for each maximal prefix of a valid sequence, with byte_fallback one for each byte of the
  /// row. The leading space that SentencePiece adds is removed. Ids without a token give nothing,
  /// as a model whose vocabulary is padded may sample them.
  [[nodiscard]] std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;

  /// As TokenText: the token's part of decode() without skip_special, including the leading space
  /// of the whole text that decode() removes.
  [[nodiscard]] std::string_view bytes_of(TokenId token) const override;

  /// One past the highest id, added tokens included.
  [[nodiscard]] std::int32_t vocab_size() const;
  /// The id of a token as the file spells it (byte-level characters), or of an added token.
  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const;
  [[nodiscard]] bool is_special(TokenId token) const;
  /// False for ids past the last and for gaps between ids.
  [[nodiscard]] bool has_token(TokenId token) const;

  /// Throws DataError when the tokenizer's own vocabulary has ids that a model of `model_vocab`
  /// entries lacks. Added tokens may have such ids: padding often has. No text with them can be
  /// used.
  void require_fits(std::int32_t model_vocab) const;

  /// Parts of the files about text that other programs may read differently, a sentence each.
  [[nodiscard]] const std::vector<std::string>& warnings() const;

  struct Parts;  ///< private to io/text

 private:
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace paceline::io
