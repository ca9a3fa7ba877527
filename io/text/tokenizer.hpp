// Text to token ids and back: the byte-level BPE of a Hugging Face tokenizer.json, id for id what
// the `tokenizers` library gives.
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
};

/// A loaded tokenizer. Every const method is thread-safe; moving is not.
///
/// Supported: model BPE on bytes (no dropout, prefixes, suffixes or byte fallback; all 256 bytes
/// have a token, so every text encodes), normalizer NFC or none, pre-tokenizer ByteLevel or
/// Sequence[Split(Regex, Isolated)..., ByteLevel], post-processor ByteLevel and
/// TemplateProcessing, decoder ByteLevel. Anything else is refused, never approximated. The file's
/// `truncation` and `padding` are ignored, as they are by `transformers`.
class Tokenizer : public TokenText {
 public:
  /// Reads DIR/tokenizer.json. Throws IoError when it cannot be read; DataError when it is not
  /// there, and naming the file, the JSON path, what was found and what is supported.
  [[nodiscard]] static Tokenizer load(const std::string& directory);
  /// The same from the file's text; `name` stands for the file in messages.
  [[nodiscard]] static Tokenizer parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer() override;

  /// Token ids of a UTF-8 text; added tokens written in the text become their ids. Throws DataError
  /// with the byte's place when the text is not valid UTF-8 (it is never replaced silently).
  [[nodiscard]] std::vector<TokenId> encode(std::string_view utf8,
                                            const EncodeOptions& options = {}) const;

  /// The text of some tokens. Bytes that are not UTF-8 (a sequence cut at either end) become
  /// U+FFFD, one for each maximal prefix of a valid sequence. Ids without a token give nothing, as
  /// a model whose vocabulary is padded may sample them.
  [[nodiscard]] std::string decode(std::span<const TokenId> tokens, bool skip_special = true) const;

  /// As TokenText: empty for special tokens and for ids without a token.
  [[nodiscard]] std::string_view bytes_of(TokenId token) const override;

  /// One more than the highest id, added tokens included.
  [[nodiscard]] std::int32_t vocab_size() const;
  /// The id of a token as the file spells it (byte-level characters), or of an added token.
  [[nodiscard]] std::optional<TokenId> token_to_id(std::string_view token) const;
  [[nodiscard]] bool is_special(TokenId token) const;

  /// Throws DataError when the tokenizer has ids that a model of `model_vocab` entries lacks.
  void require_fits(std::int32_t model_vocab) const;

  struct Parts;  ///< private to io/text

 private:
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace paceline::io
