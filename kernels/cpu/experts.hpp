// Experts of a pass's rows: two grouped products, whose panels all threads share, so that a weight
// is read once a step however its rows lie in the batch.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cpu/expert_order.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/product.hpp"
#include "kernels/cpu/workspace.hpp"
#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels::cpu {

class ExpertPass {
 public:
  /// workspaces: [pool.size()]. All three must outlive it.
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
    int group;  ///< of the order
    Span panels;
    int pass;
  };

  /// Makes the products of all groups, with their inputs packed. in: [places, k].
  void prepare(const ExpertBank& bank, std::unique_ptr<Linear> ExpertBank::Expert::*weight,
               const std::byte* in, std::size_t row_bytes);
  /// Calls f(workspace, group, panels, row blocks) for `panels` panels of every product, each pass,
  /// on the threads.
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
  Memory ungated_;  ///< [places, 2 * width] where gates are no whole panels
};

}  // namespace paceline::kernels::cpu
