#include "runtime/policy/length/make_draft_length.hpp"

#include <stdexcept>
#include <utility>

#include "runtime/policy/length/baselines.hpp"
#include "runtime/policy/length/goodput.hpp"

namespace paceline::policy {

std::unique_ptr<DraftLengthPolicy> make_draft_length(SpeculationPolicy policy, CostTable costs,
                                                     int max_length, std::uint64_t seed) {
  switch (policy) {
    case SpeculationPolicy::goodput:
      return std::make_unique<Goodput>(std::move(costs), max_length);
    case SpeculationPolicy::nightjar:
      return std::make_unique<Nightjar>(std::move(costs), max_length, seed);
    case SpeculationPolicy::dsd:
      return std::make_unique<Dsd>(costs, max_length);
    case SpeculationPolicy::banditspec:
      return std::make_unique<BanditSpec>(max_length);
    case SpeculationPolicy::tetris:
      return std::make_unique<Tetris>(max_length);
    case SpeculationPolicy::fixed:
      return std::make_unique<FixedLength>(max_length);
  }
  throw std::logic_error("a policy of draft lengths without a name");
}

}  // namespace paceline::policy
