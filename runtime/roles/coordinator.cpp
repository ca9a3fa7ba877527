#include "runtime/roles/coordinator.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "runtime/policy/rebalance.hpp"

namespace paceline::roles {

Coordinator::Coordinator(Mailbox& mailbox, const policy::Layout& layout,
                         std::vector<Trajectory> work, std::span<const Prompt> prompts,
                         const CoordinatorOptions& options, std::size_t already_finished)
    : mailbox_(mailbox),
      layout_(layout),
      work_(std::move(work)),
      prompts_(prompts),
      options_(options),
      book_(work_.size(), layout.groups),
      groups_(layout.groups) {
  progress_.total = already_finished + work_.size();
  progress_.finished = already_finished;
  progress_.finished_before = already_finished;
  finish_when_idle();
}

Turn Coordinator::turn() {
  Turn turn;
  while (const std::optional<Envelope> envelope = mailbox_.poll()) {
    turn.worked = true;
    const Message message = decode(envelope->bytes);
    if (const auto* status = std::get_if<Status>(&message)) {
      on(envelope->from, *status);
    } else if (std::holds_alternative<StopRequest>(message)) {
      stop();
    } else if (const auto* summary = std::get_if<Summary>(&message)) {
      summaries_.push_back(summary->rank);
    } else {
      throw std::logic_error("the coordinator got a message meant for a verifier");
    }
  }
  return turn;
}

void Coordinator::on(int from, const Status& status) {
  const int group = layout_.group[from];
  groups_[group].status = status;
  groups_[group].there = true;
  for (const std::uint64_t key : status.kept) {
    const auto at = moves_.find(key);
    if (const auto held = held_.find(at->second.id); held != held_.end()) held->second.move = 0;
    moves_.erase(at);
  }
  for (const std::uint64_t key : status.moved) {
    const auto at = moves_.find(key);
    Held& held = held_.at(at->second.id);
    book_.move(held.group, group);
    held.group = group;
    held.move = 0;
    groups_[group].prompts.insert(at->second.id.prompt);
    moves_.erase(at);
    ++progress_.moves;
  }
  for (const engine::Running& running : status.running) {
    if (const auto held = held_.find(running.id); held != held_.end())
      held->second.tokens = running.tokens;
  }
  for (const RequestId id : status.finished) {
    book_.finish(group);
    held_.erase(id);
    ++progress_.finished;
  }
  if (!stopping_) {
    lease_to(group);
    move_some();
  }
  finish_when_idle();
}

void Coordinator::lease_to(int group) {
  Group& g = groups_[group];
  const auto under_way = static_cast<int>(g.leases_sent - g.status.leases_received);
  for (const std::size_t index : book_.grant(group, g.status.room - under_way)) {
    Trajectory& trajectory = work_[index];
    const RequestId id = trajectory.id;
    const Prompt& prompt = prompts_[id.prompt];
    const NoiseKey noise =
        noise_key(options_.seed, trajectory.weight_version, prompt.uid, id.sample);
    held_[id] = {group, static_cast<std::uint32_t>(trajectory.tokens.size()), 0};
    const bool known = !g.prompts.insert(id.prompt).second;
    send(layout_.leader(group),
         Lease{std::move(trajectory), known ? std::vector<TokenId>() : prompt.tokens, noise});
    ++g.leases_sent;
  }
}

/// Moves requests to groups that have run dry once nothing is left to be leased.
void Coordinator::move_some() {
  if (layout_.groups < 2 || (!options_.shuffle && (!options_.rebalance || book_.pending() > 0)))
    return;
  if (options_.shuffle) {
    // Some request and some group, by a hash of the number of the move: like chance, but
    // repeatable.
    const std::uint64_t hash = (next_move_ + options_.seed) * 0x9E3779B97F4A7C15U;
    if (held_.empty()) return;
    const auto held =
        std::next(held_.begin(), static_cast<std::ptrdiff_t>((hash >> 20) % held_.size()));
    const auto to = static_cast<int>((hash >> 44) % layout_.groups);
    if (held->second.move == 0 && held->second.group != to) {
      move(held->first, to);
    } else {
      ++next_move_;
    }
    return;
  }
  if (std::all_of(groups_.begin(), groups_.end(),
                  [](const Group& g) { return g.status.active > 0; }))
    return;
  std::vector<policy::GroupLoad> loads(layout_.groups);
  for (int g = 0; g < layout_.groups; ++g) {
    const Status& status = groups_[g].status;
    const auto under_way = static_cast<int>(groups_[g].leases_sent - status.leases_received);
    loads[g].room = status.room - under_way;
  }
  std::vector<policy::Movable> movable;
  std::vector<RequestId> ids;
  for (const auto& [id, held] : held_) {
    if (held.move != 0) {
      ++loads[moves_.at(held.move).to].active;
      --loads[moves_.at(held.move).to].room;
      continue;
    }
    ++loads[held.group].active;
    movable.push_back({held.group, held.tokens});
    ids.push_back(id);
  }
  for (const policy::Transferral& t : policy::rebalance(loads, movable)) move(ids[t.request], t.to);
}

void Coordinator::move(RequestId id, int to) {
  Held& held = held_.at(id);
  held.move = next_move_++;
  moves_[held.move] = {id, to};
  send(layout_.leader(held.group), Move{id, held.move, ranks_of(to)});
}

void Coordinator::stop() {
  if (stopping_ || finish_sent_) return;
  stopping_ = true;
  for (int g = 0; g < layout_.groups; ++g) send(layout_.leader(g), Stop{});
}

void Coordinator::finish_when_idle() {
  if (finish_sent_) return;
  const bool all_stopped = std::all_of(groups_.begin(), groups_.end(),
                                       [](const Group& g) { return g.status.stopped != 0; });
  if (!complete() && !(all_stopped && moves_.empty())) return;
  finish_sent_ = true;
  for (std::size_t rank = 0; rank < layout_.role.size(); ++rank) {
    // Members of a group are told by their leader, through the executor.
    if (layout_.role[rank] != Role::verifier_member) send(static_cast<int>(rank), Finish{});
  }
}

void Coordinator::send(int rank, const Message& message) {
  mailbox_.send({rank, Address::Port::role}, encode(message));
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
  for (const Group& g : groups_) {
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
