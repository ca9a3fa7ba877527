#include "runtime/roles/verifier.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "runtime/core/role.hpp"
#include "runtime/protocol/message_table.hpp"

namespace paceline::roles {

using namespace protocol;

Verifier::Verifier(const VerifierPorts& ports, const VerifierOptions& options)
    : ports_(ports),
      options_(options),
      kv_(ports.mailbox, ports.batcher, ports.group, options.ranks, options.costs,
          options.kv_block),
      races_(ports.mailbox, options.vocab),
      conversations_(ports.environment, options.conversations),
      upcoming_(ports.batcher, ports.group, ports.clock, ports.pregenerated),
      meter_(Role::verifier, {&ports.clock, &ports.telemetry}, ports.mailbox) {
  status_.epoch = options_.epoch;
}

Turn Verifier::turn() {
  receive();
  if (over_) return {true};
  (void)kv_.settle();
  if (stop_asked_ && status_.stopped == 0) {
    stop();
    return {true};
  }
  go_on();
  let_race();
  let_go();
  do {
    admit();
  } while (kv_.settle());  // a KV transfer that has just ended may have freed blocks
  const bool works = ports_.batcher.active() > 0 && !upcoming_.running();
  const std::uint64_t rows = meter_.sums().prefill_tokens + meter_.sums().decode_tokens;
  if (works) {
    if (ports_.memory != nullptr && ports_.memory->turn(waiting_.size())) changed_ = true;
    step();
  } else {
    meter_.stop_waiting();
  }
  announce();
  // If all requests wait for KV, the turn computes no rows, and does not count as work.
  const bool worked = meter_.sums().prefill_tokens + meter_.sums().decode_tokens > rows;
  publish(!worked);
  over_ = next_ && kv_.idle() && unflushed_.empty() && !recorded_ && given_up_.empty();
  const bool idle = !works && !over_ && !next_ && waiting_.empty() && status_.stopped == 0;
  const bool pregenerates = idle && upcoming_.step();
  if (upcoming_.done() != pregenerated_told_) {
    pregenerated_told_ = upcoming_.done();
    ports_.mailbox.send(Address::coordinator(), encode(Pregenerated{pregenerated_told_}));
  }
  return {worked || over_ || pregenerates};
}

void Verifier::event(RequestId id, RequestEventKind kind, std::size_t tokens) {
  ports_.telemetry.event({.time = ports_.clock.now(),
                          .id = id,
                          .kind = kind,
                          .tokens = static_cast<std::uint32_t>(tokens)});
}

void Verifier::receive() {
  constexpr int kMostMessages = 4096;  // a bound, so that many messages do not hold up decoding
  for (int n = 0; n < kMostMessages && !over_; ++n) {
    const std::optional<Envelope> envelope = ports_.mailbox.poll();
    if (!envelope) return;
    const int from = envelope->from.rank;
    if (envelope->from.port == Address::Port::draft_server) {
      if (ports_.siblings != nullptr) ports_.siblings->receive(from, envelope->bytes);
      continue;
    }
    if (ports_.remote != nullptr && ports_.remote->is_drafter(from)) {
      ports_.remote->receive(from, envelope->bytes);
      continue;
    }
    take(*envelope);
  }
}

/// Applies a message. An invalid message is a fault if its sender is trusted; otherwise it is
/// dropped. All senders are trusted if there are never drafter ranks. If there are, only the
/// coordinator is: any other sender may have been a drafter rank, which can send anything.
void Verifier::take(const Envelope& envelope) {
  const bool trusted = ports_.remote == nullptr || envelope.from == Address::coordinator();
  std::optional<Message> message =
      trusted ? decode(envelope.bytes) : decode_if_message(envelope.bytes);
  if (!message) return;
  const auto a_member = [&](Address from, const KvMoved&) {
    const int index = from.rank - options_.ranks.leader;
    return trusted || (index > 0 && index < options_.ranks.tp);
  };
  const auto a_taker = [&](Address from, const Pull& pull) {
    return trusted || kv_.kept_for(pull.key, from.rank);
  };
  const auto a_taker_of_all = [&](Address from, const DropKv& drop) {
    return trusted || std::ranges::all_of(drop.keys, [&](std::uint64_t key) {
             return kv_.kept_for(key, from.rank);
           });
  };
  const auto whole = [&](Address, const Offer& offer) {
    const Admission& request = offer.request;
    return trusted || (!request.prompt.empty() && request.files.size() == request.pictures.size());
  };
  const Receipt receipt = protocol::receive(
      envelope.from, *message,
      on<KvMoved>(a_member,
                  [this](Address from, KvMoved& moved) { kv_.share_ended(from.rank, moved); }),
      on<Lease>(the_coordinator, [this](Address, Lease& lease) { accept(std::move(lease)); }),
      on<Renew>(the_coordinator, [this](Address, Renew& order) { renew(order); }),
      on<Offer>(whole, [this](Address, Offer& offer) { accept(std::move(offer)); }),
      on<RaceCommit>(anybody,
                     [this](Address from, RaceCommit& news) {
                       if (races_.hear(from.rank, news)) give_up(news.id);
                     }),
      on<Pull>(a_taker, [this](Address, Pull& pull) { kv_.on(pull); }),
      on<Move>(the_coordinator, [this](Address, Move& move) { moves_asked_.push_back(move); }),
      on<Race>(the_coordinator, [this](Address, Race& race) { races_asked_.push_back(race); }),
      on<DropKv>(a_taker_of_all,
                 [this](Address, DropKv& drop) {
                   for (const std::uint64_t key : drop.keys) kv_.forget(key);
                 }),
      on<ForeseeKv>(the_coordinator, [this](Address, ForeseeKv& order) { kv_.foresee(order); }),
      on<Stop>(the_coordinator, [this](Address, Stop&) { stop_asked_ = true; }),
      on<Place>(the_coordinator,
                [this](Address, Place& place) { become(std::move(place.placement)); }),
      on<Pregenerate>(the_coordinator,
                      [this](Address, Pregenerate& order) {
                        upcoming_.take(order.run, std::move(order.requests));
                      }),
      on<Finish>(the_coordinator, [this](Address, Finish&) {
        upcoming_.end();
        over_ = true;
      }));
  if (receipt != Receipt::handled && trusted && !may_come_late(*message))
    throw std::logic_error(
        "a verifier got a message that it does not take, or not from this sender");
}

void Verifier::accept(Lease lease) {
  ++status_.orders_received;
  const Trajectory& trajectory = lease.request.trajectory;
  event(trajectory.id,
        trajectory.tokens.empty() ? RequestEventKind::leased : RequestEventKind::resumed,
        trajectory.tokens.size());
  enqueue(std::move(lease.request), lease.kv);
}

void Verifier::accept(Offer offer) {
  if (offer.method) {
    join(std::move(offer));
    return;
  }
  const Trajectory& trajectory = offer.request.trajectory;
  event(trajectory.id, RequestEventKind::arrived, trajectory.tokens.size());
  status_.moved.push_back(trajectory.id);
  enqueue(std::move(offer.request), offer.kv);
}

void Verifier::renew(const Renew& renew) {
  ++status_.orders_received;
  changed_ = true;
  if (const auto waits = waiting(renew.id); waits != waiting_.end()) {
    waits->request.until = renew.until;
  } else if (conversations_.waits(renew.id)) {
    conversations_.renew(renew.id, renew.until);
  } else if (ports_.batcher.runs(renew.id) && holds(renew.id)) {
    ports_.batcher.renew(renew.id, renew.until);
  }
}

void Verifier::become(policy::Placement placement) {
  // The coordinator sends a placement a second time when all ranks have taken their places.
  const bool all_have_places = placement.epoch == heard_of_;
  kv_.part_from(placement, all_have_places);
  for (Waiting& waiting : waiting_) {
    if (std::ranges::find(placement.groups, waiting.kv.group) == placement.groups.end())
      kv_.decline(waiting.kv);
  }
  const int group = placement.group(options_.ranks.leader);
  if (group >= 0 && placement.groups[group] == options_.ranks) {
    if (ports_.remote != nullptr) ports_.remote->use(placement.drafters);
    if (placement.epoch > heard_of_)
      ports_.mailbox.send(Address::coordinator(), encode(Ready{placement.epoch}));
    heard_of_ = placement.epoch;
    return;
  }
  upcoming_.end();
  for (const RequestId id : races_.raced_for()) give_up(id);
  if (!held().empty())
    throw std::logic_error("a verifier that holds requests is given another role");
  next_ = std::move(placement);
}

void Verifier::enqueue(Admission request, const policy::KeptKv& kv, OptionalIndex method) {
  upcoming_.drop();
  // A racer that becomes the holder leaves the race at once, because the old holder's message that
  // ends the race may arrive only later.
  if (!method && races_.races_for(request.trajectory.id)) give_up(request.trajectory.id);
  KnownPrompt& prompt = prompts_[request.trajectory.id.prompt];
  if (request.prompt.empty()) {
    request.prompt = prompt.tokens;
    request.pictures = prompt.pictures;
    request.files = prompt.files;
  } else {
    if (request.pictures == prompt.pictures)
      request.files = prompt.files;  // shares the stored copy
    prompt = {request.prompt, request.pictures, request.files};
  }
  changed_ = true;
  waiting_.push_back({std::move(request), kv});
  if (ports_.speculator != nullptr) ports_.speculator->start(waiting_.back().request, method);
  if (status_.stopped != 0) stop();  // after a stop, a new request is handed in at once
}

/// Writes an unfinished response at a stop.
void Verifier::hand_in(const Trajectory& partial) {
  event(partial.id, RequestEventKind::stopped, partial.tokens.size());
  ports_.trajectories.append(partial);
  ++status_.partial;
}

// Hands in all unfinished responses. When the verifier reports its stop, all responses
// are on disk.
void Verifier::stop() {
  upcoming_.end();
  for (Trajectory& partial : ports_.batcher.stop()) {
    if (holds(partial.id)) hand_in(partial);
  }
  for (Waiting& waiting : waiting_) {
    kv_.decline(waiting.kv);
    const Trajectory& trajectory = waiting.request.trajectory;
    if (!trajectory.tokens.empty() && !races_.races_for(trajectory.id)) hand_in(trajectory);
  }
  waiting_.clear();
  for (Conversations::Answered& waited : conversations_.stop()) {
    kv_.decline(waited.kv);
    if (!waited.request.trajectory.tokens.empty()) hand_in(waited.request.trajectory);
  }
  given_up_.clear();
  for (const RequestId id : races_.raced_for()) end_race(id);
  for (const Move& move : std::exchange(moves_asked_, {})) status_.kept.push_back(move.id);
  for (const Race& race : std::exchange(races_asked_, {})) status_.races_ended.push_back(race.key);
  status_.stopped = 1;
  changed_ = true;
  ports_.trajectories.flush();
  publish(true);
}

/// Makes the moves that the coordinator has commanded. A request goes either to another group or
/// back to the coordinator. In the first case this group keeps the request's KV in a parcel until
/// the other group has pulled the part that it wants. In the second case the KV goes into this
/// group's store. The move is put off while the request awaits KV or an environment's answer.
void Verifier::let_go() {
  for (const Move& move : std::exchange(moves_asked_, {})) {
    const auto waits = waiting(move.id);
    const bool runs = ports_.batcher.runs(move.id);
    if ((runs && ports_.batcher.expects(move.id)) || conversations_.waits(move.id)) {
      moves_asked_.push_back(move);
      continue;
    }
    changed_ = true;
    if (!runs && waits == waiting_.end()) {
      status_.kept.push_back(move.id);
      continue;
    }
    engine::Departure left;
    if (waits != waiting_.end()) {
      kv_.decline(waits->kv);
      left.request = std::move(waits->request);
      waiting_.erase(waits);
    } else {
      (void)ports_.group.run(ports_.batcher.kv_work());
      left = ports_.batcher.leave(move.id);
    }
    event(move.id, RequestEventKind::left, left.request.trajectory.tokens.size());
    races_.end(move.id);
    conversations_.leave(move.id);
    if (ports_.speculator != nullptr) ports_.speculator->leave(move.id);
    ++moved_;
    if (move.to.leader == policy::kToTable) {
      const policy::KeptKv stored = kv_.store(move.key, std::move(left.parcel));
      ports_.mailbox.send(Address::coordinator(),
                          encode(Returned{std::move(left.request.trajectory), stored}));
    } else {
      left.request.version = move.key;
      const policy::KeptKv kept =
          kv_.keep(move.key, std::move(left.parcel), move.to, KvMove::Kind::given);
      ports_.mailbox.send({move.to.leader, Address::Port::role},
                          encode(Offer{std::move(left.request), kept}));
    }
  }
}

/// Whether this verifier holds `id`, a request of its batch. It does not hold requests of the next
/// training step, requests that it only races for, or requests whose races it gave up.
bool Verifier::holds(RequestId id) const {
  return !Pregeneration::owns(id) && !races_.races_for(id) &&
         std::ranges::find(given_up_, id) == given_up_.end();
}

/// Returns all requests that this verifier holds: in the batch, or waiting for room or an answer.
std::vector<RequestLength> Verifier::held() const {
  std::vector<RequestLength> held = ports_.batcher.running();
  std::erase_if(held, [this](const RequestLength& r) { return !holds(r.id); });
  for (const Waiting& w : waiting_) {
    const Trajectory& trajectory = w.request.trajectory;
    if (!races_.races_for(trajectory.id))
      held.push_back({trajectory.id, static_cast<std::uint32_t>(trajectory.tokens.size())});
  }
  conversations_.add_held(held);
  return held;
}

std::deque<Verifier::Waiting>::iterator Verifier::waiting(RequestId id) {
  return std::ranges::find_if(waiting_,
                              [id](const Waiting& w) { return w.request.trajectory.id == id; });
}

void Verifier::admit() {
  remove_given_up();
  while (!waiting_.empty()) {
    Waiting& next = waiting_.front();
    const RequestId id = next.request.trajectory.id;
    if (ports_.batcher.runs(id)) break;  // its copy from a race has yet to leave the batch
    const bool here = next.kv.positions > 0 && next.kv.group == options_.ranks;
    if (!ports_.batcher.admit(next.request, here ? next.kv.owner : OptionalIndex())) {
      if (make_way(id)) continue;
      break;
    }
    kv_.fetch(id, next.kv);
    waiting_.pop_front();
    changed_ = true;
  }
  // A group keeps KV until the KV is pulled or declined. If two groups are both idle (no request in
  // either batch), each might lack room because of the KV that it keeps for the other. So an idle
  // group declines the KV of its waiting requests, and computes the KV again.
  if (ports_.batcher.active() > 0) return;
  for (Waiting& waiting : waiting_) kv_.decline(waiting.kv);
}

void Verifier::step() {
  StepRecord& record = meter_.begin();
  const std::uint64_t late = ports_.remote != nullptr ? ports_.remote->counts().late : 0;
  std::span<const engine::DraftTree> drafts;
  if (ports_.speculator != nullptr) {
    const std::span<const engine::Decoding> decoding = ports_.batcher.decoding();
    foretold_.clear();
    for (const engine::Decoding& d : decoding) foretold_.push_back(races_.foretold(d.id));
    drafts = ports_.speculator->draft(decoding, ports_.batcher.prefill_rows(), foretold_);
    record.draft_duration = ports_.speculator->draft_seconds();
  }
  const double drafted_at = ports_.clock.now();
  const engine::Step& step = ports_.batcher.plan(drafts);
  for (Admission& parked : ports_.batcher.take_parked()) {
    const RequestId id = parked.trajectory.id;
    waiting_.push_front({std::move(parked), {}});
    ++preempted_;
    if (races_.races_for(id)) give_up(id);
    changed_ = true;
  }
  if (step.empty()) {  // all requests wait for KV: the step only moves or copies KV blocks
    (void)ports_.batcher.commit(ports_.group.run(step));
    meter_.wait();
    return;
  }
  meter_.go_on();
  const engine::StepCounts counts = ports_.batcher.counts();
  const engine::StepResult result =
      ports_.group.run(ports_.recorder != nullptr ? ports_.recorder->with_questions(step) : step);
  if (ports_.recorder != nullptr) ports_.recorder->answered(result.sampled);
  std::vector<Trajectory> finished = ports_.batcher.commit(result);
  // The speculator learns the cost of rows, so the time for pictures is left out.
  const double verified_at = ports_.clock.now();
  const double seconds = verified_at - drafted_at - result.picture_seconds;
  for (const engine::Committed& c : ports_.batcher.committed()) {
    (races_.races_for(c.id) ? raced_ : status_.tokens) += c.tokens.size();
    races_.committed(c.id, c.tokens);
  }
  if (ports_.speculator != nullptr) {
    if (ports_.speculator->observes())
      ports_.speculator->observe(ports_.batcher.computed(), ports_.group);
    ports_.speculator->commit(ports_.batcher.committed(), seconds);
    record.accepted = ports_.speculator->accepted();
    record.draft_calls = ports_.speculator->draft_calls();
  }
  const std::span<const std::vector<kv::Place>> routed = ports_.batcher.routed_places();
  for (std::size_t i = 0; i < routed.size(); ++i)
    finished[i].routing = ports_.group.read_routing(routed[i]);
  for (const Trajectory& done : finished) {
    changed_ = true;
    if (races_.races_for(done.id)) {
      event(done.id, RequestEventKind::race_won, done.tokens.size());
      const std::uint64_t key = races_.end(done.id);
      status_.races_ended.push_back(key);
      continue;
    }
    races_.end(done.id);
    finish(done);
  }
  record.kv_blocks_used = static_cast<std::uint32_t>(ports_.batcher.blocks_used());
  record.kv_blocks = static_cast<std::uint32_t>(ports_.batcher.blocks());
  if (ports_.remote != nullptr)
    record.late = static_cast<std::uint32_t>(ports_.remote->counts().late - late);
  meter_.end(result, counts);
  status_.steps = meter_.sums().steps;
  end_turns();
}

/// Writes and reports a response that has ended.
void Verifier::finish(const Trajectory& done) {
  changed_ = true;
  ports_.trajectories.append(done);
  unflushed_.push_back(done.id);
  status_.ended.push_back({done.id, static_cast<std::uint32_t>(done.tokens.size())});
  ports_.telemetry.event({.time = ports_.clock.now(),
                          .id = done.id,
                          .kind = RequestEventKind::finished,
                          .tokens = static_cast<std::uint32_t>(done.tokens.size()),
                          .reason = done.finish_reason});
}

/// Removes requests whose turns have ended from the batch, and asks the environment for answers. A
/// request that is only raced for gets no answer here: its race ends with the turn.
void Verifier::end_turns() {
  const std::vector<RequestId> over = ports_.batcher.take_turns();
  if (over.empty()) return;
  changed_ = true;
  // One kv_work() suffices for all these leave() calls: leave() makes new KV work only if the
  // request's prompt is incomplete, and these prompts are complete.
  (void)ports_.group.run(ports_.batcher.kv_work());
  for (const RequestId id : over) {
    engine::Departure departure = ports_.batcher.leave(id);
    const std::size_t tokens = departure.request.trajectory.tokens.size();
    if (!holds(id)) {
      ports_.batcher.release(departure.parcel);
      event(id, RequestEventKind::race_won, tokens);
      if (races_.races_for(id)) end_race(id);
      std::erase(given_up_, id);
      continue;
    }
    races_.end(id);
    if (ports_.speculator != nullptr) ports_.speculator->leave(id);
    event(id, RequestEventKind::turn_ended, tokens);
    policy::KeptKv stored{.group = options_.ranks};
    if (conversations_.may_go_on(departure.request)) {
      stored = kv_.store(conversations_.next_key(), std::move(departure.parcel));
    } else {
      ports_.batcher.release(departure.parcel);
    }
    conversations_.ask(std::move(departure.request), stored);
  }
}

/// Takes the answers that have come. Each answer is written to disk with the request's trajectory,
/// because the environment does not give it again.
void Verifier::go_on() {
  for (Conversations::Answered& answered : conversations_.take()) {
    changed_ = true;
    const Trajectory& trajectory = answered.request.trajectory;
    if (!answered.goes_on) {
      kv_.decline(answered.kv);
      finish(trajectory);
      continue;
    }
    ports_.trajectories.append(trajectory);
    recorded_ = true;
    event(trajectory.id, RequestEventKind::answered, trajectory.tokens.size());
    enqueue(std::move(answered.request), answered.kv);
  }
}

RankSummary Verifier::summary() const {
  RankSummary summary = meter_.sums();
  summary.response_tokens = status_.tokens;
  summary.moved = moved_;
  summary.preempted = preempted_;
  summary.raced = raced_;
  summary.foretold = races_.gained();
  summary.pregenerated = upcoming_.tokens();
  summary.pregenerating_seconds = upcoming_.seconds();
  summary.positions_transferred = kv_.fetched();
  if (ports_.remote != nullptr) {
    const speculation::RemoteDrafter::Counts counts = ports_.remote->counts();
    summary.late = counts.late;
    summary.stale = counts.stale;
    summary.foreseen = counts.foreseen;
    summary.invalid = counts.invalid + counts.flooded;
  }
  if (ports_.siblings != nullptr) {
    const speculation::DraftClient::Counts& counts = ports_.siblings->counts();
    summary.invalid += counts.invalid;
    summary.draft_update_bytes = counts.update_bytes;
    summary.draft_fetch_bytes = counts.fetch_bytes;
    summary.draft_fetches = counts.fetches;
    summary.draft_fetch_seconds = counts.fetch_seconds;
    summary.draft_heard = counts.heard;
    summary.draft_most_behind = counts.most_behind;
  }
  return summary;
}

/// Adds to the next status the leases that are about to end.
void Verifier::announce() {
  for (const RequestId id : ports_.batcher.ending(options_.lease_notice)) {
    if (!holds(id)) continue;
    status_.ending.push_back(id);
    changed_ = true;
  }
}

void Verifier::publish(bool force) {
  constexpr double kStatusSeconds = 0.5;
  const double now = ports_.clock.now();
  // Flushes and statuses have separate periods, because a status must not delay a flush.
  const bool flush =
      (!unflushed_.empty() || recorded_) && (force || now - last_flush_ >= options_.flush_seconds);
  const bool status_due = !force && now - last_status_ >= kStatusSeconds;
  if (flush) {
    ports_.trajectories.flush();
    ports_.telemetry.flush();
    last_flush_ = now;
    status_.finished = std::move(unflushed_);
    unflushed_.clear();
    recorded_ = false;
  }
  if (!flush && !changed_ && !status_due) return;
  status_.unflushed = static_cast<std::int32_t>(unflushed_.size());
  status_.running = held();
  const auto waits = static_cast<std::int32_t>(std::ranges::count_if(
      waiting_, [this](const Waiting& w) { return !races_.races_for(w.request.trajectory.id); }));
  status_.active = static_cast<std::int32_t>(status_.running.size()) - waits -
                   static_cast<std::int32_t>(conversations_.waiting());
  // While a held request waits for room in the batch, the status reports no room for others.
  // Requests that are only raced for take no room: they give way to held requests.
  status_.room = waits == 0 ? options_.max_batch - status_.active : 0;
  status_.kv_room = upcoming_.running() ? upcoming_.blocks_free() : ports_.batcher.blocks_free();
  if (options_.races && ports_.speculator != nullptr)
    status_.drafted = ports_.speculator->drafted_for();
  std::erase_if(status_.drafted, [this](const DraftedFor& d) { return races_.races_for(d.id); });
  ports_.mailbox.send(Address::coordinator(), encode(status_));
  status_.ended.clear();
  status_.finished.clear();
  status_.running.clear();
  status_.ending.clear();
  status_.moved.clear();
  status_.kept.clear();
  status_.races_begun.clear();
  status_.races_ended.clear();
  changed_ = false;
  last_status_ = now;
}

}  // namespace paceline::roles
