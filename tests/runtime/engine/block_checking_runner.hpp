// A StepRunner with a real paged cache but no model: the "KV" of a position is its token, in each
// head, and the next token is a hash of everything the row can see through its block table. So a
// wrong block, a missed copy or move, a stale position or another branch's token changes the
// response, as it would with a model. A row of a picture is a hash of the picture's file, and a row
// that is not turned by its position is another. Tokens past the vocabulary stand for pictures.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "runtime/core/philox.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"

namespace paceline::engine {

/// Runs a step of the batcher and commits what it gives.
inline std::vector<Trajectory> commit(Batcher& batcher, StepRunner& runner, const Step& step) {
  std::vector<Trajectory> ended = batcher.commit(runner.run(step));
  const auto routed = batcher.routed_places();
  for (std::size_t i = 0; i < routed.size(); ++i) ended[i].routing = runner.read_routing(routed[i]);
  return ended;
}
inline std::vector<Trajectory> commit(Batcher& batcher, StepRunner& runner) {
  return commit(batcher, runner, batcher.plan());
}

class BlockCheckingRunner final : public StepRunner {
 public:
  BlockCheckingRunner(int blocks, int block, int vocab)
      : block_(block),
        vocab_(vocab),
        own_(static_cast<std::size_t>(blocks) * block, -1),
        cache_(own_) {}
  /// `memory`: of KV, in 4-byte elements of a head. The pool neither grows nor shrinks.
  BlockCheckingRunner(const KvMemory& memory, int vocab)
      : block_(memory.shape.block),
        vocab_(vocab),
        heads_(memory.shape.layers * memory.shape.vectors()),
        cache_(reinterpret_cast<TokenId*>(memory.bytes.data()),
               memory.bytes.size() / sizeof(TokenId)) {
    std::fill(cache_.begin(), cache_.end(), -1);
  }

