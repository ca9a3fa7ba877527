// A StepRunner with a real paged cache but no model: the "KV" of a position is its token, and the
// next token is a hash of everything the row can see through its block table. So a wrong block, a
// missed copy or move, a stale position or another branch's token changes the response, as it would
// with a model.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "runtime/core/philox.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"

namespace paceline::engine {

/// Runs a step of the batcher and commits what it gives.
inline std::vector<Trajectory> commit(Batcher& batcher, StepRunner& runner, const Step& step) {
  const std::span<const kernels::Sampled> sampled = runner.run(step);
  return batcher.commit(sampled, runner.kept_ids());
}
inline std::vector<Trajectory> commit(Batcher& batcher, StepRunner& runner) {
  return commit(batcher, runner, batcher.plan());
}

class BlockCheckingRunner final : public StepRunner {
 public:
  BlockCheckingRunner(int blocks, int block, int vocab)
      : block_(block), vocab_(vocab), cache_(static_cast<std::size_t>(blocks) * block, -1) {}

  std::span<const kernels::Sampled> run(const Step& step) override {
    const std::size_t slots = static_cast<std::size_t>(step.kv.blocks) * block_;
    if (slots > cache_.size()) cache_.resize(slots, -1);
    tables_.apply(step.kv.edits);
    tokens_ = step.tokens;
    for (const auto& move : step.kv.moves) {
      cache_.at(static_cast<std::size_t>(move.to_block) * block_ + move.to_slot) =
          cache_.at(static_cast<std::size_t>(move.from_block) * block_ + move.from_slot);
    }
    for (const auto& copy : step.kv.copies) {
      const std::span<TokenId> from = block(copy.from);
      std::copy(from.begin(), from.end(), block(copy.to).begin());
    }
    if (step.kv.blocks > 0) cache_.resize(slots);
    for (const StepPart& part : step.parts) {
      for (int i = 0; i < part.rows; ++i)
        slot(part, part.first_position + i) = step.tokens[part.first_row + i];
    }
    sampled_.clear();
    kept_ids_.clear();
    std::size_t next_part = 0;
    for (const StepSample& sample : step.samples) {
      while (step.parts[next_part].first_row + step.parts[next_part].rows <= sample.row)
        ++next_part;
      const StepPart& part = step.parts[next_part];
      // Slots the row sees: what came before the part, and its ancestors in the part.
      slots_.clear();
      for (int row = sample.row - part.first_row; row >= 0;) {
        slots_.push_back(part.first_position + row);
        row = part.first_parent < 0 ? row - 1 : step.parents.at(part.first_parent + row);
      }
      for (int p = part.first_position; p-- > 0;) slots_.push_back(p);
      std::reverse(slots_.begin(), slots_.end());
      std::uint32_t hash = 2166136261U;
      for (const int p : slots_) {
        const TokenId token = slot(part, p);
        if (token < 0) throw std::logic_error("a row sees a position that was never stored");
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 16777619U;
      }
      const std::uint32_t bits = noise_bits(sample.noise, sample.index, hash % 1024);
      const auto token =
          sample.given < 0 ? static_cast<TokenId>((hash ^ bits) % vocab_) : sample.given;
      const std::int32_t kept = 1 + static_cast<std::int32_t>(bits % 3);
      sampled_.push_back({token, static_cast<float>(hash), static_cast<float>(bits), kept});
      for (std::int32_t i = 0; i < kept; ++i) kept_ids_.push_back(token + i);
    }
    ++steps;
    rows += step.tokens.size();
    return sampled_;
  }
  [[nodiscard]] std::span<const TokenId> kept_ids() const override { return kept_ids_; }
  /// What a block holds, to be sent elsewhere or to be overwritten by what arrives.
  [[nodiscard]] std::span<TokenId> block(int index) {
    const std::size_t first = static_cast<std::size_t>(index) * block_;
    if (first + block_ > cache_.size()) throw std::logic_error("a block past the end of the pool");
    return std::span(cache_).subspan(first, block_);
  }
  /// A row's feature is its token.
  [[nodiscard]] std::size_t feature_bytes() const override { return sizeof(TokenId); }
  void read_features(std::span<const std::int32_t> of, std::span<std::byte> out) override {
    if (out.size() != of.size() * sizeof(TokenId)) throw std::logic_error("features of a size");
    for (std::size_t i = 0; i < of.size(); ++i)
      std::memcpy(out.data() + i * sizeof(TokenId), &tokens_.at(of[i]), sizeof(TokenId));
  }
  [[nodiscard]] double forward_seconds() const override { return 0; }
  [[nodiscard]] double sample_seconds() const override { return 0; }

  std::size_t steps = 0;
  std::size_t rows = 0;

 private:
  TokenId& slot(const StepPart& part, int position) {
    const int block = tables_.of(part.sequence)[position / block_];
    return cache_.at(static_cast<std::size_t>(block) * block_ + position % block_);
  }
  int block_;
  int vocab_;
  BlockTables tables_;
  std::vector<TokenId> cache_;  ///< [blocks * block]
  std::vector<int> slots_;
  std::vector<TokenId> tokens_;  ///< of the last step
  std::vector<TokenId> kept_ids_;
  std::vector<kernels::Sampled> sampled_;
};

}  // namespace paceline::engine
