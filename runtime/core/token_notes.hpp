// Notes of single tokens for a request: how often its text has each token, by which penalties
// change the token's logit, and the token's bias.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/types.hpp"

namespace paceline {

/// A value that is added to a token's logit before all other changes.
struct LogitBias {
  TokenId token = 0;
  float bias = 0;
  friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

struct TokenNote {
  static constexpr std::int32_t kUnsaid = -1;
  TokenId token = 0;
  /// Times that the token was sampled. 0: it is in the prompt, or was given, and was never sampled.
  std::int32_t sampled = kUnsaid;
  float bias = 0;
  friend bool operator==(const TokenNote&, const TokenNote&) = default;
};

/// Adds a note of the same token from later in the text.
inline void add(TokenNote& note, const TokenNote& later) {
  if (later.sampled != TokenNote::kUnsaid) note.sampled = std::max(note.sampled, 0) + later.sampled;
  note.bias += later.bias;
}

/// Notes by ascending token, each token once.
class TokenNotes {
 public:
  [[nodiscard]] std::span<const TokenNote> all() const { return notes_; }
  [[nodiscard]] bool empty() const { return notes_.empty(); }

  void note(const TokenNote& later) {
    const auto at = std::lower_bound(notes_.begin(), notes_.end(), later.token, before);
    if (at != notes_.end() && at->token == later.token) {
      add(*at, later);
    } else {
      notes_.insert(at, later);
    }
  }
  void note(std::span<const LogitBias> biases) {
    for (const LogitBias& bias : biases)
      note({.token = bias.token, .sampled = TokenNote::kUnsaid, .bias = bias.bias});
  }
  /// Notes tokens of the prompt or given tokens, or, with `sampled`, sampled tokens.
  void note(std::span<const TokenId> tokens, bool sampled) {
    const std::int32_t count = sampled ? 1 : 0;
    if (tokens.size() == 1) return note({.token = tokens[0], .sampled = count, .bias = 0});
    for (const TokenId token : tokens) notes_.push_back({token, count, 0});
    fold();
  }
  void note(std::span<const TokenNote> later) {
    constexpr std::size_t kFew = 16;  // up to this number, inserting one by one is faster
    if (later.size() <= kFew && !notes_.empty()) {
      for (const TokenNote& one : later) note(one);
      return;
    }
    notes_.insert(notes_.end(), later.begin(), later.end());
    fold();
  }
  /// Replaces all notes by `notes`: ascending, each token once.
  void assign(std::span<const TokenNote> notes) { notes_.assign(notes.begin(), notes.end()); }

 private:
  static bool before(const TokenNote& note, TokenId token) { return note.token < token; }
  void fold() {
    std::stable_sort(notes_.begin(), notes_.end(),
                     [](const TokenNote& a, const TokenNote& b) { return a.token < b.token; });
    std::size_t last = 0;
    for (std::size_t i = 1; i < notes_.size(); ++i) {
      if (notes_[i].token == notes_[last].token) {
        add(notes_[last], notes_[i]);
      } else {
        notes_[++last] = notes_[i];
      }
    }
    if (!notes_.empty()) notes_.resize(last + 1);
  }
  std::vector<TokenNote> notes_;
};

}  // namespace paceline
