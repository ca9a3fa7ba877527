#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>

#include "runtime/core/request.hpp"
#include "runtime/core/sampling.hpp"

namespace paceline {
namespace {

/// The first `digits` hexadecimal digits of the hash.
std::string hex_of(XXH128_hash_t hash, std::size_t digits) {
  static const char* hex = "0123456789abcdef";
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += hex[byte >> 4];
    text += hex[byte & 15];
  }
  text.resize(digits);
  return text;
}

}  // namespace

const char* name_of(FinishReason reason) {
  if (reason == FinishReason::partial) return "partial";
  constexpr std::array names{"stop_id", "length", "stop_string", "context", "turns", "failed"};
  static_assert(names.size() == static_cast<std::size_t>(FinishReason::failed) + 1);
  return name_in(names, reason);
}

std::vector<TokenId> banned_early(const SamplingParams& sampling, std::span<const TokenId> stops) {
  std::vector<TokenId> banned = sampling.masked;
  banned.insert(banned.end(), stops.begin(), stops.end());
  std::sort(banned.begin(), banned.end());
  banned.erase(std::unique(banned.begin(), banned.end()), banned.end());
  return banned;
}

void note_response(TokenNotes& notes, std::span<const TokenId> tokens,
                   std::span<const AnsweredTurn> turns) {
  std::size_t begin = 0;
  const auto note = [&](std::size_t end, bool sampled) {
    end = std::min(end, tokens.size());
    if (begin < end) notes.note(tokens.subspan(begin, end - begin), sampled);
    begin = end;
  };
  for (const AnsweredTurn& turn : turns) {
    note(turn.given, true);
    note(turn.end, false);
  }
  note(tokens.size(), true);
}

std::string content_uid(std::span<const TokenId> tokens, std::span<const PromptPicture> pictures) {
  XXH128_hash_t hash = XXH3_128bits(tokens.data(), tokens.size_bytes());
  for (const PromptPicture& picture : pictures) {
    const std::uint64_t words[4] = {hash.low64, hash.high64, picture.hash[0], picture.hash[1]};
    hash = XXH3_128bits(words, sizeof words);
  }
  return hex_of(hash, 20);
}

NoiseKey noise_key(std::uint64_t seed, std::uint64_t weight_version, std::string_view prompt_uid,
                   std::uint32_t sample_index) {
  const XXH128_hash_t uid = XXH3_128bits(prompt_uid.data(), prompt_uid.size());
  const std::uint64_t words[5] = {uid.low64, uid.high64, seed, weight_version, sample_index};
  const XXH128_hash_t hash = XXH3_128bits(words, sizeof words);
  return {hash.low64, hash.high64};
}

struct TrajectoryDigest::State {
  XXH3_state_t* hash = XXH3_createState();
};

TrajectoryDigest::TrajectoryDigest() : state_(new State) {
  if (state_->hash == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_->hash);
}

TrajectoryDigest::~TrajectoryDigest() {
  XXH3_freeState(state_->hash);
  delete state_;
}

void TrajectoryDigest::add(std::string_view uid, std::span<const TokenId> prompt,
                           const Trajectory& trajectory) {
  const auto feed = [this](const void* data, std::size_t bytes) {
    XXH3_128bits_update(state_->hash, data, bytes);
  };
  // Lengths precede contents, so that no two different inputs concatenate to the same bytes.
  const std::uint64_t header[6] = {uid.size(),
                                   prompt.size(),
                                   trajectory.tokens.size(),
                                   trajectory.id.sample,
                                   static_cast<std::uint64_t>(trajectory.finish_reason),
                                   trajectory.weight_version};
  feed(header, sizeof header);
  feed(uid.data(), uid.size());
  feed(prompt.data(), prompt.size_bytes());
  feed(trajectory.tokens.data(), trajectory.tokens.size() * sizeof(TokenId));
  feed(trajectory.logprob.data(), trajectory.logprob.size() * sizeof(float));
  feed(trajectory.sampling_logprob.data(), trajectory.sampling_logprob.size() * sizeof(float));
  for (const AnsweredTurn& turn : trajectory.turns) {
    const std::uint64_t given[3] = {turn.given, turn.end, static_cast<std::uint64_t>(turn.reason)};
    feed(given, sizeof given);
  }
}

std::string TrajectoryDigest::hex() const { return hex_of(XXH3_128bits_digest(state_->hash), 32); }

}  // namespace paceline
