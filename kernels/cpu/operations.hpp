// The operations of a pass on the CPU, by the functions of one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

/// The embedding table in its mapped file.
class MappedEmbedding final : public Embedding {
 public:
  /// Throws Error (internal) when the rows are not whole rows of a matrix.
  explicit MappedEmbedding(const MatrixSlice& slice);
  const MatrixSlice rows;
};

/// Operations that the threads of a pool share, which may be a pool of one.
class CpuOperations final : public Operations {
 public:
  /// workspaces: [pool.size()]. All three must outlive it.
  CpuOperations(const KernelTable& kernels, ThreadPool& pool, std::span<Workspace> workspaces)
      : kernels_(kernels),
        pool_(pool),
        workspaces_(workspaces),
        experts_(kernels, pool, workspaces) {}

  /// Sets the rows of a pass that operations compute from now on. `batch` and `plan`, of the whole
  /// batch, must stay as they are until the pass is over.
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
  /// Attention by the planned tasks. `sizes`: what the arguments of all tasks have in common.
  void attend(const AttentionArgs& sizes, int layer, const std::byte* q, std::byte* out);
  /// The product with its input packed.
  [[nodiscard]] Product prepare(const Linear& weight, const std::byte* in, int rows);
  /// Calls f(workspace, panels, row blocks) for all of `panels` panels, each pass, on the threads.
  template <class F>
  void for_panels(const Product& product, int panels, F&& f);

  /// The rows' part of what a batch has for each row, or for none.
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
  const Batch* batch_ = nullptr;  ///< the whole batch; fields below are of the rows
  std::span<const TokenId> tokens_;
  std::span<const std::int32_t> logit_rows_;  ///< rows of the batch
  std::span<const RowPlace> places_;          ///< [attended rows]
  std::span<const Chain> chains_;             ///< of the attended rows
  AttentionUnits attention_units_;
  Memory states_;  ///< of attention's segments
  ExpertPass experts_;
};

}  // namespace paceline::kernels::cpu
