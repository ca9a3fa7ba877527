#include "runtime/policy/schedule/rebalance.hpp"

#include <algorithm>

namespace paceline::policy {
namespace {

/// Positions of a block in the estimate of a move: the default KV block's.
constexpr int kBlock = 16;

auto plain_steps(const MoveCosts* costs) {
  return [costs](double requests, double context) {
    if (costs == nullptr || costs->table.decode.empty()) return requests;
    return costs->table.step_seconds({.requests = requests, .context = context});
  };
}

/// Seconds until all requests have ended. `requests`: sorted by falling remaining tokens.
template <class Seconds>
double drain(const Seconds& token_seconds, std::span<const Movable> requests) {
  double seconds = 0;
  double context = 0;  // sum of the running requests' positions
  for (std::size_t i = 0; i < requests.size(); ++i) {
    context += requests[i].positions;
    const double after = i + 1 < requests.size() ? requests[i + 1].remaining : 0;
    const auto rows = static_cast<double>(i + 1);
    // The context's second term: tokens that a request has gained meanwhile, on average.
    const double tokens = requests[i].remaining - after;
    seconds += tokens * token_seconds(rows, context / rows + (requests[i].remaining + after) / 2);
  }
  return seconds;
}

double move_seconds(const MoveCosts* costs, const Movable& request) {
  if (costs == nullptr) return 0;
  return split_move(*costs, static_cast<int>(request.positions), 0, kBlock).seconds;
}

/// Indices of requests, sorted by falling remaining tokens.
using Held = std::vector<std::size_t>;

class Rebalancing {
 public:
  Rebalancing(std::span<const GroupLoad> groups, std::span<const Movable> requests)
      : groups_(groups), requests_(requests), held_(groups.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) held_[requests[i].group].push_back(i);
    for (Held& held : held_) {
      std::stable_sort(held.begin(), held.end(), [&](std::size_t a, std::size_t b) {
        return requests[a].remaining > requests[b].remaining;
      });
    }
    for (std::size_t g = 0; g < groups.size(); ++g) end_.push_back(end(g, held_[g]));
  }

  std::vector<Transferral> run() {
    std::vector<int> goes_to(requests_.size(), kStays);
    for (std::size_t to = 0; to < groups_.size(); ++to) {
      if (!held_[to].empty() || groups_[to].room <= 0) continue;
      const auto from =
          static_cast<std::size_t>(std::max_element(end_.begin(), end_.end()) - end_.begin());
      Split split = best_split(from, to);
      if (split.later_end() >= end_[from]) continue;
      for (const std::size_t request : split.moves) goes_to[request] = static_cast<int>(to);
      held_[from] = std::move(split.stays);
      end_[from] = split.from_end;
      held_[to] = std::move(split.moves);
      end_[to] = split.to_end;
    }
    std::vector<Transferral> made;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (goes_to[i] != kStays && goes_to[i] != requests_[i].group) made.push_back({i, goes_to[i]});
    }
    return made;
  }

 private:
  static constexpr int kStays = -1;
  struct Split {
    Held stays, moves;
    double from_end = 0, to_end = 0;
    [[nodiscard]] double later_end() const { return std::max(from_end, to_end); }
  };

  [[nodiscard]] double end(std::size_t group, const Held& held) const {
    std::vector<Movable> requests;
    for (const std::size_t i : held) requests.push_back(requests_[i]);
    return drain(plain_steps(groups_[group].costs), requests);
  }

  [[nodiscard]] Split split_off(std::size_t from, std::size_t to, std::size_t count) const {
    Split split;
    for (const std::size_t i : held_[from]) {
      const bool moves = !requests_[i].bound && split.moves.size() < count;
      (moves ? split.moves : split.stays).push_back(i);
      if (moves) split.to_end += move_seconds(groups_[to].costs, requests_[i]);
    }
    split.from_end = end(from, split.stays);
    split.to_end += end(to, split.moves);
    return split;
  }

  /// Finds the best number of moves by bisection: the more requests move, the sooner `from` ends
  /// and the later `to` does.
  [[nodiscard]] Split best_split(std::size_t from, std::size_t to) const {
    std::size_t few = 0;
    std::size_t many = static_cast<std::size_t>(groups_[to].room);
    many = std::min(many, held_[from].size()) + 1;
    while (many - few > 1) {
      const std::size_t count = (few + many) / 2;
      const Split split = split_off(from, to, count);
      (split.from_end > split.to_end ? few : many) = count;
    }
    Split fewer = split_off(from, to, few);
    if (many > static_cast<std::size_t>(groups_[to].room)) return fewer;
    Split more = split_off(from, to, many);
    return more.later_end() < fewer.later_end() ? more : fewer;
  }

  std::span<const GroupLoad> groups_;
  std::span<const Movable> requests_;
  std::vector<Held> held_;   ///< by group
  std::vector<double> end_;  ///< by group: seconds from now
};

}  // namespace

double drain_seconds(const TokenSeconds& seconds, std::span<const Movable> requests) {
  std::vector<Movable> sorted(requests.begin(), requests.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Movable& a, const Movable& b) { return a.remaining > b.remaining; });
  return drain(seconds, sorted);
}

std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                   std::span<const Movable> requests) {
  return Rebalancing(groups, requests).run();
}

}  // namespace paceline::policy
