#include "runtime/roles/coordinator.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

bool went_on(const Status& before, const Status& now) {
  const auto counts = [](const Status& s) {
    return std::tie(s.steps, s.tokens, s.orders_received, s.active, s.room, s.stopped);
  };
  return counts(before) != counts(now) || !now.finished.empty() || !now.moved.empty() ||
         !now.kept.empty() || !now.races_begun.empty() || !now.races_ended.empty();
}

std::uint32_t longest_response(std::span<const Prompt> prompts, const policy::LeaseTerms& terms) {
  std::int32_t most = prompts.empty() ? terms.max_tokens : 1;
  for (const Prompt& prompt : prompts) most = std::max(most, terms.most(prompt));
  return static_cast<std::uint32_t>(most);
}

}  // namespace

Coordinator::Coordinator(Mailbox& mailbox, policy::Scheduler& scheduler,
                         policy::Placement placement, std::vector<Trajectory> work,
                         std::unique_ptr<policy::RequestOrder> order,
                         std::span<const Prompt> prompts, const CoordinatorOptions& options,
                         std::size_t already_finished)
    : mailbox_(mailbox),
      scheduler_(scheduler),
      placement_(std::move(placement)),
      prompts_(prompts),
      options_(options),
      requests_(options.sampling != nullptr ? std::vector<Trajectory>() : std::move(work),
                std::move(order), already_finished, longest_response(prompts, options.terms)),
      run_{{}, requests_, prompts_, placement_},
      heard_(placement_.ranks) {
  for (const policy::GroupRanks& ranks : placement_.groups) {
    groups_[ranks.leader].ranks = ranks;
    verifiers_.insert(ranks.leader);
  }
  describe_groups();
  if (options_.sampling != nullptr) {
    std::reverse(work.begin(), work.end());
    unbegun_ = std::move(work);
    add_work();
  }
  finish_when_idle();
}

Turn Coordinator::turn() {
  constexpr int kMostMessages = 4096;  // limits a turn, so that the caller can run its watchdog
  Turn turn;
  for (int n = 0; n < kMostMessages; ++n) {
    const std::optional<Envelope> envelope = mailbox_.poll();
    if (!envelope) break;
    turn.worked = true;
    const int from = envelope->from.rank;
    ++heard_[from];
    if (!take(*envelope)) ++nonsense_;
  }
  pregenerate();
  return turn;
}

/// Gives idle groups requests of the next training step, as many as fit in their batches.
void Coordinator::pregenerate() {
  if (options_.upcoming == nullptr || stopping_ || finish_sent_ || change_ ||
      !requests_.waiting().empty())
    return;
  for (auto& [leader, group] : groups_) {
    const std::size_t room = requests_.held_by(leader) == 0 ? group.upcoming_room() : 0;
    if (room == 0) continue;
    std::vector<Admission> upcoming = options_.upcoming->take(room);
    if (upcoming.empty()) return;
    group.upcoming_sent += upcoming.size();
    send(leader, Pregenerate{options_.upcoming->run(), std::move(upcoming)});
  }
}

/// Returns the rank's role in the next placement if the rank has taken its place there, otherwise
/// its role in the current placement.
Role Coordinator::role_of(int rank) const {
  const bool taken = change_ && change_->told() && !change_->awaits(rank);
  return (taken ? change_->next() : placement_).role(rank);
}

