// The sequences that a drafter computes with: the texts of the requests it drafts for, the tokens
// drafted after them, their KV, and the forward passes that compute the KV. The caller chooses the
// next token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/kv/sequences.hpp"

namespace paceline::draft {

struct DraftSequencesOptions {
  int max_requests = 64;    ///< most requests of a round
  int kv_block = 16;        ///< positions per block, a multiple of 16
  int kv_blocks = 0;        ///< blocks in the pool
  int max_position = 0;     ///< longest sequence, tokens; at most the model's context
  int prefill_chunk = 256;  ///< rows of a pass in addition to one for each request
  int width = 1;            ///< most rows of a request in a pass after its text
  int logit_rows = 1;       ///< as many of them as have logits that are read
};

/// Returns the options. Throws std::invalid_argument on bad ones.
[[nodiscard]] DraftSequencesOptions checked(const DraftSequencesOptions& options);

/// A request's text and, after it, tokens drafted for it.
struct DraftText {
  std::vector<TokenId> tokens;  ///< prompt, response, drafted tokens
  std::size_t prompt = 0;       ///< tokens of the prompt
  std::size_t committed = 0;    ///< tokens of prompt and response
  NoiseKey noise;               ///< noise of the request
  bool foreign = false;         ///< has a token outside the draft model's vocabulary
  RequestSampling sampling;     ///< sampling of the request
};

/// A round is begin(), catch_up(), and extend() as often as wanted. Not thread-safe. Throws
/// std::logic_error on requests that were not started or were started twice.
class DraftSequences {
 public:
  /// A request's part in a round.
  struct Member {
    RequestId id;
    /// Tokens of the vocabulary, taken as said after the committed text. Read by begin().
    std::span<const TokenId> assumed;
    /// Positions past the assumed tokens, for drafted tokens. In: wanted positions. Out: positions
    /// with room; -1: the request does not fit or cannot be drafted for yet: not in the round.
    int ahead = 0;
    std::int32_t branch = 0;  ///< DraftSlot::branch
  };
  static constexpr std::int32_t kRoot = -1;
  static constexpr std::int32_t kLast = -2;
  struct Next {
    int member = 0;
    TokenId token = 0;
    /// Index of the member's appended token that `token` follows; kRoot: the text and the assumed
    /// tokens; kLast: the last appended token, or kRoot where there is none.
    std::int32_t after = kLast;
  };
  /// Reads logits, [members.size(), vocab] fp32 in memory of the backend: row i is of the token
  /// after a token computed for member members[i]. Valid during the call.
  using Reader = std::function<void(std::span<const int> members, const float* logits)>;

  virtual ~DraftSequences() = default;

  /// start() to finish() run no pass. A request that comes back uses held KV that still fits.
  virtual void start(const DraftStart& start) = 0;
  virtual void commit(RequestId id, std::span<const TokenId> tokens) = 0;
  virtual void leave(RequestId id) = 0;
  virtual void finish(RequestId id) = 0;
  [[nodiscard]] virtual const DraftText& text(RequestId id) const = 0;
  /// LaggingState's and FeatureReader's functions; feature_bytes() is 0 if no features are read.
  [[nodiscard]] virtual int lag(RequestId id) const = 0;
  [[nodiscard]] virtual std::size_t feature_bytes() const { return 0; }
  /// Whether members may be branches.
  [[nodiscard]] virtual bool branches() const { return false; }
  virtual void observe(RequestId /*id*/, std::int32_t /*first*/,
                       std::span<const std::byte> /*features*/) {}

