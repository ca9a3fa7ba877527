// Carries out steps on this rank's share of the model, together with the other ranks of its group.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/pictures.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/engine/logit_edits.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/kv/block_owners.hpp"
#include "runtime/model/decoder.hpp"
#include "runtime/model/tower.hpp"

namespace paceline::engine {

/// The objects by which a rank computes pictures; null where no prompt has pictures.
struct PicturePorts {
  std::shared_ptr<const model::TowerWeights> tower = nullptr;
  std::shared_ptr<const PictureReader> reader = nullptr;
};

/// One rank's executor. Every rank of the group runs the same steps in the same order, and each
/// gets all sampled tokens. Ranks divide the rows to sample, so each rank holds whole rows of
/// logits only for its share. Used by one thread.
///
/// Ranks of a group compute each picture together, some of its rows each (model::Tower). Each rank
/// has all the tower's weights: 0.7 billion for any Qwen2-VL.
class Executor final : public StepRunner {
 public:
  /// `weights`, `backend`, `group`: as for model::Decoder. `stops`: the ids that min_tokens bans.
  Executor(kernels::Backend& backend, std::shared_ptr<const model::Weights> weights,
           TensorParallelGroup& group, const SamplingParams& sampling,
           const std::vector<TokenId>& stops, const ExecutorLimits& limits,
           const PicturePorts& pictures = {});

  StepResult run(const Step& step) override;
  /// Gives the experts of the next step's rows (model::Decoder::give_routing()).
  void give_routing(std::span<const std::int16_t> experts) { decoder_.give_routing(experts); }
  [[nodiscard]] std::vector<std::int16_t> read_routing(std::span<const kv::Place> places) override;
  [[nodiscard]] std::size_t feature_bytes() const override { return decoder_.feature_bytes(); }
  void read_features(std::span<const std::int32_t> rows, std::span<std::byte> out) override;
  /// The target's embedding (model::Decoder::embedding()).
  [[nodiscard]] std::shared_ptr<const kernels::Embedding> embedding() const {
    return decoder_.embedding();
  }
  [[nodiscard]] KvMemory kv_memory() const {
    return {kv_shape_, {cache_->data(), kv_bytes()}, cache_};
  }

  [[nodiscard]] std::size_t weight_bytes() const { return decoder_.weights().bytes(); }
  [[nodiscard]] std::size_t activation_bytes() const { return decoder_.activation_bytes(); }
  [[nodiscard]] std::size_t kv_bytes() const { return cache_->size(); }

 private:
  void work(const kv::Work& all);
  void read_own_routing(std::span<const kv::Place> places, std::span<std::int16_t> experts);
  void deal(const StepPart& part, std::int32_t owner);
  [[nodiscard]] double edit_pictures(const Step& step);
  [[nodiscard]] kernels::PictureInput pictures_of(const Step& step);
  void sample(const Step& step, const float* logits);
  void sample_rows(const Step& step, int first, const float* logits,
                   std::span<kernels::Sampled> out);
  [[nodiscard]] std::size_t edit_rows(const Step& step, int first, std::size_t begin,
                                      SampleNotes& notes);

  kernels::Backend& backend_;
  TensorParallelGroup& group_;
  SamplingParams sampling_;
  std::vector<TokenId> banned_early_;  ///< ids banned before min_tokens, sampling_.masked included
  ExecutorLimits limits_;
  model::Decoder decoder_;
  kernels::KvShape kv_shape_;
  std::shared_ptr<kernels::ElasticBuffer> cache_;  ///< [blocks] of kv_shape_.block_bytes()

  kv::BlockOwner owner_;  ///< this rank, if ranks have the KV of their own requests
  kv::Work own_work_;
  BlockTables tables_;      ///< tables of this rank's sequences, by their numbers in its pool
  std::vector<int> owned_;  ///< for model::Decoder::forward()

  std::optional<model::Tower> tower_;
  std::shared_ptr<const PictureReader> reader_;
  std::vector<std::vector<float>> slots_;        ///< [slots][rows, hidden] picture's rows, or empty
  std::vector<const float*> picture_rows_ = {};  ///< [rows of the step], or empty: no pictures

  std::vector<kernels::Segment> segments_;
  std::vector<std::int32_t> logit_rows_;
  std::vector<kernels::SampleRow> sample_rows_;
  std::vector<kernels::LogitEdit> edits_;  ///< edits of some own samples, sample by sample
  std::vector<kernels::Sampled> sampled_;  ///< [samples of the step]
  std::vector<TokenId> kept_rows_;         ///< [own samples, top_k] ids that could be sampled
  std::vector<TokenId> kept_ids_;          ///< ids that all samples could be, sample by sample
  std::vector<kernels::Ranked> top_;       ///< [samples of the step, logprobs]
  std::vector<int> columns_;               ///< [group] vocabulary columns of each rank
  std::vector<int> first_sample_;          ///< [group + 1] rank r has samples from [r] to [r + 1]
  /// [most own samples, vocab] fp32 gathered logits (tp > 1).
  std::unique_ptr<kernels::Buffer> rows_;
};

}  // namespace paceline::engine