/// Handles a message. Drafter ranks are not trusted: only a few kinds of their messages are
/// accepted. Returns false if the message was dropped.
bool Coordinator::take(const Envelope& envelope) {
  const int rank = envelope.from.rank;
  const bool from_drafter = role_of(rank) == Role::drafter;
  std::optional<Message> message =
      from_drafter ? decode_if_message(envelope.bytes) : decode(envelope.bytes);
  if (!message) return false;
  const auto others = [&](Address, const auto&) { return !from_drafter; };
  const auto of_itself = [&](Address, const StopRequest& stop) {
    return !from_drafter || stop.rank == rank;
  };
  const auto on_its_way = [&](Address, const Ready& ready) {
    return !from_drafter || takes_place(rank, ready);
  };
  const auto of_a_verifier = [&](Address, const Rewarded&) {
    return options_.sampling != nullptr && (!from_drafter || verifiers_.contains(rank));
  };
  const auto at_the_end = [&](Address, const Summary&) { return !from_drafter || finish_sent_; };
  const Receipt receipt = receive(
      envelope.from, *message,
      protocol::on<Status>(others, [&](Address, Status& status) { on(rank, std::move(status)); }),
      protocol::on<Costs>(others,
                          [&](Address, Costs& told) {
                            KnownGroup& group = group_of(rank, told.epoch);
                            group.costs = std::move(told.costs);
                            if (!begins(told.epoch)) describe(group);
                          }),
      protocol::on<Returned>(others,
                             [&](Address, Returned& returned) { on(rank, std::move(returned)); }),
      protocol::on<Ready>(on_its_way, [&](Address, Ready& ready) { on(rank, ready); }),
      protocol::on<Rewarded>(of_a_verifier, [&](Address, Rewarded& told) { on(told); }),
      protocol::on<Pregenerated>(others,
                                 [&](Address, Pregenerated& told) {
                                   const auto at = groups_.find(rank);
                                   if (at == groups_.end()) return;
                                   KnownGroup& group = at->second;
                                   group.upcoming_done =
                                       std::min(told.requests, group.upcoming_sent);
                                 }),
      protocol::on<StopRequest>(of_itself, [&](Address, StopRequest&) { stop(); }),
      protocol::on<Summary>(at_the_end, [&](Address, Summary& summary) {
        summary.rank.rank = static_cast<std::uint32_t>(rank);
        if (reported_.insert(rank).second) summaries_.push_back(summary.rank);
        ++changes_;
      }));
  if (receipt == Receipt::unknown && !from_drafter)
    throw std::logic_error("the coordinator got a message that it does not take");
  return receipt == Receipt::handled;
}

KnownGroup& Coordinator::group_of(int leader, std::uint32_t epoch) {
  return begins(epoch) ? change_->new_groups().at(leader) : groups_.at(leader);
}

/// Rebuilds the scheduler's list of groups. Leaves out groups that are to end.
void Coordinator::describe_groups() {
  run_.groups.clear();
  for (const auto& [leader, group] : groups_) {
    if (!ends(leader)) run_.groups.push_back(group.state());
  }
}

void Coordinator::describe(const KnownGroup& group) {
  const auto state = std::lower_bound(
      run_.groups.begin(), run_.groups.end(), group.ranks.leader,
      [](const policy::GroupState& g, int leader) { return g.ranks.leader < leader; });
  if (state != run_.groups.end() && state->ranks.leader == group.ranks.leader)
    *state = group.state();
}

void Coordinator::on(int from, Status status) {
  KnownGroup& group = group_of(from, status.epoch);
  if (begins(status.epoch)) {
    group.reported(std::move(status));
    return;
  }
  settle(group, std::move(status));
  if (!stopping_) {
    end_leases(group);
    lease_due(group);
    lease_to_idle();
    foresee();
    move_some();
    change_some();
  }
  drain();
  finish_when_idle();
}

/// Brings the request table up to date with a group's status.
void Coordinator::settle(KnownGroup& group, Status reported) {
  if (went_on(group.status, reported)) ++changes_;
  group.reported(std::move(reported));
  describe(group);
  const Status& status = group.status;
  for (const RequestId id : status.kept) requests_.kept(id);
  for (const RequestId id : status.moved) {
    requests_.moved(id);
    group.prompts.insert(id.prompt);
  }
  requests_.grew(status.running);
  for (const RequestLength& ended : status.ended) requests_.ended(ended.id, ended.tokens);
  for (const RequestId id : status.finished) requests_.finished(id, group.ranks.leader);
  for (const DraftedFor& d : status.drafted) requests_.drafted(d.id, d.method, d.acceptance);
  for (const std::uint64_t key : status.races_begun) requests_.race_began(key);
  for (const std::uint64_t key : status.races_ended) requests_.race_ended(key);
}

void Coordinator::on(int from, Returned returned) {
  ++changes_;
  requests_.returned(std::move(returned.trajectory), returned.kv);
  if (ends(from)) forget_stored(from);
  if (stopping_) {
    save_returned();
  } else {
    lease_to_any();
  }
  drain();
  finish_when_idle();
}

/// Passes rewards to dynamic sampling, and stops the run if no more responses are needed.
void Coordinator::on(const Rewarded& told) {
  ++changes_;
  for (const Reward& reward : told.rewards) options_.sampling->scored(reward);
  if (stopping_ || finish_sent_) return finish_when_idle();
  if (options_.sampling->over() && !requests_.complete()) return stop();
  add_work();
  lease_to_any();
  finish_when_idle();
}

