// Experts of a pass's rows, ordered by expert, as two grouped products. All threads share the
// products' panels, so that a weight is read once in a step wherever its rows are in the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/product.hpp"
#include "kernels/cpu/workspace.hpp"
#include "runtime/core/thread_pool.hpp"

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

class ExpertPass {
 public:
  /// `workspaces`: [pool.size()]. All three must outlive this object.
  ExpertPass(const KernelTable& kernels, ThreadPool& pool, std::span<Workspace> workspaces)
      : kernels_(kernels), pool_(pool), workspaces_(workspaces) {}

  /// Operations::choose_experts().
  void choose(const float* logits, int rows, const Routing& routing, const ExpertChoices& choices);
  /// Operations::experts(). work: see ExpertWork.
  void compute(const ExpertBank& bank, const ExpertChoices& choices, const std::byte* in, int rows,
               DType dtype, std::byte* work, float* out);

 private:
  /// Panels of one expert's product in one of its passes.
  struct Unit {
    int group;  ///< index of the group in the order
    Span panels;
    int pass;
  };

  /// Makes the products of all groups, and packs their inputs. `in`: [places, k].
  void prepare(const ExpertBank& bank, std::unique_ptr<Linear> ExpertBank::Expert::*weight,
               const std::byte* in, std::size_t row_bytes);
  /// Calls f(workspace, group, panels, row blocks) on the threads, for units that cover `panels`
  /// panels of every product in each of its passes.
  template <class F>
  void for_panels(int panels, F&& f);
  void gate(int width, DType dtype, std::byte* out);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::span<Workspace> workspaces_;  ///< [threads]
  ExpertOrder order_;
  std::vector<Product> products_;  ///< [groups of the order]
  std::vector<Unit> units_;
  Memory packed_;   ///< inputs of all products
  Memory ungated_;  ///< [places, 2 * width], if `width` is no whole panels
};

}  // namespace paceline::kernels::cpu
