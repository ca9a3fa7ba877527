// A verifier's part in races: other groups race for requests that it holds, and it races for
// requests that other groups hold (races.hpp).
#include <algorithm>
#include <utility>

#include "runtime/roles/verifier.hpp"

namespace paceline::roles {

using namespace protocol;

/// Begins the races that the coordinator has commanded: offers each racer a copy of the request.
void Verifier::let_race() {
  for (const Race& race : std::exchange(races_asked_, {})) {
    const auto waits = waiting(race.id);
    const bool runs = waits == waiting_.end() && ports_.batcher.runs(race.id);
    if (waits == waiting_.end() && !(runs && holds(race.id))) {
      status_.races_ended.push_back(race.key);
      changed_ = true;
      continue;
    }
    if (runs && ports_.batcher.expects(race.id)) {
      races_asked_.push_back(race);
      continue;
    }
    Offer offer;
    offer.kv = {race.key, options_.ranks};
    offer.method = race.method;
    if (runs) {
      (void)ports_.group.run(ports_.batcher.kv_work());
      engine::Departure copy = ports_.batcher.copy(race.id);
      offer.request = std::move(copy.request);
      offer.kv = kv_.keep(race.key, std::move(copy.parcel), race.to, KvMove::Kind::copied);
    } else {
      offer.request = waits->request;
    }
    offer.request.version = race.key;
    offer.request.until = policy::kToTheEnd;  // a racer has no lease, so it can go on to the end
    const std::size_t response = offer.request.trajectory.tokens.size();
    ports_.mailbox.send({race.to.leader, Address::Port::role}, encode(std::move(offer)));
    races_.offer(race.id, response, race.to.leader, race.key);
  }
}

/// Joins a race, unless this verifier is stopping, is changing its role or has the request already.
void Verifier::join(Offer offer) {
  const RequestId id = offer.request.trajectory.id;
  changed_ = true;
  if (status_.stopped != 0 || next_ || ports_.batcher.runs(id) || waiting(id) != waiting_.end()) {
    kv_.decline(offer.kv);
    status_.races_ended.push_back(offer.kv.key);
    ports_.mailbox.send({offer.kv.group.leader, Address::Port::role},
                        encode(RaceCommit{id, offer.kv.key, 0, 1, {}}));
    return;
  }
  const std::size_t response = offer.request.trajectory.tokens.size();
  races_.join(id, response, offer.kv.group.leader, offer.kv.key);
  status_.races_begun.push_back(offer.kv.key);
  ports_.telemetry.event({.time = ports_.clock.now(),
                          .id = id,
                          .kind = RequestEventKind::race_begun,
                          .tokens = static_cast<std::uint32_t>(response),
                          .method = *offer.method});
  enqueue(std::move(offer.request), offer.kv, offer.method);
}

/// Stops racing for a request before its response has ended here.
void Verifier::give_up(RequestId id) {
  end_race(id);
  if (const auto waits = waiting(id); waits != waiting_.end()) {
    event(id, RequestEventKind::race_left, waits->request.trajectory.tokens.size());
    kv_.decline(waits->kv);
    waiting_.erase(waits);
  } else {
    given_up_.push_back(id);
  }
  changed_ = true;
}

void Verifier::end_race(RequestId id) {
  const std::uint64_t key = races_.end(id);
  status_.races_ended.push_back(key);
  if (ports_.speculator != nullptr) ports_.speculator->leave(id);
}

/// Removes from the batch the requests whose races were given up. But while a request's KV is
/// arriving, the request stays, without getting tokens, because its blocks are being written.
void Verifier::remove_given_up() {
  for (const RequestId id : std::exchange(given_up_, {})) {
    if (kv_.arriving(id)) {
      given_up_.push_back(id);
      continue;
    }
    (void)ports_.group.run(ports_.batcher.kv_work());
    const engine::Departure departure = ports_.batcher.leave(id);
    ports_.batcher.release(departure.parcel);
    event(id, RequestEventKind::race_left, departure.request.trajectory.tokens.size());
  }
}

/// Gives up a race, because there is no room for request `id`: the race for `id` if this verifier
/// only races for it, otherwise the last race in the batch. Returns false if there is no such race.
bool Verifier::make_way(RequestId id) {
  if (races_.races_for(id)) {
    give_up(id);
    return true;
  }
  const std::vector<RequestLength> running = ports_.batcher.running();
  const auto last = std::find_if(running.rbegin(), running.rend(),
                                 [this](const auto& r) { return races_.races_for(r.id); });
  if (last == running.rend()) return false;
  give_up(last->id);
  remove_given_up();
  return true;
}

}  // namespace paceline::roles
