#include "runtime/policy/best_of_n.hpp"

#include <algorithm>
#include <numeric>

namespace paceline::policy {
namespace {

class Assignment {
 public:
  explicit Assignment(const BestOfNFacts& facts)
      : facts_(facts), racers_(facts.racers.begin(), facts.racers.end()) {}

  BestOfN run() {
    place();
    assign();
    // Drafters of those that verify, and workers that found something to do.
    std::copy_if(racers_.begin() + static_cast<std::ptrdiff_t>(facts_.racers.size()), racers_.end(),
                 std::back_inserter(result_.racers), [](const Racer& r) { return r.load > 0; });
    return std::move(result_);
  }

 private:
  /// Lines 1 to 3: argmin |W_d|, of equal ones the best of the ladder.
  [[nodiscard]] int scarcest_method() const {
    std::vector<int> counts(static_cast<std::size_t>(facts_.methods));
    for (const Racer& racer : racers_) {
      if (racer.role != RacerRole::drafter) ++counts[racer.method];
    }
    return static_cast<int>(std::min_element(counts.begin(), counts.end()) - counts.begin());
  }

  void place() {
    if (facts_.methods == 0) return;
    for (std::size_t next = 0; next < facts_.freed.size(); ++next) {
      const int method = scarcest_method();
      Racer racer{facts_.freed[next], method, RacerRole::coupled, 0, -1};
      if (facts_.max_drafted > 0) {
        Racer* drafter = drafter_with_room(method);
        if (drafter == nullptr && next + 1 < facts_.freed.size()) {
          racers_.push_back({racer.worker, method, RacerRole::drafter, 0, -1});
          drafter = &racers_.back();
          racer.worker = facts_.freed[++next];
        }
        if (drafter != nullptr) {
          racer.role = RacerRole::verifier;
          racer.drafter = drafter->worker;
        }
      }
      racers_.push_back(racer);
    }
  }

  /// That could draft for all requests of one more verifier, whatever those it has come to.
  [[nodiscard]] Racer* drafter_with_room(int method) {
    Racer* best = nullptr;
    for (Racer& racer : racers_) {
      if (racer.role != RacerRole::drafter || racer.method != method) continue;
      if (promised(racer) + facts_.max_batch > facts_.max_drafted) continue;
      if (best == nullptr || promised(racer) < promised(*best)) best = &racer;
    }
    return best;
  }

  [[nodiscard]] int promised(const Racer& drafter) const {
    return facts_.max_batch *
           static_cast<int>(std::count_if(racers_.begin(), racers_.end(), [&](const Racer& r) {
             return r.role == RacerRole::verifier && r.drafter == drafter.worker;
           }));
  }

  /// Lines 4 to 10.
  void assign() {
    std::vector<std::size_t> order(facts_.requests.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return facts_.requests[a].acceptance < facts_.requests[b].acceptance;
    });
    for (const std::size_t request : order) {
      const std::vector<int>& has = facts_.requests[request].methods;
      for (int method = 0; method < facts_.methods; ++method) {
        if (std::find(has.begin(), has.end(), method) != has.end()) continue;
        Racer* racer = racer_with_room(method);
        if (racer == nullptr) continue;
        ++racer->load;
        if (racer->role == RacerRole::verifier) ++drafter_of(*racer).load;
        result_.added.push_back({request, method, racer->worker});
      }
    }
  }

  [[nodiscard]] Racer* racer_with_room(int method) {
    for (Racer& racer : racers_) {
      if (racer.role != RacerRole::drafter && racer.method == method &&
          racer.load < facts_.max_batch)
        return &racer;
    }
    return nullptr;
  }

  [[nodiscard]] Racer& drafter_of(const Racer& verifier) {
    return *std::find_if(racers_.begin(), racers_.end(), [&](const Racer& r) {
      return r.role == RacerRole::drafter && r.worker == verifier.drafter;
    });
  }

  const BestOfNFacts& facts_;
  std::vector<Racer> racers_;  ///< those made earlier, then the new ones
  BestOfN result_;
};

}  // namespace

BestOfN assign_best_of_n(const BestOfNFacts& facts) { return Assignment(facts).run(); }

}  // namespace paceline::policy
