#include "runtime/roles/coordinator.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "runtime/policy/leases.hpp"
#include "runtime/policy/rebalance.hpp"

namespace paceline::roles {
namespace {

bool went_on(const Status& before, const Status& now) {
  const auto counts = [](const Status& s) {
    return std::tie(s.steps, s.tokens, s.leases_received, s.active, s.room, s.stopped);
  };
  return counts(before) != counts(now) || !now.finished.empty() || !now.moved.empty() ||
         !now.kept.empty();
}

/// Like chance, but repeatable.
std::uint64_t hash(std::uint64_t number, std::uint64_t seed) {
  return (number + seed) * 0x9E3779B97F4A7C15U;
}

}  // namespace

Coordinator::Coordinator(Mailbox& mailbox, policy::Placement placement,
                         std::vector<Trajectory> work, std::span<const Prompt> prompts,
                         const CoordinatorOptions& options, std::size_t already_finished)
    : mailbox_(mailbox),
      placement_(std::move(placement)),
      degrees_(placement_.degrees()),
      drafts_(!placement_.drafters.empty()),
      pending_(std::make_move_iterator(work.begin()), std::make_move_iterator(work.end())),
      prompts_(prompts),
      options_(options),
      lengths_(static_cast<std::uint32_t>(options.max_tokens)),
      heard_(placement_.ranks) {
  for (const GroupRanks& ranks : placement_.groups) groups_[ranks.leader].ranks = ranks;
  progress_.total = already_finished + pending_.size();
  progress_.finished = already_finished;
  progress_.finished_before = already_finished;
  finish_when_idle();
}

Turn Coordinator::turn() {
  constexpr int kMostMessages = 4096;  // a flood must not keep the caller from its watch
  Turn turn;
  for (int n = 0; n < kMostMessages; ++n) {
    const std::optional<Envelope> envelope = mailbox_.poll();
    if (!envelope) break;
    turn.worked = true;
    ++heard_[envelope->from];
    std::optional<Message> read = understand(*envelope);
    if (!read) {
      ++progress_.nonsense;
      continue;
    }
    Message& message = *read;
    if (const auto* status = std::get_if<Status>(&message)) {
      on(envelope->from, *status);
    } else if (const auto* costs = std::get_if<Costs>(&message)) {
      group_of(envelope->from, costs->epoch).costs = costs->costs;
    } else if (auto* returned = std::get_if<Returned>(&message)) {
      on(std::move(*returned));
    } else if (const auto* ready = std::get_if<Ready>(&message)) {
      on(envelope->from, *ready);
    } else if (std::holds_alternative<StopRequest>(message)) {
      stop();
    } else if (auto* summary = std::get_if<Summary>(&message)) {
      summary->rank.rank = static_cast<std::uint32_t>(envelope->from);
      if (reported_.insert(envelope->from).second) summaries_.push_back(summary->rank);
      ++changes_;
    } else {
      throw std::logic_error("the coordinator got a message meant for another role");
    }
  }
  return turn;
}

/// What the rank is, or already is in a placement that is to come.
Role Coordinator::role_of(int rank) const {
  const bool taken = change_ && change_->told && !change_->awaited.contains(rank);
  return (taken ? change_->placement : placement_).role(rank);
}

/// A drafter rank has little to say to a coordinator, and is not trusted: all else is dropped.
std::optional<Message> Coordinator::understand(const Envelope& envelope) const {
  if (role_of(envelope.from) != Role::drafter) return decode(envelope.bytes);
  try {
    std::optional<Message> message = decode(envelope.bytes);
    const auto* ready = std::get_if<Ready>(&*message);
    if (std::holds_alternative<StopRequest>(*message) ||
        (finish_sent_ && std::holds_alternative<Summary>(*message)) ||
        (ready != nullptr && takes_place(envelope.from, *ready)))
      return message;
  } catch (const std::logic_error&) {
    // no message at all
  }
  return std::nullopt;
}

/// Whether a group of that epoch is to come: it may report before all ranks have their places.
bool Coordinator::begins(std::uint32_t epoch) const {
  return change_ && change_->told && epoch == change_->placement.epoch;
}

Coordinator::Group& Coordinator::group_of(int leader, std::uint32_t epoch) {
  return begins(epoch) ? change_->begin.at(leader) : groups_.at(leader);
}

void Coordinator::on(int from, const Status& status) {
  Group& group = group_of(from, status.epoch);
  if (begins(status.epoch)) {
    group.status = status;
    group.there = true;
    return;
  }
  settle(group, status);
  ++statuses_;
  if (!stopping_) {
    lease_to(group, leases_due(group));
    move_some();
    change_some();
  }
  drain();
  finish_when_idle();
}

/// Makes the table say what the group says.
void Coordinator::settle(Group& group, const Status& status) {
  if (went_on(group.status, status)) ++changes_;
  group.status = status;
  group.there = true;
  for (const std::uint64_t key : status.kept) {
    const auto at = moves_.find(key);
    if (const auto held = held_.find(at->second.id); held != held_.end()) held->second.move = 0;
    moves_.erase(at);
  }
  for (const std::uint64_t key : status.moved) {
    const auto at = moves_.find(key);
    Held& held = held_.at(at->second.id);
    --groups_.at(held.group).held;
    ++group.held;
    held.group = group.ranks.leader;
    held.move = 0;
    group.prompts.insert(at->second.id.prompt);
    moves_.erase(at);
    ++progress_.moves;
  }
  for (const engine::Running& running : status.running) {
    if (const auto held = held_.find(running.id); held != held_.end())
      held->second.tokens = running.tokens;
  }
  for (const engine::Running& ended : status.ended) {
    lengths_.ended(ended.tokens);
    if (const auto held = held_.find(ended.id); held != held_.end()) held->second.ended = true;
  }
  for (const RequestId id : status.finished) {
    held_.erase(id);
    --group.held;
    ++progress_.finished;
  }
}

void Coordinator::on(Returned returned) {
  moves_.erase(returned.key);
  ++changes_;
  const auto held = held_.find(returned.trajectory.id);
  --groups_.at(held->second.group).held;
  held_.erase(held);
  pending_.push_front(std::move(returned.trajectory));
  ++returned_;
  if (stopping_) save_returned();
  drain();
  finish_when_idle();
}

/// Requests it could take beside those on their way.
int Coordinator::room(const Group& group) const {
  return group.status.room - static_cast<int>(group.leases_sent - group.status.leases_received);
}

int Coordinator::leases_due(const Group& group) const {
  if (group.ends) return 0;
  int ranks = 0;
  for (const auto& [leader, g] : groups_) ranks += g.ends ? 0 : g.ranks.tp;
  return policy::leases_due({.room = room(group),
                             .held = group.held,
                             .unfinished = progress_.total - progress_.finished,
                             .share = static_cast<double>(group.ranks.tp) / ranks});
}

void Coordinator::lease_to(Group& group, int count) {
  for (; count > 0 && !pending_.empty(); --count) {
    Trajectory trajectory = std::move(pending_.front());
    pending_.pop_front();
    returned_ -= returned_ > 0 ? 1 : 0;
    const RequestId id = trajectory.id;
    const Prompt& prompt = prompts_[id.prompt];
    const NoiseKey noise =
        noise_key(options_.seed, trajectory.weight_version, prompt.uid, id.sample);
    held_[id] = {group.ranks.leader, static_cast<std::uint32_t>(trajectory.tokens.size())};
    ++group.held;
    const bool known = !group.prompts.insert(id.prompt).second;
    send(group.ranks.leader,
         Lease{{std::move(trajectory), known ? std::vector<TokenId>() : prompt.tokens, noise,
                next_move_++}});
    ++group.leases_sent;
  }
}

void Coordinator::move_some() {
  const auto open = std::count_if(groups_.begin(), groups_.end(),
                                  [](const auto& group) { return !group.second.ends; });
  if (open < 2 || held_.empty()) return;
  if (options_.shuffle) {
    shuffle_requests();
  } else if (options_.rebalance && pending_.empty()) {
    rebalance();
  }
}

/// Some request to some group.
void Coordinator::shuffle_requests() {
  const std::uint64_t number = hash(next_move_, options_.shuffle_seed);
  const auto held =
      std::next(held_.begin(), static_cast<std::ptrdiff_t>((number >> 20) % held_.size()));
  const auto to =
      std::next(groups_.begin(), static_cast<std::ptrdiff_t>((number >> 44) % groups_.size()));
  if (held->second.move == 0 && held->second.group != to->first && !to->second.ends) {
    move(held->first, to->first);
  } else {
    ++next_move_;
  }
}

/// Moves requests to groups that have run dry, for nothing is left to be leased.
void Coordinator::rebalance() {
  std::vector<int> leaders;
  std::map<int, int> index;  // by leader
  std::vector<policy::GroupLoad> loads;
  std::size_t dry = 0;
  for (const auto& [leader, group] : groups_) {
    if (group.ends) continue;
    index[leader] = static_cast<int>(leaders.size());
    leaders.push_back(leader);
    loads.push_back({room(group), group.costs ? &*group.costs : nullptr});
    dry += group.status.active == 0 ? 1 : 0;
  }
  // Where nothing was worth moving, one more status will seldom change that; and of many groups
  // there are many statuses, each with all requests to look at.
  const bool more = dry > dry_;
  dry_ = dry;
  if (dry == 0 || (!more && ++passed_over_ < groups_.size())) return;
  passed_over_ = 0;
  std::vector<policy::Movable> requests;
  std::vector<RequestId> ids;
  std::vector<std::uint32_t> tokens;
  for (const auto& [id, held] : held_) {
    const bool moves = held.move != 0;
    const int at = moves ? moves_.at(held.move).to : held.group;
    if (held.ended || !index.contains(at)) continue;  // or it leaves a group that ends
    if (moves) --loads[index[at]].room;
    const auto prompt = static_cast<double>(prompts_[id.prompt].tokens.size());
    requests.push_back({index[at], prompt + held.tokens, 0, moves});
    ids.push_back(id);
    tokens.push_back(held.tokens);
  }
  const std::vector<double> remaining = lengths_.remaining(tokens);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].remaining = remaining[i];
  for (const policy::Transferral& t : policy::rebalance(loads, requests))
    move(ids[t.request], leaders[t.to]);
}

