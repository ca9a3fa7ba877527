#include "kernels/cpu/expert_order.hpp"

namespace paceline::kernels::cpu {

void ExpertOrder::set(const ExpertChoices& choices, int rows, int first, int experts) {
  const int all = rows * choices.chosen;
  const auto has = [&](int i) {
    return choices.ids[i] >= first && choices.ids[i] < first + experts;
  };
  next_.assign(experts, 0);
  for (int i = 0; i < all; ++i) {
    if (has(i)) ++next_[choices.ids[i] - first];
  }
  groups_.clear();
  int place = 0;
  for (int expert = 0; expert < experts; ++expert) {
    const int places = next_[expert];
    if (places > 0) groups_.push_back({expert, place, places});
    next_[expert] = place;
    place += places;
  }
  rows_.resize(place);
  places_.resize(all);
  for (int i = 0; i < all; ++i) {
    places_[i] = has(i) ? next_[choices.ids[i] - first]++ : -1;
    if (has(i)) rows_[places_[i]] = i / choices.chosen;
  }
}

}  // namespace paceline::kernels::cpu
