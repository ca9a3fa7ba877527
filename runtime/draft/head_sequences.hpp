// The sequences of a head on the target (model/feature_head.hpp).
//
// Row i of a text joins token i + 1 and the target's feature of position i. Features come with the
// target's own steps, and are kept in host memory until the next round computes their rows. The
// last feature stays: every round computes its row again for its logits. Rows of drafted tokens are
// computed from the head's own features. The next round rolls them back, and computes the rows of
// committed tokens again from the target's features.
// A head that drafts at once (P-EAGLE, arXiv 2602.01469) has masked rows instead, in the pass that
// computes the text: a row for each token after the first, of the mask token and the head's one
// feature for such rows, whatever is assumed or drafted. The next round rolls them back too.
// A DFlash head (arXiv 2602.06036) has the same rows of a text, which store context and have no
// logits: row i is the feature of position i alone, so none is computed again. After them comes a
// block, in a pass of its own: the text's last token and masked rows, always as many as the head
// was trained with, since all of them see one another.
// The features of a prompt come with the response that computes the prompt for its siblings. The
// siblings share them, and the KV of the prompt's rows. A request whose first features are unknown
// here has come with its KV from elsewhere. Its rows begin at the first known position, as local
// position 0, for only differences of rotary positions count. Rows also begin anew if a request's
// KV had to make room, for the features that it came from are gone. To keep all features would take
// three times as much host memory as the KV of a layer of the target, for a case that arises only
// where the pool holds fewer requests than the batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "runtime/draft/draft_sequences.hpp"
#include "runtime/draft/features.hpp"
#include "runtime/kv/sequences.hpp"
#include "runtime/model/feature_head.hpp"

namespace paceline::draft {

/// A head's results depend on a request's text and on which of its features are known. The KV of a
/// request that leaves is dropped.
class HeadSequences final : public DraftSequences {
 public:
  /// Parts as in model::HeadParts; `alone`: a group of one rank. Throws std::invalid_argument on
  /// bad options.
  HeadSequences(kernels::Backend& backend, std::shared_ptr<const model::HeadWeights> weights,
                std::shared_ptr<const kernels::Embedding> embedding, TensorParallelGroup& alone,
                const DraftSequencesOptions& options);

  void start(const DraftStart& start) override;
  void commit(RequestId id, std::span<const TokenId> tokens) override;
  void leave(RequestId id) override { finish(id); }
  void finish(RequestId id) override;
  [[nodiscard]] const DraftText& text(RequestId id) const override { return started(id).text; }
  [[nodiscard]] int lag(RequestId id) const override;
  [[nodiscard]] std::size_t feature_bytes() const override { return head_->feature_bytes(); }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override;

  void begin(std::span<Member> members) override;
  void catch_up(const Reader& read) override;
  void extend(std::span<const Next> next, const Reader& read) override;

  void drop_kv() override;

  [[nodiscard]] bool at_once() const override { return mask_.has_value(); }
  [[nodiscard]] int vocab() const override { return head_->layer().vocab; }
  [[nodiscard]] std::size_t weight_bytes() const override { return head_->weights().bytes(); }
  [[nodiscard]] std::size_t bytes() const override {
    return kv_bytes() + weight_bytes() + head_->activation_bytes();
  }

 private:
  /// The state that a prompt's requests share.
  struct Prompt {
    int requests = 0;   ///< number of requests that are here
    Features features;  ///< features of positions before the prompt's last
  };
  struct Sequence {
    DraftText text;
    Prompt* prompt = nullptr;
    Features features;             ///< features from the prompt's last position on, or later
    std::optional<kv::Handle> kv;  ///< none: no KV is held
    bool shares = false;           ///< its KV begins with the prompt's
    std::int64_t origin = 0;       ///< position of its first row
    std::int32_t computed = 0;     ///< rows computed from the target's features
    std::uint64_t asked = 0;       ///< the last round for which it was asked
    std::uint64_t served = 0;      ///< the last round in which it had room
    /// Rows that the committed tokens can have: one fewer than tokens.
    [[nodiscard]] std::int64_t known() const {
      return static_cast<std::int64_t>(text.committed) - 1;
    }
    /// Positions of the prompt whose rows are the same for siblings.
    [[nodiscard]] std::int64_t common() const { return static_cast<std::int64_t>(text.prompt) - 1; }
  };

  /// A request's part in a round: tokens and features after the rows from the target's features.
  struct Part {
    RequestId id;
    Sequence* sequence = nullptr;  ///< null: not in the round
    std::int32_t assumed = 0;      ///< number of assumed tokens, the first ones of `tokens`
    std::int32_t masked = 0;       ///< masked rows after the text's, with their logits
    std::int32_t block = 0;        ///< rows of a block after the text's
    std::int32_t read = 0;         ///< rows of the block whose logits are read
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;  ///< [tokens] the token that each follows; -1: the text
    std::vector<float> features;        ///< [1 + tokens, hidden] head's own, the text's first
  };

  [[nodiscard]] const Sequence& started(RequestId id) const;
  [[nodiscard]] Sequence& started(RequestId id);
  [[nodiscard]] bool knows_prompt(RequestId id, const Sequence& s) const;
  [[nodiscard]] std::int64_t known_from(RequestId id, const Sequence& s) const;
  [[nodiscard]] bool can_draft(RequestId id, const Sequence& s) const;
  [[nodiscard]] const std::byte* feature(const Sequence& s, std::int64_t position) const;
  [[nodiscard]] bool reserve(RequestId id, Sequence& s, std::int64_t rows);
  [[nodiscard]] bool evict_for(const Sequence& spared);
  void close(Sequence& s);
  [[nodiscard]] const kv::Handle* kv_of(int member) const override {
    return parts_[member].sequence == nullptr ? nullptr : &*parts_[member].sequence->kv;
  }
  void compute(std::span<const int> members, const Reader& read) override;
  void compute_assumed(const Reader& read);
  void compute_blocks(const Reader& read);
  /// Rows that the members' texts and masked rows have from the first one that is held.
  [[nodiscard]] std::int32_t rows_of(const Part& part) const;
  void add_computed(int member, std::int32_t rows);
  void add_block(int member);
  void append(int member, TokenId token, std::int32_t parent);
  void clear_pass();
  void add_appended(int member, std::int32_t rows, bool read);
  void run_pass(bool of_target, const Reader& read);

  std::int32_t block_ = 0;  ///< rows of a block; 0: the head drafts no blocks
  std::unique_ptr<model::FeatureHead> head_;
  int hidden_ = 0;
  std::optional<TokenId> mask_;  ///< token of masked rows; none: drafts take a pass a token
  std::size_t most_rows_ = 0;    ///< rows of a pass over texts or blocks
  std::map<std::uint32_t, Prompt> prompts_;
  std::map<RequestId, Sequence> requests_;
  std::uint32_t alone_ = 0;  ///< number of sequences opened so far that share no prompt

  // The round.
  std::vector<Part> parts_;  ///< the first count_ are in use; the others keep their memory
  int count_ = 0;
  std::vector<float> last_;  ///< [logit rows, hidden] of a pass
  // The pass, in addition to pass_.
  std::vector<std::byte> of_target_;  ///< [rows] the target's features; or, if empty:
  std::vector<float> own_;            ///< [rows] the head's own features
  std::vector<bool> read_;            ///< [logit_rows] whether the logits are wanted
};

}  // namespace paceline::draft
