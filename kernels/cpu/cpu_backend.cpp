// The CPU backend: distribution of a pass's rows over threads, and everything outside passes.
//
// Threads share each operation, or each thread takes a part of the rows through all operations.
// Sharing reads weights once, but hands operations and their results from core to core, which takes
// some microseconds each time. Parts avoid this, but read the weights once for each thread. So
// parts are used for models that fit a core's own cache, and for many rows of models that fit the
// shared cache (pass_parts.cpp).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>

#include "kernels/backend.hpp"
#include "kernels/cpu/cpu_sampler.hpp"
#include "kernels/cpu/for_each.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/operations.hpp"
#include "kernels/cpu/packed_linear.hpp"
#include "kernels/cpu/pass_parts.hpp"
#include "kernels/expert_work.hpp"
#include "kernels/row_plan.hpp"
#include "runtime/core/error.hpp"
#include "runtime/core/thread_pool.hpp"

namespace paceline::kernels {
namespace {

using namespace cpu;

class HostBuffer final : public Buffer {
 public:
  explicit HostBuffer(std::size_t bytes) : memory_(bytes) {}
  [[nodiscard]] std::byte* data() override { return memory_.data(); }
  [[nodiscard]] std::size_t size() const override { return memory_.size(); }

 private:
  Memory memory_;
};

/// Memory whose whole range is mapped from the start: pages that were never touched, or were given
/// back, take no memory.
class ElasticHostBuffer final : public ElasticBuffer {
 public:
  ElasticHostBuffer(std::size_t bytes, std::size_t most) : memory_(most), size_(bytes) {}
  [[nodiscard]] std::byte* data() override { return memory_.data(); }
  [[nodiscard]] std::size_t size() const override { return size_; }
  void resize(std::size_t bytes) override {
    if (bytes > memory_.size())
      throw Error(ExitCode::internal, "memory that is to grow past what was reserved");
    if (bytes < size_) memory_.give_back(bytes);
    size_ = bytes;
  }

 private:
  Memory memory_;
  std::size_t size_;
};

class CpuRecording final : public Recording {
 public:
  explicit CpuRecording(const PassTraits& t) : traits(t) {}
  const PassTraits traits;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, const KernelTable& kernels)
      : pool_(threads),
        kernels_(kernels),
        sampler_(kernels, pool_),
        workspaces_(static_cast<std::size_t>(threads)),
        together_(kernels, pool_, workspaces_) {
    for (Workspace& workspace : workspaces_)
      apart_.emplace_back(kernels, alone_, std::span(&workspace, 1));
  }

  [[nodiscard]] BackendInfo info() const override { return {"cpu", kernels_.isa, pool_.size()}; }

  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<HostBuffer>(bytes);
  }
  [[nodiscard]] std::unique_ptr<ElasticBuffer> reserve(std::size_t bytes,
                                                       std::size_t most) override {
    return std::make_unique<ElasticHostBuffer>(bytes, most);
  }
  void write(std::byte* to, std::span<const std::byte> from) override {
    std::copy(from.begin(), from.end(), to);
  }
  void read(const std::byte* from, std::span<std::byte> to) override {
    std::copy_n(from, to.size(), to.begin());
  }

  [[nodiscard]] std::unique_ptr<Linear> pack(std::span<const MatrixSlice> slices,
                                             std::span<const float> bias, int segments,
                                             DType compute, const PackPlace& place) override {
    if (segments == kAnySegments) segments = 1;
    return std::make_unique<PackedLinear>(slices, bias, segments, compute, place, pool_);
  }
  [[nodiscard]] std::size_t expert_row_bytes(int hidden, int width, int chosen,
                                             DType compute) const override {
    return ExpertWork::row_bytes(hidden, width, chosen, compute);
  }
  [[nodiscard]] std::size_t packed_bytes(std::int64_t n, std::int64_t k,
                                         DType compute) const override {
    return cpu::packed_bytes(n, k, compute);
  }
  [[nodiscard]] std::size_t expert_bytes(std::int64_t n, std::int64_t k, DType compute,
                                         bool /*gated*/) const override {
    return cpu::packed_bytes(n, k, compute);
  }
  [[nodiscard]] std::unique_ptr<Embedding> embedding(const MatrixSlice& rows,
                                                     const Linear* /*head*/) override {
    return std::make_unique<MappedEmbedding>(rows);
  }

  [[nodiscard]] PassRows padded(PassRows rows) const override { return rows; }
  void begin(const Batch& batch) override {
    begin_ = std::chrono::steady_clock::now();
    batch_ = batch;
    plan_.set(batch);
  }
  [[nodiscard]] std::unique_ptr<Recording> make_recording(const PassTraits& traits) override {
    return std::make_unique<CpuRecording>(traits);
  }
  void run(Recording& recording, const std::function<void(Operations&)>& compute) override;
  [[nodiscard]] double pass_seconds() override {
    return std::chrono::duration<double>(end_ - begin_).count();
  }
  [[nodiscard]] double busy_seconds() override {
    return std::chrono::duration<double>(sampled_ - begin_).count();
  }

