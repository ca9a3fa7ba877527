// The CUDA backend: one device and one stream, which works in the order of the calls.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/device_sampler.hpp"
#include "kernels/cuda/graph_recording.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/row_plan.hpp"

namespace paceline::kernels::cuda {

/// Facts about a device of this machine that plans need. Throws Error (internal) with CUDA's
/// message.
[[nodiscard]] LinearDevice facts_of(int device);

/// The batch of a pass in device memory, with rows padded to a bucket. It is uploaded as one copy.
struct DeviceBatch {
  PassRows rows;
  PassRows attended;                        ///< `rows`, or Batch::attended without padding
  const TokenId* tokens = nullptr;          ///< [rows] 0 in padding
  const std::int32_t* positions = nullptr;  ///< [attended] -1 in padding, which stores nothing
  const std::int64_t* slots = nullptr;     ///< [attended] block * kv.block + slot of k and v, or -1
  const RotaryPosition* rotary = nullptr;  ///< [attended] PictureInput::rotary; null: `positions`
  const std::int32_t* logit_rows = nullptr;  ///< [logit_rows] 0 in padding
  const std::int32_t* attention = nullptr;   ///< AttentionPlan::words
  AttentionWorkspace workspace;              ///< room for AttentionPlan::slots
};

/// A watch that is called while the host waits for the device's work.
class StreamWatch {
 public:
  virtual ~StreamWatch() = default;
  /// Is called a thousand times a second with the seconds waited so far. Does not return if the
  /// work will never end.
  virtual void waiting(double seconds) = 0;
};

/// The backend of one device. It implements the operations itself, because they apply to whole
/// passes.
class CudaBackend final : public Backend, private Operations {
 public:
  explicit CudaBackend(int device);
  ~CudaBackend() override;
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  /// Returns the stream, on which new work follows all earlier work of the backend.
  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] int device() const { return device_; }
  /// Waits for all earlier work.
  void wait() const;
  /// Adds a watch to all waits until it is removed.
  void add_watch(StreamWatch& watch) { watches_.push_back(&watch); }
  void remove_watch(StreamWatch& watch) { std::erase(watches_, &watch); }

  [[nodiscard]] BackendInfo info() const override { return info_; }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(std::size_t bytes) override;
  [[nodiscard]] std::unique_ptr<ElasticBuffer> reserve(std::size_t bytes,
                                                       std::size_t most) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(const std::byte* from, std::span<std::byte> to) override;
  [[nodiscard]] std::unique_ptr<Linear> pack(std::span<const MatrixSlice> slices,
                                             std::span<const float> bias, int segments,
                                             DType compute, const PackPlace& place) override;
  [[nodiscard]] std::unique_ptr<Linear> pack_gate_up(std::span<const MatrixSlice> slices,
                                                     std::span<const float> bias, DType compute,
                                                     const PackPlace& place) override;
  [[nodiscard]] bool gates_in_work() const override { return false; }
  [[nodiscard]] std::size_t expert_row_bytes(int hidden, int width, int chosen,
                                             DType compute) const override;
  [[nodiscard]] std::size_t packed_bytes(std::int64_t /*n*/, std::int64_t /*k*/,
                                         DType /*compute*/) const override {
    return 0;
  }
  [[nodiscard]] std::size_t expert_bytes(std::int64_t n, std::int64_t k, DType compute,
                                         bool gated) const override;
  [[nodiscard]] std::unique_ptr<Embedding> embedding(const MatrixSlice& rows,
                                                     const Linear* head) override;
  [[nodiscard]] bool splits_embeddings() const override { return true; }

  [[nodiscard]] PassRows padded(PassRows rows) const override;
  void begin(const Batch& batch) override;
  [[nodiscard]] std::unique_ptr<Recording> make_recording(const PassTraits& traits) override {
    return std::make_unique<GraphRecording>(traits.recordable);
  }
  void run(Recording& recording, const std::function<void(Operations&)>& compute) override;
  [[nodiscard]] double pass_seconds() override;
  [[nodiscard]] double busy_seconds() override;

