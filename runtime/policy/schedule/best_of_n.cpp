#include "runtime/policy/schedule/best_of_n.hpp"

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
    // Workers that found nothing to do are left out.
    std::copy_if(racers_.begin() + static_cast<std::ptrdiff_t>(facts_.racers.size()), racers_.end(),
                 std::back_inserter(result_.racers), [](const Racer& r) { return r.load > 0; });
    return std::move(result_);
  }

 private:
  /// Lines 1 to 3: argmin |W_d|; of equal ones the best of the ladder.
  [[nodiscard]] int scarcest_method() const {
    std::vector<int> counts(static_cast<std::size_t>(facts_.methods));
    for (const Racer& racer : racers_) ++counts[racer.method];
    return static_cast<int>(std::min_element(counts.begin(), counts.end()) - counts.begin());
  }

  void place() {
    if (facts_.methods == 0) return;
    for (const int worker : facts_.freed) racers_.push_back({worker, scarcest_method(), 0});
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
        result_.added.push_back({request, method, racer->worker});
      }
    }
  }

  [[nodiscard]] Racer* racer_with_room(int method) {
    for (Racer& racer : racers_) {
      if (racer.method == method && racer.load < facts_.max_batch) return &racer;
    }
    return nullptr;
  }

  const BestOfNFacts& facts_;
  std::vector<Racer> racers_;  ///< earlier ones, then the new ones
  BestOfN result_;
};

}  // namespace

BestOfN assign_best_of_n(const BestOfNFacts& facts) { return Assignment(facts).run(); }

}  // namespace paceline::policy
