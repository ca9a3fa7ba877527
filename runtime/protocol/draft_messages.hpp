// What verifiers say to drafter ranks and draft servers, and hear from them.
//
// Drafter ranks: the verifier owns the committed text; a draft says from where it goes on, so that
// what was drafted from a text that was not said is dropped. A drafter rank that drafts by a head
// on the target is sent what the target has computed, too (DraftFeatures).
//
// Draft servers (Seer, section 4.4, table 3): verifiers tell what they have generated (DraftUpdate:
// update_cst) and ask for what others have (DraftFetch: fetch_cst, answered by DraftTexts). A
// server to which tokens are missing, for they are another verifier's to tell or were lost with a
// group, asks for them (DraftWanted).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"
#include "runtime/draft/group_log.hpp"

namespace paceline::roles {

/// Tokens that a drafter rank may be ahead of what its verifier has answered, where it sends
/// `window` of them at a time: one window, and all but the last token of the next. A token that is
/// refuted wastes no more than that.
[[nodiscard]] constexpr std::int32_t most_ahead(std::int32_t window) { return 2 * window - 1; }

/// Verifier to drafter: draft for this request from now on.
struct DraftOpen {
  std::uint32_t since = 0;  ///< which drafter is meant (policy::DrafterPlace)
  RequestId id;
  std::vector<TokenId> prompt;  ///< empty: the drafter was sent it before
  std::vector<TokenId> response;
  NoiseKey noise;
  /// Of its holder (Admission). Messages of two verifiers that open a request may arrive in
  /// either order: the one with the larger version has it.
  std::uint64_t version = 0;
  std::int32_t window = 0;  ///< tokens to send at a time, at most the drafter's own number
  RequestSampling sampling = {};
};

/// What became of a request.
enum class DraftEnd : std::int32_t { goes_on = 0, finished = 1, left = 2 };

/// What a step committed to a request.
struct DraftCommit {
  RequestId id;
  std::int32_t first = 0;  ///< of DraftCommits::tokens
  std::int32_t count = 0;
  DraftEnd end = DraftEnd::goes_on;
};

/// Verifier to drafter: a step's commits, of all requests that the drafter has.
struct DraftCommits {
  std::uint32_t since = 0;  ///< which drafter is meant
  std::vector<DraftCommit> commits;
  std::vector<TokenId> tokens;
};

/// What the target has of positions of a request's text, its prompt's included, next to each other.
struct DraftRows {
  RequestId id;
  std::int32_t first = 0;  ///< position
  std::int32_t count = 0;
};

/// Most bytes of features in a message, but for one row: what a step of 64 requests that commit 5
/// tokens each takes of a model 4096 wide, in bf16. A mailbox lets one message more than its window
/// pass, so that this is how far a drafter rank may be behind with what it is sent.
inline constexpr std::size_t kMostFeatureBytes = std::size_t{8} << 20;

/// Verifier to a drafter that reads features of the target, after the commits of the step that
/// computed them: one message a step where that keeps to kMostFeatureBytes. A row is 3 x hidden
/// values of the target's compute dtype, in bf16 6 x hidden bytes a token beside the 4 that the
/// token takes: 24 KiB of a model 4096 wide. The head computes in that dtype, so what it drafts on
/// another rank is to the bit what it would draft beside the target.
struct DraftFeatures {
  std::uint32_t since = 0;  ///< which drafter is meant
  std::vector<DraftRows> rows;
  std::vector<std::byte> features;  ///< of all rows, one behind the other
};

/// Tokens drafted for a request.
struct DraftPiece {
  RequestId id;
  std::int32_t base = 0;  ///< response tokens before the first of them, drafted ones included
  /// Response tokens that the drafter knew to be committed: a piece from before a refutation that
  /// it had not heard of goes on from a text that was not said.
  std::int32_t known = 0;
  std::int32_t first = 0;  ///< of Drafts::tokens
  std::int32_t count = 0;
};

/// Drafter to verifier.
struct Drafts {
  std::vector<DraftPiece> pieces;
  std::vector<TokenId> tokens;
  std::vector<float> scores;  ///< [tokens] as draft::DraftOutput's, from the piece's beginning
};

/// Tokens of one response.
struct DraftStretch {
  RequestId id;
  std::uint64_t offset = 0;  ///< response tokens before them
  std::uint32_t first = 0;   ///< of the message's tokens
  std::uint32_t count = 0;
  std::uint32_t ended = 0;  ///< 1: the response ends with them
  std::uint32_t reserved = 0;
};

/// Verifier to draft server: this was generated here.
struct DraftUpdate {
  draft::LogClient client = 0;
  std::vector<DraftStretch> stretches;
  std::vector<TokenId> tokens;
};

/// Verifier to draft server: what has come to these groups since? One is under way at a time.
struct DraftFetch {
  draft::LogClient client = 0;
  std::uint64_t ticket = 0;  ///< the answer's
  std::vector<draft::LogPlace> places;
};

/// In answer: what others said.
struct DraftTexts {
  draft::LogClient client = 0;
  std::uint64_t ticket = 0;
  std::uint64_t left = 0;  ///< tokens that there were no room for
  std::vector<draft::LogPlace> places;
  std::vector<DraftStretch> stretches;
  std::vector<TokenId> tokens;
};

/// Draft server to verifier: tell this request's tokens from `held` on.
struct DraftWanted {
  struct Missing {
    RequestId id;
    std::uint64_t held = 0;
  };
  draft::LogClient client = 0;
  std::vector<Missing> missing;
};

}  // namespace paceline::roles