  void copy_blocks(const KvShape& kv, std::byte* cache, std::span<const BlockCopy> copies) override;
  void move_slots(const KvShape& kv, std::byte* cache, std::span<const SlotMove> moves) override;
  void sample(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
              std::span<Sampled> out, std::span<TokenId> kept) override;
  void rank(const float* logits, std::size_t stride, int vocab, std::span<const SampleRow> rows,
            int count, std::span<Ranked> out) override;
  void top(const float* logits, std::size_t stride, int vocab, int rows, int count,
           std::span<Ranked> out) override;

 private:
  [[nodiscard]] const PassRows& rows() const override { return batch_.rows; }
  [[nodiscard]] PassRows attended() const override { return batch_.attended; }
  void embed(const Embedding& table, float* out) override;
  void add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon, int rows,
                   int width, DType dtype, std::byte* out) override;
  void add_layernorm(float* x, const float* delta, const float* weight, const float* bias,
                     float epsilon, int rows, int width, DType dtype, std::byte* out) override;
  void gelu(Gelu kind, const float* in, int rows, int width, DType dtype, std::byte* out) override;
  void add_bias(float* x, const float* bias, int rows, int width) override;
  void linear(const Linear& weight, const std::byte* in, int rows, float* out) override;
  void rope_and_store(const QkvParams& params, const RopeTable& rope, int layer, const float* qkv,
                      std::byte* q_out) override;
  void attention(const QkvParams& params, int layer, const std::byte* q, std::byte* out) override;
  void latent_rope_and_store(const LatentParams& params, const RopeTable& rope, int layer,
                             const float* q, const float* kv, std::byte* nope_out,
                             std::byte* q_out) override;
  void latent_attention(const LatentParams& params, int layer, const std::byte* q,
                        std::byte* out) override;
  void swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) override;
  void linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work, DType dtype,
                     std::byte* out) override;
  void store_columns(const float* in, int rows, int width, DType dtype, std::byte* out,
                     int out_width, int first_column) override;
  void scatter_columns(const float* in, int rows, int width, const std::int32_t* columns,
                       float* out, int out_width) override;
  void gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) override;
  void choose_experts(const float* logits, int rows, const Routing& routing,
                      const ExpertChoices& choices) override;
  void store_experts(const ExpertChoices& choices, int first) override;
  void experts(const ExpertBank& bank, const ExpertChoices& choices, const std::byte* in, int rows,
               DType dtype, std::byte* work, float* out) override;
  void add_gated(float* x, const float* delta, const float* gates, int rows, int width) override;

  /// A planner for each shape of heads that the target and the draft models have.
  struct Planner {
    AttentionPlannerOptions options;
    AttentionPlanner planner;
  };
  [[nodiscard]] std::unique_ptr<Linear> pack(std::span<const MatrixSlice> slices,
                                             std::span<const float> bias, int segments,
                                             DType compute, bool gated, const PackPlace& place);
  [[nodiscard]] AttentionPlanner& planner(const Batch& batch);
  /// The rows of begin()'s batch that attention computes, with padding where there may be some.
  [[nodiscard]] PassRows attended_rows() const;
  void send_batch(GraphRecording& recording);
  /// Writes the rows of pictures. One rank of a group gives a row, and the others -0.
  void write_pictures(int width, bool gives, float* out);
  /// Waits while `done` returns cudaErrorNotReady, and runs the watches.
  void watch_until(const std::function<cudaError_t()>& done) const;
  template <class T>
  const T* send(std::span<const T> values);

  int device_ = 0;
  BackendInfo info_;
  LinearDevice facts_;
  std::vector<StreamWatch*> watches_;
  cudaStream_t stream_ = nullptr;

  // State of the pass.
  RowPlan row_plan_;
  std::vector<Planner> planners_;
  Batch given_;
  const AttentionPlan* plan_ = nullptr;  ///< owned by a planner, or latent_plan_
  AttentionPlan latent_plan_;            ///< plan for latent vectors: only latent_words()
  DeviceBatch batch_;
  DeviceMemory expert_starts_;  ///< expert starts of the bank in use
  DeviceMemory linear_workspace_;
  Event begin_{true};
  Event end_{true};

  // State between passes.
  Stage upload_stages_[2];  ///< used in turn: one is filled while the other is being copied
  int next_upload_ = 0;
  DeviceMemory pack_scratch_;
  MirroredStage list_stage_;  ///< block copies, slot moves
  std::unique_ptr<DeviceSampler> sampler_;
};

}  // namespace paceline::kernels::cuda
