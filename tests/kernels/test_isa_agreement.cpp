// Instruction sets with fused multiply-add compute the same bits: vectors are sixteen lanes on each
// and every reduction has one order. (Exempt: "portable" without a fused instruction, and in bf16
// products and attention on "avx512_bf16" and "amx_bf16", which use their own instructions.)
#include <algorithm>
#include <numeric>

#include "kernels_test_util.hpp"

namespace paceline::kernels::test {
namespace {

/// The bits of every operation on fixed input, one string an operation; of products and attention
/// only where they are `alike` on all instruction sets.
std::vector<std::string> fingerprint(Backend& cpu, DType dtype, bool alike) {
  Random random(11);
  std::vector<std::string> out;
  const auto add = [&out](const auto& values) {
    out.emplace_back(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(values[0]));
  };
  const int rows = 19;
  const int width = 200;
  std::vector<float> x = random.normals(rows * width, 3.0F);
  const std::vector<float> delta = random.normals(rows * width);
  const std::vector<float> weight = random.normals(width);
  std::vector<std::byte> normal = poisoned(rows * width, dtype);
  operate(cpu, [&](Operations& operations) {
    operations.add_rmsnorm(x.data(), delta.data(), weight.data(), 1e-5F, rows, width, dtype,
                           normal.data());
  });
  add(normal);
  const Values matrix(random.normals(90 * width), dtype);
  const TensorView view = {dtype, {90, width}, matrix.bytes};
  const MatrixSlice slice = {&view, 0, 90, 0, width};
  const auto packed = cpu.pack({&slice, 1}, {}, 2, dtype);
  std::vector<float> product = poisoned(rows * 90);
  operate(cpu, [&](Operations& operations) {
    operations.linear(*packed, normal.data(), rows, product.data());
  });
  if (alike) add(product);
  // Rows of odd width, of the same input.
  const TensorView odd_view = {
      dtype, {80, width - 1}, std::span(matrix.bytes).first(80UL * (width - 1) * size_of(dtype))};
  const MatrixSlice odd_slice = {&odd_view, 0, 80, 0, width - 1};
  const auto odd = cpu.pack({&odd_slice, 1}, {}, 1, dtype);
  std::vector<float> odd_product = poisoned(rows * 80);
  operate(cpu, [&](Operations& operations) {
    operations.linear(*odd, normal.data(), rows, odd_product.data());
  });
  if (alike) add(odd_product);
  std::vector<std::byte> gated = poisoned(rows * width / 2, dtype);
  operate(cpu, [&](Operations& operations) {
    operations.swiglu(x.data(), rows, width / 2, dtype, gated.data());
  });
  add(gated);

  for (const int d : {32, 40}) {
    QkvParams params;
    params.heads = 6;
    params.kv_heads = 2;
    params.head_dim = d;
    params.q_norm = weight.data();
    params.k_norm = weight.data() + d;
    params.norm_epsilon = 1e-6F;
    const int positions = 90;
    const std::vector<float> table = random.normals(positions * d);
    const std::vector<float> qkv = random.normals(positions * 10 * d);
    const KvShape kv = {.layers = 1, .kv_heads = 2, .head_dim = d, .block = 16, .dtype = dtype};
    std::vector<std::int32_t> blocks(6);
    std::iota(blocks.begin(), blocks.end(), 0);
    const auto cache = cpu.allocate(6 * kv.block_bytes());
    const Segment segment = {0, positions, 0, blocks.data()};
    std::vector<std::byte> q = poisoned(positions * 6 * d, dtype);
    std::vector<std::byte> attended = q;
    const TestBatch batch({&segment, 1}, params.heads, kv, cache->data(), positions);
    operate(cpu, batch, [&](Operations& operations) {
      operations.rope_and_store(params, {table.data(), d, positions}, 0, qkv.data(), q.data());
      operations.attention(params, 0, q.data(), attended.data());
    });
    add(q);
    if (alike) add(attended);
  }

  const int vocab = 5000;
  const std::vector<float> logits = random.normals(4 * vocab, 3.0F);
  std::vector<SampleRow> sample_rows(4);
  sample_rows[1].top_k = 40;
  sample_rows[2].top_p = 0.8F;
  sample_rows[3].temperature = 0;
  std::vector<Sampled> sampled(4);
  cpu.sample(logits.data(), vocab, vocab, sample_rows, sampled);
  add(sampled);
  std::vector<Ranked> ranked(4 * 5);
  cpu.rank(logits.data(), vocab, vocab, sample_rows, 5, ranked);
  add(ranked);
  return out;
}

TEST(IsaAgreementTest, SameBits) {
  const std::vector<std::string> isas = supported_cpu_isas();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const std::string& isa : isas) {
      if (isa == "portable") continue;
      const bool alike = (isa != "avx512_bf16" && isa != "amx_bf16") || dtype == DType::f32;
      const auto cpu = make_cpu_backend(1, isa);
      const auto reference = make_cpu_backend(1, "avx2");
      EXPECT_TRUE(fingerprint(*cpu, dtype, alike) == fingerprint(*reference, dtype, alike))
          << isa << " " << name_of(dtype);
    }
  }
}

}  // namespace
}  // namespace paceline::kernels::test