/// `to`: a leader; -1: back to the table.
void Coordinator::move(RequestId id, int to) {
  Held& held = held_.at(id);
  held.move = next_move_++;
  moves_[held.move] = {id, to};
  send(held.group, Move{id, held.move, to < 0 ? GroupRanks{0, 0} : groups_.at(to).ranks});
}

void Coordinator::change_some() {
  constexpr int kStatuses = 6;  // so that some work is done in between
  if (!options_.shuffle_roles || change_ || statuses_ < kStatuses) return;
  change_to(
      policy::shuffled(placement_, degrees_, drafts_, hash(++shuffles_, options_.shuffle_seed)));
}

void Coordinator::change_to(policy::Placement placement) {
  Change change;
  for (int rank = 0; rank < placement_.ranks; ++rank) {
    if (!policy::stays(rank, placement_, placement)) change.awaited.insert(rank);
  }
  if (change.awaited.empty()) return;
  for (auto& [leader, group] : groups_) group.ends = change.awaited.contains(leader);
  for (const GroupRanks& ranks : placement.groups) {
    if (change.awaited.contains(ranks.leader)) change.begin[ranks.leader].ranks = ranks;
  }
  change.placement = std::move(placement);
  change_ = std::move(change);
}

/// Empties the groups that are to end, then tells the ranks their new places.
void Coordinator::drain() {
  if (!change_ || change_->told) return;
  std::map<int, int> load;  // requests of groups that stay, by leader
  for (const auto& [leader, group] : groups_) {
    if (!group.ends) load[leader] = group.held;
  }
  bool drained = true;
  for (const auto& [key, under_way] : moves_) {
    const auto to = load.find(under_way.to);
    if (to != load.end()) ++to->second;
    drained = drained && (to != load.end() || under_way.to < 0);
  }
  for (const auto& [id, held] : held_) {
    if (!groups_.at(held.group).ends) continue;
    drained = false;
    if (held.move != 0 || held.ended) continue;
    const auto least = std::min_element(
        load.begin(), load.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    move(id, least == load.end() ? -1 : least->first);
    if (least != load.end()) ++least->second;
  }
  if (drained) tell_places();
}

void Coordinator::tell_places() {
  change_->told = true;
  for (const int rank : change_->awaited) {
    if (placement_.role(rank) != Role::verifier_member) send(rank, Place{change_->placement});
  }
  // Before a drafter becomes something else, verifiers that stay are to know: what it says then is
  // no longer a drafter's, which they would not believe.
  policy::Placement meanwhile = change_->placement;
  std::erase_if(meanwhile.drafters, [&](const policy::DrafterPlace& drafter) {
    return placement_.role(drafter.rank) != Role::drafter;
  });
  for (const auto& [leader, group] : groups_) {
    if (group.ends) continue;
    change_->awaited.insert(leader);
    send(leader, Place{meanwhile});
  }
}

bool Coordinator::takes_place(int rank, const Ready& ready) const {
  return begins(ready.epoch) && change_->awaited.contains(rank);
}

void Coordinator::on(int from, const Ready& ready) {
  if (!takes_place(from, ready))
    throw std::logic_error("a rank took a place that it was not given");
  ++changes_;
  change_->awaited.erase(from);
  if (change_->awaited.empty()) adopt();
}

void Coordinator::adopt() {
  for (auto it = groups_.begin(); it != groups_.end();) {
    if (!it->second.ends) {
      send(it->first, Place{change_->placement});  // its drafters may be others
      ++it;
      continue;
    }
    tokens_before_ += it->second.status.tokens;
    it = groups_.erase(it);
  }
  std::vector<int> begun;
  for (const auto& [leader, group] : change_->begin) begun.push_back(leader);
  groups_.merge(change_->begin);
  placement_ = std::move(change_->placement);
  change_.reset();
  statuses_ = 0;
  ++progress_.placements;
  if (stopping_) save_returned();
  for (const int leader : begun) {
    if (stopping_) {
      send(leader, Stop{});
    } else {
      lease_to(groups_.at(leader), leases_due(groups_.at(leader)));
    }
  }
  finish_when_idle();
}

/// Requests that groups gave back go to some group, which writes down what they have.
void Coordinator::save_returned() {
  const auto some = std::find_if(groups_.begin(), groups_.end(),
                                 [](const auto& group) { return !group.second.ends; });
  if (some != groups_.end()) lease_to(some->second, static_cast<int>(returned_));
}

void Coordinator::stop() {
  if (stopping_ || finish_sent_) return;
  stopping_ = true;
  if (change_ && !change_->told) {
    for (auto& [leader, group] : groups_) group.ends = false;
    change_.reset();
  }
  save_returned();
  for (const auto& [leader, group] : groups_) {
    if (!group.ends) send(leader, Stop{});
  }
  finish_when_idle();
}

void Coordinator::finish_when_idle() {
  if (finish_sent_ || (change_ && change_->told)) return;
  const bool stopped = std::all_of(groups_.begin(), groups_.end(), [](const auto& group) {
    const Group& g = group.second;
    return g.status.stopped != 0 && g.status.leases_received == g.leases_sent;
  });
  if (!complete() && !(stopped && moves_.empty() && returned_ == 0)) return;
  finish_sent_ = true;
  change_.reset();
  for (int rank = 0; rank < placement_.ranks; ++rank) {
    // Members of a group are told by their leader.
    if (placement_.role(rank) != Role::verifier_member) send(rank, Finish{});
  }
}

void Coordinator::send(int rank, const Message& message) {
  mailbox_.send({rank, Address::Port::role}, encode(message));
}

std::vector<int> Coordinator::awaited() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < placement_.ranks; ++rank) {
    const bool changing = change_ && change_->told && change_->awaited.contains(rank);
    if (finish_sent_ ? !reported_.contains(rank) : changing || role_of(rank) == Role::verifier)
      ranks.push_back(rank);
  }
  return ranks;
}

Progress Coordinator::progress() const {
  Progress p = progress_;
  // What groups say is not of one moment: a request that moves may be in two statuses, or in none.
  std::size_t left = p.total - p.finished;
  const auto take = [&left](std::int32_t said) {
    const std::size_t taken = std::min(left, static_cast<std::size_t>(said));
    left -= taken;
    return taken;
  };
  p.tokens = tokens_before_;
  for (const auto& [leader, g] : groups_) {
    p.unflushed += take(g.status.unflushed);
    p.partial += take(g.status.partial);
    p.active += take(g.status.active);
    p.tokens += g.status.tokens;
    p.loading += g.there ? 0 : 1;
  }
  p.waiting = left;
  return p;
}

}  // namespace paceline::roles
