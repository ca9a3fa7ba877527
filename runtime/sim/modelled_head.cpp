#include "runtime/sim/modelled_head.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "runtime/sim/draws.hpp"

namespace paceline::sim {
namespace {

constexpr int kCalls = StopPoint::kCalls;
constexpr int kStates = StopPoint::kStates;
constexpr float kNone = -20;  ///< recorded in place of a missing or less likely token
using Scores = std::array<std::array<float, kStates>, kCalls>;  ///< by level; log-probabilities

/// Scores of all levels. The last level was not recorded, as there is no decision after it. It gets
/// the scores of the level before, lowered by the log-probability that it is reached.
Scores scores_of(const StopPoint& point) {
  Scores scores;
  std::copy(point.states.begin(), point.states.end(), scores.begin());
  const auto& lengths = point.lengths.back();
  const float reached = lengths[kCalls - 1] + lengths[kCalls];
  const float on = reached > 0 ? std::log(std::max(lengths[kCalls] / reached, 1e-6F)) : 0;
  for (int rank = 0; rank < kStates; ++rank)
    scores[kCalls - 1][rank] = scores[kCalls - 2][rank] + std::min(on, 0.0F);
  return scores;
}

/// Ranks of the target's tokens at the first `levels` levels. They are drawn from the last level
/// back to the first, by score, among the level's tokens that are at least as likely as the token
/// drawn for the next level.
std::array<int, kCalls> path_of(const Scores& scores, int levels, const NoiseKey& noise,
                                std::int32_t first) {
  std::array<int, kCalls> ranks{};
  float least = -INFINITY;
  for (int level = levels - 1; level >= 0; --level) {
    const auto& of_level = scores[level];
    double sum = 0;
    for (const float score : of_level) sum += score >= least ? std::exp(score) : 0;
    double left = sum * uniform(noise, Draw::tree_path, static_cast<std::uint32_t>(first),
                                static_cast<std::uint32_t>(level));
    int rank = 0;
    while (rank + 1 < kStates && of_level[rank + 1] >= least && left >= std::exp(of_level[rank]))
      left -= std::exp(of_level[rank++]);
    ranks[level] = rank;
    least = of_level[rank];
  }
  return ranks;
}

/// A token that is neither `token` nor kModelledStop, a different one for each `number`.
TokenId other_token(TokenId token, int number, std::int32_t vocabulary) {
  return 1 + (token + number % (vocabulary - 2)) % (vocabulary - 1);
}

}  // namespace

void ModelledHead::propose(std::span<draft::DraftSlot> batch, double, draft::Levels* levels) {
  std::vector<Job> jobs;
  std::vector<std::int32_t> right;
  for (draft::DraftSlot& slot : batch) {
    const DraftedRequest& r = request(slot.id);
    const auto first = r.tokens + static_cast<std::int32_t>(slot.assumed.size());
    const int most = std::min({slot.limits.max_length, kCalls, r.response->request->length - first,
                               std::min(slot.limits.max_tokens, slot.output.capacity())});
    right.push_back(this->right(r, slot));
    jobs.push_back({&slot, r.response, &points_.at(r.response->noise, first), first, most, 0});
    slot.count = 0;
  }
  std::vector<int> deep;
  int decisions = 0;
  for (int level = 1; level <= kCalls; ++level) {
    std::vector<draft::GrowingDraft> growing;
    std::vector<Job*> grown;
    int count = 0;
    for (Job& job : jobs) {
      if (job.levels != level - 1 || job.most < level) continue;
      job.levels = level;
      ++count;
      if (levels == nullptr || level == job.most) continue;
      const auto& states = job.point->states[level - 1];
      const auto width = std::clamp(job.slot->limits.paths, 1, kStates);
      growing.push_back({job.slot->id, job.response->noise, job.first,
                         std::span(states).first(static_cast<std::size_t>(width)), true});
      grown.push_back(&job);
    }
    if (count == 0) break;
    deep.push_back(count);
    if (growing.empty()) continue;
    levels->judge(level, growing);
    decisions += static_cast<int>(growing.size());
    for (std::size_t i = 0; i < growing.size(); ++i) {
      if (!growing[i].grows) grown[i]->most = level;
    }
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const bool follows = right[i] == static_cast<std::int32_t>(jobs[i].slot->assumed.size());
    write(jobs[i], follows);
    jobs[i].slot->calls = jobs[i].levels;
    if (follows && jobs[i].levels > 0) right[i] += jobs[i].point->accepted[jobs[i].levels - 1];
  }
  spend(batch, deep, right, kStopSeconds * decisions);
}

void ModelledHead::write(const Job& job, bool follows_text) const {
  if (job.levels == 0) return;
  struct Node {
    float score = 0;
    int level = 0;
    int rank = 0;
  };
  const Scores scores = scores_of(*job.point);
  int accepted = follows_text ? std::min<int>(job.point->accepted[job.levels - 1], job.levels) : 0;
  const std::array<int, kCalls> path = path_of(scores, accepted, job.response->noise, job.first);
  const draft::DraftLimits& limits = job.slot->limits;
  const int width = std::min(limits.paths, kStates);
  for (int level = 0; level < accepted; ++level) {
    if (path[level] >= width) accepted = level;
  }
  std::vector<Node> nodes;
  for (int level = 0; level < job.levels; ++level) {
    for (int rank = 0; rank < width && scores[level][rank] > kNone; ++rank)
      nodes.push_back({scores[level][rank], level, rank});
  }
  // A stable sort keeps parents first: no token is likelier than its parent.
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Node& a, const Node& b) { return a.score > b.score; });
  const auto most =
      static_cast<std::size_t>(std::min(limits.max_tokens, job.slot->output.capacity()));
  nodes.resize(std::min(nodes.size(), most));
  std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
    return std::tie(a.level, a.rank) < std::tie(b.level, b.rank);
  });
  std::array<std::array<std::int32_t, kStates>, kCalls> places{};
  for (const Node& node : nodes) {
    const bool says = node.level < accepted && path[node.level] == node.rank;
    // The parent of a token that is not the target's may be any likelier one: the first is taken.
    const int before = says && node.level > 0 ? path[node.level - 1] : 0;
    const TokenId token = responses().token(*job.response, job.first + node.level);
    places[node.level][node.rank] = job.slot->count;
    job.slot->output.set(
        job.slot->count, says ? token : other_token(token, node.rank, responses().vocab()),
        node.level == 0 ? -1 : places[node.level - 1][before], std::exp(node.score));
    ++job.slot->count;
  }
}

}  // namespace paceline::sim
