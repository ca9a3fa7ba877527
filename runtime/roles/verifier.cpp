#include "runtime/roles/verifier.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/core/role.hpp"

namespace paceline::roles {

Verifier::Verifier(const VerifierPorts& ports, const VerifierOptions& options)
    : ports_(ports), options_(options) {
  status_.epoch = options_.epoch;
}

Turn Verifier::turn() {
  receive();
  if (over_) return {true};
  settle_moves();
  if (stop_asked_ && status_.stopped == 0) {
    stop();
    return {true};
  }
  let_go();
  admit();
  const bool works = ports_.batcher.active() > 0;
  const std::uint64_t rows = summary_.prefill_tokens + summary_.decode_tokens;
  if (works) {
    step();
  } else {
    held_up_since_ = -1;
  }
  // A batch whose KV is all on its way has no rows.
  const bool worked = summary_.prefill_tokens + summary_.decode_tokens > rows;
  publish(!worked);
  over_ = next_ && left_.empty() && arriving_.empty() && unflushed_.empty();
  return {worked || over_};
}

void Verifier::event(RequestId id, RequestEventKind kind, std::size_t tokens) {
  ports_.telemetry.event({.time = ports_.clock.now(),
                          .id = id,
                          .kind = kind,
                          .tokens = static_cast<std::uint32_t>(tokens)});
}

void Verifier::receive() {
  constexpr int kMostMessages = 4096;  // of a turn: a flood must not keep it from its requests
  for (int n = 0; n < kMostMessages && !over_; ++n) {
    const std::optional<Envelope> envelope = ports_.mailbox.poll();
    if (!envelope) return;
    const int from = envelope->from.rank;
    if (ports_.remote != nullptr && ports_.remote->is_drafter(from)) {
      ports_.remote->receive(from, envelope->bytes);
      continue;
    }
    std::optional<Message> read = understand(*envelope);
    if (!read) continue;
    Message& message = *read;
    if (auto* lease = std::get_if<Lease>(&message)) {
      ++status_.leases_received;
      const Trajectory& trajectory = lease->request.trajectory;
      event(trajectory.id,
            trajectory.tokens.empty() ? RequestEventKind::leased : RequestEventKind::resumed,
            trajectory.tokens.size());
      enqueue(std::move(lease->request), {});
    } else if (auto* offer = std::get_if<Offer>(&message)) {
      const Trajectory& trajectory = offer->request.trajectory;
      const std::uint64_t key = offer->request.version;
      event(trajectory.id, RequestEventKind::arrived, trajectory.tokens.size());
      status_.moved.push_back(key);
      enqueue(std::move(offer->request), {key, offer->from, offer->positions});
    } else if (const auto* move = std::get_if<Move>(&message)) {
      moves_.push_back(*move);
    } else if (const auto* pull = std::get_if<Pull>(&message)) {
      on(*pull);
    } else if (const auto* moved = std::get_if<KvMoved>(&message)) {
      ports_.kv.heard(*moved);
    } else if (std::holds_alternative<Stop>(message)) {
      stop_asked_ = true;
    } else if (auto* place = std::get_if<Place>(&message)) {
      on(std::move(place->placement));
    } else if (std::holds_alternative<Finish>(message)) {
      over_ = true;
    } else if (!about_drafts(message)) {
      throw std::logic_error("a verifier got a message meant for another role");
    }
  }
}

/// Where ranks draft, any other may have drafted, and then have sent anything.
std::optional<Message> Verifier::understand(const Envelope& envelope) const {
  if (ports_.remote == nullptr || envelope.from == Address::coordinator())
    return decode(envelope.bytes);
  std::optional<Message> message = decode_if_message(envelope.bytes);
  if (!message) return std::nullopt;
  if (const auto* offer = std::get_if<Offer>(&*message)) {
    if (!offer->request.prompt.empty()) return message;
  } else if (const auto* pull = std::get_if<Pull>(&*message)) {
    const auto left = left_.find(pull->key);
    if (left != left_.end() && left->second.to.leader == envelope.from.rank) return message;
  } else if (std::holds_alternative<KvMoved>(*message)) {
    const int index = envelope.from.rank - options_.ranks.leader;
    if (index > 0 && index < options_.ranks.tp) return message;
  }
  return std::nullopt;
}

/// KV does not go to or come from groups that have ended, or are about to and hold no requests.
void Verifier::part_from(const policy::Placement& placement) {
  const auto there = [&](const GroupRanks& ranks) {
    return std::find(placement.groups.begin(), placement.groups.end(), ranks) !=
           placement.groups.end();
  };
  for (Waiting& waiting : waiting_) {
    if (!there(waiting.origin.from)) decline(waiting.origin);
  }
  std::erase_if(left_, [&](auto& left) {
    if (left.second.pulled || there(left.second.to)) return false;
    ports_.batcher.release(left.second.parcel);
    return true;
  });
}

void Verifier::on(policy::Placement placement) {
  part_from(placement);
  const int group = placement.group(options_.ranks.leader);
  if (group >= 0 && placement.groups[group] == options_.ranks) {
    if (ports_.remote != nullptr) ports_.remote->use(std::move(placement.drafters));
    if (placement.epoch > heard_of_)
      ports_.mailbox.send(Address::coordinator(), encode(Ready{placement.epoch}));
    heard_of_ = placement.epoch;
    return;
  }
  if (ports_.batcher.active() > 0 || !waiting_.empty())
    throw std::logic_error("a verifier that holds requests is to become something else");
  next_ = std::move(placement);
}

void Verifier::enqueue(engine::Admission request, const Origin& origin) {
  std::vector<TokenId>& prompt = prompts_[request.trajectory.id.prompt];
  if (request.prompt.empty()) {
    request.prompt = prompt;
  } else {
    prompt = request.prompt;
  }
  changed_ = true;
  waiting_.push_back({std::move(request), origin});
  if (ports_.speculator != nullptr) ports_.speculator->start(waiting_.back().request);
  if (status_.stopped != 0) stop();  // it came after everything else was handed in
}

// Finished or not, everything the verifier holds is on disk when it says that it has stopped.
void Verifier::stop() {
  for (Trajectory& partial : ports_.batcher.stop()) {
    event(partial.id, RequestEventKind::stopped, partial.tokens.size());
    ports_.trajectories.append(partial);
    ++status_.partial;
  }
  for (Waiting& waiting : waiting_) {
    decline(waiting.origin);
    if (waiting.request.trajectory.tokens.empty()) continue;
    ports_.trajectories.append(waiting.request.trajectory);
    ++status_.partial;
  }
  waiting_.clear();
  for (const Move& move : std::exchange(moves_, {})) status_.kept.push_back(move.key);
  status_.stopped = 1;
  changed_ = true;
  ports_.trajectories.flush();
  publish(true);
}

/// Makes the moves that were asked for: the request's KV stays in a parcel until it is pulled. A
/// request whose own KV is still on its way moves once that is there.
void Verifier::let_go() {
  for (const Move& move : std::exchange(moves_, {})) {
    const auto waits = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
      return w.request.trajectory.id == move.id;
    });
    if (ports_.batcher.runs(move.id) && ports_.batcher.expects(move.id)) {
      moves_.push_back(move);
      continue;
    }
    changed_ = true;
    if (waits != waiting_.end()) {
      decline(waits->origin);
      hand_over(move, std::move(waits->request), {});
      waiting_.erase(waits);
    } else if (!ports_.batcher.runs(move.id)) {
      status_.kept.push_back(move.key);
    } else {
      (void)ports_.runner.run(ports_.batcher.kv_work());
      engine::Departure departure = ports_.batcher.leave(move.id);
      hand_over(move, std::move(departure.request), std::move(departure.parcel));
    }
  }
}

