// Modelled drafts: their costs are looked up, and their tokens agree with the response as often as
// the workload says.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "runtime/core/request_map.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/sim/responses.hpp"
#include "runtime/sim/world.hpp"

namespace paceline::sim {

/// A drafter of any method except a head (modelled_head.hpp). Drafts are chains. Finished siblings
/// count (MethodAcceptance::by_references) once this drafter knows their whole text: siblings that
/// finished here, and siblings whose end a draft server has told. Running siblings do not count,
/// though a real tree gains from them too. Not thread-safe.
class ModelledDrafter : public draft::Drafter,
                        public draft::LaggingState,
                        public draft::SiblingLearner,
                        public draft::MemoryGiver {
 public:
  /// `method`: index of its method in `all`, the workload's methods. References must outlive this
  /// object.
  ModelledDrafter(World& world, ActorId actor, const DrafterCosts& costs, int method,
                  const AcceptanceSettings& all, const Responses& responses)
      : world_(world),
        actor_(actor),
        costs_(costs),
        method_(method),
        learns_(!all.methods[method].by_references.empty()),
        responses_(responses) {}

  void start(const draft::DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  [[nodiscard]] int lag(RequestId id) const override { return lag(requests_.at(id)); }
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;
  [[nodiscard]] bool present() const override { return !suspended_; }
  void suspend() override;
  /// Returns true: a modelled draft model is there again at once, as loading takes no time.
  [[nodiscard]] bool resume() override;
  void hear(RequestId id, std::uint64_t offset, std::span<const TokenId> tokens, bool ended,
            double now) override;
  [[nodiscard]] draft::Capabilities capabilities() override {
    const bool computes = !costs_.catch_up.empty();
    return {.state = computes ? this : nullptr,
            .siblings = learns_ ? this : nullptr,
            .memory = computes ? this : nullptr,
            .branches = computes};
  }

 protected:
  struct DraftedRequest {
    const Response* response = nullptr;
    std::int32_t tokens = 0;          ///< committed tokens of the response
    std::int32_t computed = 0;        ///< positions, prompt included, whose KV a draft model has
    std::int32_t drafted_to = -1;     ///< positions after the last draft of its chain
    bool drafted = false;             ///< its prompt is in prompts_
    RequestDrafts::Drift drift = {};  ///< where the last draft was
  };
  [[nodiscard]] DraftedRequest& request(RequestId id) { return requests_.at(id); }
  [[nodiscard]] const Responses& responses() const { return responses_; }
  /// Number of leading tokens of the slot's assumed text that agree with the response.
  [[nodiscard]] std::int32_t right(const DraftedRequest& r, const draft::DraftSlot& slot) const;
  /// Charges the seconds of a draft of the batch. `deep`: [levels] number of slots with a token at
  /// the level. `right`: [batch] number of tokens after the committed text, assumed ones included,
  /// that agree with the response. `other_seconds`: additional seconds that the draft took.
  void spend(std::span<const draft::DraftSlot> batch, std::span<const int> deep,
             std::span<const std::int32_t> right, double other_seconds = 0);

 private:
  [[nodiscard]] int lag(const DraftedRequest& r) const;
  [[nodiscard]] int references(std::uint32_t prompt) const;
  [[nodiscard]] double first_seconds(int rows, int going_on, double context) const;
  [[nodiscard]] std::int32_t text(const DraftedRequest& r) const {
    return static_cast<std::int32_t>(r.response->prompt->tokens.size()) + r.tokens;
  }

  World& world_;
  ActorId actor_;
  const DrafterCosts& costs_;
  int method_;
  bool learns_;
  const Responses& responses_;
  RequestMap<DraftedRequest> requests_;
  std::map<std::uint32_t, std::set<std::uint32_t>> finished_;  ///< samples by prompt
  bool suspended_ = false;
  std::set<std::uint32_t> prompts_;  ///< prompts whose KV is there, for all siblings
};

}  // namespace paceline::sim
