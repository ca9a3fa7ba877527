// Order of a pass's rows by the experts that they use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cpu {

/// A row has a place for each of its experts that the bank has. Places are ordered by expert and
/// then by row.
class ExpertOrder {
 public:
  /// Neighbouring places of one expert.
  struct Group {
    int expert;  ///< index in the bank
    int first, places;
  };

  /// Finds the places. `experts`: number of experts in the bank; the first one has index `first` in
  /// its layer.
  void set(const ExpertChoices& choices, int rows, int first, int experts);

  /// Groups of the experts that any row uses, ascending.
  [[nodiscard]] std::span<const Group> groups() const { return groups_; }
  [[nodiscard]] std::span<const std::int32_t> rows() const { return rows_; }  ///< [places]
  /// [rows, chosen] the place of each choice; -1: the bank has no such expert.
  [[nodiscard]] std::span<const std::int32_t> places() const { return places_; }

 private:
  std::vector<Group> groups_;
  std::vector<std::int32_t> rows_, places_;
  std::vector<std::int32_t> next_;  ///< [experts] number of places, and then the next free place
};

}  // namespace paceline::kernels::cpu
