#include "io/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "io/config/utf8.hpp"
#include "io/text/unicode.hpp"

namespace paceline::io::text {
namespace {

/// Offset of the start of the code point that ends at `end` (> 0).
std::size_t start_of_previous(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

bool word_ends_at(std::string_view text, std::size_t end) {
  return end > 0 && is_word_character(decode_utf8(text, start_of_previous(text, end)).value);
}
bool word_starts_at(std::string_view text, std::size_t at) {
  return at < text.size() && is_word_character(decode_utf8(text, at).value);
}

std::size_t before_white_space(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t at = start_of_previous(text, end);
    if (!is_white_space(decode_utf8(text, at).value)) break;
    end = at;
  }
  return end;
}
std::size_t after_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text, at);
    if (!is_white_space(c.value)) break;
    at += c.size;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token, std::string form) {
  std::vector<Entry>& entries = by_first_byte_[static_cast<unsigned char>(form.front())];
  // Of equal forms the first one added wins, as for equal patterns in the reference.
  const auto place = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& e) { return e.form.size() < form.size(); });
  entries.insert(place, Entry{std::move(form), token});
  empty_ = false;
}

const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view text,
                                                            std::size_t at) const {
  for (const Entry& e : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at, e.form.size()) == e.form) return &e;
  }
  return nullptr;
}

void AddedTokenFinder::split(std::string_view text,
                             const std::function<void(std::string_view)>& text_piece,
                             const std::function<void(TokenId)>& token) const {
  // `done` follows the reference exactly: white space that an rstrip has taken can still be an
  // added token of its own, and then counts twice.
  std::size_t done = 0;
  for (std::size_t at = 0; !empty_ && at < text.size();) {
    const Entry* entry = longest_at(text, at);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    std::size_t start = at;
    std::size_t stop = at + entry->form.size();
    at = stop;
    if (entry->token.single_word && (word_ends_at(text, start) || word_starts_at(text, stop))) {
      continue;
    }
    if (entry->token.lstrip) start = std::max(before_white_space(text, start), done);
    if (entry->token.rstrip) stop = after_white_space(text, stop);
    if (done < start) text_piece(text.substr(done, start - done));
    token(entry->token.id);
    done = stop;
  }
  if (done < text.size()) text_piece(text.substr(done));
}

}  // namespace paceline::io::text
