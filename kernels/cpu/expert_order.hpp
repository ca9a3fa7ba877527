// The rows of a pass in the order of the experts that they use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"

namespace paceline::kernels::cpu {

/// A row has a place for each of its experts that the bank has. Places go by expert and then by
/// row.
class ExpertOrder {
 public:
  /// Neighbouring places of one expert.
  struct Group {
    int expert;  ///< of the bank
    int first, places;
  };

  /// `experts`: of the bank, the first of which has the number `first` in its layer.
  void set(const ExpertChoices& choices, int rows, int first, int experts);

  /// Of the experts that any row uses, ascending.
  [[nodiscard]] std::span<const Group> groups() const { return groups_; }
  [[nodiscard]] std::span<const std::int32_t> rows() const { return rows_; }  ///< [places]
  /// [rows, chosen] the place of each choice; -1: the bank has no such expert.
  [[nodiscard]] std::span<const std::int32_t> places() const { return places_; }

 private:
  std::vector<Group> groups_;
  std::vector<std::int32_t> rows_, places_;
  std::vector<std::int32_t> next_;  ///< [experts] the next free place, or the number of places
};

}  // namespace paceline::kernels::cpu
