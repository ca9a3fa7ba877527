// What a model takes of a device's memory is what is planned for it.
#include <gtest/gtest.h>

#include "kernels/gpus.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/model/decoder.hpp"
#include "tests/runtime/model/load_weights.hpp"
#include "tests/runtime/model/random_model.hpp"

namespace paceline {
namespace {

/// Most of it are embeddings and the head. Sizes are whole tiles, and biases and norms are few.
ModelConfig config_of(bool tied) {
  ModelConfig config = test::small_config(2, 64);
  config.vocab = 8192;
  config.hidden = 64;
  config.tied_embeddings = tied;
  return config;
}

/// Bytes of a rank's share on the device. Tensors are stored in fp32.
std::uint64_t taken(const ModelConfig& config, DType compute, int ranks) {
  const test::RandomModel source(config);
  const auto backend = kernels::make_cuda_backend(0);
  // What loading works with stays with the backend.
  { const model::Weights any(*backend, config, source, model::shard_of(config, 0, 1), compute); }
  const std::uint64_t before = kernels::free_gpu_memory(0);
  const model::Weights weights(*backend, config, source, model::shard_of(config, 0, ranks),
                               compute);
  EXPECT_EQ(weights.embedding_is_whole(), ranks == 1);
  return before - kernels::free_gpu_memory(0);
}

TEST(CudaPlannedMemory, OfWeightsAndEmbeddings) {
  for (const bool tied : {false, true}) {
    const ModelConfig config = config_of(tied);
    for (const DType compute : {DType::bf16, DType::f32}) {
      for (const int ranks : {1, 2}) {
        const std::uint64_t planned = model::weight_bytes(config, compute, ranks) +
                                      model::embedding_bytes(config, DType::f32, compute, ranks);
        const std::uint64_t found = taken(config, compute, ranks);
        EXPECT_GE(found, planned);
        EXPECT_LE(found, planned + planned / 100)
            << (tied ? "tied, " : "") << name_of(compute) << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(CudaPlannedMemory, OfAPassesBuffers) {
  constexpr int kRows = 256;  // as many as a pass has with its padding
  const ModelConfig config = config_of(true);
  const test::RandomModel source(config);
  const auto backend = kernels::make_cuda_backend(0);
  fabric::SingleRankGroup group;
  for (const DType compute : {DType::bf16, DType::f32}) {
    const auto weights = model::load_weights(*backend, config, source, group, compute);
    const model::Decoder decoder(*backend, weights, group, kRows, 1, 64);
    const std::size_t logit_rows = backend->padded({kRows, 1}).logit_rows;
    const std::uint64_t of_logits =
        logit_rows * (config.vocab * sizeof(float) + config.hidden * size_of(compute));
    EXPECT_EQ(decoder.activation_bytes(), kRows * model::row_bytes(config, compute, 1) + of_logits);
  }
}

}  // namespace
}  // namespace paceline
