// A drafter that knows the responses.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "runtime/draft/features.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::roles::test {

/// Says what the target will say, but for errors; it is wrong the same way whenever it is asked.
/// Its second choice is right for one in two errors. `reads`: what the runner has of the target, as
/// a head does: it drafts where it knows that of the text's last position but one.
class OracleDrafter final : public draft::Drafter, public draft::FeatureReader {
 public:
  using Holders = std::set<std::pair<RequestId, std::uint64_t>>;
  /// `holders`: gets all requests that start, each with its holder's version.
  OracleDrafter(const Responses& truth, double accuracy, bool reads = false,
                Holders* holders = nullptr)
      : truth_(truth), accuracy_(accuracy), reads_(reads), holders_(holders) {}
  void start(const draft::DraftStart& start, double) override {
    EXPECT_TRUE(sizes_.emplace(start.id, start.response.size()).second);
    EXPECT_FALSE(start.prompt.empty());
    if (holders_ != nullptr) holders_->emplace(start.id, start.version);
    prompts_[start.id.prompt].assign(start.prompt.begin(), start.prompt.end());
  }
  void commit(RequestId id, std::span<const TokenId> tokens, double) override {
    sizes_.at(id) += tokens.size();
  }
  void finish(RequestId id, double) override {
    EXPECT_EQ(sizes_.erase(id), 1U);
    features_.erase(id);
  }
  [[nodiscard]] draft::Capabilities capabilities() override {
    return {.features = reads_ ? this : nullptr, .branches = !reads_};
  }
  [[nodiscard]] std::size_t feature_bytes() const override { return sizeof(TokenId); }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override {
    std::vector<TokenId> text = prompts_.at(id.prompt);
    const std::vector<TokenId>& said = truth_.at(id).tokens;
    text.insert(text.end(), said.begin(), said.end());
    for (std::size_t i = 0; i < features.size() / sizeof(TokenId); ++i) {
      TokenId token = 0;
      std::memcpy(&token, features.data() + i * sizeof token, sizeof token);
      EXPECT_EQ(token, text.at(static_cast<std::size_t>(first) + i)) << "another position's";
    }
    features_[id].add(first, features, sizeof(TokenId));
  }
  void propose(std::span<draft::DraftSlot> batch, double, draft::Levels*) override {
    for (draft::DraftSlot& slot : batch) {
      const std::vector<TokenId>& said = truth_.at(slot.id).tokens;
      const std::size_t text = prompts_.at(slot.id.prompt).size() + sizes_.at(slot.id);
      if (reads_ && features_[slot.id].end + 1 < static_cast<std::int64_t>(text)) continue;
      std::size_t at = sizes_.at(slot.id) + slot.assumed.size();
      for (slot.count = 0; slot.count < slot.limits.max_length && at < said.size(); ++at) {
        const bool first = right(slot.id, at, accuracy_);
        slot.output.set(slot.count, first ? said[at] : (said[at] + 1) % 40, slot.count - 1, 1);
        if (!slot.runners_up.empty())
          slot.runners_up[slot.count] =
              second_right(slot.id, at, accuracy_) ? said[at] : (said[at] + 2) % 40;
        ++slot.count;
      }
    }
  }
  /// Whether it says the right token there.
  static bool right(RequestId id, std::size_t at, double accuracy) {
    std::mt19937 random(id.prompt * 1000 + id.sample * 100 + at);
    return random() % 1000 < accuracy * 1000;
  }
  /// Whether its second choice is right there.
  static bool second_right(RequestId id, std::size_t at, double accuracy) {
    return !right(id, at, accuracy) && at % 2 == 0;
  }

 private:
  const Responses& truth_;
  double accuracy_;
  bool reads_;
  Holders* holders_;
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;
  std::map<RequestId, std::size_t> sizes_;
  std::map<RequestId, draft::Features> features_;
};

}  // namespace paceline::roles::test
