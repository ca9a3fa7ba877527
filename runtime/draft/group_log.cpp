#include "runtime/draft/group_log.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace paceline::draft {

GroupLogs::Group& GroupLogs::touch(GroupId id, double now) {
  const auto [at, added] = groups_.try_emplace(id);
  if (added) at->second.epoch = ++last_epoch_;
  at->second.touched = now;
  return at->second;
}

void GroupLogs::erase(std::map<GroupId, Group>::iterator at) {
  bytes_ -= at->second.bytes;
  groups_.erase(at);
}

/// Empties the group touched longest ago. The group itself stays, so that its texts are not sent
/// all over again. There is a group to empty, since some group has bytes.
void GroupLogs::give_up_oldest() {
  Group* oldest = nullptr;
  for (auto& [id, group] : groups_) {
    if (!group.given_up && (oldest == nullptr || group.touched < oldest->touched)) oldest = &group;
  }
  bytes_ -= oldest->bytes;
  oldest->bytes = 0;
  oldest->given_up = true;
  oldest->texts = {};
  oldest->stretches = {};
  oldest->earlier = {};
}

std::uint64_t GroupLogs::update(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens,
                                LogClient from, double now) {
  Group& group = touch(id.prompt, now);
  if (group.given_up) return offset + tokens.size();
  Text& text = group.texts[id.sample];
  const std::uint64_t have = text.tokens.size();
  if (offset > have || offset + tokens.size() <= have) return have;
  const std::span<const TokenId> rest = tokens.subspan(have - offset);
  text.tokens.insert(text.tokens.end(), rest.begin(), rest.end());
  group.stretches.push_back(
      {from, have, id.sample, static_cast<std::uint32_t>(rest.size()), text.ended});
  count(group, rest.size_bytes() + sizeof(Stretch));
  return offset + tokens.size();
}

bool GroupLogs::first_asked(GroupId id, double now) {
  return !std::exchange(touch(id, now).asked, true);
}

void GroupLogs::add_earlier(RequestId id, std::uint32_t age, std::span<const TokenId> tokens,
                            double now) {
  Group& group = touch(id.prompt, now);
  const bool known = std::any_of(
      group.earlier.begin(), group.earlier.end(),
      [&](const EarlierText& text) { return text.age == age && text.sample == id.sample; });
  if (group.given_up || known || tokens.empty()) return;
  group.earlier.push_back({age, id.sample, {tokens.begin(), tokens.end()}});
  count(group, tokens.size_bytes() + sizeof(EarlierText));
}

void GroupLogs::count(Group& group, std::size_t bytes) {
  group.bytes += bytes;
  bytes_ += bytes;
  while (bytes_ > limits_.max_bytes) give_up_oldest();
}

void GroupLogs::end(RequestId id, LogClient from, double now) {
  Group& group = touch(id.prompt, now);
  if (group.given_up) return;
  Text& text = group.texts[id.sample];
  if (std::exchange(text.ended, true)) return;
  group.stretches.push_back({from, text.tokens.size(), id.sample, 0, true});
  if (++group.ended == limits_.samples_of(id.prompt)) erase(groups_.find(id.prompt));
}

std::uint64_t GroupLogs::held(RequestId id) const {
  const auto group = groups_.find(id.prompt);
  if (group == groups_.end()) return 0;
  const auto text = group->second.texts.find(id.sample);
  return text == group->second.texts.end() ? 0 : text->second.tokens.size();
}

// Entries of one text that continue one another become one stretch of the answer: most entries do,
// if a client has a lot to catch up with.
std::uint64_t GroupLogs::fetch(LogPlace& place, LogClient client, std::size_t most, double now,
                               std::vector<LoggedText>& texts) {
  const auto at = groups_.find(place.group);
  if (at == groups_.end()) return 0;
  Group& group = at->second;
  group.touched = now;
  if (place.epoch != group.epoch) place = {group.epoch, 0, place.group};
  std::map<std::uint32_t, std::size_t> last;  // of each sample, in the answer
  std::size_t taken = 0;
  for (; place.entry < group.stretches.size() && taken < most; ++place.entry) {
    const Stretch& stretch = group.stretches[place.entry];
    if (stretch.from == client) continue;
    const std::span<const TokenId> all = group.texts.at(stretch.sample).tokens;
    const std::span<const TokenId> tokens = all.subspan(stretch.offset, stretch.count);
    taken += tokens.size();
    const auto [known, added] = last.try_emplace(stretch.sample, texts.size());
    if (!added) {
      LoggedText& text = texts[known->second];
      if (text.offset + text.tokens.size() == stretch.offset) {
        text.tokens = all.subspan(text.offset, text.tokens.size() + stretch.count);
        text.ended = text.ended || stretch.ended;
        continue;
      }
      known->second = texts.size();
    }
    texts.push_back({{place.group, stretch.sample}, stretch.offset, tokens, stretch.ended});
  }
  std::uint64_t left = 0;
  for (std::size_t i = place.entry; i < group.stretches.size(); ++i)
    left += group.stretches[i].from == client ? 0 : group.stretches[i].count;
  return left;
}

void GroupLogs::fetch_earlier(LogPlace& place, std::size_t most, double now,
                              std::vector<LoggedText>& texts) {
  const auto at = groups_.find(place.group);
  if (at == groups_.end()) return;
  Group& group = at->second;
  group.touched = now;
  if (place.epoch != group.epoch) place = {group.epoch, 0, place.group};
  while (most > 0 && place.earlier < group.earlier.size()) {
    const EarlierText& text = group.earlier[place.earlier];
    const std::size_t first = std::min<std::size_t>(place.earlier_tokens, text.tokens.size());
    const std::size_t count = std::min(most, text.tokens.size() - first);
    const bool ends = first + count == text.tokens.size();
    texts.push_back({{place.group, text.sample},
                     first,
                     std::span(text.tokens).subspan(first, count),
                     ends,
                     text.age});
    most -= count;
    place.earlier += ends ? 1 : 0;
    place.earlier_tokens = ends ? 0 : static_cast<std::uint32_t>(first + count);
  }
}

std::uint64_t GroupLogs::left_earlier(const LogPlace& place) const {
  const auto at = groups_.find(place.group);
  if (at == groups_.end()) return 0;
  const Group& group = at->second;
  const bool here = place.epoch == group.epoch;
  std::uint64_t left = 0;
  for (std::size_t i = here ? place.earlier : 0; i < group.earlier.size(); ++i)
    left += group.earlier[i].tokens.size();
  return left - std::min<std::uint64_t>(left, here ? place.earlier_tokens : 0);
}

int GroupLogs::expire(double now) {
  int removed = 0;
  for (auto at = groups_.begin(); at != groups_.end();) {
    const auto next = std::next(at);
    if (now >= at->second.touched + limits_.ttl) {
      erase(at);
      ++removed;
    }
    at = next;
  }
  return removed;
}

}  // namespace paceline::draft
