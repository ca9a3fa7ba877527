#include "io/text/byte_level.hpp"

#include <array>

#include "io/config/utf8.hpp"

namespace paceline::io::text {
namespace {

/// Whether a byte stands for itself: printable Latin-1. The other 68 bytes become U+0100 onwards.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}
constexpr std::size_t alphabet_end = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int, alphabet_end> byte{};  ///< -1: not in the alphabet
};
constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (int& b : a.byte) b = -1;
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    a.character[b] = stands_for_itself(b) ? b : next++;
    a.byte[a.character[b]] = static_cast<int>(b);
  }
  return a;
}
constexpr Alphabet alphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const CodePoint c = decode_utf8(token, i);
    if (c.size == 0 || c.value >= alphabet_end || alphabet.byte[c.value] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet.byte[c.value]);
    i += c.size;
  }
  return bytes;
}

std::string characters_of_bytes(std::string_view bytes) {
  std::string token;
  for (const char b : bytes) append_utf8(token, alphabet.character[static_cast<unsigned char>(b)]);
  return token;
}

}  // namespace paceline::io::text