/// Adds the requests of prompts that dynamic sampling allows to begin. Withdraws requests that were
/// never leased, if their prompts can no longer count.
void Coordinator::add_work() {
  const policy::DynamicSampling& sampling = *options_.sampling;
  if (sampling.over()) return;
  std::vector<RequestId> needless;
  for (const auto& [id, waiting] : requests_.waiting()) {
    if (!requests_.given_back().contains(id) && !sampling.may_count(id.prompt))
      needless.push_back(id);
  }
  for (const RequestId id : needless) requests_.withdraw(id);
  while (!unbegun_.empty() && sampling.may_begin(unbegun_.back().id.prompt)) {
    if (sampling.may_count(unbegun_.back().id.prompt)) requests_.add(std::move(unbegun_.back()));
    unbegun_.pop_back();
  }
}

/// Leases waiting requests to all groups with room, in descending order of free KV blocks (Seer's
/// SelectInstance). An idle group sends no reports, so leases for it cannot wait for a report.
void Coordinator::lease_to_any() {
  std::vector<policy::GroupState> with_room;
  std::copy_if(run_.groups.begin(), run_.groups.end(), std::back_inserter(with_room),
               [](const policy::GroupState& group) { return group.room > 0; });
  std::ranges::stable_sort(with_room, std::greater{}, &policy::GroupState::kv_room);
  for (const policy::GroupState& group : with_room) lease_due(groups_.at(group.ranks.leader));
}

/// Leases waiting requests to idle groups. Idle groups send no reports, so the coordinator calls
/// this function after a report of any group.
void Coordinator::lease_to_idle() {
  if (requests_.waiting().empty()) return;
  for (const policy::GroupState& group : run_.groups) {
    if (group.active > 0 || group.room <= 0 || requests_.held_by(group.ranks.leader) > 0) continue;
    lease_due(groups_.at(group.ranks.leader));
  }
}

/// Renews the leases that the group reported as about to end, or moves their requests.
void Coordinator::end_leases(KnownGroup& group) {
  const int leader = group.ranks.leader;
  if (ends(leader)) return;
  for (const RequestId id : group.status.ending) {
    const auto at = requests_.leased().find(id);
    if (at == requests_.leased().end() || at->second.group != leader || at->second.ended ||
        requests_.moves().contains(id))
      continue;  // the response has ended, or the request moves, and its next holder will report
    const policy::LeaseEnd end = scheduler_.at_end(run_, group.state(), id);
    if (!end.renewed) {
      move({id, end.to});
      continue;
    }
    const Prompt& prompt = prompts_[id.prompt];
    const std::uint32_t until = at->second.until;
    group.sent({.blocks = options_.terms.blocks(prompt, until, *end.renewed) -
                          options_.terms.blocks(prompt, at->second.tokens, until)});
    requests_.renew(id, *end.renewed);
    send(leader, Renew{id, *end.renewed});
    describe(group);
  }
}

void Coordinator::lease_due(KnownGroup& group) {
  if (ends(group.ranks.leader)) return;
  while (const std::optional<policy::LeaseOrder> order = scheduler_.lease(run_, group.state()))
    lease_to(group, *order);
}

void Coordinator::lease_to(KnownGroup& group, const policy::LeaseOrder& order) {
  const RequestId id = order.id;
  policy::RequestTable::Leased lease = requests_.lease(id, group.ranks.leader, order.until);
  Trajectory& trajectory = lease.request.trajectory;
  const Prompt& prompt = prompts_[id.prompt];
  const NoiseKey noise = noise_key(prompt.sampling.seed.value_or(options_.seed),
                                   trajectory.weight_version, prompt.uid, id.sample);
  const bool known = !group.prompts.insert(id.prompt).second;
  group.sent({.requests = 1,
              .blocks = options_.terms.blocks(
                  prompt, static_cast<std::uint32_t>(trajectory.tokens.size()), order.until)});
  describe(group);
  Admission request{.trajectory = std::move(trajectory),
                    .noise = noise,
                    .version = lease.version,
                    .until = order.until,
                    .sampling = prompt.sampling};
  if (!known) {
    request.prompt = prompt.tokens;
    request.pictures = prompt.pictures;
    request.files = files_of(id.prompt);
  }
  send(group.ranks.leader, Lease{std::move(request), lease.request.kv});
}

