// Virtual time. Each actor has a clock, which its modelled work advances, and an event queue gives
// turns in the order of time. An actor's message reaches others later than the actor's own time, so
// that no actor receives a message from the future.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::sim {

/// A participant that gets turns: a rank in its role, or the coordinator.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual protocol::Turn turn() = 0;
  /// Whether the actor wants no further turn.
  [[nodiscard]] virtual bool over() const = 0;
};

using ActorId = int;

/// Event loop of the simulation. It gives turns in order of time, and at equal times in order of
/// actor ids, so that a simulation is deterministic. Not thread-safe.
class World {
 public:
  /// Adds an actor. `host`: index of the machine that it runs on. The actor must outlive this
  /// object.
  ActorId add(Actor& actor, int host);
  /// Sets the number of cores of a host, which actors that work at the same time share. 0: there
  /// are enough.
  void set_cores(int host, int cores);
  /// Makes the actor's work take `factor` times as long from `at` on.
  void slow(ActorId actor, double factor, double at);
  /// Lets the actor take no turn from `at` until `seconds` later.
  void stall(ActorId actor, double at, double seconds);

  /// The actor's clock. Valid as long as this object.
  [[nodiscard]] const Clock& clock(ActorId actor) const { return clocks_[actor]; }
  /// Advances the actor's clock by work of `seconds` on a core of its own. The work takes longer if
  /// more actors than cores are at work on the host when it begins. Changes during the work are
  /// ignored: a step is short compared with the time for which ranks stay busy.
  void work(ActorId actor, double seconds);
  /// Gives the actor a turn at time `at`, or when its work is done, if that is later.
  void wake(ActorId actor, double at);

  /// Gives the next turn. False: no actor wants one.
  bool step();
  [[nodiscard]] double now() const { return now_; }  ///< time at which the last turn began
  [[nodiscard]] std::uint64_t turns() const { return turns_; }

 private:
  class LocalClock final : public Clock {
   public:
    [[nodiscard]] double now() const override { return time; }
    double time = 0;
  };
  struct State {
    Actor* actor = nullptr;
    int host = 0;
    double factor = 1;
    double slow_from = 0;
    double stalls_at = 0;
    double stalls_for = 0;
  };
  struct Event {
    double time = 0;
    ActorId actor = 0;
    bool operator==(const Event&) const = default;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : actor > other.actor;
    }
  };
  struct Host {
    int cores = 0;
    std::vector<ActorId> actors;
  };

  std::vector<State> actors_;
  std::deque<LocalClock> clocks_;  ///< [actors]; addresses are stable
  std::vector<Host> hosts_;
  /// Turns asked for. An actor that asked several times for a turn at one time gets one.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace paceline::sim
