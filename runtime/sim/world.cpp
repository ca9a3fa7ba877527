#include "runtime/sim/world.hpp"

#include <algorithm>
#include <limits>

namespace paceline::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

ActorId World::add(Actor& actor, int host) {
  const auto id = static_cast<ActorId>(actors_.size());
  State& state = actors_.emplace_back();
  state.actor = &actor;
  state.host = host;
  clocks_.emplace_back();
  if (host >= static_cast<int>(hosts_.size())) hosts_.resize(host + 1);
  hosts_[host].actors.push_back(id);
  wake(id, 0);
  return id;
}

void World::set_cores(int host, int cores) { hosts_.at(host).cores = cores; }

void World::slow(ActorId actor, double factor, double at) {
  actors_[actor].factor = factor;
  actors_[actor].slow_from = at;
}

void World::stall(ActorId actor, double at, double seconds) {
  actors_[actor].stalls_at = at;
  actors_[actor].stalls_for = seconds;
}

void World::work(ActorId actor, double seconds) {
  const State& state = actors_[actor];
  double& time = clocks_[actor].time;
  const Host& host = hosts_[state.host];
  if (host.cores > 0) {
    // An actor is busy until the time that its clock shows.
    const auto busy = std::count_if(host.actors.begin(), host.actors.end(), [&](ActorId other) {
      return other == actor || clocks_[other].time > time;
    });
    seconds *= std::max(1.0, static_cast<double>(busy) / host.cores);
  }
  if (time >= state.slow_from) seconds *= state.factor;
  time += seconds;
}

void World::wake(ActorId actor, double at) {
  const State& state = actors_[actor];
  at = std::max(at, clocks_[actor].time);
  if (at >= state.stalls_at) at = std::max(at, state.stalls_at + state.stalls_for);
  events_.push({at, actor});
}

bool World::step() {
  while (!events_.empty()) {
    const Event event = events_.top();
    while (!events_.empty() && events_.top() == event) events_.pop();
    const State& state = actors_[event.actor];
    if (state.actor->over()) continue;
    double& time = clocks_[event.actor].time;
    if (time > event.time) {  // asked for before its work was done: others come first
      wake(event.actor, time);
      continue;
    }
    now_ = event.time;
    ++turns_;
    time = event.time;
    const protocol::Turn turn = state.actor->turn();
    if (turn.worked) {
      wake(event.actor, time);
    } else if (turn.wake < kNever) {
      wake(event.actor, turn.wake);
    }
    return true;
  }
  return false;
}

}  // namespace paceline::sim
