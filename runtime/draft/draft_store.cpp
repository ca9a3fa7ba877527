#include "runtime/draft/draft_store.hpp"

#include <algorithm>

namespace paceline::draft {

void put(WireWriter& writer, const GroupState& state) {
  writer.put(state.group);
  writer.put(state.epoch);
  writer.put(state.samples);
  writer.put(state.sizes);
}

void get(WireReader& reader, GroupState& state) {
  reader.get(state.group);
  reader.get(state.epoch);
  reader.get(state.samples);
  reader.get(state.sizes);
}

void put(WireWriter& writer, const GroupDelta& delta) {
  writer.put(delta.group);
  writer.put(delta.epoch);
  writer.put(static_cast<std::uint8_t>(delta.reset));
  writer.put(static_cast<std::uint32_t>(delta.texts.size()));
  for (const SampleText& text : delta.texts) {
    writer.put(text.sample);
    writer.put(text.offset);
    writer.put(text.tokens);
  }
}

void get(WireReader& reader, GroupDelta& delta) {
  std::uint8_t reset = 0;
  std::uint32_t texts = 0;
  reader.get(delta.group);
  reader.get(delta.epoch);
  reader.get(reset);
  reader.get(texts);
  delta.reset = reset != 0;
  delta.texts.clear();
  for (std::uint32_t i = 0; i < texts; ++i) {
    SampleText& text = delta.texts.emplace_back();
    reader.get(text.sample);
    reader.get(text.offset);
    reader.get(text.tokens);
  }
}

DraftStore::DraftStore(const StoreLimits& limits) : limits_(limits) {}

DraftStore::Group& DraftStore::touch(GroupId id, double ttl, double now) {
  const auto [at, added] = groups_.try_emplace(id, limits_.depth);
  Group& group = at->second;
  if (added) {
    group.epoch = ++last_epoch_;
    group.ttl = ttl;
    account(id, group);
  }
  group.touched = now;
  return group;
}

void DraftStore::register_group(GroupId group, double ttl, double now) {
  touch(group, ttl, now).ttl = ttl;
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
  group.epoch = ++last_epoch_;
  group.source = 0;
}

/// Brings bytes_ up to date after a change to the group, and keeps the bounds.
void DraftStore::account(GroupId id, Group& group) {
  const auto any_text = [&group] {
    return std::any_of(group.samples.begin(), group.samples.end(), [&](const auto& entry) {
      return !group.tree->tokens(entry.second.sequence).empty();
    });
  };
  while (group.tree->bytes() > limits_.max_group_bytes && any_text()) forget_half(group);
  bytes_ += group.tree->bytes() - group.bytes;
  group.bytes = group.tree->bytes();
  while (bytes_ > limits_.max_bytes && groups_.size() > 1) {
    auto oldest = groups_.end();
    for (auto at = groups_.begin(); at != groups_.end(); ++at) {
      if (at->first == id) continue;
      if (oldest == groups_.end() || at->second.touched < oldest->second.touched) oldest = at;
    }
    bytes_ -= oldest->second.bytes;
    groups_.erase(oldest);
  }
}

int DraftStore::expire(double now) {
  int removed = 0;
  for (auto at = groups_.begin(); at != groups_.end();) {
    if (now < at->second.touched + at->second.ttl) {
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

GroupState DraftStore::state(GroupId id) const {
  GroupState state;
  state.group = id;
  const auto group = groups_.find(id);
  if (group == groups_.end()) return state;
  state.epoch = group->second.source;
  for (const auto& [sample_id, sample] : group->second.samples) {
    state.samples.push_back(sample_id);
    state.sizes.push_back(held(group->second, sample));
  }
  return state;
}

std::vector<GroupDelta> DraftStore::fetch(std::span<const GroupState> states) const {
  std::vector<GroupDelta> deltas;
  for (const GroupState& state : states) {
    const auto at = groups_.find(state.group);
    if (at == groups_.end()) continue;
    const Group& group = at->second;
    GroupDelta delta;
    delta.group = state.group;
    delta.epoch = group.epoch;
    delta.reset = state.epoch != group.epoch;
    for (const auto& [sample_id, sample] : group.samples) {
      std::uint64_t from = sample.forgotten;
      const auto known = std::find(state.samples.begin(), state.samples.end(), sample_id);
      if (!delta.reset && known != state.samples.end()) {
        from = std::max(from, state.sizes[known - state.samples.begin()]);
      }
      const std::span<const TokenId> text = group.tree->tokens(sample.sequence);
      if (from - sample.forgotten >= text.size()) continue;
      const std::span<const TokenId> rest = text.subspan(from - sample.forgotten);
      delta.texts.push_back({sample_id, from, {rest.begin(), rest.end()}});
    }
    if (delta.reset || !delta.texts.empty()) deltas.push_back(std::move(delta));
  }
  return deltas;
}

void DraftStore::apply(const GroupDelta& delta, double now) {
  const auto at = groups_.find(delta.group);
  if (at == groups_.end()) return;
  Group& group = at->second;
  group.touched = now;
  if (delta.reset) {
    group.tree = std::make_unique<SuffixTree>(limits_.depth);
    group.samples.clear();
    group.epoch = ++last_epoch_;
  }
  for (const SampleText& text : delta.texts) {
    Sample& sample = sample_of(group, text.sample, text.offset);
    const std::uint64_t have = held(group, sample);
    if (text.offset > have || text.offset + text.tokens.size() <= have) continue;
    group.tree->append(sample.sequence, std::span(text.tokens).subspan(have - text.offset));
  }
  group.source = delta.epoch;
  account(delta.group, group);
}

void DraftStore::speculate(SpeculationSlot& slot, SpeculationScratch& scratch) const {
  slot.result = {};
  const auto at = groups_.find(slot.group);
  if (at == groups_.end()) return;
  const Group& group = at->second;
  const auto sample = group.samples.find(slot.sample);
  // Where the tree holds all of the request's text, it knows where that ends.
  const bool current = sample != group.samples.end() && held(group, sample->second) == slot.size;
  slot.result = current
                    ? draft::speculate(*group.tree, sample->second.sequence, slot.options,
                                       slot.output, scratch)
                    : draft::speculate(*group.tree, slot.text, slot.options, slot.output, scratch);
}

void DraftStore::batch_speculate(std::span<SpeculationSlot> batch, ThreadPool& pool) {
  scratch_.resize(pool.size());
  pool.for_units(
      static_cast<int>(batch.size()),
      [&](int thread, int item) { speculate(batch[item], scratch_[thread]); }, kAloneSlots);
}

}  // namespace paceline::draft