  /// Begins a round of at most max_requests members. Finds room for each member's text and the
  /// tokens after it. Members most recently in a round come first, so that requests that compete
  /// for a small pool do not take turns in evicting one another. Throws std::logic_error when a
  /// request or a branch is in the round twice or the sequences are suspended.
  virtual void begin(std::span<Member> members) = 0;
  /// Computes the KV that the members' texts lack, in as many passes as it takes. Without at_once()
  /// it also computes the KV of assumed tokens, and reads the logits of each member's last token,
  /// once. With at_once() masked rows stand for assumed tokens and for the draft, and are computed
  /// in each round. It reads the logits that follow the assumed tokens: 1 + Member::ahead for each
  /// member, in order.
  virtual void catch_up(const Reader& read);
  /// Whether catch_up() reads the logits of all tokens of a draft. There is no extend() then.
  [[nodiscard]] virtual bool at_once() const { return false; }
  /// Runs one pass: appends tokens, and reads the logits of each. A member's tokens, at most
  /// `width`, are adjacent in `next`. A draft model appends one token, after the last.
  virtual void extend(std::span<const Next> next, const Reader& read) = 0;

  /// Gives up all KV, though not its memory.
  virtual void drop_kv() = 0;
  /// MemoryGiver's functions. While suspended there are no rounds.
  [[nodiscard]] virtual bool gives_memory() const { return false; }
  virtual void suspend() {}
  [[nodiscard]] virtual bool resume() { return true; }
  [[nodiscard]] virtual bool suspended() const { return false; }

  [[nodiscard]] virtual int vocab() const = 0;
  /// Whether all tokens are of the vocabulary.
  [[nodiscard]] bool knows(std::span<const TokenId> tokens) const;
  /// Rows of all forward passes so far.
  [[nodiscard]] std::uint64_t rows() const { return rows_; }
  /// Memory held, bytes; all 0 while suspended.
  [[nodiscard]] std::size_t kv_bytes() const { return cache_ ? cache_->size() : 0; }
  [[nodiscard]] virtual std::size_t weight_bytes() const = 0;
  [[nodiscard]] virtual std::size_t bytes() const = 0;

 protected:
  /// A forward pass that is being put together.
  struct Pass {
    std::vector<TokenId> tokens;
    std::vector<kernels::Segment> segments;
    std::vector<int> members;  ///< [segments]
    std::vector<std::int32_t> logit_rows;
    std::vector<int> logit_members;  ///< [logit_rows]
    void clear();
  };

  /// Throws std::invalid_argument on bad options. kv_shape_ and cache_ are the derived class's to
  /// set.
  DraftSequences(kernels::Backend& backend, const DraftSequencesOptions& options);

  /// The text that the request has at its start.
  [[nodiscard]] DraftText text_of(const DraftStart& start) const;
  void append(DraftText& text, std::span<const TokenId> tokens) const;
  /// The KV of a member of the round; null: it is not in the round.
  [[nodiscard]] virtual const kv::Handle* kv_of(int member) const = 0;
  /// Computes these members' texts.
  virtual void compute(std::span<const int> members, const Reader& read) = 0;
  /// Begins a round of so many members. Fills order_ with them.
  void begin_round(std::size_t members);
  /// Adds the member's next rows to the pass, without their tokens.
  kernels::Segment& add_segment(int member, std::int32_t rows);
  /// Does the KV pool's work. Block tables do not change before the pass has run: only then may
  /// siblings share a prompt that the pass completes.
  void prepare_pass();
  /// Counts the rows of the pass, which has run.
  void end_pass();

  DraftSequencesOptions options_;
  kernels::Backend& backend_;
  kernels::KvShape kv_shape_;
  std::unique_ptr<kernels::Buffer> cache_;  ///< [kv_blocks] chunks of kv_shape_.block_bytes()
  kv::Sequences kv_;
  std::uint64_t round_ = 0;
  std::vector<int> order_;  ///< members, in the order in which they get room
  Pass pass_;

 private:
  std::uint64_t rows_ = 0;
  std::vector<int> first_;  ///< members that compute at once
  std::vector<int> rest_;   ///< members that wait for a sibling to compute their prompt
  kv::Work work_;
};

}  // namespace paceline::draft
