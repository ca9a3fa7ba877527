#include "runtime/policy/schedule/request_order.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace paceline::policy {
namespace {

/// Most tokens of a response to the prompt.
std::uint32_t most_tokens(std::span<const Prompt> prompts, std::uint32_t prompt,
                          std::uint32_t max_tokens) {
  if (prompt >= prompts.size() || !prompts[prompt].sampling.max_tokens) return max_tokens;
  return static_cast<std::uint32_t>(*prompts[prompt].sampling.max_tokens);
}

}  // namespace

void RequestOrder::add(RequestId id, std::uint32_t tokens) {
  const std::uint64_t prompt = prompts_.try_emplace(id.prompt, prompts_.size()).first->second;
  arrivals_.try_emplace(id, Arrival{arrivals_.size(), prompt});
  const Precedence precedence = this->precedence(id, tokens);
  if (!by_id_.try_emplace(id, Waiting{tokens, precedence}).second)
    throw std::logic_error("a request that waits is to wait");
  enter({precedence, id});
}

void RequestOrder::remove(RequestId id) {
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) throw std::logic_error("a request that does not wait");
  leave({at->second.precedence, id});
  by_id_.erase(at);
}

void RequestOrder::enter(const Candidate& candidate) {
  waiting_.insert(candidate);
  entered(candidate);
}

void RequestOrder::leave(const Candidate& candidate) {
  waiting_.erase(candidate);
  left(candidate);
}

std::optional<RequestId> RequestOrder::nth(const Slot& /*slot*/, std::size_t n) const {
  if (n >= waiting_.size()) return std::nullopt;
  return std::next(waiting_.begin(), static_cast<std::ptrdiff_t>(n))->id;
}

bool RequestOrder::displaces(RequestId running, std::uint32_t tokens, const Slot& slot,
                             std::size_t leaving) {
  const std::optional<RequestId> waits = nth(slot, leaving);
  if (!waits) return false;
  const Precedence first = by_id_.at(*waits).precedence;
  const Precedence own = precedence(running, tokens);
  return std::tie(first.level, first.key) < std::tie(own.level, own.key);
}

std::vector<RequestId> RequestOrder::upcoming(std::size_t most) const {
  std::vector<RequestId> ids;
  for (auto at = waiting_.begin(); at != waiting_.end() && ids.size() < most; ++at)
    ids.push_back(at->id);
  return ids;
}

void RequestOrder::renew(std::uint32_t prompt) {
  for (auto at = by_id_.lower_bound({prompt, 0}); at != by_id_.end() && at->first.prompt == prompt;
       ++at) {
    auto& [id, waiting] = *at;
    leave({waiting.precedence, id});
    waiting.precedence = precedence(id, waiting.tokens);
    enter({waiting.precedence, id});
  }
}

Precedence FirstCome::precedence(RequestId id, std::uint32_t /*tokens*/) {
  return {.key = static_cast<double>(arrival(id).request)};
}

Precedence QueueAgain::precedence(RequestId /*id*/, std::uint32_t /*tokens*/) {
  return {.key = next_++};
}

Precedence GroupStatic::precedence(RequestId id, std::uint32_t /*tokens*/) {
  return {.key = static_cast<double>(arrival(id).prompt), .place = arrival(id).request};
}

/// An instance's prompts are those that arrived from place index/of to place (index + 1)/of, as
/// shares of all prompts.
std::optional<RequestId> GroupStatic::nth(const Slot& slot, std::size_t n) const {
  const auto begin = [&](int index) {
    const auto instances = static_cast<std::uint64_t>(slot.of / instance_);
    return static_cast<double>((index * prompts() + instances - 1) / instances);
  };
  const int instance = slot.index / instance_;
  const auto own = [&](const Candidate& candidate) {
    return static_cast<int>(candidate.precedence.place % instance_) == slot.index % instance_;
  };
  for (auto at = waiting().lower_bound({{.key = begin(instance)}, {}});
       at != waiting().end() && at->precedence.key < begin(instance + 1); ++at) {
    if (own(*at) && n-- == 0) return at->id;
  }
  return std::nullopt;
}

LongestFirst::LongestFirst(std::map<RequestId, std::uint32_t> lengths, std::uint32_t max_tokens,
                           std::span<const Prompt> prompts)
    : lengths_(std::move(lengths)), max_tokens_(max_tokens), prompts_(prompts) {}

Precedence LongestFirst::precedence(RequestId id, std::uint32_t /*tokens*/) {
  const auto at = lengths_.find(id);
  const std::uint32_t length =
      at == lengths_.end() ? most_tokens(prompts_, id.prompt, max_tokens_) : at->second;
  return {.key = -static_cast<double>(length), .place = arrival(id).request};
}

ContextAware::ContextAware(std::uint32_t max_tokens, std::uint64_t seed,
                           std::span<const Prompt> prompts)
    : max_tokens_(max_tokens), prompts_(prompts), random_(seed) {}

std::uint32_t ContextAware::estimate(std::uint32_t prompt) const {
  const auto at = longest_.find(prompt);
  return at == longest_.end() ? most_tokens(prompts_, prompt, max_tokens_) : at->second;
}

Precedence ContextAware::precedence(RequestId id, std::uint32_t tokens) {
  const std::uint32_t probe = probes_.try_emplace(id.prompt, id.sample).first->second;
  const std::uint64_t place = arrival(id).request;
  if (id.sample == probe) return {0, static_cast<double>(tokens), place};
  return {1, -static_cast<double>(std::max(estimate(id.prompt), tokens)), place};
}

void ContextAware::remove(RequestId id) {
  RequestOrder::remove(id);
  change(id.prompt, [](Siblings& siblings) { ++siblings.leases; });
  starved_due_ = random_() % kStarved == 0;
  starved_.reset();
}

void ContextAware::ended(RequestId id, std::uint32_t tokens) {
  const auto [longest, first] = longest_.try_emplace(id.prompt, tokens);
  if (!first && tokens <= longest->second) return;
  longest->second = tokens;
  renew(id.prompt);
}

std::optional<RequestId> ContextAware::next(const Slot& slot) {
  if (!starved_due_) return nth(slot, 0);
  if (!starved_) starved_ = least_leased();
  return starved_;
}

/// The first waiting request of the least leased prompt. If any probe waits, the first probe, as
/// always.
std::optional<RequestId> ContextAware::least_leased() const {
  if (waiting().empty()) return std::nullopt;
  const Candidate& first = *waiting().begin();
  return first.precedence.level == 0 ? first.id : starvation_.begin()->first.id;
}

template <typename Change>
void ContextAware::change(std::uint32_t prompt, const Change& change) {
  Siblings& siblings = siblings_[prompt];
  if (!siblings.waiting.empty()) starvation_.erase({siblings.leases, *siblings.waiting.begin()});
  change(siblings);
  if (!siblings.waiting.empty()) starvation_.insert({siblings.leases, *siblings.waiting.begin()});
}

void ContextAware::entered(const Candidate& candidate) {
  change(candidate.id.prompt, [&](Siblings& siblings) { siblings.waiting.insert(candidate); });
}

void ContextAware::left(const Candidate& candidate) {
  change(candidate.id.prompt, [&](Siblings& siblings) { siblings.waiting.erase(candidate); });
}

}  // namespace paceline::policy
