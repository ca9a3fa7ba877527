#include "runtime/roles/coordinator.hpp"

#include <algorithm>
#include <stdexcept>

namespace paceline::roles {

Coordinator::Coordinator(Mailbox& mailbox, const policy::Layout& layout,
                         std::vector<Trajectory> work, std::span<const Prompt> prompts,
                         std::uint64_t noise_seed, std::size_t already_finished)
    : mailbox_(mailbox),
      layout_(layout),
      work_(std::move(work)),
      prompts_(prompts),
      noise_seed_(noise_seed),
      book_(work_.size(), layout.groups),
      groups_(layout.groups) {
  progress_.total = already_finished + work_.size();
  progress_.finished = already_finished;
  progress_.finished_before = already_finished;
  finish_when_idle();
}

bool Coordinator::turn() {
  bool any = false;
  while (const std::optional<Envelope> envelope = mailbox_.poll()) {
    any = true;
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
  return any;
}

void Coordinator::on(int from, const Status& status) {
  const int group = layout_.group[from];
  groups_[group].status = status;
  for (std::size_t i = 0; i < status.finished.size(); ++i) {
    book_.finish(group);
    ++progress_.finished;
  }
  if (!stopping_) lease_to(group);
  finish_when_idle();
}

void Coordinator::lease_to(int group) {
  Group& g = groups_[group];
  const auto under_way = static_cast<int>(g.leases_sent - g.status.leases_received);
  for (const std::size_t index : book_.grant(group, g.status.room - under_way)) {
    Trajectory& trajectory = work_[index];
    const Prompt& prompt = prompts_[trajectory.id.prompt];
    const NoiseKey noise =
        noise_key(noise_seed_, trajectory.weight_version, prompt.uid, trajectory.id.sample);
    send(layout_.leader(group), Lease{std::move(trajectory), prompt.tokens, noise});
    ++g.leases_sent;
  }
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
  if (!complete() && !all_stopped) return;
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
  p.pending = book_.pending();
  for (const Group& g : groups_) {
    p.active += g.status.active;
    p.tokens += g.status.tokens;
  }
  return p;
}

}  // namespace paceline::roles
