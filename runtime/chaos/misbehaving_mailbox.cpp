#include "runtime/chaos/misbehaving_mailbox.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <variant>

#include "runtime/protocol/messages.hpp"

namespace paceline::chaos {

using namespace protocol;

void MisbehavingMailbox::send(Address to, std::span<const std::byte> bytes) {
  if (how_ != Misbehaviour::garbage || bytes.empty() || chance(4) != 0)
    return inner_.send(to, bytes);
  std::vector<std::byte> spoilt(bytes.begin(), bytes.end());
  for (std::uint32_t i = 1 + chance(4); i > 0; --i)
    spoilt[chance(static_cast<std::uint32_t>(spoilt.size()))] = static_cast<std::byte>(chance(256));
  if (chance(4) == 0) spoilt.resize(chance(static_cast<std::uint32_t>(spoilt.size())));
  inner_.send(to, spoilt);
}

/// Misbehaves when the mailbox is empty: a drafter polls until then in every turn.
std::optional<Envelope> MisbehavingMailbox::poll() {
  std::optional<Envelope> envelope = inner_.poll();
  if (envelope) {
    heard_.insert(envelope->from.rank);
  } else if (how_ != Misbehaviour::none && !heard_.empty()) {
    misbehave();
  }
  return envelope;
}

bool MisbehavingMailbox::wait(double seconds) {
  const bool busy = how_ == Misbehaviour::flood || how_ == Misbehaviour::garbage;
  return inner_.wait(busy ? std::min(seconds, 1e-3) : seconds);
}

void MisbehavingMailbox::misbehave() {
  ++turns_;
  if (how_ == Misbehaviour::stall) {
    constexpr int kFirst = 20;  // turns before the first stall
    if (turns_ == kFirst || (turns_ > kFirst && chance(5000) == 0))
      sleep_(3 + static_cast<double>(chance(1000)) * 1e-3);
    return;
  }
  const bool floods = how_ == Misbehaviour::flood;
  for (const int rank : heard_) {
    const Address to{rank, Address::Port::role};
    for (int n = 0; n < (floods ? 5000 : 20) && !inner_.full(to); ++n)
      inner_.send(to, floods ? stale() : garbage());
  }
  if (!floods && chance(4) == 0 && !inner_.full(Address::coordinator()))
    inner_.send(Address::coordinator(), garbage());
  inner_.flush();
}

/// A well-formed draft of a text that was never said, or of a request that does not exist.
std::vector<std::byte> MisbehavingMailbox::stale() {
  Drafts drafts;
  drafts.pieces.push_back({{chance(30), chance(5)}, 0, 0, 0, 1});
  drafts.tokens.push_back(static_cast<TokenId>(chance(30)));
  drafts.scores.push_back(0.5F);
  return encode(drafts);
}

std::vector<std::byte> MisbehavingMailbox::garbage() {
  const auto anything = [&] { return static_cast<std::int32_t>(random_()); };
  switch (chance(5)) {
    case 0: {  // bytes
      std::vector<std::byte> bytes(chance(200));
      for (std::byte& b : bytes) b = static_cast<std::byte>(chance(256));
      return bytes;
    }
    case 1: {  // a message cut off, or with bytes appended
      std::vector<std::byte> bytes = stale();
      bytes.resize(chance(static_cast<std::uint32_t>(2 * bytes.size())));
      return bytes;
    }
    case 2: {  // meaningless numbers
      Drafts drafts;
      for (std::uint32_t i = 0; i < 3; ++i) {
        drafts.pieces.push_back(
            {{chance(30), chance(5)}, anything(), anything(), anything(), anything()});
        drafts.tokens.push_back(anything());
        drafts.scores.push_back(static_cast<float>(anything()));
      }
      return encode(drafts);
    }
    case 3: {  // almost valid drafts
      constexpr float kScores[] = {0.5F, 1.5F, -1, NAN, std::numeric_limits<float>::infinity()};
      Drafts drafts;
      const auto base = static_cast<std::int32_t>(chance(40));
      drafts.pieces.push_back({{chance(30), chance(5)},
                               base,
                               base - static_cast<std::int32_t>(chance(6)),
                               static_cast<std::int32_t>(chance(2)),
                               static_cast<std::int32_t>(chance(9))});
      for (std::uint32_t i = 0; i < 8; ++i) {
        drafts.tokens.push_back(chance(8) == 0 ? anything() : static_cast<TokenId>(chance(40)));
        drafts.scores.push_back(kScores[chance(5)]);
      }
      if (chance(8) == 0) drafts.scores.pop_back();
      return encode(drafts);
    }
    default: {  // messages of other roles
      // All kinds but Summary, of which the coordinator awaits one from each rank.
      constexpr std::uint32_t kLast = std::variant_size_v<Message> - 1;
      static_assert(std::is_same_v<std::variant_alternative_t<kLast, Message>, protocol::Summary>);
      return encode(protocol::of_kind(chance(kLast)));
    }
  }
}

}  // namespace paceline::chaos
