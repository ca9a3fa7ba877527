// The byte-level alphabet: tokenizer.json writes each byte of a token as one printable character.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace paceline::io::text {

/// The bytes for which a token's characters stand; nullopt: a character is outside the alphabet.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view token);

/// The characters that stand for these bytes.
[[nodiscard]] std::string characters_of_bytes(std::string_view bytes);

}  // namespace paceline::io::text
