#include "runtime/speculation/request_plans.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace paceline::speculation {

RequestPlans::RequestPlans(Reconfiguration how, const DrafterRoster& roster, int longest_draft)
    : how_(std::move(how)), longest_draft_(longest_draft) {
  for (const RosterEntry& entry : roster) {
    if (!entry.costs) throw std::invalid_argument("reconfiguration without costs of a drafter");
  }
}

void RequestPlans::start(RequestId id, std::uint32_t response) {
  if (how_) requests_.emplace(id, FollowedRequest{.response = response, .plan = {}});
}

const policy::RequestPlan* RequestPlans::find(RequestId id) const {
  const auto at = requests_.find(id);
  return at != requests_.end() && at->second.plan ? &*at->second.plan : nullptr;
}

bool RequestPlans::wants(const policy::RequestPlan* plan, const RosterEntry& drafter) {
  return plan == nullptr || plan->mode == (drafter.runs_ahead() ? SpeculationMode::decoupled
                                                                : SpeculationMode::coupled);
}

void RequestPlans::commit(std::span<const engine::Committed> committed, int batch) {
  batch_ = batch;
  due_.clear();
  due_index_.clear();
  changed_.clear();
  if (!how_) return;
  std::size_t index = 0;
  for (const engine::Committed& c : committed) {
    if (c.finished) {
      requests_.erase(c.id);
      continue;
    }
    const auto at = requests_.find(c.id);
    if (at == requests_.end()) {  // a request with but one drafter
      ++index;
      continue;
    }
    FollowedRequest& request = at->second;
    const std::uint32_t before = request.response;
    request.response += static_cast<std::uint32_t>(c.tokens.size());
    // A plan that was best in a large batch seldom is in one of half the size.
    const bool outlived = request.plan && 2 * batch <= request.plan_batch;
    if (outlived || policy::reconfiguration_due(before, request.response, how_->every)) {
      due_.push_back(c.id);
      due_index_.push_back(index);
    }
    ++index;
  }
}

void RequestPlans::reconfigure(const DrafterRoster& roster, double context,
                               std::span<const double> acceptance) {
  policy::ReconfigurationFacts facts;
  facts.batch = std::max(1, batch_);
  facts.drafted_for = std::max(1.0, std::ceil(facts.batch * how_->groups_per_drafter));
  for (const RosterEntry& entry : roster) {
    const bool ahead = entry.runs_ahead();
    facts.ways.push_back({ahead ? SpeculationMode::decoupled : SpeculationMode::coupled,
                          {how_->costs, *entry.costs, context, how_->max_batch},
                          !entry.drafter->present() ? 0  // the drafter is not there
                          : ahead                   ? std::min(how_->window, longest_draft_)
                                                    : longest_draft_});
  }
  const std::vector<policy::RequestPlan> plans = policy::reconfigure(facts, acceptance, due_index_);
  auto plan = plans.begin();
  for (std::size_t i = 0; i < due_.size(); ++i) {
    const bool below = plan != plans.end() && plan->request == due_index_[i];
    adopt(roster, due_[i], below ? std::optional(*plan++) : std::nullopt);
  }
}

void RequestPlans::adopt(const DrafterRoster& roster, RequestId id,
                         std::optional<policy::RequestPlan> plan) {
  FollowedRequest& request = requests_.at(id);
  request.plan_batch = batch_;
  const auto what = [](const std::optional<policy::RequestPlan>& p) {
    return p ? std::optional(std::pair(p->mode, p->window)) : std::nullopt;
  };
  const bool same = what(plan) == what(request.plan);
  request.plan = plan;
  if (same) return;
  PlannedRequest now{id, request.response, SpeculationMode::coupled,
                     static_cast<std::uint32_t>(longest_draft_)};
  for (const RosterEntry& entry : roster) {
    draft::AheadRunner* ahead = entry.drafter->capabilities().ahead;
    if (ahead == nullptr) continue;
    const bool wanted = wants(plan ? &*plan : nullptr, entry);
    ahead->set_window(id, !wanted ? 0 : plan ? plan->window : how_->window);
    if (!entry.drafter->present()) continue;
    now.mode = SpeculationMode::decoupled;
    now.longest_draft = static_cast<std::uint32_t>(how_->window);
  }
  if (plan) {
    now.mode = plan->mode;
    now.longest_draft = static_cast<std::uint32_t>(plan->window);
  }
  changed_.push_back(now);
}

}  // namespace paceline::speculation
