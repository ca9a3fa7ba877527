// The sequences of a draft model.
//
// A sequence holds the KV of a prefix of its tokens. Drafted tokens that the target commits stay,
// and so do tokens that the next round assumes; others are rolled back. When the pool is full, the
// sequences that were in no round for longest give up their KV. They catch up in their next round,
// as do sequences that missed rounds. The KV of a prompt is computed once for all its responses,
// which share its blocks. After they have ended the prompt's KV stays while there is room
// (kv::Sequences).
//
// A branch is a sequence of its own, which shares KV with its request's own sequence before the
// token where the two part. Branches that the target contradicts are dropped. A branch that the
// target follows further than the request's own sequence takes this sequence's place.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/draft/draft_sequences.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/decoder.hpp"

namespace paceline::draft {

class ModelSequences final : public DraftSequences {
 public:
  /// `load_weights`: loads the whole model. `group`: of this rank alone. `backend` and `group` must
  /// outlive this. Throws std::invalid_argument on bad options, and `load_weights`'s exceptions.
  ModelSequences(kernels::Backend& backend, model::LoadWeights load_weights,
                 TensorParallelGroup& group, const DraftSequencesOptions& options);

  void start(const DraftStart& start) override;
  void commit(RequestId id, std::span<const TokenId> tokens) override;
  void leave(RequestId id) override;
  void finish(RequestId id) override;
  [[nodiscard]] const DraftText& text(RequestId id) const override { return started(id).text; }
  [[nodiscard]] int lag(RequestId id) const override;

  [[nodiscard]] bool branches() const override { return true; }

  /// A branch finds room after all requests' own sequences. It begins with KV of its request's own
  /// sequence: if this has no KV, the branch is not in the round.
  void begin(std::span<Member> members) override;
  void extend(std::span<const Next> next, const Reader& read) override;

  void drop_kv() override;
  [[nodiscard]] bool gives_memory() const override { return true; }
  /// Gives the memory of KV back and lets go of the weights.
  void suspend() override;
  /// Loads a further part of the weights. Once all are loaded, takes the memory again and returns
  /// true: no longer suspended. Throws if memory is short, and stays suspended then.
  [[nodiscard]] bool resume() override;
  [[nodiscard]] bool suspended() const override { return decoder_ == nullptr; }

  [[nodiscard]] int vocab() const override { return vocab_; }
  [[nodiscard]] std::size_t weight_bytes() const override {
    return suspended() ? 0 : decoder_->weights().bytes();
  }
  [[nodiscard]] std::size_t bytes() const override {
    return suspended() ? 0 : kv_bytes() + weight_bytes() + decoder_->activation_bytes();
  }

 private:
  struct Sequence {
    DraftText text;
    std::optional<kv::Handle> kv;  ///< none: no KV is held
    bool left = false;             ///< kept for its KV alone
    std::size_t base = 0;          ///< tokens committed and assumed, in a round
    std::uint64_t asked = 0;       ///< the last round for which it was asked
    std::uint64_t served = 0;      ///< the last round in which it had room
    std::int32_t shared = 0;       ///< a branch's positions in blocks that it shares
  };
  /// A request's own sequence has branch 0, and comes before its branches.
  struct Key {
    RequestId id;
    std::int32_t branch = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  /// KV that may be given up: any, or only the KV of branches and of requests that left.
  enum class Victims : std::uint8_t { all, unasked };

  [[nodiscard]] const Sequence& started(RequestId id) const;
  [[nodiscard]] Sequence& started(RequestId id);
  void take_memory(std::shared_ptr<const model::Weights> weights);
  void cut(Sequence& s, std::size_t size);
  void assume(Sequence& s, std::span<const TokenId> tokens);
  void close(Sequence& s);
  void drop_branches(RequestId id, const std::function<bool(const Sequence&)>& which);
  void follow(RequestId id, Sequence& s, std::span<const TokenId> tokens);
  [[nodiscard]] static std::size_t agreed(const Sequence& s, std::span<const TokenId> tokens);
  // Each of these two finds room for a member; null: there is none.
  [[nodiscard]] Sequence* serve(Member& member);
  [[nodiscard]] Sequence* serve_branch(Member& member);
  void hold(RequestId id, Sequence& own);
  [[nodiscard]] bool fits(Member& member, std::int64_t size, std::int32_t shared) const;
  [[nodiscard]] std::int32_t prompt_blocks(RequestId id, std::int32_t shared) const;
  [[nodiscard]] static Sequence* leave_out(Member& member);
  [[nodiscard]] bool reserve(RequestId id, Sequence& s, std::int64_t positions, Victims victims);
  [[nodiscard]] bool evict(Victims victims);
  [[nodiscard]] const kv::Handle* kv_of(int member) const override {
    return members_[member] == nullptr ? nullptr : &*members_[member]->kv;
  }
  void compute(std::span<const int> members, const Reader& read) override;
  void add_rows(int member, std::size_t rows, bool read);
  void run_pass(const Reader& read);

  model::LoadWeights load_weights_;
  TensorParallelGroup& group_;
  int vocab_ = 0;
  std::unique_ptr<model::Decoder> decoder_;  ///< null while suspended
  std::map<Key, Sequence> requests_;

  // The round.
  std::vector<Sequence*> members_;      ///< null: not in the round
  std::vector<std::uint32_t> prompts_;  ///< prompts of the members served
  std::int32_t taken_ = 0;              ///< blocks of the members served
};

}  // namespace paceline::draft