  void copy_blocks(const KvShape& kv, std::byte* cache, std::span<const BlockCopy> copies) override;
  void move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) override;
  void sample(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
              std::span<Sampled> out, std::span<TokenId> kept) override {
    sampler_.sample(logits, stride, vocab, rows, out, kept);
    sampled_ = std::chrono::steady_clock::now();
  }
  void rank(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
            int count, std::span<Ranked> out) override {
    sampler_.rank(logits, stride, vocab, rows, count, out);
    sampled_ = std::chrono::steady_clock::now();
  }
  void top(const float* logits, std::size_t stride, int vocab, int rows, int count,
           std::span<Ranked> out) override {
    sampler_.top(logits, stride, vocab, rows, count, out);
    sampled_ = std::chrono::steady_clock::now();
  }

 private:
  void run_apart(const std::function<void(Operations&)>& compute);

  ThreadPool pool_;
  ThreadPool alone_{1};  ///< pool of one thread, for apart_
  const KernelTable& kernels_;
  Sampler sampler_;
  std::vector<Workspace> workspaces_;  ///< [threads]
  CpuOperations together_;             ///< operations shared by all threads
  std::vector<CpuOperations> apart_;   ///< [threads] operations of one thread each
  Batch batch_;
  RowPlan plan_;                                                 ///< plan of batch_
  std::vector<PassRows> parts_;                                  ///< parts of batch_, one a thread
  std::chrono::steady_clock::time_point begin_, end_, sampled_;  ///< times of the pass
};

void CpuBackend::run(Recording& recording, const std::function<void(Operations&)>& compute) {
  const PassTraits& traits = dynamic_cast<const CpuRecording&>(recording).traits;
  parts_.clear();
  if (traits.rows_apart)
    cut_pass(batch_, traits.weight_bytes, kernels_.many_rows, pool_.size(), parts_);
  if (parts_.empty()) {
    together_.set(
        batch_, plan_,
        {static_cast<int>(batch_.tokens.size()), static_cast<int>(batch_.logit_rows.size())});
    compute(together_);
  } else {
    run_apart(compute);
  }
  end_ = std::chrono::steady_clock::now();
}

void CpuBackend::run_apart(const std::function<void(Operations&)>& compute) {
  std::vector<std::exception_ptr> errors(parts_.size());
  pool_.for_units(static_cast<int>(parts_.size()), [&](int, int i) {
    apart_[i].set(batch_, plan_, parts_[i]);
    try {
      compute(apart_[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

void CpuBackend::copy_blocks(const KvShape& kv, std::byte* cache,
                             std::span<const BlockCopy> copies) {
  const std::size_t bytes = kv.block_bytes();
  for_each(pool_, static_cast<int>(copies.size()), static_cast<std::int64_t>(copies.size() * bytes),
           [&](int i) {
             std::memcpy(cache + copies[i].to * bytes, cache + copies[i].from * bytes, bytes);
           });
}

void CpuBackend::move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) {
  const std::size_t experts = kv.routed * sizeof(std::int16_t);
  for (const SlotMove& move : moves) {
    std::memmove(
        cache + move.to_block * kv.block_bytes() + kv.routing_offset() + move.to_slot * experts,
        cache + move.from_block * kv.block_bytes() + kv.routing_offset() + move.from_slot * experts,
        experts);
  }
  const std::size_t head_bytes = kv.vector_bytes();
  const std::size_t values = kv.kv_heads * head_bytes;
  const auto elements =
      static_cast<std::int64_t>(moves.size()) * kv.layers * kv.vectors() * kv.head_dim;
  if (kv.latent()) {
    const std::size_t bytes = head_bytes / kv.block;  // bytes of one position
    for_each(pool_, kv.layers, elements, [&](int layer) {
      std::byte* const base = cache + layer * kv.layer_bytes();
      for (const SlotMove& move : moves) {
        std::memmove(base + move.to_block * kv.block_bytes() + move.to_slot * bytes,
                     base + move.from_block * kv.block_bytes() + move.from_slot * bytes, bytes);
      }
    });
    return;
  }
  for_each(pool_, kv.layers * kv.kv_heads, elements, [&](int unit) {
    std::byte* base =
        cache + unit / kv.kv_heads * kv.layer_bytes() + unit % kv.kv_heads * head_bytes;
    for (const SlotMove& move : moves) {
      std::byte* from = base + move.from_block * kv.block_bytes();
      std::byte* to = base + move.to_block * kv.block_bytes();
      kernels_.copy_slot({from, from + values, to, to + values, kv.block, kv.block, move.from_slot,
                          move.to_slot, kv.head_dim, kv.dtype == DType::bf16});
    }
  });
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int threads, const std::string& isa) {
  if (threads < 1)
    throw UsageError("threads: " + std::to_string(threads) + ", expected at least 1");
  return std::make_unique<CpuBackend>(threads, cpu::kernel_table(isa.c_str()));
}

}  // namespace paceline::kernels
