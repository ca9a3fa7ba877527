#include "runtime/draft/draft_store.hpp"

#include <algorithm>
#include <limits>

#include "runtime/core/earlier_responses.hpp"

namespace paceline::draft {

DraftStore::DraftStore(const StoreLimits& limits) : limits_(limits) {}

DraftStore::Group& DraftStore::touch(GroupId id, double ttl, double now) {
  const auto [at, added] = groups_.try_emplace(id, limits_.depth);
  Group& group = at->second;
  if (added) {
    group.ttl = ttl;
    first_expiry_ = std::min(first_expiry_, now + ttl);
    account(id, group);
  }
  group.touched = now;
  return group;
}

void DraftStore::register_group(GroupId id, double ttl, double now,
                                std::span<const TokenId> prompt) {
  Group& group = touch(id, ttl, now);
  group.ttl = ttl;
  first_expiry_ = std::min(first_expiry_, now + ttl);
  group.dropped = false;
  const std::span<const TokenId> end = prompt.last(std::min(prompt.size(), kPromptEnd));
  group.prompt_end.assign(end.begin(), end.end());
}

void DraftStore::keep(GroupId id, double now) {
  if (const auto at = groups_.find(id); at != groups_.end()) at->second.touched = now;
}

std::uint64_t DraftStore::held(const Group& group, const Sample& sample) {
  return sample.forgotten + group.tree->tokens(sample.sequence).size();
}

DraftStore::Sample& DraftStore::sample_of(Group& group, std::uint32_t sample,
                                          std::uint64_t forgotten) {
  const auto [at, added] = group.samples.try_emplace(sample);
  if (added) at->second = {group.tree->add_sequence(), forgotten};
  return at->second;
}

std::uint64_t DraftStore::update(GroupId id, std::uint32_t sample_id, std::uint64_t offset,
                                 std::span<const TokenId> tokens, double now) {
  Group& group = touch(id, limits_.default_ttl, now);
  Sample& sample = sample_of(group, sample_id, 0);
  const std::uint64_t have = held(group, sample);
  if (offset > have || offset + tokens.size() <= have) return have;
  group.tree->append(sample.sequence, tokens.subspan(have - offset));
  account(id, group);
  return offset + tokens.size();
}

void DraftStore::shrink(GroupId id, std::uint32_t sample_id) {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return;
  const auto sample = group->second.samples.find(sample_id);
  if (sample == group->second.samples.end()) return;
  group->second.tree->shrink(sample->second.sequence);
  account(id, group->second);
}

/// Keeps the newer half of every text, in a new tree.
void DraftStore::forget_half(Group& group) {
  auto tree = std::make_unique<SuffixTree>(limits_.depth);
  for (auto& [id, sample] : group.samples) {
    const std::span<const TokenId> text = group.tree->tokens(sample.sequence);
    const std::size_t drop = (text.size() + 1) / 2;
    sample.sequence = tree->add_sequence();
    tree->append(sample.sequence, text.subspan(drop));
    sample.forgotten += drop;
  }
  group.tree = std::move(tree);
}

std::size_t DraftStore::bytes_of(const Group& group) {
  std::size_t bytes = group.tree->bytes();
  for (const std::unique_ptr<EarlierTree>& earlier : group.earlier) bytes += earlier->tree.bytes();
  return bytes;
}

/// Brings bytes_ up to date after a change to the group, and keeps the bounds.
void DraftStore::account(GroupId id, Group& group) {
  const auto any_text = [&group] {
    return std::any_of(group.samples.begin(), group.samples.end(), [&](const auto& entry) {
      return !group.tree->tokens(entry.second.sequence).empty();
    });
  };
  while (bytes_of(group) > limits_.max_group_bytes && !group.earlier.empty()) {
    group.earlier.pop_back();
    group.dropped = true;
  }
  while (bytes_of(group) > limits_.max_group_bytes && any_text()) forget_half(group);
  const std::size_t bytes = bytes_of(group);
  bytes_ += bytes - group.bytes;
  group.bytes = bytes;
  while (bytes_ > limits_.max_bytes && groups_.size() > 1) free_some(id);
}

/// Drops the trees of earlier steps of the group longest without an update among groups that have
/// any. If none has, drops the group longest without an update. Group `but` stays; another exists.
void DraftStore::free_some(GroupId but) {
  auto oldest = groups_.end();
  for (auto at = groups_.begin(); at != groups_.end(); ++at) {
    if (at->first == but) continue;
    const auto rank = [](const Group& group) {
      return std::pair(group.earlier.empty(), group.touched);
    };
    if (oldest == groups_.end() || rank(at->second) < rank(oldest->second)) oldest = at;
  }
  Group& group = oldest->second;
  bytes_ -= group.bytes;
  if (group.earlier.empty()) {
    groups_.erase(oldest);
    return;
  }
  group.earlier.clear();
  group.dropped = true;
  group.bytes = bytes_of(group);
  bytes_ += group.bytes;
}

int DraftStore::expire(double now) {
  if (now < first_expiry_)
    return 0;  // each request that ends calls this, whatever the number of groups
  int removed = 0;
  first_expiry_ = std::numeric_limits<double>::infinity();
  for (auto at = groups_.begin(); at != groups_.end();) {
    const double expiry = at->second.touched + at->second.ttl;
    if (now < expiry) {
      first_expiry_ = std::min(first_expiry_, expiry);
      ++at;
      continue;
    }
    bytes_ -= at->second.bytes;
    at = groups_.erase(at);
    ++removed;
  }
  return removed;
}

const SuffixTree* DraftStore::tree(GroupId id) const {
  const auto group = groups_.find(id);
  return group == groups_.end() ? nullptr : group->second.tree.get();
}

void DraftStore::take_in(GroupId id, std::uint32_t sample_id, std::uint64_t offset,
                         std::span<const TokenId> tokens, double now) {
  const auto at = groups_.find(id);
  if (at == groups_.end() || tokens.empty()) return;
  Group& group = at->second;
  group.touched = now;
  Sample& sample = sample_of(group, sample_id, offset);
  const std::uint64_t have = held(group, sample);
  if (offset > have || offset + tokens.size() <= have) return;
  group.tree->append(sample.sequence, tokens.subspan(have - offset));
  account(id, group);
}

void DraftStore::take_in_earlier(GroupId id, std::uint32_t age, std::uint32_t sample,
                                 std::uint64_t offset, std::span<const TokenId> tokens, bool ended,
                                 double now) {
  const auto at = groups_.find(id);
  if (at == groups_.end() || tokens.empty() || age == 0) return;
  Group& group = at->second;
  if (group.dropped) return;
  group.touched = now;
  auto place = std::find_if(group.earlier.begin(), group.earlier.end(),
                            [age](const auto& earlier) { return earlier->age >= age; });
  if (place == group.earlier.end() || (*place)->age > age) {
    if (offset > 0 || group.earlier.size() == kMostEarlierSteps) return;
    place = group.earlier.insert(place, std::make_unique<EarlierTree>(age, limits_.depth));
  }
  EarlierTree& earlier = **place;
  const auto known = earlier.samples.find(sample);
  const std::uint64_t have = known == earlier.samples.end() ? 0 : known->second.tokens;
  if (offset > have || offset + tokens.size() <= have) return;
  EarlierTree::Told& told = earlier.samples[sample];
  if (have == 0) {
    told.sequence = earlier.tree.add_sequence();
    earlier.tree.append(told.sequence, group.prompt_end);
  }
  earlier.tree.append(told.sequence, tokens.subspan(have - offset));
  told.tokens = offset + tokens.size();
  if (ended) earlier.tree.shrink(told.sequence);
  earlier.version = ++last_version_;
  account(id, group);
}

bool DraftStore::whole(GroupId id) const {
  const auto group = groups_.find(id);
  return group != groups_.end() && !group->second.dropped;
}

std::span<const std::unique_ptr<EarlierTree>> DraftStore::earlier(GroupId id) const {
  const auto group = groups_.find(id);
  if (group == groups_.end()) return {};
  return group->second.earlier;
}

void DraftStore::speculate(SpeculationSlot& slot, SpeculationScratch& scratch) const {
  slot.result = {};
  const auto at = groups_.find(slot.group);
  if (at == groups_.end()) return;
  const Group& group = at->second;
  const auto sample = group.samples.find(slot.sample);
  // A tree that holds all of the request's text knows where the text ends.
  const bool current = sample != group.samples.end() && held(group, sample->second) == slot.size;
  slot.result = current
                    ? draft::speculate(*group.tree, sample->second.sequence, slot.options,
                                       slot.output, scratch)
                    : draft::speculate(*group.tree, slot.text, slot.options, slot.output, scratch);
}

}  // namespace paceline::draft
