// Virtual time. Whoever acts has a clock of his own, which his modelled work moves on; an event
// queue gives turns in the order of time. What one says at his own time reaches others later than
// that, so that nobody hears of what has yet to happen.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <set>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::sim {

/// Who gets turns: a rank in its role, or the coordinator.
class Actor {
 public:
  virtual ~Actor() = default;
  virtual roles::Turn turn() = 0;
  /// No further turn is wanted.
  [[nodiscard]] virtual bool over() const = 0;
};

using ActorId = int;

/// Turns are given by time, and at one time by number: nothing but the actors themselves decides
/// what happens. Not thread-safe.
class World {
 public:
  /// `host`: the machine that the actor is on. References outlive this.
  ActorId add(Actor& actor, int host);
  /// Actors that work on the host at a time get a share of its cores. 0: there are enough.
  void set_cores(int host, int cores);
  /// From `at` on the actor's work takes `factor` times as long.
  void slow(ActorId actor, double factor, double at);
  /// The actor takes no turn from `at` on until `seconds` later.
  void stall(ActorId actor, double at, double seconds);

  /// As the actor sees time. Valid as long as this is.
  [[nodiscard]] const Clock& clock(ActorId actor) const { return clocks_[actor]; }
  /// The actor works for so many seconds of a core of its own. Where more work on its host than it
  /// has cores, as of now, it takes longer: steps are short beside the time for which ranks are
  /// busy, so that what changes while one is under way is of no account.
  void work(ActorId actor, double seconds);
  /// The actor gets a turn then, or when its work is done.
  void wake(ActorId actor, double at);

  /// Gives the next turn. False: nobody wants one.
  bool step();
  [[nodiscard]] double now() const { return now_; }  ///< when the last turn began
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
    std::set<double> wakes;  ///< times of its events
    double factor = 1;
    double slow_from = 0;
    double stalls_at = 0;
    double stalls_for = 0;
  };
  struct Event {
    double time = 0;
    ActorId actor = 0;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : actor > other.actor;
    }
  };
  struct Host {
    int cores = 0;
    std::vector<ActorId> actors;
  };

  std::vector<State> actors_;
  std::deque<LocalClock> clocks_;  ///< [actors]; stays where it is
  std::vector<Host> hosts_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace paceline::sim
