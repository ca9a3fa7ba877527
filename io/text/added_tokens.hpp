// Added tokens: pieces of text that are one token each, and are split off first of all.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline::io::text {

struct AddedToken {
  TokenId id = 0;
  std::string content;       ///< UTF-8
  bool single_word = false;  ///< matches only if no word character is next to it
  bool lstrip = false;       ///< includes the white space before it
  bool rstrip = false;       ///< includes the white space after it
  bool normalized = false;   ///< searched in the normalized text
  bool special = false;      ///< control, not text: omitted when decoding with skip_special
};

/// Finds added tokens in text: the leftmost, and of those at one place the longest. Immutable and
/// thread-safe once filled.
class AddedTokenFinder {
 public:
  /// Adds a token. `form`: its spelling in the text to be searched.
  void add(const AddedToken& token, std::string form);

  /// Calls `text_piece` for each stretch of text without added tokens (never empty) and `token` for
  /// each added token, in order.
  void split(std::string_view text, const std::function<void(std::string_view)>& text_piece,
             const std::function<void(TokenId)>& token) const;

 private:
  struct Entry {
    std::string form;
    AddedToken token;
  };
  [[nodiscard]] const Entry* longest_at(std::string_view text, std::size_t at) const;
  std::array<std::vector<Entry>, 256> by_first_byte_;  ///< each sorted longest first
  bool empty_ = true;
};

}  // namespace paceline::io::text
