#include "runtime/speculation/commit_log.hpp"

#include <algorithm>

namespace paceline::speculation {
namespace {

/// Number of committed tokens at which the log is full.
constexpr std::size_t kMostTokens = 4096;

}  // namespace

// Consecutive steps commit to nearly the same requests in the same order. So the search for a
// request's entry begins after the entry that was found last.
void CommitLog::add(const engine::Committed& committed) {
  std::size_t seen = 0;
  for (; seen < requests_; ++seen, ++next_) {
    if (next_ >= requests_) next_ = 0;
    if (entries_[next_].id == committed.id) break;
  }
  if (seen == requests_) {
    next_ = requests_++;
    if (entries_.size() < requests_) entries_.emplace_back();
    entries_[next_].id = committed.id;
  }
  UntoldCommit& entry = entries_[next_++];
  entry.tokens.insert(entry.tokens.end(), committed.tokens.begin(), committed.tokens.end());
  entry.finished = committed.finished;
  tokens_ += committed.tokens.size();
}

bool CommitLog::has(RequestId id) const {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(requests_);
  return std::any_of(entries_.begin(), end,
                     [&](const UntoldCommit& entry) { return entry.id == id; });
}

bool CommitLog::full() const { return tokens_ >= kMostTokens; }

void CommitLog::tell(const DrafterRoster& roster, double now) {
  for (std::size_t i = 0; i < requests_; ++i) {
    UntoldCommit& entry = entries_[i];
    for (const RosterEntry& told : roster) {
      told.drafter->commit(entry.id, entry.tokens, now);
      if (entry.finished) told.drafter->finish(entry.id, now);
    }
    entry.tokens.clear();
  }
  requests_ = 0;
  tokens_ = 0;
  for (const RosterEntry& told : roster) told.drafter->told();
}

}  // namespace paceline::speculation
