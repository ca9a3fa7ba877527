#include "runtime/roles/coordinator.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace paceline::roles {
namespace {

bool went_on(const Status& before, const Status& now) {
  const auto counts = [](const Status& s) {
    return std::tie(s.steps, s.tokens, s.leases_received, s.active, s.room, s.stopped);
  };
  return counts(before) != counts(now) || !now.finished.empty() || !now.moved.empty() ||
         !now.kept.empty() || !now.races_begun.empty() || !now.races_ended.empty();
}

}  // namespace

Coordinator::Coordinator(Mailbox& mailbox, policy::Scheduler& scheduler,
                         policy::Placement placement, std::vector<Trajectory> work,
                         std::span<const Prompt> prompts, const CoordinatorOptions& options,
                         std::size_t already_finished)
    : mailbox_(mailbox),
      scheduler_(scheduler),
      placement_(std::move(placement)),
      prompts_(prompts),
      options_(options),
      requests_(std::move(work), already_finished, static_cast<std::uint32_t>(options.max_tokens)),
      heard_(placement_.ranks) {
  for (const GroupRanks& ranks : placement_.groups) groups_[ranks.leader].ranks = ranks;
  finish_when_idle();
}

Turn Coordinator::turn() {
  constexpr int kMostMessages = 4096;  // a flood must not keep the caller from its watch
  Turn turn;
  for (int n = 0; n < kMostMessages; ++n) {
    const std::optional<Envelope> envelope = mailbox_.poll();
    if (!envelope) break;
    turn.worked = true;
    const int from = envelope->from.rank;
    ++heard_[from];
    std::optional<Message> read = understand(*envelope);
    if (!read) {
      ++nonsense_;
      continue;
    }
    Message& message = *read;
    if (const auto* status = std::get_if<Status>(&message)) {
      on(from, *status);
    } else if (const auto* costs = std::get_if<Costs>(&message)) {
      group_of(from, costs->epoch).costs = costs->costs;
    } else if (auto* returned = std::get_if<Returned>(&message)) {
      on(std::move(*returned));
    } else if (const auto* ready = std::get_if<Ready>(&message)) {
      on(from, *ready);
    } else if (std::holds_alternative<StopRequest>(message)) {
      stop();
    } else if (auto* summary = std::get_if<Summary>(&message)) {
      summary->rank.rank = static_cast<std::uint32_t>(from);
      if (reported_.insert(from).second) summaries_.push_back(summary->rank);
      ++changes_;
    } else {
      throw std::logic_error("the coordinator got a message meant for another role");
    }
  }
  return turn;
}

/// What the rank is, or already is in a placement that is to come.
Role Coordinator::role_of(int rank) const {
  const bool taken = change_ && change_->told() && !change_->awaits(rank);
  return (taken ? change_->next() : placement_).role(rank);
}

/// A drafter rank has little to say to a coordinator, and is not trusted: all else is dropped.
std::optional<Message> Coordinator::understand(const Envelope& envelope) const {
  if (role_of(envelope.from.rank) != Role::drafter) return decode(envelope.bytes);
  std::optional<Message> message = decode_if_message(envelope.bytes);
  if (!message) return std::nullopt;
  const auto* stop = std::get_if<StopRequest>(&*message);
  const auto* ready = std::get_if<Ready>(&*message);
  if ((stop != nullptr && stop->rank == envelope.from.rank) ||
      (finish_sent_ && std::holds_alternative<Summary>(*message)) ||
      (ready != nullptr && takes_place(envelope.from.rank, *ready)))
    return message;
  return std::nullopt;
}

KnownGroup& Coordinator::group_of(int leader, std::uint32_t epoch) {
  return begins(epoch) ? change_->new_groups().at(leader) : groups_.at(leader);
}

policy::RunState Coordinator::run_state() const {
  policy::RunState run{{}, requests_, prompts_, placement_};
  for (const auto& [leader, group] : groups_) {
    if (!ends(leader)) run.groups.push_back(group.state());
  }
  return run;
}

void Coordinator::on(int from, const Status& status) {
  KnownGroup& group = group_of(from, status.epoch);
  if (begins(status.epoch)) {
    group.status = status;
    group.there = true;
    return;
  }
  settle(group, status);
  if (!stopping_) {
    policy::RunState run = run_state();  // once: there may be a thousand groups
    lease_due(group, run);
    move_some(run);
    change_some(run);
  }
  drain();
  finish_when_idle();
}

/// Makes the table say what the group says.
void Coordinator::settle(KnownGroup& group, const Status& status) {
  if (went_on(group.status, status)) ++changes_;
  group.status = status;
  group.there = true;
  for (const std::uint64_t key : status.kept) requests_.kept(key);
  for (const std::uint64_t key : status.moved) group.prompts.insert(requests_.moved(key).prompt);
  for (const engine::Running& running : status.running) requests_.grew(running.id, running.tokens);
  for (const engine::Running& ended : status.ended) requests_.ended(ended.id, ended.tokens);
  for (const RequestId id : status.finished) requests_.finished(id, group.ranks.leader);
  for (const DraftedFor& d : status.drafted) requests_.drafted(d.id, d.method, d.acceptance);
  for (const std::uint64_t key : status.races_begun) requests_.race_began(key);
  for (const std::uint64_t key : status.races_ended) requests_.race_ended(key);
}

void Coordinator::on(Returned returned) {
  ++changes_;
  requests_.returned(returned.key, std::move(returned.trajectory));
  if (stopping_) save_returned();
  drain();
  finish_when_idle();
}

