#include "runtime/roles/group.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "runtime/core/role.hpp"

namespace paceline::roles {

KvShare::KvShare(BlockTransport& transport, const engine::KvMemory& memory, int index, int tp,
                 const Recorder& recorder)
    : transport_(transport), memory_(memory), index_(index), tp_(tp), recorder_(recorder) {
  transport_.register_memory(memory_.bytes);
}

// A fault may be what destroys it, and then much else is to be saved: nothing is thrown here, and
// nothing waits for a peer that may have gone.
KvShare::~KvShare() {
  std::string why = "a transfer does not end";
  try {
    if (give_up()) {
      transport_.unregister_memory(memory_.bytes);
      return;
    }
  } catch (const std::exception& error) {
    why = error.what();
  }
  std::fprintf(stderr, "warning: KV of %zu bytes is not freed: %s\n", memory_.bytes.size(),
               why.c_str());
  static auto* const held = new std::vector<std::shared_ptr<void>>;  // until the process ends
  held->push_back(memory_.owner);
}

// The peers hear of it.
bool KvShare::give_up() {
  constexpr auto kLongest = std::chrono::seconds(3);
  for (const auto& [key, parts] : moves_) {
    for (const Part& part : parts) transport_.cancel(part.ticket);
  }
  const auto end = std::chrono::steady_clock::now() + kLongest;
  for (const auto& [key, parts] : moves_) {
    for (const Part& part : parts) {
      while (transport_.state(part.ticket) == TransferState::pending) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  return true;
}

// Of a block, the heads that both ranks hold are one run of bytes for each layer's K and V. Where a
// rank holds just those heads, the runs follow one another, and the block is one piece.
void KvShare::move(const MoveKv& command) {
  const kernels::KvShape& shape = memory_.shape;
  const int heads = shape.kv_heads * tp_;  // of the model
  const int theirs = heads / command.peer.tp;
  const int first = index_ * shape.kv_heads;
  const int end = first + shape.kv_heads;
  const std::size_t head_bytes = shape.layer_bytes() / (2 * shape.kv_heads);
  std::vector<Part>& parts = moves_[command.key];
  for (int peer = first / theirs; peer * theirs < end; ++peer) {
    const int from = std::max(first, peer * theirs);
    const int to = std::min(end, (peer + 1) * theirs);
    const bool whole = to - from == shape.kv_heads && theirs == shape.kv_heads;
    std::vector<std::span<std::byte>> pieces;
    for (const std::int32_t block : command.blocks) {
      const std::span<std::byte> bytes = memory_.block(block);
      for (int run = 0; run < (whole ? 1 : 2 * shape.layers); ++run) {
        pieces.push_back(whole ? bytes
                               : bytes.subspan((run * shape.kv_heads + from - first) * head_bytes,
                                               (to - from) * head_bytes));
      }
    }
    const int rank = command.peer.leader + peer;
    TransferRecord record{.start = recorder_.now(),
                          .key = command.key,
                          .peer = static_cast<std::uint32_t>(rank),
                          .sends = static_cast<std::uint8_t>(command.send)};
    for (const std::span<std::byte> piece : pieces) record.bytes += piece.size();
    if (command.send != 0) {
      const std::vector<std::span<const std::byte>> sent(pieces.begin(), pieces.end());
      parts.push_back({transport_.send(rank, command.key, sent), record});
    } else {
      parts.push_back({transport_.receive(rank, command.key, pieces), record});
    }
  }
}

std::optional<bool> KvShare::ended(std::uint64_t key) {
  const auto at = moves_.find(key);
  if (at == moves_.end()) throw std::logic_error("KV that was not to be moved");
  bool complete = true;
  for (const Part& part : at->second) {
    if (transport_.state(part.ticket) == TransferState::pending) return std::nullopt;
  }
  for (Part& part : at->second) {
    const bool done = transport_.state(part.ticket) == TransferState::done;
    part.record.duration = transport_.seconds(part.ticket);
    part.record.complete = done ? 1 : 0;
    if (recorder_.telemetry != nullptr) recorder_.telemetry->transfer(part.record);
    complete = complete && done;
  }
  moves_.erase(at);
  return complete;
}

std::vector<KvMoved> KvShare::take_ended() {
  std::vector<std::uint64_t> keys;
  for (const auto& [key, parts] : moves_) keys.push_back(key);
  std::vector<KvMoved> moved;
  for (const std::uint64_t key : keys) {
    if (const std::optional<bool> complete = ended(key)) moved.push_back({key, *complete ? 1 : 0});
  }
  return moved;
}

Group::Group(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share,
             const std::vector<int>& members, std::uint32_t epoch)
    : mailbox_(mailbox), runner_(runner), share_(share), epoch_(epoch) {
  for (const int member : members) members_.push_back({member, Address::Port::role});
}

/// There is nothing to do before all members have their places, so that none misses the first
/// command.
void Group::tell(std::span<const std::byte> bytes) {
  if (!std::exchange(leads_, true)) {
    for (const Address member : members_) mailbox_.send(member, encode(Lead{epoch_}));
  }
  for (const Address member : members_) mailbox_.send(member, bytes);
  mailbox_.deliver(members_);  // the leader's step has collectives, which wait for the members
}

std::span<const kernels::Sampled> Group::run(const engine::Step& step) {
  if (!members_.empty()) tell(encode_step(step));
  return runner_.run(step);
}

void Group::finish(const std::optional<policy::Placement>& next) {
  if (members_.empty()) return;
  tell(next ? encode(Place{*next}) : encode(Finish{}));
}

void Group::move(const MoveKv& command) {
  if (!members_.empty()) tell(encode(command));
  moves_[command.key] = {static_cast<int>(members_.size()), true};
  share_.move(command);
}

void Group::heard(const KvMoved& moved) {
  const auto at = moves_.find(moved.key);
  if (at == moves_.end()) return;  // of a member that drafted before, and may have sent anything
  Waiting& waiting = at->second;
  --waiting.members;
  waiting.complete = waiting.complete && moved.complete != 0;
}

std::optional<bool> Group::ended(std::uint64_t key) {
  const auto at = moves_.find(key);
  if (at == moves_.end()) throw std::logic_error("KV that was not to be moved");
  if (at->second.members > 0) return std::nullopt;
  const std::optional<bool> own = share_.ended(key);
  if (!own) return std::nullopt;
  const bool complete = *own && at->second.complete;
  moves_.erase(at);
  return complete;
}

Member::Member(Mailbox& mailbox, engine::StepRunner& runner, KvShare& share, int leader,
               std::uint32_t epoch, const Recorder& recorder)
    : mailbox_(mailbox),
      runner_(runner),
      share_(share),
      leader_{leader},
      epoch_(epoch),
      recorder_(recorder) {}

bool leads(const Envelope& envelope, std::uint32_t epoch) {
  const std::optional<Message> message = decode_if_message(envelope.bytes);
  const auto* lead = message ? std::get_if<Lead>(&*message) : nullptr;
  return lead != nullptr && lead->epoch == epoch;
}

Turn Member::turn() {
  Turn turn;
  while (const std::optional<Envelope> envelope = mailbox_.poll()) {
    turn.worked = true;
    if (envelope->from != leader_) continue;  // late, for what this rank was before
    if (!led_) {
      led_ = leads(*envelope, epoch_);
      continue;
    }
    Message message = decode(envelope->bytes);
    if (const auto* step = std::get_if<RunStep>(&message)) {
      this->step(step->step);
    } else if (const auto* command = std::get_if<MoveKv>(&message)) {
      share_.move(*command);
    } else if (auto* place = std::get_if<Place>(&message)) {
      next_ = std::move(place->placement);
      over_ = true;
      return turn;
    } else if (std::holds_alternative<Finish>(message)) {
      over_ = true;
      return turn;
    } else {
      throw std::logic_error("a group's member got a message meant for another role");
    }
    report();  // steps may follow one another without a pause
  }
  report();
  return turn;
}

/// What it computes is the leader's to tell.
void Member::step(const engine::Step& step) {
  StepRecord record;
  record.start = recorder_.now();
  runner_.run(step);
  if (step.empty()) return;  // work in the cache alone
  record.duration = recorder_.now() - record.start;
  busy_seconds_ += record.duration;
  record.forward_duration = runner_.forward_seconds();
  record.sample_duration = runner_.sample_seconds();
  record.role = static_cast<std::uint32_t>(Role::verifier_member);
  record.queued = static_cast<std::uint32_t>(mailbox_.traffic().queued);
  if (recorder_.telemetry != nullptr) recorder_.telemetry->step(record);
  ++steps_;
}

void Member::report() {
  for (const KvMoved& moved : share_.take_ended()) mailbox_.send(leader_, encode(moved));
}

}  // namespace paceline::roles