/// To another group, which may pull the KV, or back to the coordinator, which has no use for it.
void Verifier::hand_over(const Move& move, engine::Admission request, kv::Parcel parcel) {
  event(move.id, RequestEventKind::left, request.trajectory.tokens.size());
  if (ports_.speculator != nullptr) ports_.speculator->leave(move.id);
  ++summary_.moved;
  const std::int32_t positions = parcel.positions;
  if (positions > 0 && move.to.tp > 0) {
    left_[move.key] = {std::move(parcel), move.to};
  } else {
    ports_.batcher.release(parcel);
  }
  if (move.to.tp == 0) {
    ports_.mailbox.send(Address::coordinator(),
                        encode(Returned{move.key, std::move(request.trajectory)}));
    return;
  }
  request.version = move.key;
  ports_.mailbox.send({move.to.leader, Address::Port::role},
                      encode(Offer{std::move(request), options_.ranks, positions}));
}

void Verifier::on(const Pull& pull) {
  const auto at = left_.find(pull.key);
  const bool none = pull.first_block == Pull::kNone;
  if (at == left_.end()) {
    if (none) return;  // its group has ended meanwhile, and the KV was given up
    throw std::logic_error("KV is wanted of a request that did not leave");
  }
  std::vector<std::int32_t> blocks = at->second.parcel.blocks;
  if (none) {
    ports_.batcher.release(at->second.parcel);
    left_.erase(at);
    return;
  }
  blocks.erase(blocks.begin(), blocks.begin() + pull.first_block);
  at->second.pulled = true;
  ports_.kv.move({pull.key, at->second.to, 1, std::move(blocks)});
}

