#include "runtime/policy/schedule/balancing_scheduler.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/policy/schedule/balance.hpp"
#include "runtime/policy/schedule/leases.hpp"
#include "runtime/policy/schedule/rebalance.hpp"

namespace paceline::policy {

namespace {

/// Ratio of two groups' seconds a token from which on requests may move from one to the other:
/// where it is less, rebalance() would find no gain that is worth a move.
constexpr double kUneven = 1.05;

Slot slot_of(const RunState& run, const GroupState& group) {
  const auto at =
      std::lower_bound(run.groups.begin(), run.groups.end(), group.ranks.leader,
                       [](const GroupState& g, int leader) { return g.ranks.leader < leader; });
  return {static_cast<int>(at - run.groups.begin()), static_cast<int>(run.groups.size())};
}

double share_of(const RunState& run, const GroupState& group) {
  int ranks = 0;
  for (const GroupState& g : run.groups) ranks += g.ranks.tp;
  return static_cast<double>(group.ranks.tp) / ranks;
}

}  // namespace

/// Leases the first request in order, if there is room for it. If smaller requests could go before
/// it, there might never be room.
std::optional<LeaseOrder> BalancingScheduler::lease(const RunState& run, const GroupState& group) {
  const RequestTable& table = run.requests;
  if (group.room <= 0 || table.waiting().empty()) return std::nullopt;
  const int held = table.held_by(group.ranks.leader);
  if (options_.shares && leases_due({.room = group.room,
                                     .held = held,
                                     .unfinished = table.total() - table.finished(),
                                     .share = share_of(run, group)}) == 0)
    return std::nullopt;
  const std::optional<RequestId> next = table.order().next(slot_of(run, group));
  if (!next) return std::nullopt;
  const auto tokens =
      static_cast<std::uint32_t>(table.waiting().at(*next).trajectory.tokens.size());
  const Prompt& prompt = run.prompts[next->prompt];
  const std::uint32_t until = options_.terms.until(prompt, tokens);
  const int blocks = options_.terms.blocks(prompt, tokens, until);
  // A group that holds no request has room for any, or will soon.
  if (blocks > group.kv_room && held > 0) return std::nullopt;
  return LeaseOrder{*next, until};
}

LeaseEnd BalancingScheduler::at_end(const RunState& run, const GroupState& group, RequestId id) {
  const LeaseTerms& terms = options_.terms;
  const LeasedRequest& request = run.requests.leased().at(id);
  const auto& moves = run.requests.moves();
  const auto leaving = static_cast<std::size_t>(std::count_if(
      moves.begin(), moves.end(), [](const auto& move) { return move.second == kToTable; }));
  if (run.requests.order().displaces(id, request.tokens, slot_of(run, group), leaving)) return {};
  const Prompt& prompt = run.prompts[id.prompt];
  const std::uint32_t until = terms.until(prompt, request.until);
  const int further = terms.blocks(prompt, request.until, until) -
                      terms.blocks(prompt, request.tokens, request.until);
  if (further > group.kv_room && run.requests.held_by(group.ranks.leader) > 1) return {};
  return {until};
}

/// Whether to look at all requests for moves, which takes time: when a group has run dry, and after
/// that, or where groups advance unevenly, once in as many reports as there are groups. One more
/// report seldom changes the answer.
bool BalancingScheduler::worth_a_look(const RunState& run) {
  const auto dry = static_cast<std::size_t>(
      std::count_if(run.groups.begin(), run.groups.end(),
                    [](const GroupState& group) { return group.active == 0; }));
  const bool more = dry > dry_;
  dry_ = dry;
  if (more) {
    passed_over_ = 0;
    return true;
  }
  if (++passed_over_ < run.groups.size()) return false;
  passed_over_ = 0;
  return dry > 0 || (options_.rebalance && uneven(run));
}

/// Whether a token takes the slowest group clearly longer than the fastest one.
bool BalancingScheduler::uneven(const RunState& run) const {
  double least = HUGE_VAL;
  double most = 0;
  for (const GroupState& group : run.groups) {
    const double seconds =
        token_seconds({group.room, group.costs, options_.drafted}, std::max(1, group.active), 0);
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
  return most > kUneven * least;
}

/// Leaves out moves to busy groups with too few KV blocks for a further request: it would wait
/// there, and its own group has let it go.
std::vector<RequestMove> BalancingScheduler::moves(const RunState& run) {
  const RequestTable& table = run.requests;
  next_.reset();
  looks_ = table.waiting().empty() && !table.leased().empty() && worth_a_look(run);
  if (!options_.rebalance || !looks_) return {};
  std::map<int, int> room;  // KV blocks, by leader of a busy group
  for (const GroupState& group : run.groups) {
    if (group.active > 0) room[group.ranks.leader] = group.kv_room;
  }
  const auto takes = [&](RequestId id, int to) {
    const auto at = room.find(to);
    const auto request = table.leased().find(id);
    if (at == room.end() || request == table.leased().end()) return true;
    at->second -= options_.terms.blocks(run.prompts[id.prompt], request->second.tokens,
                                        request->second.until);
    return at->second >= 0;
  };
  for (const auto& [id, to] : table.moves()) takes(id, to);
  const Balance balance(run, options_.drafted);
  std::vector<RequestMove> made;
  for (const Transferral& t : rebalance(balance.loads, balance.requests)) {
    const RequestMove move{balance.ids[t.request], run.groups[t.to].ranks.leader};
    if (takes(move.id, move.to)) made.push_back(move);
  }
  return made;
}

/// Whether a group that is formed again would get requests of others. It is taken to be like the
/// group with the most room.
bool BalancingScheduler::would_balance(const RunState& run) const {
  if (!options_.rebalance) return false;
  Balance balance(run, options_.drafted);
  const auto as_any =
      std::max_element(balance.loads.begin(), balance.loads.end(),
                       [](const GroupLoad& a, const GroupLoad& b) { return a.room < b.room; });
  if (as_any == balance.loads.end()) return false;
  const GroupLoad dry = *as_any;
  balance.loads.push_back(dry);
  const auto to = static_cast<int>(balance.loads.size()) - 1;
  const std::vector<Transferral> made = fill_dry(balance.loads, balance.requests);
  return std::any_of(made.begin(), made.end(), [to](const Transferral& t) { return t.to == to; });
}

/// Leaves out races of groups that are to be taken apart, and races that do not pay.
std::vector<RaceOrder> BalancingScheduler::races(const RunState& run) {
  if (!looks_ || dry_ == 0) return {};
  next_ = tail(run);
  std::vector<RaceOrder> orders = races_due(run, options_.racing);
  if (options_.tail.methods.empty() || orders.empty()) return orders;
  std::map<int, TailGroup> holders;
  for (TailGroup& group : tail_groups(run, options_.tail)) {
    const int leader = group.leader;
    holders.emplace(leader, std::move(group));
  }
  std::erase_if(orders, [&](const RaceOrder& order) {
    const auto holder = holders.find(run.requests.leased().at(order.id).group);
    const bool apart = next_ && next_->group(order.group) < 0;
    return apart ||
           (holder != holders.end() &&
            !race_pays(holder->second, static_cast<std::size_t>(order.method), options_.tail));
  });
  return orders;
}

/// Returns the placement that races() found. Looks for one itself where groups have been taken
/// apart and requests wait for them, or where there is one group only, so that races() was not
/// asked.
std::optional<Placement> BalancingScheduler::placement(const RunState& run) {
  const bool apart = run.groups.size() < options_.tail.home.groups.size();
  if (!next_ && apart && (!run.requests.waiting().empty() || run.groups.size() < 2))
    return tail(run);
  if (next_) return std::exchange(next_, std::nullopt);
  return grows_due(run) ? grown_placement(run, options_.growth) : std::nullopt;
}

/// Whether to consider joining groups: once in as many reports as there are groups, for one more
/// report seldom changes the answer.
bool BalancingScheduler::grows_due(const RunState& run) {
  if (options_.growth.costs.empty() || ++since_growth_ < run.groups.size()) return false;
  since_growth_ = 0;
  return true;
}

std::optional<Placement> BalancingScheduler::tail(const RunState& run) const {
  return tail_placement(run, options_.tail, [&](const GroupRanks&) { return would_balance(run); });
}

}  // namespace paceline::policy