std::vector<PictureBytes> Coordinator::files_of(std::uint32_t prompt) {
  std::vector<PictureBytes> files;
  const std::size_t pictures = prompts_[prompt].pictures.size();
  for (std::size_t i = 0; i < pictures; ++i) {
    files.push_back(
        std::make_shared<const std::vector<std::byte>>(options_.pictures->file(prompt, i)));
  }
  return files;
}

void Coordinator::move_some() {
  if (run_.groups.size() < 2) return;
  for (const policy::RequestMove& m : scheduler_.moves(run_)) move(m);
  for (const policy::RaceOrder& order : scheduler_.races(run_)) race(order);
}

void Coordinator::move(const policy::RequestMove& move) {
  const int holder = requests_.leased().at(move.id).group;
  const std::uint64_t key = requests_.move(move.id, move.to);
  const bool back = move.to == policy::kToTable;
  const policy::GroupRanks to = back ? policy::GroupRanks{move.to} : groups_.at(move.to).ranks;
  send(holder, Move{move.id, key, to});
}

void Coordinator::race(const policy::RaceOrder& order) {
  const int holder = requests_.leased().at(order.id).group;
  const std::uint64_t key = requests_.race({order.id, order.group, order.method});
  send(holder, Race{order.id, key, groups_.at(order.group).ranks, order.method});
}

void Coordinator::change_some() {
  if (change_) return;
  std::optional<policy::Placement> next = scheduler_.placement(run_);
  if (!next) return;
  RoleChange change(placement_, std::move(*next));
  if (!change.needed()) return;
  change_ = std::move(change);
  describe_groups();
  for (const auto& [leader, group] : groups_) {
    if (ends(leader)) forget_stored(leader);
  }
}

/// Tells groups which stored KV will be wanted next (Seer, section 5: prefetching in the order of
/// the request buffer). With n groups this is done after every n-th report, to save messages.
void Coordinator::foresee() {
  constexpr std::size_t kOfAGroup = 16;  // requests per group: about the number of its next leases
  if (requests_.given_back().empty() || ++unforeseen_ < run_.groups.size()) return;
  unforeseen_ = 0;
  std::map<int, ForeseeKv> keys;  // by leader
  for (const RequestId id : requests_.order().upcoming(kOfAGroup * run_.groups.size())) {
    const policy::KeptKv& kv = requests_.waiting().at(id).kv;
    if (kv.positions > 0) keys[kv.group.leader].keys.push_back(kv.key);
  }
  for (const auto& [leader, foreseen] : keys) send(leader, foreseen);
}

/// Forgets the KV that an ending group has stored. The next holders must compute this KV again.
void Coordinator::forget_stored(int leader) {
  std::vector<std::uint64_t> keys = requests_.forget_stored(leader);
  if (!keys.empty()) send(leader, DropKv{std::move(keys)});
}

/// Commands moves out of groups that will end. When these are empty, tells ranks their new places.
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

/// Makes the next placement the current one. Tells verifiers that stay about the new drafters.
/// Leases requests to the new groups or, if the run is stopping, tells these groups to stop.
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
  verifiers_.insert(leaders.begin(), leaders.end());
  groups_.merge(begun);
  describe_groups();
  if (stopping_) save_returned();
  for (const int leader : leaders) {
    if (stopping_) {
      send(leader, Stop{});
    } else {
      lease_due(groups_.at(leader));
    }
  }
  finish_when_idle();
}

/// At a stop, leases all returned requests to one group, which writes them to disk.
void Coordinator::save_returned() {
  const auto some = std::find_if(groups_.begin(), groups_.end(),
                                 [this](const auto& group) { return !ends(group.first); });
  if (some == groups_.end()) return;
  while (!requests_.given_back().empty()) lease_to(some->second, {*requests_.given_back().begin()});
}

void Coordinator::stop() {
  if (stopping_ || finish_sent_) return;
  stopping_ = true;
  if (change_ && !change_->told()) change_.reset();
  describe_groups();
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
  const bool nothing_on_its_way = requests_.moves().empty() && requests_.given_back().empty();
  if (!(complete() && requests_.complete()) && !(stopped && nothing_on_its_way)) return;
  finish_sent_ = true;
  change_.reset();
  describe_groups();
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
  // The counts are capped, because a moving request can be in the statuses of two groups.
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
