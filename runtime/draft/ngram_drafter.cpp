#include "runtime/draft/ngram_drafter.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::draft {

NgramIndex::NgramIndex(const NgramOptions& options) : options_(options) {
  if (options.min_n < 1 || options.max_n < options.min_n) throw std::invalid_argument("n-gram");
  tables_.resize(options.max_n - options.min_n + 1);
}

std::size_t NgramIndex::find(int n, std::uint32_t end) const {
  const Table& table = tables_[n - options_.min_n];
  const TokenId* gram = &tokens_[end - n];
  std::uint64_t hash = 0;
  for (int i = 0; i < n; ++i) {
    hash = (hash ^ static_cast<std::uint32_t>(gram[i])) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29U;
  }
  const std::size_t mask = table.slots.size() - 1;
  std::size_t at = hash & mask;
  while (table.slots[at] != 0 && !std::equal(gram, gram + n, &tokens_[table.slots[at] - n])) {
    at = (at + 1) & mask;
  }
  return at;
}

void NgramIndex::grow(int n) {
  Table& table = tables_[n - options_.min_n];
  std::vector<std::uint32_t> old(std::max<std::size_t>(64, 2 * table.slots.size()), 0);
  old.swap(table.slots);
  for (const std::uint32_t next : old) {
    if (next != 0) table.slots[find(n, next)] = next;
  }
}

void NgramIndex::insert(int n, std::uint32_t next) {
  Table& table = tables_[n - options_.min_n];
  if (2 * (table.used + 1) > table.slots.size()) grow(n);
  std::uint32_t& slot = table.slots[find(n, next)];
  if (slot == 0) ++table.used;
  slot = next;
}

void NgramIndex::append(std::span<const TokenId> tokens) {
  if (appended_ + tokens.size() > UINT32_MAX) throw std::length_error("text of a request");
  tokens_.resize(appended_);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  appended_ = tokens_.size();
}

/// Enters the n-grams of appended tokens. An n-gram enters when a token follows it, so the text's
/// own end is never found.
void NgramIndex::enter_appended() {
  for (; indexed_ < appended_; ++indexed_) {
    const auto next = static_cast<std::uint32_t>(indexed_);
    for (int n = options_.min_n; n <= options_.max_n && n <= static_cast<int>(next); ++n) {
      insert(n, next);
    }
  }
}

std::span<const TokenId> NgramIndex::lookup(int length, std::span<const TokenId> assumed) {
  const auto most = static_cast<std::size_t>(std::max(0, length));
  enter_appended();
  tokens_.resize(appended_);
  const std::span<const TokenId> longer = follow(assumed.size() + most);
  if (assumed.empty()) return longer;
  if (longer.size() > assumed.size() &&
      std::equal(assumed.begin(), assumed.end(), longer.begin())) {
    return longer.subspan(assumed.size());
  }
  tokens_.insert(tokens_.end(), assumed.begin(), assumed.end());
  return follow(most);
}

/// The tokens that followed an earlier occurrence of the longest n-gram at the end of tokens_.
std::span<const TokenId> NgramIndex::follow(std::size_t length) const {
  const auto size = static_cast<std::uint32_t>(tokens_.size());
  for (int n = std::min<int>(options_.max_n, static_cast<int>(size)); n >= options_.min_n; --n) {
    const std::uint32_t next = place(n);
    if (next == 0) continue;
    return std::span(tokens_).subspan(next, std::min<std::size_t>(length, size - next));
  }
  return {};
}

/// The position after the last other occurrence of the n-gram at the end of tokens_; 0: there is
/// none.
std::uint32_t NgramIndex::place(int n) const {
  const auto size = static_cast<std::uint32_t>(tokens_.size());
  const Table& table = tables_[n - options_.min_n];
  const std::uint32_t indexed = table.slots.empty() ? 0 : table.slots[find(n, size)];
  std::uint32_t found = indexed;
  const auto first = std::max(static_cast<std::uint32_t>(appended_), static_cast<std::uint32_t>(n));
  for (std::uint32_t next = first; next < size; ++next) {  // n-grams that an assumed token follows
    const auto at = tokens_.begin() + next;
    if (!std::equal(at - n, at, tokens_.end() - n)) continue;
    found = next;
  }
  return found;
}

NgramIndex& NgramDrafter::index(RequestId id) {
  const auto at = indices_.find(id);
  if (at == indices_.end()) throw std::logic_error("draft for a request that was not started");
  return at->second;
}

void NgramDrafter::start(const DraftStart& request, double /*now*/) {
  const auto [at, added] = indices_.try_emplace(request.id, options_);
  if (!added) throw std::logic_error("a request was started twice");
  at->second.append(request.prompt);
  at->second.append(request.response);
}

void NgramDrafter::commit(RequestId id, std::span<const TokenId> tokens, double /*now*/) {
  index(id).append(tokens);
}

void NgramDrafter::propose(std::span<DraftSlot> batch, double /*now*/, Levels* /*levels*/) {
  for (DraftSlot& slot : batch) {
    const int length =
        slot.limits.paths < 1
            ? 0
            : std::min({slot.limits.max_tokens, slot.limits.max_length, slot.output.capacity()});
    slot.count = 0;
    for (const TokenId token : index(slot.id).lookup(length, slot.assumed)) {
      slot.output.set(slot.count, token, slot.count - 1, 1.0F);
      ++slot.count;
    }
  }
}

void NgramDrafter::finish(RequestId id, double /*now*/) {
  static_cast<void>(index(id));
  indices_.erase(id);
}

}  // namespace paceline::draft
