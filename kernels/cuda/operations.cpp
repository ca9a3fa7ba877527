// The operations of a pass on the device. cuda_backend.cpp has the rest of the class.
#include <vector>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/experts.hpp"
#include "kernels/cuda/latent.hpp"
#include "kernels/cuda/packed_linear.hpp"
#include "kernels/cuda/rope.hpp"
#include "kernels/cuda/tower.hpp"

namespace paceline::kernels::cuda {

void CudaBackend::embed(const Embedding& table, float* out) {
  const auto& from = dynamic_cast<const DeviceEmbedding&>(table);
  expect(given_.vocab <= from.vocab, "token outside the embedding table");
  if (from.head != nullptr) {
    const DeviceLinear packed = from.head->view();
    unpack_rows(packed.layout, packed.weight, from.rows.first, batch_.tokens, batch_.rows.rows, out,
                stream_);
  } else {
    cuda::embed(from.copy.data(), from.stored, from.rows, batch_.tokens, batch_.rows.rows, out,
                stream_);
  }
  if (!given_.pictures.embeddings.empty())
    write_pictures(from.rows.width, from.rows.first == 0, out);
}

// Neighbouring rows lie next to one another, and are sent together.
void CudaBackend::write_pictures(int width, bool gives, float* out) {
  const std::span<const float* const> given = given_.pictures.embeddings;
  std::vector<float> values;
  for (std::size_t first = 0; first < given.size();) {
    std::size_t last = first + 1;
    if (given[first] != nullptr) {
      while (last < given.size() && given[last] == given[last - 1] + width) ++last;
      const std::size_t count = (last - first) * width;
      std::span<const float> rows(given[first], count);
      if (!gives) {
        values.assign(count, -0.0F);
        rows = values;
      }
      write(reinterpret_cast<std::byte*>(out + first * width), std::as_bytes(rows));
    }
    first = last;
  }
}

void CudaBackend::add_layernorm(float* x, const float* delta, const float* weight,
                                const float* bias, float epsilon, int rows, int width, DType dtype,
                                std::byte* out) {
  cuda::add_layernorm(x, delta, weight, bias, epsilon, rows, width, dtype, out, stream_);
}

void CudaBackend::gelu(Gelu kind, const float* in, int rows, int width, DType dtype,
                       std::byte* out) {
  cuda::gelu(kind, in, rows, width, dtype, out, stream_);
}

void CudaBackend::add_rmsnorm(float* x, const float* delta, const float* weight, float epsilon,
                              int rows, int width, DType dtype, std::byte* out) {
  cuda::add_rmsnorm(x, delta, weight, epsilon, rows, width, dtype, out, stream_);
}

void CudaBackend::add_bias(float* x, const float* bias, int rows, int width) {
  cuda::add_bias(x, bias, rows, width, stream_);
}

void CudaBackend::linear(const Linear& weight, const std::byte* in, int rows, float* out) {
  if (rows == 0) return;
  const DeviceLinear packed = dynamic_cast<const PackedLinear&>(weight).view();
  const LinearPlan plan = plan_linear(packed.layout, rows, facts_);
  cuda::linear(plan, packed, in, rows, out, {linear_workspace_.data()}, stream_);
}

void CudaBackend::rope_and_store(const QkvParams& params, const RopeTable& rope, int layer,
                                 const float* qkv, std::byte* q_out) {
  expect(batch_.rotary == nullptr ||
             2 * (rope.sections[0] + rope.sections[1] + rope.sections[2]) == params.head_dim,
         "rotary positions of three parts, of a model without them");
  cuda::rope_and_store(params, rope, given_.kv, layer, given_.cache, batch_.positions,
                       batch_.rotary, batch_.slots, batch_.attended.rows, qkv, q_out, stream_);
}

void CudaBackend::attention(const QkvParams& params, int layer, const std::byte* q,
                            std::byte* out) {
  cuda::attention(params, given_.kv, layer, given_.cache, plan_->grid, batch_.attention, q, out,
                  batch_.workspace, facts_.block_shared, stream_);
}

void CudaBackend::latent_rope_and_store(const LatentParams& params, const RopeTable& rope,
                                        int layer, const float* q, const float* kv,
                                        std::byte* nope_out, std::byte* q_out) {
  cuda::latent_rope_and_store(params, rope, given_.kv, layer, given_.cache, batch_.positions,
                              batch_.slots, batch_.attended.rows, q, kv, nope_out, q_out, stream_);
}

void CudaBackend::latent_attention(const LatentParams& params, int layer, const std::byte* q,
                                   std::byte* out) {
  expect(params.rank <= kMaxLatentValues, "latent vectors of an unsupported size");
  cuda::latent_attention(params, given_.kv, layer, given_.cache, batch_.attention,
                         batch_.attended.rows, q, out, stream_);
}

void CudaBackend::swiglu(const float* gate_up, int rows, int width, DType dtype, std::byte* out) {
  cuda::swiglu(gate_up, rows, width, dtype, out, stream_);
}

void CudaBackend::linear_swiglu(const Linear& gate_up, const std::byte* in, int rows, float* work,
                                DType dtype, std::byte* out) {
  const DeviceLinear packed = dynamic_cast<const PackedLinear&>(gate_up).view();
  if (!packed.layout.gated) {
    expect(work != nullptr, "gates and ups that no pack_gate_up() has packed need room");
    Operations::linear_swiglu(gate_up, in, rows, work, dtype, out);
    return;
  }
  expect(dtype == packed.layout.dtype, "gated products of another type than the weight's");
  const LinearPlan plan = plan_linear(packed.layout, rows, facts_);
  cuda::linear_swiglu(plan, packed, in, rows, out, {linear_workspace_.data()}, stream_);
}

void CudaBackend::choose_experts(const float* logits, int rows, const Routing& routing,
                                 const ExpertChoices& choices) {
  expect(routing.experts <= kMaxExperts, "more experts than a warp's registers hold");
  cuda::choose_experts(logits, rows, routing, choices, stream_);
}

void CudaBackend::store_experts(const ExpertChoices& choices, int first) {
  ExpertChoices attended = choices;
  attended.ids += std::ptrdiff_t{batch_.attended.first_row} * choices.chosen;
  cuda::store_experts(attended, first, given_.kv, given_.cache, batch_.positions, batch_.slots,
                      batch_.attended.rows, stream_);
}

void CudaBackend::experts(const ExpertBank& bank, const ExpertChoices& choices, const std::byte* in,
                          int rows, DType dtype, std::byte* work, float* out) {
  DeviceExperts device{};
  device.first = bank.first;
  device.count = static_cast<int>(bank.experts.size());
  device.segments = bank.segments;
  expect(device.count <= kMaxExperts, "more experts than arguments of a kernel hold");
  for (int i = 0; i < device.count; ++i) {
    const auto& gate_up = dynamic_cast<const PackedLinear&>(*bank.experts[i].gate_up);
    const auto& down = dynamic_cast<const PackedLinear&>(*bank.experts[i].down);
    device.gate_up = gate_up.view().layout;
    device.down = down.view().layout;
    device.gate_ups.of[i] = gate_up.view().weight;
    device.downs.of[i] = down.view().weight;
  }
  expect(device.gate_up.gated && device.gate_up.dtype == dtype && device.down.dtype == dtype,
         "experts of another packing or type");
  if (rows == 0) return;
  compute_experts(device, choices, in, rows, expert_starts_.data(), work, out, facts_, stream_);
}

void CudaBackend::add_gated(float* x, const float* delta, const float* gates, int rows, int width) {
  cuda::add_gated(x, delta, gates, rows, width, stream_);
}

void CudaBackend::store_columns(const float* in, int rows, int width, DType dtype, std::byte* out,
                                int out_width, int first_column) {
  cuda::store_columns(in, rows, width, dtype, out, out_width, first_column, stream_);
}

void CudaBackend::scatter_columns(const float* in, int rows, int width, const std::int32_t* columns,
                                  float* out, int out_width) {
  cuda::scatter_columns(in, rows, width, columns, out, out_width, stream_);
}

void CudaBackend::gather_rows(const std::byte* in, std::size_t bytes, std::byte* out) {
  cuda::gather_rows(in, batch_.logit_rows, batch_.rows.logit_rows, bytes, out, stream_);
}

}  // namespace paceline::kernels::cuda