/// Keeps `run` true.
void Coordinator::lease_due(KnownGroup& group, policy::RunState& run) {
  if (ends(group.ranks.leader)) return;
  lease_to(group, scheduler_.leases(run, group.state()));
  const auto state = std::lower_bound(
      run.groups.begin(), run.groups.end(), group.ranks.leader,
      [](const policy::GroupState& g, int leader) { return g.ranks.leader < leader; });
  *state = group.state();
}

void Coordinator::lease_to(KnownGroup& group, int count) {
  for (; count > 0 && requests_.waiting() > 0; --count) {
    policy::RequestTable::Lease lease = requests_.lease(group.ranks.leader);
    const RequestId id = lease.trajectory.id;
    const Prompt& prompt = prompts_[id.prompt];
    const NoiseKey noise =
        noise_key(options_.seed, lease.trajectory.weight_version, prompt.uid, id.sample);
    const bool known = !group.prompts.insert(id.prompt).second;
    send(group.ranks.leader,
         Lease{{std::move(lease.trajectory), known ? std::vector<TokenId>() : prompt.tokens, noise,
                lease.version}});
    ++group.leases_sent;
  }
}

void Coordinator::move_some(const policy::RunState& run) {
  if (run.groups.size() < 2) return;
  for (const policy::RequestMove& m : scheduler_.moves(run)) move(m);
  for (const policy::RaceOrder& order : scheduler_.races(run)) race(order);
}

void Coordinator::move(const policy::RequestMove& move) {
  const int holder = requests_.leased().at(move.id).group;
  const std::uint64_t key = requests_.move(move.id, move.to);
  const bool back = move.to == policy::kToTable;
  send(holder, Move{move.id, key, back ? GroupRanks{0, 0} : groups_.at(move.to).ranks});
}

void Coordinator::race(const policy::RaceOrder& order) {
  const int holder = requests_.leased().at(order.id).group;
  const std::uint64_t key = requests_.race({order.id, order.group, order.method});
  send(holder, Race{order.id, key, groups_.at(order.group).ranks, order.method});
}

void Coordinator::change_some(const policy::RunState& run) {
  if (change_) return;
  std::optional<policy::Placement> next = scheduler_.placement(run);
  if (!next) return;
  RoleChange change(placement_, std::move(*next));
  if (change.needed()) change_ = std::move(change);
}

/// Empties the groups that are to end, then tells the ranks their new places.
void Coordinator::drain() {
  if (!change_ || change_->told()) return;
  const RoleChange::Drain drain = change_->drain(requests_);
  for (const policy::RequestMove& m : drain.moves) move(m);
  if (!drain.done) return;
  for (const RoleChange::Telling& told : change_->tell()) send(told.rank, Place{told.placement});
}

bool Coordinator::takes_place(int rank, const Ready& ready) const {
  return begins(ready.epoch) && change_->awaits(rank);
}

void Coordinator::on(int from, const Ready& ready) {
  if (!takes_place(from, ready))
    throw std::logic_error("a rank took a place that it was not given");
  ++changes_;
  change_->took(from);
  if (change_->done()) adopt();
}

/// From here on the next placement holds: its groups are leased requests, and verifiers hear of its
/// drafters.
void Coordinator::adopt() {
  for (auto it = groups_.begin(); it != groups_.end();) {
    if (!ends(it->first)) {
      send(it->first, Place{change_->next()});
      ++it;
      continue;
    }
    tokens_before_ += it->second.status.tokens;
    requests_.group_ended(it->first);
    it = groups_.erase(it);
  }
  KnownGroups begun = std::move(change_->new_groups());
  placement_ = change_->next();
  change_.reset();
  ++placements_;
  std::vector<int> leaders;
  for (const auto& [leader, group] : begun) leaders.push_back(leader);
  groups_.merge(begun);
  if (stopping_) save_returned();
  policy::RunState run = run_state();
  for (const int leader : leaders) {
    if (stopping_) {
      send(leader, Stop{});
    } else {
      lease_due(groups_.at(leader), run);
    }
  }
  finish_when_idle();
}

/// Requests that groups gave back go to some group, which writes down what they have.
void Coordinator::save_returned() {
  const auto some = std::find_if(groups_.begin(), groups_.end(),
                                 [this](const auto& group) { return !ends(group.first); });
  if (some != groups_.end()) lease_to(some->second, static_cast<int>(requests_.given_back()));
}

void Coordinator::stop() {
  if (stopping_ || finish_sent_) return;
  stopping_ = true;
  if (change_ && !change_->told()) change_.reset();
  save_returned();
  for (const auto& [leader, group] : groups_) {
    if (!ends(leader)) send(leader, Stop{});
  }
  finish_when_idle();
}

void Coordinator::finish_when_idle() {
  if (finish_sent_ || (change_ && change_->told())) return;
  const bool stopped = std::all_of(groups_.begin(), groups_.end(),
                                   [](const auto& group) { return group.second.stopped(); });
  const bool nothing_on_its_way = requests_.moves().empty() && requests_.given_back() == 0;
  if (!complete() && !(stopped && nothing_on_its_way)) return;
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
    const bool changing = change_ && change_->awaits(rank);
    if (finish_sent_ ? !reported_.contains(rank) : changing || role_of(rank) == Role::verifier)
      ranks.push_back(rank);
  }
  return ranks;
}

Progress Coordinator::progress() const {
  Progress p{.total = requests_.total(),
             .finished = requests_.finished(),
             .finished_before = requests_.finished_before(),
             .moves = requests_.moves_made(),
             .races = requests_.races_begun(),
             .placements = placements_,
             .tokens = tokens_before_,
             .nonsense = nonsense_};
  // What groups say is not of one moment: a request that moves may be in two statuses, or in none.
  std::size_t left = p.total - p.finished;
  const auto take = [&left](std::int32_t said) {
    const std::size_t taken = std::min(left, static_cast<std::size_t>(said));
    left -= taken;
    return taken;
  };
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