/// Learns which KV has arrived, and gives back the blocks of KV that was sent.
void Verifier::settle_moves() {
  for (auto it = left_.begin(); it != left_.end();) {
    if (it->second.pulled && ports_.kv.ended(it->first)) {
      ports_.batcher.release(it->second.parcel);
      it = left_.erase(it);
    } else {
      ++it;
    }
  }
  for (auto it = arriving_.begin(); it != arriving_.end();) {
    const std::optional<bool> complete = ports_.kv.ended(it->first);
    if (complete && ports_.batcher.runs(it->second)) ports_.batcher.arrived(it->second, *complete);
    it = complete ? arriving_.erase(it) : std::next(it);
  }
}

void Verifier::admit() {
  while (!waiting_.empty()) {
    Waiting& next = waiting_.front();
    const RequestId id = next.request.trajectory.id;
    if (!ports_.batcher.admit(next.request)) break;
    if (next.origin.positions > 0) fetch(id, next.origin);
    waiting_.pop_front();
    changed_ = true;
  }
  // KV that waits elsewhere takes room there. Where nothing runs here, two groups might each wait
  // for the room that the other's KV takes: what waits is computed again instead.
  if (ports_.batcher.active() > 0) return;
  for (Waiting& waiting : waiting_) decline(waiting.origin);
}

/// Tells where the request's KV is that it is not wanted.
void Verifier::decline(Origin& origin) {
  if (origin.positions == 0) return;
  ports_.mailbox.send({origin.from.leader, Address::Port::role},
                      encode(Pull{origin.key, Pull::kNone}));
  origin.positions = 0;
}

/// Pulls the part of the request's KV that comes sooner from where it was than by computing it.
void Verifier::fetch(RequestId id, const Origin& origin) {
  const std::int32_t first = policy::split_move(options_.costs, origin.positions,
                                                ports_.batcher.own_from(id), options_.kv_block)
                                 .first;
  const bool none = first >= origin.positions;
  ports_.mailbox.send({origin.from.leader, Address::Port::role},
                      encode(Pull{origin.key, none ? Pull::kNone : first / options_.kv_block}));
  if (none) return;
  ports_.batcher.expect(id, {first, origin.positions});
  const auto end = kv::blocks_for(origin.positions, options_.kv_block);
  const auto table =
      ports_.batcher.table(id).subspan(first / options_.kv_block, end - first / options_.kv_block);
  ports_.kv.move({origin.key, origin.from, 0, {table.begin(), table.end()}});
  arriving_[origin.key] = id;
  summary_.positions_transferred += origin.positions - first;
}

