#include "io/text/bpe.hpp"

#include <algorithm>
#include <bit>
#include <queue>

#include "io/config/utf8.hpp"

namespace paceline::io::text {
namespace {

std::uint64_t key_of(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) |
         static_cast<std::uint32_t>(right);
}

/// A token within a word, linked to its neighbours; one that was merged into another has size 0.
struct Symbol {
  TokenId token;
  std::int32_t previous, next;  ///< indices; -1: none
  std::uint32_t size;           ///< number of tokens merged into it
};

/// A merge that was possible when it was queued. Order: lowest rank first, then leftmost.
struct Candidate {
  std::uint32_t rank;
  std::int32_t left;   ///< index of the left symbol
  std::uint32_t size;  ///< bytes of both symbols; changes if the pair changes
  TokenId token;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

/// For words up to this length a linear search for the best pair is faster than a heap.
constexpr std::size_t short_word = 24;

void merge_short(const MergeTable& merges, std::vector<TokenId>& tokens, std::size_t first) {
  std::uint32_t ranks[short_word];
  const auto rank_at = [&](std::size_t i) {
    const MergeTable::Merge* m = merges.find(tokens[i], tokens[i + 1]);
    return m == nullptr ? ~std::uint32_t{0} : m->rank;
  };
  std::size_t n = tokens.size() - first;
  for (std::size_t i = 0; i + 1 < n; ++i) ranks[i] = rank_at(first + i);
  while (n > 1) {
    const std::uint32_t* best = std::min_element(ranks, ranks + n - 1);
    if (*best == ~std::uint32_t{0}) break;
    const auto i = static_cast<std::size_t>(best - ranks);
    tokens[first + i] = merges.find(tokens[first + i], tokens[first + i + 1])->token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(first + i + 1));
    std::copy(ranks + i + 1, ranks + n - 1, ranks + i);
    --n;
    if (i > 0) ranks[i - 1] = rank_at(first + i - 1);
    if (i + 1 < n) ranks[i] = rank_at(first + i);
  }
}

void merge_long(const MergeTable& merges, std::vector<TokenId>& tokens, std::size_t first) {
  const std::size_t n = tokens.size() - first;
  std::vector<Symbol> symbols(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::int32_t>(i);
    symbols[i] = {tokens[first + i], at - 1, i + 1 < n ? at + 1 : -1, 1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::int32_t left) {
    if (left < 0) return;
    const Symbol& l = symbols[static_cast<std::size_t>(left)];
    if (l.next < 0) return;
    const Symbol& r = symbols[static_cast<std::size_t>(l.next)];
    if (const MergeTable::Merge* m = merges.find(l.token, r.token)) {
      queue.push({m->rank, left, l.size + r.size, m->token});
    }
  };
  for (std::size_t i = 0; i + 1 < n; ++i) offer(static_cast<std::int32_t>(i));
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    Symbol& l = symbols[static_cast<std::size_t>(c.left)];
    if (l.size == 0 || l.next < 0) continue;
    Symbol& r = symbols[static_cast<std::size_t>(l.next)];
    // Symbols only ever grow to the right of their start, so equal size means that the pair is
    // unchanged.
    if (l.size + r.size != c.size) continue;
    l.token = c.token;
    l.size = c.size;
    l.next = r.next;
    r.size = 0;
    if (l.next >= 0) symbols[static_cast<std::size_t>(l.next)].previous = c.left;
    offer(l.previous);
    offer(c.left);
  }
  tokens.resize(first);
  for (std::int32_t i = 0; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
    tokens.push_back(symbols[static_cast<std::size_t>(i)].token);
  }
}

}  // namespace

void MergeTable::reserve(std::size_t merges) {
  slots_.assign(std::bit_ceil(2 * merges + 2), Slot{});
}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = (key * 0x9E3779B97F4A7C15ULL >> 32U) & mask;
  while (slots_[i].key != key && slots_[i].key != empty) i = (i + 1) & mask;
  return i;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == empty ? nullptr : &slot.merge;
}

void Bpe::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  if (ignore_merges) {
    if (const auto whole = vocab.find(std::string(word)); whole != vocab.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  const std::size_t first = out.size();
  const auto push_bytes = [&](std::string_view bytes) {
    for (const char b : bytes) out.push_back(byte_token[static_cast<unsigned char>(b)]);
  };
  if (characters.empty()) {
    push_bytes(word);
  } else {
    for (std::size_t at = 0; at < word.size();) {
      const CodePoint c = decode_utf8(word, at);
      const auto known = characters.find(c.value);
      if (known != characters.end()) {
        out.push_back(known->second);
      } else {
        push_bytes(word.substr(at, c.size));
      }
      at += c.size;
    }
  }
  if (out.size() - first <= short_word) {
    merge_short(merges, out, first);
  } else {
    merge_long(merges, out, first);
  }
}

}  // namespace paceline::io::text