  StepResult run(const Step& step) override {
    const std::size_t slots = static_cast<std::size_t>(step.kv.blocks) * owners * block_;
    if (slots > cache_.size()) resize(slots);
    tables_.apply(step.kv.edits);
    tokens_ = step.tokens;
    for (const auto& move : step.kv.moves) {
      for (int head = 0; head < heads_; ++head)
        cell(move.to_block, head, move.to_slot) = cell(move.from_block, head, move.from_slot);
    }
    for (const auto& copy : step.kv.copies) {
      const std::span<TokenId> from = block(copy.from);
      std::copy(from.begin(), from.end(), block(copy.to).begin());
    }
    if (step.kv.blocks > 0) resize(slots);
    show(step);
    check_owners(step);
    for (const StepPart& part : step.parts) {
      for (int i = 0; i < part.rows; ++i) {
        for (int head = 0; head < heads_; ++head)
          slot(part, head, part.first_position + i) = rows_seen_[part.first_row + i];
      }
    }
    sampled_.clear();
    kept_ids_.clear();
    top_.clear();
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
        const TokenId token = slot(part, 0, p);
        if (token < 0) throw std::logic_error("a row sees a position that was never stored");
        for (int head = 1; head < heads_; ++head) {
          if (slot(part, head, p) != token) throw std::logic_error("heads have KV of other texts");
        }
        hash = (hash ^ static_cast<std::uint32_t>(token)) * 16777619U;
      }
      std::uint32_t bits = noise_bits(sample.noise, sample.index, hash % 1024);
      if (sample.draw >= 0)
        bits ^= std::bit_cast<std::uint32_t>(step.draws.at(sample.draw).temperature);
      const auto token =
          sample.given < 0 ? static_cast<TokenId>((hash ^ bits) % vocab_) : sample.given;
      check_notes(step, sample, part);
      const std::int32_t kept = 1 + static_cast<std::int32_t>(bits % 3);
      sampled_.push_back({token, static_cast<float>(hash), static_cast<float>(bits), kept});
      for (std::int32_t i = 0; i < kept; ++i) kept_ids_.push_back(token + i);
      for (std::int32_t i = 0; i < kTop; ++i) top_.push_back({token + i, static_cast<float>(hash)});
    }
    ++steps;
    rows += step.tokens.size();
    return {.sampled = sampled_, .kept_ids = kept_ids_, .top = top_};
  }
  static constexpr std::int32_t kTop = 2;  ///< of each sample
  /// A position's expert is its token.
  [[nodiscard]] std::vector<std::int16_t> read_routing(std::span<const kv::Place> places) override {
    std::vector<std::int16_t> tokens;
    for (const kv::Place& place : places)
      tokens.push_back(static_cast<std::int16_t>(cell(place.block, 0, place.slot)));
    return tokens;
  }
  /// What a block holds, to be sent elsewhere or to be overwritten by what arrives.
  [[nodiscard]] std::span<TokenId> block(int index) {
    const auto size = static_cast<std::size_t>(heads_) * block_;
    if ((index + 1) * size > cache_.size())
      throw std::logic_error("a block past the end of the pool");
    return cache_.subspan(index * size, size);
  }
  /// A row's feature is its token.
  [[nodiscard]] std::size_t feature_bytes() const override { return sizeof(TokenId); }
  void read_features(std::span<const std::int32_t> of, std::span<std::byte> out) override {
    if (out.size() != of.size() * sizeof(TokenId)) throw std::logic_error("features of a size");
    for (std::size_t i = 0; i < of.size(); ++i)
      std::memcpy(out.data() + i * sizeof(TokenId), &tokens_.at(of[i]), sizeof(TokenId));
  }

  int owners = 1;  ///< of the pool's blocks (kv/block_owners.hpp)
  std::size_t steps = 0;
  std::size_t rows = 0;
  std::size_t noted = 0;  ///< samples with notes of what was said

 private:
  /// Finds what each row of the step is.
  void show(const Step& step) {
    for (std::size_t i = 0; i < step.pictures.size(); ++i) {
      const auto slot = static_cast<std::size_t>(step.pictures[i].slot);
      if (slot >= pictures_.size()) pictures_.resize(slot + 1);
      pictures_[slot] = step.files[i];
    }
    rows_seen_ = step.tokens;
    for (const PictureSpan& span : step.spans) {
      std::uint32_t hash = 2166136261U;
      if (pictures_.at(span.slot) == nullptr) throw std::logic_error("a picture that is not kept");
      for (const std::byte byte : *pictures_[span.slot])
        hash = (hash ^ static_cast<std::uint32_t>(byte)) * 16777619U;
      for (std::int32_t row = 0; row < span.rows; ++row) {
        if (step.tokens.at(span.first_row + row) < vocab_)
          throw std::logic_error("a row of a picture in the place of a token");
        rows_seen_[span.first_row + row] = static_cast<TokenId>((hash >> 2) + span.first + row);
      }
    }
    std::vector<bool> checked(step.tokens.size(), true);  // but drafted rows, which may be anything
    for (const StepSample& sample : step.samples) checked[sample.row] = false;
    for (std::size_t row = 0; row < step.tokens.size(); ++row) {
      if (checked[row] && step.tokens[row] >= vocab_ && rows_seen_[row] == step.tokens[row])
        throw std::logic_error("a picture's row without the picture");
    }
    if (step.rotary.empty()) return;
    for (const StepPart& part : step.parts) {
      std::vector<int> position(part.rows, part.first_position);
      for (int i = 0; i < part.rows; ++i) {
        const int parent = part.first_parent < 0 ? i - 1 : step.parents.at(part.first_parent + i);
        if (parent >= 0) position[i] = position[parent] + 1;
        const RotaryPosition& turned = step.rotary.at(part.first_row + i);
        const int by = 3 * (position[i] - turned.frame) + 5 * (position[i] - turned.row) +
                       7 * (position[i] - turned.column);
        rows_seen_[part.first_row + i] ^= by << 8;
      }
    }
  }
  /// Rows must be in order of their owners, each with blocks of its owner's.
  void check_owners(const Step& step) {
    std::int32_t last = 0;
    for (const StepPart& part : step.parts) {
      const std::int32_t owner = part.sequence % owners;
      if (owner < last) throw std::logic_error("rows that are not in order of their owners");
      last = owner;
      for (int p = 0; p < part.first_position + part.rows; p += block_) {
        if (tables_.of(part.sequence)[p / block_] % owners != owner)
          throw std::logic_error("a sequence in another owner's blocks");
      }
    }
    for (const auto& move : step.kv.moves) check_pair(move.from_block, move.to_block);
    for (const auto& copy : step.kv.copies) check_pair(copy.from, copy.to);
  }
  void check_pair(std::int32_t from, std::int32_t to) const {
    if (from % owners != to % owners) throw std::logic_error("KV from one owner to another");
  }
  /// Notes of what is said must be of all that the row sees, its response being `index` long.
  void check_notes(const Step& step, const StepSample& sample, const StepPart& part) {
    TokenNotes notes;
    notes.assign(std::span(step.notes).subspan(sample.first_note, sample.notes));
    notes.note(std::span(step.notes).subspan(sample.first_since, sample.since));
    std::map<TokenId, std::int32_t> said;
    for (const TokenNote& note : notes.all()) {
      if (note.sampled != TokenNote::kUnsaid) said[note.token] = note.sampled;
    }
    if (said.empty()) return;
    std::map<TokenId, std::int32_t> seen;
    for (std::size_t i = 0; i < slots_.size(); ++i)
      seen[slot(part, 0, slots_[i])] += i + sample.index >= slots_.size() ? 1 : 0;
    if (said != seen) throw std::logic_error("notes of another text than the row sees");
    ++noted;
  }
  /// Heads follow one another in a block.
  TokenId& cell(int index, int head, int slot) { return block(index)[head * block_ + slot]; }
  TokenId& slot(const StepPart& part, int head, int position) {
    return cell(tables_.of(part.sequence)[position / block_], head, position % block_);
  }
  void resize(std::size_t slots) {
    if (heads_ > 1) throw std::logic_error("a pool in others' memory has one size");
    own_.resize(slots, -1);
    cache_ = own_;
  }
  int block_;
  int vocab_;
  int heads_ = 1;
  BlockTables tables_;
  std::vector<TokenId> own_;  ///< empty: the cache is in others' memory
  std::span<TokenId> cache_;  ///< [blocks, heads, block]
  std::vector<int> slots_;
  std::vector<TokenId> tokens_;         ///< of the last step
  std::vector<TokenId> rows_seen_;      ///< of the last step: tokens, or what stands for them
  std::vector<PictureBytes> pictures_;  ///< [slots] files of those that are kept
  std::vector<TokenId> kept_ids_;
  std::vector<kernels::Ranked> top_;
  std::vector<kernels::Sampled> sampled_;
};

}  // namespace paceline::engine
