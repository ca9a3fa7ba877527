// The messages between verifiers and drafter ranks or draft servers.
//
// Drafter ranks: the verifier owns the committed text. A draft says which tokens it follows, so
// that the verifier can drop a draft that follows refuted tokens. A drafter rank drafts a chain of
// tokens for each request. It may also send branches, which leave the chain for another token: if
// the target says this token, the draft after it is there already. A drafter rank whose drafter is
// a head on the target also gets the target's features (DraftFeatures).
//
// Draft servers (Seer, section 4.4, table 3): verifiers tell a server the tokens that they have
// generated (DraftUpdate: update_cst), and ask it for tokens of other verifiers and of earlier
// training steps (DraftFetch: fetch_cst, answered by DraftTexts). A server asks for tokens that it
// lacks (DraftWanted), because another verifier has yet to tell them, or the server forgot them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"
#include "runtime/core/types.hpp"
#include "runtime/draft/group_log.hpp"

namespace paceline::protocol {

/// How far a drafter rank may run ahead of its verifiers, in tokens (most_ahead()).
struct DraftWindow {
  std::int32_t tokens = 4;  ///< window, and limit on tokens of a piece, of a rank that is not eager
  /// The window of an eager rank is the larger of `eager` and `tokens`. A rank is eager while one
  /// call of its drafter drafts for all its requests. It sends each token by itself, so it hears of
  /// refutations sooner. When ranks with more than 16 requests could be eager too, simulated
  /// rollouts of specactor-lognormal.yaml became 2 to 5 % shorter, and rollouts of 128 requests by
  /// the embedded models on 2 real ranks became a third shorter. 0: no rank is eager.
  std::int32_t eager = 0;
  [[nodiscard]] constexpr std::int32_t most() const { return std::max(tokens, eager); }
};

/// Largest number of tokens that a drafter rank may be ahead of its verifier's answers, with a
/// draft window of `window` tokens: one window, and all but the last token of the next window. A
/// refutation wastes at most this number of drafted tokens.
[[nodiscard]] constexpr std::int32_t most_ahead(std::int32_t window) { return 2 * window - 1; }

/// Verifier to drafter: draft for this request from now on.
struct DraftOpen {
  std::uint32_t since = 0;  ///< policy::DrafterPlace::since of the drafter's role
  RequestId id;
  std::vector<TokenId> prompt;  ///< empty: was sent to the drafter before
  std::vector<TokenId> response;
  NoiseKey noise;
  /// Version of the request's holder (Admission). The DraftOpens of two verifiers may arrive in
  /// either order: the verifier with the larger version holds the request.
  std::uint64_t version = 0;
  RequestSampling sampling = {};
};

/// The state of a request after a commit: it goes on, has finished, or was taken from the drafter.
enum class DraftEnd : std::int32_t { goes_on = 0, finished = 1, left = 2 };

/// The tokens that a step committed to a request.
struct DraftCommit {
  RequestId id;
  std::int32_t first = 0;  ///< index into DraftCommits::tokens
  std::int32_t count = 0;
  DraftEnd end = DraftEnd::goes_on;
};

/// Verifier to drafter: a step's commits to all requests that the drafter has.
struct DraftCommits {
  std::uint32_t since = 0;  ///< DraftOpen::since
  std::vector<DraftCommit> commits;
  std::vector<TokenId> tokens;
};

/// Adjacent positions of a request's text, the prompt included, whose features are sent.
struct DraftRows {
  RequestId id;
  std::int32_t first = 0;  ///< position
  std::int32_t count = 0;
};

/// Limit on the bytes of features in a message; a single row may be larger. 8 MiB suffice for a
/// step of 64 requests that commit 5 tokens each, of a model 4096 wide, in bf16. A mailbox lets one
/// message more than its window pass, so a drafter rank may have this number of bytes yet to read.
inline constexpr std::size_t kMostFeatureBytes = std::size_t{8} << 20;

/// Verifier to a drafter that reads features of the target. Follows the commits of the step that
/// computed the features, in one message if they have at most kMostFeatureBytes. For EAGLE-3 a row
/// is 3 x hidden values of the target's compute dtype. In bf16 these are 6 x hidden bytes per
/// token, in addition to the token's 4: 24 KiB for a model 4096 wide. For MTP a row is a third of
/// this. The head computes in the same dtype, so its drafts on another rank equal, bit for bit, its
/// drafts on the target's rank.
struct DraftFeatures {
  std::uint32_t since = 0;  ///< DraftOpen::since
  std::vector<DraftRows> rows;
  std::vector<std::byte> features;  ///< features of all rows, row by row
};

/// Tokens drafted for a request, of its chain or of a branch.
struct DraftPiece {
  static constexpr std::int32_t kChain = -1;

  RequestId id;
  std::int32_t base = 0;  ///< number of response tokens before the piece, drafted ones included
  /// Number of response tokens that the drafter knew to be committed. It shows whether the drafter
  /// had heard of the last refutation. If not, the piece follows refuted tokens.
  std::int32_t known = 0;
  std::int32_t first = 0;  ///< index into Drafts::tokens
  std::int32_t count = 0;
  /// kChain: the piece belongs to the chain. Otherwise the response index, at least `known`, at
  /// which the branch leaves the chain as it then was. At most one branch leaves at an index.
  std::int32_t leaves = kChain;
  TokenId instead = 0;  ///< token at `leaves`; the branch's drafted tokens follow it
};

/// Drafter to verifier: drafts. A message without pieces is a sign of life.
struct Drafts {
  std::vector<DraftPiece> pieces;
  std::vector<TokenId> tokens;
  std::vector<float> scores;  ///< [tokens] DraftOutput::scores of paths from the piece's beginning
};

/// Tokens of one response.
struct DraftStretch {
  RequestId id;
  std::uint64_t offset = 0;  ///< response tokens before the stretch
  std::uint32_t first = 0;   ///< index into the message's tokens
  std::uint32_t count = 0;
  std::uint32_t ended = 0;  ///< 1: the response ends with the stretch
  std::uint32_t age = 0;    ///< training steps since the response; above 0 only in answers
};

/// Verifier to draft server: these tokens were generated here.
struct DraftUpdate {
  draft::LogClient client = 0;
  std::vector<DraftStretch> stretches;
  std::vector<TokenId> tokens;
};

/// Verifier to draft server: asks for new tokens of these groups. One fetch is in flight at a time.
struct DraftFetch {
  draft::LogClient client = 0;
  std::uint64_t ticket = 0;  ///< the answer has the same ticket
  std::vector<draft::LogPlace> places;
  std::uint32_t earlier = 0;  ///< limit on tokens of earlier training steps in the answer
};

/// Draft server to verifier, in answer to a fetch: the tokens of other clients.
struct DraftTexts {
  draft::LogClient client = 0;
  std::uint64_t ticket = 0;
  std::uint64_t left = 0;     ///< tokens that had no room in the answer
  std::uint32_t awaited = 0;  ///< 1: the server has yet to read earlier responses of some groups
  std::vector<draft::LogPlace> places;
  std::vector<DraftStretch> stretches;
  std::vector<TokenId> tokens;
};

/// First draft server to another draft server: where the earlier responses to the receiver's
/// prompts are (EarlierResponses).
struct EarlierFound {
  std::vector<std::byte> found;
};

/// Draft server to verifier: tell me the tokens of these requests, each from `held` on.
struct DraftWanted {
  struct Missing {
    RequestId id;
    std::uint64_t held = 0;
  };
  draft::LogClient client = 0;
  std::vector<Missing> missing;
};

}  // namespace paceline::protocol
