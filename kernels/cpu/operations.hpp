// The operations of a pass on the CPU, with the functions of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/backend.hpp"
#include "kernels/cpu/attention_units.hpp"
#include "kernels/cpu/experts.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/product.hpp"
#include "kernels/cpu/workspace.hpp"
#include "kernels/row_plan.hpp"
#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels::cpu {

/// An embedding table in its mapped file.
class MappedEmbedding final : public Embedding {
 public:
  /// Throws Error (internal) unless the slice consists of whole rows of a matrix.
  explicit MappedEmbedding(const MatrixSlice& slice);
  const MatrixSlice rows;
};

/// Operations that are shared by the threads of a pool, of one thread or more.
class CpuOperations final : public Operations {
 public:
  /// `workspaces`: [pool.size()]. All three must outlive this object.
  CpuOperations(const KernelTable& kernels, ThreadPool& pool, std::span<Workspace> workspaces)
      : kernels_(kernels),
        pool_(pool),
        workspaces_(workspaces),
        experts_(kernels, pool, workspaces) {}

  /// Sets the rows that operations compute from now on. `batch`, `plan`: of the whole batch; must
  /// not change until the pass is over.
  void set(const Batch& batch, const RowPlan& plan, const PassRows& rows);

  [[nodiscard]] const PassRows& rows() const override { return rows_; }
  [[nodiscard]] PassRows attended() const override { return attended_; }
  void embed(const Embedding& table, float* out) override;
  void add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon, int rows,
                   int width, DType dtype, std::byte* out) override;
  void add_bias(float* x, const float* bias, int rows, int width) override;
  void linear(const Linear& weight, const std::byte* in, int rows, float* out) override;
  void linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work, DType dtype,
                     std::byte* out) override;
  void rope_and_store(const QkvParams& params, const RopeTable& rope, int layer, const float* qkv,
                      std::byte* q_out) override;
  void attention(const QkvParams& params, int layer, const std::byte* q, std::byte* out) override;
  void latent_rope_and_store(const LatentParams& params, const RopeTable& rope, int layer,
                             const float* q, const float* kv, std::byte* nope_out,
                             std::byte* q_out) override;
  void latent_attention(const LatentParams& params, int layer, const std::byte* q,
                        std::byte* out) override;
  void swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) override;
  void choose_experts(const float* logits, int rows, const Routing& routing,
                      const ExpertChoices& choices) override {
    experts_.choose(logits, rows, routing, choices);
  }
  void store_experts(const ExpertChoices& choices, int first) override;
  void experts(const ExpertBank& bank, const ExpertChoices& choices, const std::byte* in, int rows,
               DType dtype, std::byte* work, float* out) override {
    experts_.compute(bank, choices, in, rows, dtype, work, out);
  }
  void add_gated(float* x, const float* delta, const float* gates, int rows, int width) override;
  void add_layernorm(float* x, const float* delta, const float* weight, const float* bias,
                     float epsilon, int rows, int width, DType dtype, std::byte* out) override;
  void gelu(Gelu kind, const float* in, int rows, int width, DType dtype, std::byte* out) override;
  void store_columns(const float* in, int rows, int width, DType dtype, std::byte* out,
                     int out_width, int first_column) override;
  void scatter_columns(const float* in, int rows, int width, const std::int32_t* columns,
                       float* out, int out_width) override;
  void gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) override;

 private:
  /// Computes attention by the planned tasks. `sizes`: the arguments that are the same for all
  /// tasks.
  void attend(const AttentionArgs& sizes, int layer, const std::byte* q, std::byte* out);
  /// Makes a product and packs its input.
  [[nodiscard]] Product prepare(const Linear& weight, const std::byte* in, int rows);
  /// Calls f(workspace, panels, row blocks) on the threads, for units that cover all of `panels`
  /// panels in each of the product's passes.
  template <class F>
  void for_panels(const Product& product, int panels, F&& f);

  /// The part for rows() of a span that has an element for each row of the batch, or is empty.
  template <class T>
  [[nodiscard]] std::span<const T> of_rows(std::span<const T> all) const {
    return all.empty() ? all : all.subspan(rows_.first_row, rows_.rows);
  }
  template <class T>
  [[nodiscard]] std::span<const T> of_attended(std::span<const T> all) const {
    return all.empty() ? all : all.subspan(attended_.first_row, attended_.rows);
  }

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::span<Workspace> workspaces_;  ///< [threads]

  PassRows rows_;
  PassRows attended_;
  const Batch* batch_ = nullptr;  ///< the whole batch; fields below are for rows()
  std::span<const TokenId> tokens_;
  std::span<const std::int32_t> logit_rows_;  ///< rows of the batch
  std::span<const RowPlace> places_;          ///< [attended rows]
  std::span<const Chain> chains_;             ///< chains of the attended rows
  AttentionUnits attention_units_;
  Memory states_;  ///< states of attention's segments
  ExpertPass experts_;
};

}  // namespace paceline::kernels::cpu
