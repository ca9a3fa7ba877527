#include "runtime/policy/schedule/rebalance.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

/// Positions of a block in the estimate of a move: the default KV block's.
constexpr int kBlock = 16;

/// Least gain that is worth moving requests to a group that is busy: a smaller one is within the
/// noise of an estimate, and the next look would undo it.
constexpr double kLeastGain = 1.05;

auto steps_of(const GroupLoad& group) {
  return
      [&group](double requests, double context) { return step_seconds(group, requests, context); };
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
      : groups_(groups), requests_(requests), held_(groups.size()), gets_(groups.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      held_[requests[i].group].push_back(i);
      goes_to_.push_back(requests[i].group);
    }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      sort(held_[g]);
      end_.push_back(end(g, held_[g]));
      room_.push_back(groups[g].room);
    }
  }

  std::vector<Transferral> run() {
    for (std::size_t to = 0; to < groups_.size(); ++to) {
      if (!held_[to].empty() || room_[to] <= 0) continue;
      const auto from =
          static_cast<std::size_t>(std::max_element(end_.begin(), end_.end()) - end_.begin());
      Split split = best_split(from, to);
      if (split.later_end() < end_[from]) make(std::move(split), from, to);
    }
    even_out();
    std::vector<Transferral> made;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (goes_to_[i] != requests_[i].group) made.push_back({i, goes_to_[i]});
    }
    return made;
  }

 private:
  struct Split {
    Held stays, moves;
    double from_end = 0, to_end = 0;
    [[nodiscard]] double later_end() const { return std::max(from_end, to_end); }
  };

  /// Groups give requests to the busy group that ends soonest; those that end last come first. Each
  /// group takes part once: it is not known when requests on their way will be there.
  void even_out() {
    std::vector<std::size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return end_[a] > end_[b]; });
    for (const std::size_t from : order) {
      if (gets_[from]) continue;
      std::size_t to = from;
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (!gets_[g] && room_[g] > 0 && !held_[g].empty() && end_[g] < end_[to]) to = g;
      }
      if (end_[from] <= kLeastGain * end_[to]) continue;
      Split split = best_split(from, to);
      if (end_[from] > kLeastGain * split.later_end()) make(std::move(split), from, to);
    }
  }

  void make(Split split, std::size_t from, std::size_t to) {
    const auto count = static_cast<int>(split.moves.size());
    for (const std::size_t request : split.moves) goes_to_[request] = static_cast<int>(to);
    held_[from] = std::move(split.stays);
    end_[from] = split.from_end;
    room_[from] += count;
    held_[to].insert(held_[to].end(), split.moves.begin(), split.moves.end());
    sort(held_[to]);
    end_[to] = split.to_end;
    room_[to] -= count;
    gets_[to] = true;
  }

  void sort(Held& held) const {
    std::stable_sort(held.begin(), held.end(), [&](std::size_t a, std::size_t b) {
      return requests_[a].remaining > requests_[b].remaining;
    });
  }

  /// `held`: sorted.
  [[nodiscard]] double end(std::size_t group, const Held& held) const {
    std::vector<Movable> requests;
    for (const std::size_t i : held) requests.push_back(requests_[i]);
    return drain(steps_of(groups_[group]), requests);
  }

  [[nodiscard]] Split split_off(std::size_t from, std::size_t to, std::size_t count) const {
    Split split;
    for (const std::size_t i : held_[from]) {
      const bool moves = !requests_[i].bound && split.moves.size() < count;
      (moves ? split.moves : split.stays).push_back(i);
      if (moves) split.to_end += move_seconds(groups_[to].costs, requests_[i]);
    }
    Held all = held_[to];
    all.insert(all.end(), split.moves.begin(), split.moves.end());
    sort(all);
    split.from_end = end(from, split.stays);
    split.to_end += end(to, all);
    return split;
  }

  /// Finds the best number of moves by bisection: the more requests move, the sooner `from` ends
  /// and the later `to` does.
  [[nodiscard]] Split best_split(std::size_t from, std::size_t to) const {
    std::size_t few = 0;
    std::size_t many = static_cast<std::size_t>(room_[to]);
    many = std::min(many, held_[from].size()) + 1;
    while (many - few > 1) {
      const std::size_t count = (few + many) / 2;
      const Split split = split_off(from, to, count);
      (split.from_end > split.to_end ? few : many) = count;
    }
    Split fewer = split_off(from, to, few);
    if (many > static_cast<std::size_t>(room_[to])) return fewer;
    Split more = split_off(from, to, many);
    return more.later_end() < fewer.later_end() ? more : fewer;
  }

  std::span<const GroupLoad> groups_;
  std::span<const Movable> requests_;
  std::vector<int> goes_to_;  ///< [requests] index of a group
  std::vector<Held> held_;    ///< by group
  std::vector<double> end_;   ///< by group: seconds from now
  std::vector<int> room_;     ///< by group
  std::vector<bool> gets_;    ///< by group: further requests
};

}  // namespace

double step_seconds(const GroupLoad& group, double requests, double context) {
  if (group.costs == nullptr || group.costs->table.decode.empty()) return requests;
  return group.costs->table.step_seconds(
      {.requests = requests, .drafted = requests * group.drafted, .context = context});
}

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