void Verifier::step() {
  StepRecord record;
  record.start = ports_.clock.now();
  const std::uint64_t late = ports_.remote != nullptr ? ports_.remote->counts().late : 0;
  std::span<const engine::DraftTree> drafts;
  if (ports_.speculator != nullptr) {
    const std::span<const engine::Decoding> decoding = ports_.batcher.decoding();
    drafts = ports_.speculator->draft(decoding, ports_.batcher.prefill_rows());
    record.draft_duration = ports_.speculator->draft_seconds();
  }
  const double drafted = ports_.clock.now();
  const engine::Step& step = ports_.batcher.plan(drafts);
  for (engine::Admission& parked : ports_.batcher.take_parked()) {
    waiting_.push_front({std::move(parked), {}});
    changed_ = true;
  }
  if (step.empty()) {  // all wait for KV; what there is to do in the cache is done
    (void)ports_.batcher.commit(ports_.runner.run(step));
    if (held_up_since_ < 0) held_up_since_ = record.start;
    return;
  }
  if (held_up_since_ >= 0) record.waited = record.start - std::exchange(held_up_since_, -1);
  const engine::StepCounts counts = ports_.batcher.counts();
  const std::vector<Trajectory> finished = ports_.batcher.commit(ports_.runner.run(step));
  const double verified = ports_.clock.now();
  for (const engine::Committed& c : ports_.batcher.committed()) status_.tokens += c.tokens.size();
  if (ports_.speculator != nullptr) {
    ports_.speculator->commit(ports_.batcher.committed(), verified - drafted);
    record.accepted = ports_.speculator->accepted();
    for (const PlannedRequest& r : ports_.speculator->planned())
      ports_.telemetry.event(
          {verified, r.id, RequestEventKind::planned, r.tokens, r.mode, r.longest_draft});
  }
  for (const Trajectory& done : finished) {
    ports_.trajectories.append(done);
    unflushed_.push_back(done.id);
    status_.ended.push_back({done.id, static_cast<std::uint32_t>(done.tokens.size())});
    event(done.id, RequestEventKind::finished, done.tokens.size());
    changed_ = true;
  }
  record.duration = ports_.clock.now() - record.start;
  record.forward_duration = ports_.runner.forward_seconds();
  record.sample_duration = ports_.runner.sample_seconds();
  record.requests = counts.requests;
  record.prefill_tokens = counts.prefill_tokens;
  record.decode_tokens = counts.decode_tokens;
  record.drafted = counts.drafted;
  record.kv_blocks_used = static_cast<std::uint32_t>(ports_.batcher.blocks_used());
  record.role = static_cast<std::uint32_t>(Role::verifier);
  if (ports_.remote != nullptr)
    record.late = static_cast<std::uint32_t>(ports_.remote->counts().late - late);
  record.queued = static_cast<std::uint32_t>(ports_.mailbox.traffic().queued);
  ports_.telemetry.step(record);
  status_.steps = ++summary_.steps;
  summary_.busy_seconds += record.duration;
  summary_.prefill_tokens += counts.prefill_tokens;
  summary_.decode_tokens += counts.decode_tokens;
  summary_.waited_seconds += record.waited;
  summary_.drafted += record.drafted;
  summary_.accepted += record.accepted;
  summary_.response_tokens = status_.tokens;
}

RankSummary Verifier::summary() const {
  RankSummary summary = summary_;
  if (ports_.remote != nullptr) {
    const RemoteDrafter::Counts& counts = ports_.remote->counts();
    summary.late = counts.late;
    summary.stale = counts.stale;
    summary.invalid = counts.invalid + counts.flooded;
  }
  return summary;
}

void Verifier::publish(bool force) {
  constexpr double kStatusSeconds = 0.5;
  const double now = ports_.clock.now();
  // The two periods run on their own: a status must not put off the flush.
  const bool flush = !unflushed_.empty() && (force || now - last_flush_ >= options_.flush_seconds);
  const bool status_due = !force && now - last_status_ >= kStatusSeconds;
  if (flush) {
    ports_.trajectories.flush();
    ports_.telemetry.flush();
    last_flush_ = now;
    status_.finished = std::move(unflushed_);
    unflushed_.clear();
  }
  if (!flush && !changed_ && !status_due) return;
  status_.active = ports_.batcher.active();
  status_.unflushed = static_cast<std::int32_t>(unflushed_.size());
  // With a lease waiting for KV there is room for none.
  status_.room = waiting_.empty() ? options_.max_batch - status_.active : 0;
  status_.running = ports_.batcher.running();
  for (const Waiting& w : waiting_)
    status_.running.push_back(
        {w.request.trajectory.id, static_cast<std::uint32_t>(w.request.trajectory.tokens.size())});
  ports_.mailbox.send(Address::coordinator(), encode(status_));
  status_.ended.clear();
  status_.finished.clear();
  status_.running.clear();
  status_.moved.clear();
  status_.kept.clear();
  changed_ = false;
  last_status_ = now;
}

}  // namespace paceline::roles
