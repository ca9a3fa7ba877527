// The sequences of a draft model: the texts of the requests it drafts for, the tokens drafted
// behind them, their KV, and the forward passes that compute it. How the next token is chosen is
// the caller's.
//
// What is held of a sequence is the KV of a prefix of its tokens. Drafted tokens that the target
// commits stay, as do those that the next round assumes; others are rolled back. When the pool is
// full, the sequences that were in no round for longest give up their KV, and catch up when they
// are in one again, as after rounds that they sat out. The KV of a prompt is computed once for all
// its responses, which share its blocks; when they have ended it stays behind while there is room
// (kv::Sequences).
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
#include "runtime/draft/drafter.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/decoder.hpp"

namespace paceline::draft {

struct DraftSequencesOptions {
  int max_requests = 64;    ///< in a round
  int kv_block = 16;        ///< positions a block, a multiple of 16
  int kv_blocks = 0;        ///< blocks in the pool
  int max_position = 0;     ///< longest sequence, tokens; at most the model's context
  int prefill_chunk = 256;  ///< rows of a pass beside one for each request
};

/// A request's text and, behind it, tokens drafted for it.
struct DraftText {
  std::vector<TokenId> tokens;  ///< prompt, response, drafted tokens
  std::size_t prompt = 0;       ///< tokens of the prompt
  std::size_t committed = 0;    ///< tokens of prompt and response
  NoiseKey noise;               ///< of the request
  bool foreign = false;         ///< has a token outside the draft model's vocabulary
};

/// A round is begin(), catch_up(), and extend() as often as wanted. Not thread-safe. Throws
/// std::logic_error on requests that were not started or were started twice.
class DraftSequences {
 public:
  /// A request's part in a round.
  struct Member {
    RequestId id;
    /// Tokens of the vocabulary, taken as said after what is committed. Read by begin().
    std::span<const TokenId> assumed;
    /// Positions past these, for drafted tokens. In: wanted. Out: there is room for; -1: it does
    /// not fit, and is not in the round.
    int ahead = 0;
  };
  struct Next {
    int member = 0;
    TokenId token = 0;
  };
  /// Reads logits, [members.size(), vocab] fp32 in memory of the backend: row i is what follows the
  /// last token of member members[i]. Valid during the call.
  using Reader = std::function<void(std::span<const int> members, const float* logits)>;

  /// `load_weights`: of the whole model. `group`: of this rank alone. `backend` and `group` must
  /// outlive this. Throws std::invalid_argument on bad options, and as `load_weights` does.
  DraftSequences(kernels::Backend& backend, model::LoadWeights load_weights,
                 TensorParallelGroup& group, const DraftSequencesOptions& options);

  /// These run no forward pass. A request that left takes up what is held of it and still fits.
  void start(const DraftStart& start);
  void commit(RequestId id, std::span<const TokenId> tokens);
  void leave(RequestId id);
  void finish(RequestId id);
  [[nodiscard]] const DraftText& text(RequestId id) const { return started(id).text; }
  /// As Drafter::lag().
  [[nodiscard]] int lag(RequestId id) const;

  /// Begins a round of at most max_requests. Finds room for each member's text and what comes
  /// behind it, for those that were in a round most recently first, so that requests that compete
  /// for a small pool do not take turns in evicting one another. Throws std::logic_error when a
  /// request is in it twice or this is suspended.
  void begin(std::span<Member> members);
  /// Computes what the KV lacks of the members' texts and of what they assume, in as many passes as
  /// it takes, and reads what follows each, once.
  void catch_up(const Reader& read);
  /// One pass: appends a token to each of these members' tokens, and reads what follows it.
  void extend(std::span<const Next> next, const Reader& read);

  /// Gives up all KV, though not its memory.
  void drop_kv();
  /// Gives the memory of KV back and lets go of the weights; while suspended there are no rounds.
  void suspend();
  /// Goes on with loading the weights, and where they are there takes the memory again: true, and
  /// no longer suspended. May throw for want of memory, and stays suspended then.
  [[nodiscard]] bool resume();
  [[nodiscard]] bool suspended() const { return decoder_ == nullptr; }

  [[nodiscard]] int vocab() const { return vocab_; }
  /// Whether all tokens are of the vocabulary.
  [[nodiscard]] bool knows(std::span<const TokenId> tokens) const;
  /// Rows of all forward passes so far.
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  /// Memory held, bytes; all 0 while suspended.
  [[nodiscard]] std::size_t kv_bytes() const { return suspended() ? 0 : cache_->size(); }
  [[nodiscard]] std::size_t weight_bytes() const {
    return suspended() ? 0 : decoder_->weights().bytes();
  }
  [[nodiscard]] std::size_t bytes() const {
    return suspended() ? 0 : kv_bytes() + weight_bytes() + decoder_->activation_bytes();
  }

 private:
  struct Sequence {
    DraftText text;
    std::optional<kv::Handle> kv;  ///< none: no KV is held
    bool left = false;             ///< kept for its KV alone
    std::size_t base = 0;          ///< in a round: tokens committed and assumed
    std::uint64_t asked = 0;       ///< the last round it was asked for in
    std::uint64_t served = 0;      ///< the last round it was in
  };

  /// A forward pass that is being put together.
  struct Pass {
    std::vector<TokenId> tokens;
    std::vector<kernels::Segment> segments;
    std::vector<int> members;  ///< [segments]
    std::vector<std::int32_t> logit_rows;
    std::vector<int> logit_members;  ///< [logit_rows]
    void clear();
  };

  [[nodiscard]] const Sequence& started(RequestId id) const;
  [[nodiscard]] Sequence& started(RequestId id);
  void take_memory(std::shared_ptr<const model::Weights> weights);
  void append(DraftText& text, std::span<const TokenId> tokens) const;
  void cut(Sequence& s, std::size_t size);
  void assume(Sequence& s, std::span<const TokenId> tokens);
  void close(Sequence& s);
  void reserve(RequestId id, Sequence& s, std::int64_t positions);
  void evict_oldest();
  void compute(std::span<const int> members, const Reader& read);
  void add_rows(int member, std::size_t rows, bool read);
  void run_pass(const Reader& read);

  DraftSequencesOptions options_;
  kernels::Backend& backend_;
  model::LoadWeights load_weights_;
  TensorParallelGroup& group_;
  int vocab_ = 0;
  std::unique_ptr<model::Decoder> decoder_;  ///< null while suspended
  kernels::KvShape kv_shape_;
  std::unique_ptr<kernels::Buffer> cache_;  ///< [kv_blocks] chunks of kv_shape_.block_bytes()
  kv::Sequences kv_;

  std::map<RequestId, Sequence> requests_;
  std::uint64_t round_ = 0;
  std::uint64_t rows_ = 0;

  // The round.
  std::vector<Sequence*> members_;      ///< null: not in the round
  std::vector<int> order_;              ///< members, as they are served
  std::vector<std::uint32_t> prompts_;  ///< of those served
  std::vector<int> first_;              ///< members that compute at once
  std::vector<int> rest_;               ///< members that wait for a sibling to compute their prompt
  Pass pass_;
  kv::Work work_;
};

}  // namespace paceline::draft
