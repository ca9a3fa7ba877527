#include "runtime/sim/drafter.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace paceline::sim {
namespace {

/// Tokens that every draft computes first and that are no lag. A real draft computes the last
/// committed token, and the one before where the last draft was accepted whole.
constexpr int kBegins = 1;

}  // namespace

void ModelledDrafter::start(const draft::DraftStart& start, double) {
  DraftedRequest r;
  r.response = &responses_.of(start.noise);
  r.tokens = static_cast<std::int32_t>(start.response.size());
  if (prompts_.contains(start.id.prompt))
    r.computed = static_cast<std::int32_t>(start.prompt.size());
  if (!requests_.try_emplace(start.id, r).second) throw std::logic_error("a request started twice");
}

void ModelledDrafter::commit(RequestId id, std::span<const TokenId> tokens, double) {
  requests_.at(id).tokens += static_cast<std::int32_t>(tokens.size());
}

int ModelledDrafter::lag(const DraftedRequest& r) const {
  if (costs_.catch_up.empty()) return 0;
  return std::max(0, text(r) - r.computed - kBegins);
}

void ModelledDrafter::finish(RequestId id, double) {
  if (requests_.erase(id) == 0) throw std::logic_error("a request that was not started");
  finished_[id.prompt].insert(id.sample);
}

void ModelledDrafter::hear(RequestId id, std::uint64_t, std::span<const TokenId>, bool ended,
                           double) {
  if (ended) finished_[id.prompt].insert(id.sample);
}

void ModelledDrafter::leave(RequestId id, double) {
  if (requests_.erase(id) == 0) throw std::logic_error("a request that was not started");
}

void ModelledDrafter::suspend() {
  suspended_ = true;
  prompts_.clear();
  for (auto& [id, request] : requests_) {
    request.computed = 0;
    request.drafted = false;
  }
}

bool ModelledDrafter::resume() {
  suspended_ = false;
  return true;
}

std::int32_t ModelledDrafter::right(const DraftedRequest& r, const draft::DraftSlot& slot) const {
  const auto assumed = static_cast<std::int32_t>(slot.assumed.size());
  std::int32_t count = 0;
  while (count < assumed && slot.assumed[count] == responses_.token(*r.response, r.tokens + count))
    ++count;
  return count;
}

/// Number of siblings that count for the prompt's drafts.
int ModelledDrafter::references(std::uint32_t prompt) const {
  if (!learns_) return 0;
  const auto seen = finished_.find(prompt);
  return seen == finished_.end() ? 0 : static_cast<int>(seen->second.size());
}

void ModelledDrafter::propose(std::span<draft::DraftSlot> batch, double, draft::Levels*) {
  std::vector<int> deep;
  std::vector<std::int32_t> right;
  if (suspended_) throw std::logic_error("drafts of a draft model that is suspended");
  for (draft::DraftSlot& slot : batch) {
    DraftedRequest& r = request(slot.id);
    const RequestDrafts& drafts = r.response->drafts;
    const int references = this->references(slot.id.prompt);
    const int most =
        std::min({slot.limits.max_length, slot.limits.max_tokens, slot.output.capacity()});
    const auto first = r.tokens + static_cast<std::int32_t>(slot.assumed.size());
    float path = 1;
    right.push_back(this->right(r, slot));
    slot.count = 0;
    for (std::int32_t at = first; slot.count < most && at < r.response->request->length; ++at) {
      const double rate = drafts.rate(method_, at, references, r.drift);
      const TokenId token = responses_.token(*r.response, at);
      const auto [agrees, score] = drafts.drafted(method_, at, rate);
      const TokenId wrong = wrong_token(token, responses_.vocab());
      path *= static_cast<float>(score);
      slot.output.set(slot.count, agrees ? token : wrong, slot.count - 1, path);
      if (!slot.runners_up.empty()) {
        const bool second = !agrees && drafts.second_agrees(method_, at);
        slot.runners_up[slot.count] = second   ? token
                                      : agrees ? wrong
                                               : wrong_token(wrong, responses_.vocab());
      }
      if (agrees && right.back() == at - r.tokens) ++right.back();
      ++slot.count;
    }
    if (slot.count > static_cast<int>(deep.size())) deep.resize(slot.count);
    for (int level = 0; level < slot.count; ++level) ++deep[level];
  }
  spend(batch, deep, right);
}

/// Seconds of a call's first round, in which `going_on` of the `rows` drafts follow tokens of the
/// drafter's last call.
double ModelledDrafter::first_seconds(int rows, int going_on, double context) const {
  if (going_on == 0 || costs_.next.empty()) return costs_.first.seconds(rows, context);
  const int anew = rows - going_on;
  const double all = costs_.next.seconds(rows, context);
  if (anew == 0) return all;
  return all +
         std::max(0.0, costs_.first.seconds(anew, context) - costs_.next.seconds(anew, context));
}

void ModelledDrafter::spend(std::span<const draft::DraftSlot> batch, std::span<const int> deep,
                            std::span<const std::int32_t> right, double other_seconds) {
  double context = 0;
  double behind = 0;
  int going_on = 0;  // drafts that follow tokens of the drafter's last call
  for (std::size_t i = 0; i < batch.size(); ++i) {
    DraftedRequest& r = requests_.at(batch[i].id);
    context += text(r);
    const auto from = text(r) + static_cast<std::int32_t>(batch[i].assumed.size());
    const bool goes_on = batch[i].branch != 0 || r.drafted_to == from;
    if (batch[i].count > 0 && !batch[i].assumed.empty() && goes_on) ++going_on;
    if (batch[i].branch == 0) {  // a branch continues KV that its chain computes
      behind += lag(r);
      r.drafted_to = from + batch[i].count;
    }
    // A draft leaves the KV of all its tokens except the last, from which no call went on.
    const auto ahead = static_cast<std::int32_t>(batch[i].assumed.size()) + batch[i].count - 1;
    r.computed = std::max(r.computed, text(r) + std::clamp(ahead, 0, right[i]));
    if (!std::exchange(r.drafted, true)) prompts_.insert(batch[i].id.prompt);
  }
  if (deep.empty()) return;
  context /= static_cast<double>(batch.size());
  double seconds = other_seconds + first_seconds(deep[0], going_on, context);
  for (std::size_t level = 1; level < deep.size(); ++level)
    seconds += costs_.round.seconds(deep[level], context);
  if (behind > 0 && !costs_.catch_up.empty()) {
    const double from = std::max(behind, costs_.catch_up.points().front().rows);
    seconds += costs_.catch_up.seconds(from, context) * behind / from;
  }
  world_.work(actor_, seconds);
}

}  // namespace paceline::sim
