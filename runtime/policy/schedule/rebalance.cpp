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

/// Share of drafted tokens that are accepted, by estimate. Simulated runs in which 0.6 and 0.8 of a
/// draft model's tokens are right have 0.48 and 0.63 (specactor-lognormal.yaml on 16 GPUs).
constexpr double kAcceptedShare = 0.5;

auto tokens_of(const GroupLoad& group) {
  return
      [&group](double requests, double context) { return token_seconds(group, requests, context); };
}

/// Seconds until all `count` requests have ended. `request(i)`: the i-th by falling remaining
/// tokens.
template <class Seconds, class Request>
double drain(const Seconds& token_seconds, std::size_t count, const Request& request) {
  double seconds = 0;
  double context = 0;  // sum of the running requests' positions
  for (std::size_t i = 0; i < count; ++i) {
    const Movable& r = request(i);
    context += r.positions;
    const double after = i + 1 < count ? request(i + 1).remaining : 0;
    const double tokens = r.remaining - after;
    if (tokens == 0) continue;  // ends with the next one
    const auto rows = static_cast<double>(i + 1);
    // The context's second term: tokens that a request has gained meanwhile, on average.
    seconds += tokens * token_seconds(rows, context / rows + (r.remaining + after) / 2);
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
      : groups_(groups), requests_(requests), held_(groups.size()), takes_part_(groups.size()) {
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

  /// Each group that has run dry gets requests of the one that ends last.
  void fill_dry() {
    for (std::size_t to = 0; to < groups_.size(); ++to) {
      if (!held_[to].empty() || room_[to] <= 0) continue;
      const auto from =
          static_cast<std::size_t>(std::max_element(end_.begin(), end_.end()) - end_.begin());
      Split split = best_split(from, to);
      if (split.later_end() < end_[from]) make(std::move(split), from, to);
    }
  }

  /// Groups give requests to the busy group that ends soonest, those that end last first, until a
  /// gift does not pay: the others would gain less. Each group takes part once, for requests on
  /// their way arrive, and leave room behind, later.
  void even_out() {
    std::vector<std::size_t> order(groups_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return end_[a] > end_[b]; });
    for (const std::size_t from : order) {
      if (takes_part_[from]) continue;
      std::size_t to = from;
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        if (!takes_part_[g] && room_[g] > 0 && !held_[g].empty() && end_[g] < end_[to]) to = g;
      }
      if (end_[from] <= kLeastGain * end_[to]) return;
      Split split = best_split(from, to);
      if (end_[from] <= kLeastGain * split.later_end()) return;
      make(std::move(split), from, to);
    }
  }

  [[nodiscard]] std::vector<Transferral> made() const {
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

  void make(Split split, std::size_t from, std::size_t to) {
    for (const std::size_t request : split.moves) goes_to_[request] = static_cast<int>(to);
    held_[from] = std::move(split.stays);
    end_[from] = split.from_end;
    held_[to].insert(held_[to].end(), split.moves.begin(), split.moves.end());
    sort(held_[to]);
    end_[to] = split.to_end;
    room_[to] -= static_cast<int>(split.moves.size());
    takes_part_[from] = takes_part_[to] = true;
  }

  void sort(Held& held) const {
    std::stable_sort(held.begin(), held.end(), [&](std::size_t a, std::size_t b) {
      return requests_[a].remaining > requests_[b].remaining;
    });
  }

  /// `held`: sorted.
  [[nodiscard]] double end(std::size_t group, const Held& held) const {
    return drain(tokens_of(groups_[group]), held.size(),
                 [&](std::size_t i) -> const Movable& { return requests_[held[i]]; });
  }

  /// `count` requests move, and take so many seconds.
  [[nodiscard]] Split split_off(std::size_t from, std::size_t to, std::size_t count,
                                double seconds) const {
    Split split;
    for (const std::size_t i : held_[from]) {
      const bool moves = !requests_[i].bound && split.moves.size() < count;
      (moves ? split.moves : split.stays).push_back(i);
    }
    Held all = held_[to];
    all.insert(all.end(), split.moves.begin(), split.moves.end());
    sort(all);
    split.from_end = end(from, split.stays);
    split.to_end = seconds + end(to, all);
    return split;
  }

  /// Finds the best number of moves by bisection: the more requests move, the sooner `from` ends
  /// and the later `to` does.
  [[nodiscard]] Split best_split(std::size_t from, std::size_t to) const {
    std::vector<double> seconds{0};  // [number of moves]
    for (const std::size_t i : held_[from]) {
      if (seconds.size() > static_cast<std::size_t>(room_[to])) break;
      if (!requests_[i].bound)
        seconds.push_back(seconds.back() + move_seconds(groups_[to].costs, requests_[i]));
    }
    const auto split = [&](std::size_t count) {
      return split_off(from, to, count, seconds[count]);
    };
    std::size_t few = 0;
    std::size_t many = seconds.size();
    while (many - few > 1) {
      const std::size_t count = (few + many) / 2;
      const Split half = split(count);
      (half.from_end > half.to_end ? few : many) = count;
    }
    Split fewer = split(few);
    if (many == seconds.size()) return fewer;
    Split more = split(many);
    return more.later_end() < fewer.later_end() ? more : fewer;
  }

  std::span<const GroupLoad> groups_;
  std::span<const Movable> requests_;
  std::vector<int> goes_to_;      ///< [requests] index of a group
  std::vector<Held> held_;        ///< by group
  std::vector<double> end_;       ///< by group: seconds from now
  std::vector<int> room_;         ///< by group
  std::vector<bool> takes_part_;  ///< by group: gives requests or gets some
};

}  // namespace

double token_seconds(const GroupLoad& group, double requests, double context) {
  if (group.costs == nullptr || group.costs->table.decode.empty()) return requests;
  const double step = group.costs->table.step_seconds(
      {.requests = requests, .drafted = requests * group.drafted, .context = context});
  return step / (1 + kAcceptedShare * group.drafted);
}

double drain_seconds(const TokenSeconds& seconds, std::span<const Movable> requests) {
  std::vector<Movable> sorted(requests.begin(), requests.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Movable& a, const Movable& b) { return a.remaining > b.remaining; });
  return drain(seconds, sorted.size(), [&](std::size_t i) -> const Movable& { return sorted[i]; });
}

std::vector<Transferral> rebalance(std::span<const GroupLoad> groups,
                                   std::span<const Movable> requests) {
  Rebalancing rebalancing(groups, requests);
  rebalancing.fill_dry();
  rebalancing.even_out();
  return rebalancing.made();
}

std::vector<Transferral> fill_dry(std::span<const GroupLoad> groups,
                                  std::span<const Movable> requests) {
  Rebalancing rebalancing(groups, requests);
  rebalancing.fill_dry();
  return rebalancing.made();
}

}  // namespace paceline::policy
